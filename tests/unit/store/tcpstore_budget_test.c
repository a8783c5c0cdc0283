/* tcpstore_budget_test.c - one budget for what all clients of a TCPStore hold: who holds most loses it. */
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

/* The length of the value; the reply is read. */
static size_t get(struct tcpstore_connection *c, const char *key)
{
    scope_buffer b = {0};
    uint64_t length = 0;
    add_query(&b, TCPSTORE_GET, key, 0);
    tcpstore_feed(c, b.data, b.length);
    const struct store_bytes out = tcpstore_output(c);
    assert_true(out.length >= sizeof length);
    memcpy(&length, out.data, sizeof length);
    tcpstore_sent(c, out.length);
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

/* What the attackers of one row do again and again, each on a connection of its own. */
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
        set(c, "/large", block, sizeof block);
    add_query(&b, TCPSTORE_MULTI_GET, NULL, 8);
    for (int i = 0; i < 8; i++)
        add_string(&b, "/large", 6);
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

/* A value that another client replaces is that one's, and stays when the first one loses what it has. */
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
        cmocka_unit_test(what_was_replaced_is_the_last_writers),
        cmocka_unit_test(the_budget_grows_with_the_job),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
