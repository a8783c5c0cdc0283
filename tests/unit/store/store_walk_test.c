/* store_walk_test.c - random requests to the store, and random bytes of several clients to the TCPStore
 * engine, within narrow limits: the replies, the woken clients, the cost; one line a seed
 * (walk.h). A request that fails, for want of memory too, changes nothing. */
#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/buffer.h"
#include "rendezvous/store/store.h"
#include "rendezvous/tcpstore/tcpstore.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/faults.h"
#include "tests/support/golden.h"
#include "tests/support/walk.h"

enum { SEEDS = 300, STEPS = 500, LIST = 6, CONNECTIONS = 4 };

static const char *const keys[] = {"a", "b",     "c",   "dd",  "ee",  "a_longer_key",
                                   "",  "init/", "/k0", "/k1", "/k2", "/k3"};
static const char *const values[] = {
    "", "1", "-7", "41", "xyz", "9223372036854775807", "12 monkeys", "0123456789abcdef"};

static struct store_bytes any(struct walk *walk, const char *const *texts, size_t count)
{
    static const char long_one[] = "0123456789012345678901234567890123456789012345678901234567890123456789";
    if (walk_one_in(walk, 25))
        return (struct store_bytes){long_one, 14 + (size_t)walk_below(walk, 40)};
    const char *text = texts[walk_below(walk, (int64_t)count)];
    return (struct store_bytes){text, strlen(text)};
}

#define ANY(walk, texts) any(walk, texts, sizeof(texts) / sizeof *(texts))

static struct store_limits narrow(struct walk *walk)
{
    if (walk_one_in(walk, 4))
        return (struct store_limits){0};
    return (struct store_limits){.key_bytes = 12 + (size_t)walk_below(walk, 8),
                                 .value_bytes = 16 + (size_t)walk_below(walk, 16),
                                 .keys = 4 + (size_t)walk_below(walk, 12),
                                 .wait_keys = 2 + (size_t)walk_below(walk, 4),
                                 .total_bytes = 600 + (size_t)walk_below(walk, 3000)};
}

static void saw_bytes(struct walk *walk, struct store_bytes bytes)
{
    walk_saw_number(walk, (int64_t)bytes.length);
    if (bytes.length)
        walk_saw(walk, bytes.data, bytes.length);
}

static void saw_stats(struct walk *walk, struct store_stats stats)
{
    const int64_t numbers[] = {(int64_t)stats.keys, (int64_t)stats.names, (int64_t)stats.bytes,
                               (int64_t)stats.parked, (int64_t)stats.round};
    walk_saw(walk, numbers, sizeof numbers);
}

static void saw_answer(struct walk *walk, const struct store_request *request,
                       const struct store_answer *answer)
{
    const int64_t numbers[] = {answer->parked, answer->found, answer->number, (int64_t)answer->count};
    int64_t names = 0; /* LIST_KEYS: in no order */
    walk_saw(walk, numbers, sizeof numbers);
    saw_bytes(walk, answer->value);
    for (size_t i = 0; i < answer->count; i++) {
        struct walk one = walk_begin(1);
        saw_bytes(&one, answer->list[i]);
        names += (int64_t)(one.digest >> 8);
        if (request->operation != STORE_LIST_KEYS)
            saw_bytes(walk, answer->list[i]);
    }
    walk_saw_number(walk, names);
}

static void one_request(struct walk *walk, struct store *s)
{
    static const int64_t numbers[] = {0, 1, 2, 3, -1, 41, INT64_MAX, INT64_MIN};
    struct store_bytes some_keys[LIST], some_values[LIST];
    struct store_answer answer;
    struct muster_error err = {0};
    struct store_request request = {.operation =
                                        (enum store_operation)walk_below(walk, STORE_OPERATION_COUNT + 1),
                                    .client = 1 + (uint64_t)walk_below(walk, 6),
                                    .key = ANY(walk, keys),
                                    .value = ANY(walk, values),
                                    .expected = ANY(walk, values),
                                    .number = walk_pick(walk, numbers),
                                    .reusable = walk_one_in(walk, 3),
                                    .keys = some_keys,
                                    .values = some_values,
                                    .count = (size_t)walk_below(walk, LIST + 1)};
    for (int i = 0; i < LIST; i++) {
        some_keys[i] = ANY(walk, keys);
        some_values[i] = ANY(walk, values);
    }
    struct store_stats before = store_stats(s);
    faults_fail_after(walk_one_in(walk, 8) ? walk_below(walk, 3) : -1);
    int result = store_step(s, &request, &answer, &err);
    faults_fail_after(-1);
    walk_saw_number(walk, result);
    saw_stats(walk, store_stats(s));
    if (result == 0) {
        saw_answer(walk, &request, &answer);
    } else {
        struct store_stats after = store_stats(s);
        walk_saw_text(walk, err.text);
        assert_memory_equal(&before, &after, sizeof after);
    }
    for (struct store_wake wake; store_next_wake(s, &wake);) {
        walk_saw_number(walk, (int64_t)wake.client);
        walk_saw_text(walk, store_wake_name(wake.reason));
    }
    if (walk_one_in(walk, 150))
        store_wipe(s);
}

static void random_requests_are_answered_as_they_were(void **state)
{
    (void)state;
    scope_buffer text = {0};
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct walk walk = walk_begin(seed);
        struct store_limits limits = narrow(&walk);
        faults_begin();
        struct store *s = store_create(&limits, NULL);
        struct store_limits in_force = store_limits_of(s);
        const int64_t bounds[] = {(int64_t)in_force.key_bytes, (int64_t)in_force.value_bytes,
                                  (int64_t)in_force.keys, (int64_t)in_force.wait_keys,
                                  (int64_t)in_force.total_bytes};
        walk_saw(&walk, bounds, sizeof bounds);
        for (int i = 0; i < STEPS; i++)
            one_request(&walk, s);
        store_wipe(s);
        for (struct store_wake wake; store_next_wake(s, &wake);)
            assert_int_equal(wake.reason, STORE_WAKE_WIPED);
        assert_int_equal(store_stats(s).bytes, 0);
        store_destroy(s);
        assert_int_equal(faults_end(), 0);
        buffer_printf(&text, "%llu: %016llx\n", (unsigned long long)seed, (unsigned long long)walk.digest);
    }
    golden_check("tests/unit/store/golden/store_walks.txt", &text);
}

static void names_outside_the_lists(void **state)
{
    (void)state;
    for (int i = -1; i <= STORE_OPERATION_COUNT; i++)
        assert_int_equal(strcmp(store_operation_name(i), "unknown") == 0,
                         i < 0 || i == STORE_OPERATION_COUNT);
    for (int i = -1; i <= 2; i++)
        assert_int_equal(strcmp(store_wake_name(i), "unknown") == 0, i < 0 || i == 2);
    for (int i = -1; i <= TCPSTORE_QUERY_COUNT; i++)
        assert_int_equal(strcmp(tcpstore_query_name(i), "unknown") == 0, i < 0 || i == TCPSTORE_QUERY_COUNT);
    for (int i = -1; i <= TCPSTORE_STATE_BROKEN + 1; i++)
        assert_int_equal(strcmp(tcpstore_state_name(i), "unknown") == 0, i < 0 || i > TCPSTORE_STATE_BROKEN);
}

/* Sums and barriers over many names: the table grows, and all are still there. */
static void many_names(void **state)
{
    (void)state;
    enum { MANY = 5000 };
    struct store *s = store_create(NULL, NULL);
    struct store_answer answer;
    char name[16];
    for (int pass = 1; pass <= 3; pass++)
        for (int i = 0; i < MANY; i++) {
            (void)snprintf(name, sizeof name, "n%d", i);
            struct store_request request = {
                .operation = pass < 3 ? STORE_ADD : STORE_DELETE, .key = {name, strlen(name)}, .number = i};
            assert_int_equal(store_step(s, &request, &answer, NULL), 0);
            assert_int_equal(answer.number, pass < 3 ? pass * i : 1);
            assert_int_equal(store_stats(s).keys, pass == 1 ? i + 1 : pass == 2 ? MANY : MANY - 1 - i);
        }
    assert_int_equal(store_stats(s).bytes, 0);
    store_destroy(s);
    struct store_limits limits = store_limits_default();
    assert_int_equal(limits.key_bytes, 8 << 10);
    assert_int_equal(limits.value_bytes, 8 << 20);
    assert_int_equal(limits.keys, 1 << 20);
    assert_int_equal(limits.wait_keys, 131072);
    assert_int_equal(limits.total_bytes, 256 << 20);
}

/* -- the engine -- */

static void put_number(struct buffer *out, int64_t number, bool small)
{
    uint64_t wire = htole64((uint64_t)number);
    assert_int_equal(buffer_append(out, &wire, small ? 4 : 8), 0);
}

static void put_bytes(struct buffer *out, struct store_bytes bytes)
{
    put_number(out, (int64_t)bytes.length, false);
    assert_int_equal(buffer_append(out, bytes.data, bytes.length), 0);
}

/* One request, mostly well formed; its query as this dialect numbers it. */
static void put_request(struct walk *walk, bool old, struct buffer *out)
{
#define QUERY_BODY(symbol, name, body) body,
    static const char *const bodies[] = {TCPSTORE_QUERIES(QUERY_BODY)};
    int query = 1 + (int)walk_below(walk, TCPSTORE_QUERY_COUNT - 1);
    char number = (char)(query - old);
    assert_int_equal(buffer_append(out, &number, 1), 0);
    for (const char *at = bodies[query]; *at; at++) {
        int64_t count = walk_one_in(walk, 12) ? walk_below(walk, 8) : 1 + walk_below(walk, 2);
        switch (*at) {
        case 'u':
            put_number(out, walk_below(walk, 100), true);
            break;
        case 'i':
            put_number(out, walk_below(walk, 5) - 1, false);
            break;
        case 'k':
            put_bytes(out, ANY(walk, keys));
            break;
        case 'v':
            put_bytes(out, ANY(walk, values));
            break;
        default:
            put_number(out, count, false);
            for (; count > 0; count--) {
                put_bytes(out, ANY(walk, keys));
                if (*at == 'P')
                    put_bytes(out, ANY(walk, values));
            }
        }
    }
    if (walk_one_in(walk, 60))
        out->data[walk_below(walk, (int64_t)out->length)] ^= (char)(1 << walk_below(walk, 8));
}

static void greet(struct walk *walk, struct tcpstore_connection *c, bool old)
{
    static const char validate[] = {0x00, (char)0xCE, (char)0xF7, (char)0x85, 0x3C};
    static const char ours[] = TCPSTORE_MUSTER_KEY;
    scope_buffer out = {0};
    if (!old)
        assert_int_equal(buffer_append(&out, validate, sizeof validate), 0);
    if (!old && walk_one_in(walk, 2)) {
        const char check = TCPSTORE_CHECK;
        assert_int_equal(buffer_append(&out, &check, 1), 0);
        put_number(&out, 1, false);
        put_bytes(&out, (struct store_bytes){ours, sizeof ours - 1});
    }
    if (out.length)
        tcpstore_feed(c, out.data, out.length);
}

static void settle(struct walk *walk, struct tcpstore *t, struct tcpstore_connection **all)
{
    for (struct tcpstore_connection *c; (c = tcpstore_next_touched(t));) {
        int64_t *owner = tcpstore_owner(c);
        struct store_bytes out = tcpstore_output(c);
        walk_saw_number(walk, *owner);
        walk_saw_text(walk, tcpstore_state_name((int)tcpstore_state(c)));
        walk_saw_number(walk, tcpstore_wants_input(c));
        if (tcpstore_state(c) == TCPSTORE_STATE_BROKEN) {
            walk_saw_text(walk, tcpstore_broken_reason(c)->text);
            tcpstore_close(c);
            all[*owner] = tcpstore_open(t, owner, NULL);
            greet(walk, all[*owner], *owner == 0);
        } else if (out.length) {
            size_t sent =
                walk_one_in(walk, 3) ? 1 + (size_t)walk_below(walk, (int64_t)out.length) : out.length;
            walk_saw(walk, out.data, sent);
            tcpstore_sent(c, sent);
        }
    }
    walk_saw_number(walk, (int64_t)tcpstore_served(t));
    saw_stats(walk, tcpstore_stats(t));
}

static void random_clients_are_served_as_they_were(void **state)
{
    (void)state;
    scope_buffer text = {0};
    uint64_t served = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct walk walk = walk_begin(seed);
        struct store_limits limits = narrow(&walk);
        struct tcpstore_connection *all[CONNECTIONS];
        int64_t owners[CONNECTIONS];
        faults_begin();
        struct tcpstore *t = tcpstore_create(&limits, NULL);
        for (int i = 0; i < CONNECTIONS; i++) {
            owners[i] = i;
            all[i] = tcpstore_open(t, &owners[i], NULL);
            greet(&walk, all[i], i == 0); /* a client of torch 2.1 */
        }
        for (int i = 0; i < STEPS / 2; i++) {
            int64_t number = walk_below(&walk, CONNECTIONS);
            scope_buffer out = {0};
            for (int64_t more = walk_below(&walk, 3); more >= 0; more--)
                put_request(&walk, number == 0, &out);
            if (walk_one_in(&walk, 40)) {
                tcpstore_close(all[number]);
                all[number] = tcpstore_open(t, &owners[number], NULL);
                greet(&walk, all[number], number == 0);
            }
            if (walk_one_in(&walk, 20))
                faults_fail_after(walk_below(&walk, 4));
            for (size_t at = 0; at < out.length && tcpstore_wants_input(all[number]);) { /* in pieces */
                size_t piece = 1 + (size_t)walk_below(&walk, (int64_t)(out.length - at));
                tcpstore_feed(all[number], out.data + at, piece);
                at += piece;
            }
            faults_fail_after(-1);
            settle(&walk, t, all);
            if (walk_one_in(&walk, 100))
                tcpstore_wipe(t);
        }
        served += tcpstore_served(t);
        tcpstore_destroy(t);
        assert_int_equal(faults_end(), 0);
        buffer_printf(&text, "%llu: %016llx\n", (unsigned long long)seed, (unsigned long long)walk.digest);
    }
    assert_true(served > (uint64_t)SEEDS * 50); /* or the walks do not go far */
    golden_check("tests/unit/store/golden/tcpstore_walks.txt", &text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_requests_are_answered_as_they_were),
        cmocka_unit_test(names_outside_the_lists),
        cmocka_unit_test(many_names),
        cmocka_unit_test(random_clients_are_served_as_they_were),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
