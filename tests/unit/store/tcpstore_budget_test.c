/* tcpstore_budget_test.c - one budget for the memory of all clients of a TCPStore, each byte counted once:
 * the client with most memory loses it. */
#include "rendezvous/tcpstore/tcpstore.h"

#include <endian.h>

#include "proto/base/buffer.h"
#include "tests/support/cmocka_all.h"

enum { BUDGET = 1 << 20, CROWD = 12 };

static struct tcpstore *engine;
static char block[64 << 10];

static void add_number(struct buffer *b, uint64_t value)
{
    value = htole64(value);
    assert_int_equal(buffer_append(b, &value, sizeof value), 0);
}

static void add_string(struct buffer *b, const void *data, size_t length)
{
    add_number(b, length);
    assert_int_equal(buffer_append(b, data, length), 0);
}

/* The query with its key, or with the count of its keys. */
static void add_query(struct buffer *b, enum tcpstore_query query, const char *key, uint64_t count)
{
    const char byte = (char)query;
    assert_int_equal(buffer_append(b, &byte, 1), 0);
    if (key)
        add_string(b, key, strlen(key));
    else
        add_number(b, count);
}

static void begin(void)
{
    const struct store_limits limits = {.total_bytes = BUDGET};
    engine = tcpstore_create(&limits, NULL);
    assert_non_null(engine);
    assert_int_equal(tcpstore_held(engine), 0);
}

static struct tcpstore_connection *greet(void)
{
    static const unsigned char hello[] = {0, 0xCE, 0xF7, 0x85, 0x3C};
    struct tcpstore_connection *c = tcpstore_open(engine, NULL, NULL);
    assert_non_null(c);
    tcpstore_feed(c, hello, sizeof hello);
    return c;
}

static bool is_broken(const struct tcpstore_connection *c)
{
    return tcpstore_state(c) == TCPSTORE_STATE_BROKEN;
}

static void set(struct tcpstore_connection *c, const char *key, const void *value, size_t length)
{
    scope_buffer b = {0};
    add_query(&b, TCPSTORE_SET, key, 0);
    add_string(&b, value, length);
    tcpstore_feed(c, b.data, b.length);
}

/* Reads all that waits, as a socket that takes some thousand bytes at a time. */
static void drain(struct tcpstore_connection *c, struct buffer *out)
{
    struct iovec runs[3];
    for (size_t count; (count = tcpstore_output_runs(c, runs, 3)) > 0;) {
        size_t taken = 0;
        for (size_t i = 0; i < count; i++) {
            const size_t some = runs[i].iov_len < 5000 ? runs[i].iov_len : 5000;
            assert_true(runs[i].iov_len > 0);
            assert_int_equal(buffer_append(out, runs[i].iov_base, some), 0);
            taken += some;
            if (some < runs[i].iov_len)
                break;
        }
        tcpstore_sent(c, taken);
    }
}

static void ask(struct tcpstore_connection *c, enum tcpstore_query query, const char *key)
{
    scope_buffer b = {0};
    add_query(&b, query, key, 0);
    tcpstore_feed(c, b.data, b.length);
}

/* The length of the value; the reply is read. */
static size_t get(struct tcpstore_connection *c, const char *key)
{
    scope_buffer out = {0};
    uint64_t length = 0;
    ask(c, TCPSTORE_GET, key);
    drain(c, &out);
    assert_true(out.length >= sizeof length);
    memcpy(&length, out.data, sizeof length);
    assert_int_equal(out.length, sizeof length + le64toh(length));
    return (size_t)le64toh(length);
}

/* As the shell does it. Returns how many were. */
static int close_broken(struct tcpstore_connection **all, int count)
{
    int broken = 0;
    while (tcpstore_next_touched(engine))
        ;
    for (int i = 0; i < count; i++)
        if (all[i] && is_broken(all[i])) {
            broken++;
            tcpstore_close(all[i]);
            all[i] = NULL;
        }
    return broken;
}

/* The repeated action of a row's attackers, each on its own connection. */
typedef void attack(struct tcpstore_connection *c, int number);

static void unfinished_request(struct tcpstore_connection *c, int number)
{
    scope_buffer b = {0};
    if (number == 0)
        add_query(&b, TCPSTORE_MULTI_SET, NULL, 1000);
    add_string(&b, "/key", 4);
    add_string(&b, block, sizeof block);
    tcpstore_feed(c, b.data, b.length);
}

static void unread_replies(struct tcpstore_connection *c, int number)
{
    scope_buffer b = {0};
    if (number == 0)
        set(c, "/small", block, 1000); /* a larger one would be the same memory each time */
    add_query(&b, TCPSTORE_MULTI_GET, NULL, 500);
    for (int i = 0; i < 500; i++)
        add_string(&b, "/small", 6);
    tcpstore_feed(c, b.data, b.length);
}

static void many_values(struct tcpstore_connection *c, int number)
{
    char key[40];
    (void)snprintf(key, sizeof key, "/%p/%d", (void *)c, number);
    set(c, key, block, sizeof block);
}

static void one_value_that_grows(struct tcpstore_connection *c, int number)
{
    scope_buffer b = {0};
    char key[40];
    (void)number;
    (void)snprintf(key, sizeof key, "/%p", (void *)c);
    add_query(&b, TCPSTORE_APPEND, key, 0);
    add_string(&b, block, sizeof block);
    tcpstore_feed(c, b.data, b.length);
}

static void queue_items(struct tcpstore_connection *c, int number)
{
    scope_buffer b = {0};
    (void)number;
    add_query(&b, TCPSTORE_QUEUE_PUSH, "/queue", 0); /* one for all */
    add_string(&b, block, sizeof block);
    tcpstore_feed(c, b.data, b.length);
}

static void parked_waits(struct tcpstore_connection *c, int number)
{
    scope_buffer b = {0};
    char key[40];
    if (number) /* one a client */
        return;
    add_query(&b, TCPSTORE_WAIT, NULL, 1000);
    for (int i = 0; i < 1000; i++) {
        (void)snprintf(key, sizeof key, "/never/%p/%d", (void *)c, i);
        add_string(&b, key, strlen(key));
    }
    tcpstore_feed(c, b.data, b.length);
}

static void many_strings(struct tcpstore_connection *c, int number)
{
    scope_buffer b = {0};
    if (number == 0)
        add_query(&b, TCPSTORE_CHECK, NULL, 131072);
    for (int i = 0; i < 5000; i++)
        add_string(&b, "", 0);
    tcpstore_feed(c, b.data, b.length);
}

static void values_of_clients_that_leave(struct tcpstore_connection *c, int number)
{
    struct tcpstore_connection *visitor = greet();
    char key[40];
    (void)snprintf(key, sizeof key, "/_%p/%d", (void *)c, number);
    for (int i = 0; i < 4 && !is_broken(visitor); i++) {
        key[1] = (char)('a' + i);
        set(visitor, key, block, sizeof block);
    }
    while (tcpstore_next_touched(engine))
        ;
    tcpstore_close(visitor);
}

static void play(attack *row)
{
    struct tcpstore_connection *attackers[CROWD];
    int closed = 0;
    begin();
    struct tcpstore_connection *worker = greet(), *waiter = greet();
    scope_buffer wait = {0};
    add_query(&wait, TCPSTORE_WAIT, NULL, 1);
    add_string(&wait, "/come", 5);
    tcpstore_feed(waiter, wait.data, wait.length);
    set(worker, "/address", "10.0.0.1", 8);
    for (int i = 0; i < CROWD; i++)
        attackers[i] = greet();
    for (int number = 0; number < 40; number++) {
        for (int i = 0; i < CROWD; i++)
            if (attackers[i])
                row(attackers[i], number);
        assert_true(tcpstore_held(engine) <= BUDGET);
        closed += close_broken(attackers, CROWD);
        assert_false(is_broken(worker));
        assert_false(is_broken(waiter));
        char key[20];
        (void)snprintf(key, sizeof key, "/step/%d", number);
        set(worker, key, "x", 1);
        assert_int_equal(get(worker, key), 1);
    }
    assert_int_equal(get(worker, "/address"), 8);
    assert_true(tcpstore_crowded_out(engine) > 0); /* the budget was reached */
    assert_true(closed > 0 || row == values_of_clients_that_leave);
    assert_int_equal(tcpstore_state(waiter), TCPSTORE_STATE_PARKED);
    set(worker, "/come", "", 0);
    assert_int_equal(tcpstore_output(waiter).length, 1);
    for (int i = 0; i < CROWD; i++)
        tcpstore_close(attackers[i]);
    tcpstore_close(worker);
    tcpstore_close(waiter);
    tcpstore_wipe(engine);
    assert_int_equal(tcpstore_held(engine), 0); /* each account is even at the end */
    tcpstore_destroy(engine);
}

static void workers_go_on_below_the_budget(void **state)
{
    static attack *const rows[] = {
        unfinished_request, unread_replies, many_values,  one_value_that_grows,
        queue_items,        parked_waits,   many_strings, values_of_clients_that_leave};
    (void)state;
    for (size_t row = 0; row < sizeof rows / sizeof *rows; row++)
        play(rows[row]);
}

static void the_reason_names_amount_and_limit(void **state)
{
    (void)state;
    begin();
    struct tcpstore_connection *c = greet();
    for (int i = 0; i < 40 && !is_broken(c); i++)
        unfinished_request(c, i);
    assert_true(is_broken(c));
    assert_int_equal(tcpstore_broken_reason(c)->code, MUSTER_E_LIMIT);
    assert_non_null(strstr(tcpstore_broken_reason(c)->text, "1048576"));
    assert_non_null(strstr(tcpstore_broken_reason(c)->text, "--store-memory"));
    tcpstore_destroy(engine);
}

/* Requests in pieces of so many bytes. */
static void feed_in_pieces(struct tcpstore_connection *c, const struct buffer *b, size_t piece)
{
    for (size_t at = 0; at < b->length && !is_broken(c); at += piece)
        tcpstore_feed(c, b->data + at, b->length - at < piece ? b->length - at : piece);
}

/* MULTI_SET or MULTI_GET of the keys /0, /1, ...; values of each length are of one letter. */
static void add_many(struct buffer *b, enum tcpstore_query query, size_t count, size_t length)
{
    scope_buffer value = {0};
    add_query(b, query, NULL, count);
    for (size_t i = 0; i < count; i++) {
        char key[30];
        (void)snprintf(key, sizeof key, "/%zu", i);
        add_string(b, key, strlen(key));
        buffer_clear(&value);
        assert_non_null(buffer_reserve(&value, length));
        memset(value.data, (int)('a' + i % 26), length);
        if (query == TCPSTORE_MULTI_SET)
            add_string(b, value.data, length);
    }
}

static void expect_many(const struct buffer *out, size_t count, size_t length)
{
    assert_int_equal(out->length, count * (sizeof(uint64_t) + length));
    for (size_t i = 0; i < count; i++) {
        const char *at = out->data + i * (sizeof(uint64_t) + length);
        uint64_t said;
        memcpy(&said, at, sizeof said);
        assert_int_equal(le64toh(said), length);
        assert_int_equal(at[sizeof(uint64_t)], 'a' + i % 26);
        assert_int_equal(at[sizeof(uint64_t) + length - 1], 'a' + i % 26);
    }
}

/* Three quarters of the budget are written at once and read at once by two clients: each byte is held once.
 */
static void a_value_is_held_once(void **state)
{
    static const struct {
        size_t count, length, piece;
    } rows[] = {
        {6, 128 << 10, 64 << 10}, {6, 128 << 10, 1 << 20}, {600, 1280, 64 << 10}, {3, 256 << 10, 1000}};
    (void)state;
    for (size_t row = 0; row < sizeof rows / sizeof *rows; row++) {
        const size_t bytes = rows[row].count * rows[row].length;
        scope_buffer write = {0}, ask_all = {0};
        begin();
        struct tcpstore_connection *writer = greet(), *readers[] = {greet(), greet()};
        add_many(&write, TCPSTORE_MULTI_SET, rows[row].count, rows[row].length);
        feed_in_pieces(writer, &write, rows[row].piece);
        assert_false(is_broken(writer));
        add_many(&ask_all, TCPSTORE_MULTI_GET, rows[row].count, 0);
        for (int i = 0; i < 2; i++)
            tcpstore_feed(readers[i], ask_all.data, ask_all.length);
        assert_in_range(tcpstore_held(engine), bytes, bytes + bytes / 4);
        for (int i = 0; i < 2; i++) {
            scope_buffer out = {0};
            assert_false(is_broken(readers[i]));
            drain(readers[i], &out);
            expect_many(&out, rows[row].count, rows[row].length);
        }
        assert_int_equal(tcpstore_crowded_out(engine), 0);
        tcpstore_destroy(engine);
    }
}

/* An unread reply keeps its value: the reader is charged for the value, not the writer. */
static void an_unread_value_is_its_readers(void **state)
{
    (void)state;
    for (int change = 0; change < 5; change++) {
        scope_buffer out = {0};
        begin();
        struct tcpstore_connection *writer = greet(), *reader = greet(), *second = greet();
        memset(block, 'o', sizeof block);
        set(writer, "/large", block, 50000);
        ask(reader, TCPSTORE_GET, "/large");
        ask(second, TCPSTORE_GET, "/large");
        const size_t before = tcpstore_held(engine);
        memset(block, 'n', sizeof block);
        if (change == 0) {
            set(writer, "/large", block, 50000);
        } else if (change == 1) {
            scope_buffer b = {0};
            add_query(&b, TCPSTORE_APPEND, "/large", 0);
            add_string(&b, block, 10);
            tcpstore_feed(writer, b.data, b.length);
            assert_int_equal(get(writer, "/large"), 50010);
        } else if (change == 2) {
            ask(writer, TCPSTORE_DELETE_KEY, "/large");
        } else if (change == 3) {
            tcpstore_close(writer);
            writer = NULL;
        } else {
            for (int i = 0; i < 40 && !is_broken(writer); i++)
                many_values(writer, i);
            (void)close_broken(&writer, 1);
            assert_null(writer);
        }
        if (change < 2)
            assert_in_range(tcpstore_held(engine), before + 50000, before + 101000);
        else
            assert_in_range(tcpstore_held(engine), 50000, 52000);
        tcpstore_close(second); /* the other reader is charged now */
        drain(reader, &out);
        assert_int_equal(out.length, 50008);
        assert_int_equal(out.data[8], 'o');
        assert_int_equal(out.data[50007], 'o');
        if (change == 2 || change == 4)
            assert_true(tcpstore_held(engine) < 5000);
        tcpstore_destroy(engine);
        memset(block, 0, sizeof block);
    }
}

/* A queue's item is received, held and sent as one copy too. */
static void an_item_is_held_once(void **state)
{
    (void)state;
    scope_buffer b = {0}, out = {0};
    const size_t length = BUDGET * 3 / 4;
    begin();
    struct tcpstore_connection *c = greet(), *popper = greet();
    add_query(&b, TCPSTORE_QUEUE_PUSH, "/queue", 0);
    add_number(&b, length);
    for (size_t i = 0; i < length; i += sizeof block)
        assert_int_equal(buffer_append(&b, block, length - i < sizeof block ? length - i : sizeof block), 0);
    feed_in_pieces(c, &b, 64 << 10);
    ask(popper, TCPSTORE_QUEUE_POP, "/queue");
    assert_false(is_broken(c) || is_broken(popper));
    assert_in_range(tcpstore_held(engine), length, length * 5 / 4);
    tcpstore_close(c); /* the item is the popper's */
    drain(popper, &out);
    assert_int_equal(out.length, length + 16);
    assert_true(tcpstore_held(engine) < 5000);
    tcpstore_destroy(engine);
}

/* The values of a worker never outweigh an attacker: unfinished requests and unread replies go first. */
static void what_is_unfinished_goes_before_values(void **state)
{
    (void)state;
    begin();
    struct tcpstore_connection *worker = greet(), *attackers[4];
    for (int i = 0; i < 8; i++)
        many_values(worker, i); /* half of the budget */
    for (int i = 0; i < 4; i++)
        attackers[i] = greet();
    for (int number = 0; number < 6; number++)
        for (int i = 0; i < 4; i++)
            if (attackers[i] && !is_broken(attackers[i]))
                unfinished_request(attackers[i], number);
    assert_true(tcpstore_crowded_out(engine) > 0);
    assert_false(is_broken(worker));
    assert_true(close_broken(attackers, 4) > 0);
    tcpstore_destroy(engine);
}

/* A value that another client replaces belongs to that client, and stays when the first client loses its
 * values. */
static void what_was_replaced_is_the_last_writers(void **state)
{
    (void)state;
    begin();
    struct tcpstore_connection *greedy = greet(), *worker = greet();
    set(greedy, "/small", "12345678", 8);
    set(greedy, "/large", block, 1000);
    set(worker, "/small", "abc", 3); /* into the same block */
    set(worker, "/large", block, 2000);
    for (int i = 0; i < 40 && !is_broken(greedy); i++)
        many_values(greedy, i);
    assert_true(is_broken(greedy));
    (void)close_broken(&greedy, 1);
    assert_int_equal(get(worker, "/small"), 3);
    assert_int_equal(get(worker, "/large"), 2000);
    assert_true(tcpstore_held(engine) < 20000);
    tcpstore_close(worker);
    tcpstore_destroy(engine);
}

static void the_budget_grows_with_the_job(void **state)
{
    (void)state;
    assert_int_equal(tcpstore_budget(0), TCPSTORE_BUDGET);
    assert_int_equal(tcpstore_budget(8), TCPSTORE_BUDGET + 8 * TCPSTORE_BUDGET_EACH);
    assert_int_equal(tcpstore_budget(SIZE_MAX), TCPSTORE_BUDGET_LIMIT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(workers_go_on_below_the_budget),
        cmocka_unit_test(the_reason_names_amount_and_limit),
        cmocka_unit_test(a_value_is_held_once),
        cmocka_unit_test(an_unread_value_is_its_readers),
        cmocka_unit_test(an_item_is_held_once),
        cmocka_unit_test(what_is_unfinished_goes_before_values),
        cmocka_unit_test(what_was_replaced_is_the_last_writers),
        cmocka_unit_test(the_budget_grows_with_the_job),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
