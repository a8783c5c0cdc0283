/* store_test.c - the key-value engine: semantics, waits, bounds, accounting and failing memory. */
#include "rendezvous/store/store.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "proto/base/mem.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/faults.h"

static struct store_bytes text(const char *t)
{
    return (struct store_bytes){t, strlen(t)};
}

static struct store_answer must(struct store *s, struct store_request request)
{
    struct store_answer answer;
    struct muster_error err = {0};
    if (store_step(s, &request, &answer, &err))
        fail_msg("%s: %s", store_operation_name(request.operation), err.text);
    return answer;
}

static struct store_answer ask(struct store *s, enum store_operation operation, const char *key)
{
    return must(s, (struct store_request){.operation = operation, .key = text(key)});
}

static void set(struct store *s, const char *key, const char *value)
{
    must(s, (struct store_request){.operation = STORE_SET, .key = text(key), .value = text(value)});
}

static struct store_answer add(struct store *s, const char *key, int64_t delta)
{
    return must(s, (struct store_request){.operation = STORE_ADD, .key = text(key), .number = delta});
}

static bool wait2(struct store *s, uint64_t client, const char *a, const char *b)
{
    struct store_bytes keys[2] = {text(a), b ? text(b) : text("")};
    return must(s,
                (struct store_request){
                    .operation = STORE_WAIT, .client = client, .keys = keys, .count = b ? 2 : 1})
        .parked;
}

static bool barrier(struct store *s, uint64_t client, const char *key, int64_t world)
{
    return must(s,
                (struct store_request){
                    .operation = STORE_BARRIER, .client = client, .key = text(key), .number = world})
        .parked;
}

/* "3 ready, 4 wiped" */
static const char *wakes(struct store *s)
{
    static char out[256];
    struct store_wake wake;
    size_t used = 0;
    out[0] = '\0';
    while (store_next_wake(s, &wake))
        used += (size_t)snprintf(out + used, sizeof out - used, "%s%" PRIu64 " %s", used ? ", " : "",
                                 wake.client, store_wake_name(wake.reason));
    return out;
}

static void value_is(struct store_answer answer, const char *value)
{
    assert_int_equal(answer.value.length, strlen(value));
    if (*value)
        assert_memory_equal(answer.value.data, value, strlen(value));
}

static void values(void **state)
{
    (void)state;
    struct store *s = store_create(NULL, NULL);
    assert_false(ask(s, STORE_GET, "a").found);
    set(s, "a", "1");
    value_is(ask(s, STORE_GET, "a"), "1");
    must(s, (struct store_request){.operation = STORE_SET, .key = text("a"), .value = {"x\0y", 3}});
    assert_int_equal(ask(s, STORE_GET, "a").value.length, 3);
    set(s, "a", "");
    assert_true(ask(s, STORE_GET, "a").found);
    value_is(ask(s, STORE_GET, "a"), "");
    set(s, "", "the empty key is a key");
    value_is(ask(s, STORE_GET, ""), "the empty key is a key");
    assert_int_equal(ask(s, STORE_NUM_KEYS, "").number, 2);
    assert_int_equal(ask(s, STORE_DELETE, "a").number, 1);
    assert_int_equal(ask(s, STORE_DELETE, "a").number, 0);
    for (int i = 0; i < 100; i++)
        must(s,
             (struct store_request){.operation = STORE_APPEND, .key = text("log"), .value = text("line ")});
    assert_int_equal(ask(s, STORE_GET, "log").value.length, 500);
    store_wipe(s);
    assert_int_equal(store_stats(s).bytes, 0);
    assert_int_equal(store_stats(s).names, 0);
    assert_int_equal(store_stats(s).round, 1);
    store_destroy(s);
}

static void multi_set(struct store *s, const struct store_bytes *keys, const struct store_bytes *values,
                      size_t count)
{
    must(s, (struct store_request){
                .operation = STORE_MULTI_SET, .keys = keys, .values = values, .count = count});
}

/* A small value takes the block of the one before it; a large block is given back. */
static void values_in_their_old_blocks(void **state)
{
    (void)state;
    struct store *s = store_create(NULL, NULL);
    char large[1000] = {0};
    set(s, "k", "twelve bytes");
    size_t bytes = store_stats(s).bytes;
    set(s, "k", "four");
    value_is(ask(s, STORE_GET, "k"), "four");
    set(s, "k", "");
    value_is(ask(s, STORE_GET, "k"), "");
    set(s, "k", "another dozen"); /* one more than fits */
    assert_int_equal(store_stats(s).bytes, bytes + 1);
    must(s, (struct store_request){.operation = STORE_APPEND, .key = text("k"), .value = text("!")});
    value_is(ask(s, STORE_GET, "k"), "another dozen!");
    must(s, (struct store_request){.operation = STORE_SET, .key = text("k"), .value = {large, sizeof large}});
    set(s, "k", "four");
    assert_int_equal(store_stats(s).bytes, bytes - 8);
    /* The same key again and again in one request: longer and shorter than its block, the last one stays. */
    struct store_bytes keys[] = {text("k"), text("k"), text("k"), text("new"), text("new"), text("k")};
    struct store_bytes values[] = {text("five5"), text("3 c"), text("seven 7"),
                                   text(""),      text("n"),   text("4444")};
    multi_set(s, keys, values, 6);
    value_is(ask(s, STORE_GET, "k"), "4444");
    value_is(ask(s, STORE_GET, "new"), "n");
    assert_int_equal(ask(s, STORE_NUM_KEYS, "").number, 2);
    /* Waited for and not there: an empty value needs no block. */
    assert_true(wait2(s, 1, "empty", NULL));
    set(s, "empty", "");
    assert_string_equal(wakes(s), "1 ready");
    store_wipe(s);
    assert_int_equal(store_stats(s).bytes, 0);
    store_destroy(s);
}

/* Names that differ in one byte, in their length, or by a zero at the end. */
static void names_of_every_length(void **state)
{
    (void)state;
    enum { LONGEST = 40 };
    struct store *s = store_create(NULL, NULL);
    char name[LONGEST + 1] = {0};
    for (size_t length = 0; length <= LONGEST; length++) {
        for (size_t at = 0; at <= length; at++) {
            if (at < length)
                name[at] = 'x'; /* else all are zero */
            struct store_bytes key = {name, length};
            assert_int_equal(
                must(s, (struct store_request){.operation = STORE_ADD, .key = key, .number = 1}).number, 1);
            assert_int_equal(
                must(s, (struct store_request){.operation = STORE_ADD, .key = key, .number = 1}).number, 2);
            if (at < length)
                name[at] = 0;
        }
    }
    assert_int_equal(ask(s, STORE_NUM_KEYS, "").number, (LONGEST + 1) * (LONGEST + 2) / 2);
    store_destroy(s);
}

static void counters(void **state)
{
    (void)state;
    struct store *s = store_create(NULL, NULL);
    struct muster_error err = {0};
    struct store_answer answer;
    assert_int_equal(add(s, "n", 5).number, 5);
    assert_int_equal(add(s, "n", -7).number, -2);
    value_is(ask(s, STORE_GET, "n"), "-2");
    set(s, "n", "41");
    assert_int_equal(add(s, "n", 1).number, 42);
    set(s, "n", "soon");
    struct store_request request = {.operation = STORE_ADD, .key = text("n"), .number = 1};
    assert_int_equal(store_step(s, &request, &answer, &err), -1);
    assert_int_equal(err.code, MUSTER_E_INVALID);
    assert_non_null(strstr(err.text, "\"soon\""));
    value_is(ask(s, STORE_GET, "n"), "soon");
    set(s, "n", "9223372036854775807");
    assert_int_equal(add(s, "n", 1).number, INT64_MIN); /* wraps */
    assert_int_equal(add(s, "n", 0).number, INT64_MIN);
    /* what C++'s stoll refuses is refused */
    static const char *const words[] = {"99999999999999999999999999",
                                        "9223372036854775808",
                                        "-9223372036854775809",
                                        "",
                                        " ",
                                        "-",
                                        "+ 1",
                                        "--1",
                                        "x1"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        set(s, "n", words[i]);
        assert_int_equal(store_step(s, &request, &answer, &err), -1);
        assert_int_equal(err.code, MUSTER_E_INVALID);
        value_is(ask(s, STORE_GET, "n"), words[i]);
    }
    set(s, "n", "   7"); /* a shorter value in the same memory */
    set(s, "n", "  ");
    assert_int_equal(store_step(s, &request, &answer, &err), -1);
    /* and it gets its values */
    set(s, "n", " \n+12abc");
    assert_int_equal(add(s, "n", 1).number, 13);
    set(s, "n", "\t-7.5");
    assert_int_equal(add(s, "n", 0).number, -7);
    must(s, (struct store_request){.operation = STORE_SET, .key = text("n"), .value = {"1\0002", 3}});
    assert_int_equal(add(s, "n", 1).number, 2);
    store_destroy(s);
}

static struct store_answer compare_set(struct store *s, const char *expected, const char *desired)
{
    return must(s, (struct store_request){.operation = STORE_COMPARE_SET,
                                          .key = text("k"),
                                          .expected = text(expected),
                                          .value = text(desired)});
}

static void compare_and_set(void **state)
{
    (void)state;
    struct store *s = store_create(NULL, NULL);
    value_is(compare_set(s, "old", "new"), "old"); /* missing, something expected: nothing is stored */
    assert_false(ask(s, STORE_GET, "k").found);
    assert_true(wait2(s, 9, "k", NULL));
    value_is(compare_set(s, "old", "new"), "old"); /* a name that is only waited for is missing too */
    value_is(compare_set(s, "", "first"), "first");
    assert_string_equal(wakes(s), "9 ready");
    value_is(compare_set(s, "", "second"), "first");
    value_is(compare_set(s, "first", "second"), "second");
    value_is(ask(s, STORE_GET, "k"), "second");
    store_destroy(s);
}

static void waits(void **state)
{
    (void)state;
    struct store *s = store_create(NULL, NULL);
    set(s, "a", "1");
    assert_false(wait2(s, 1, "a", NULL));
    assert_true(wait2(s, 1, "a", "b"));
    assert_true(wait2(s, 2, "b", "c"));
    assert_true(wait2(s, 3, "c", "c"));
    assert_int_equal(store_stats(s).parked, 3);
    assert_int_equal(ask(s, STORE_NUM_KEYS, "").number, 1); /* waited-for names are no keys */
    set(s, "b", "");
    assert_string_equal(wakes(s), "1 ready");
    ask(s, STORE_DELETE, "b"); /* 2 has seen b */
    add(s, "c", 1);
    assert_string_equal(wakes(s), "2 ready, 3 ready");
    assert_true(wait2(s, 1, "b", NULL)); /* deleted: waits again */
    must(s, (struct store_request){.operation = STORE_APPEND, .key = text("b"), .value = text("x")});
    assert_string_equal(wakes(s), "1 ready");
    struct store_bytes keys[] = {text("m1"), text("m2")}, pair[] = {text("v1"), text("v2")};
    assert_true(wait2(s, 5, "m2", "m1"));
    must(s, (struct store_request){.operation = STORE_MULTI_SET, .keys = keys, .values = pair, .count = 2});
    assert_string_equal(wakes(s), "5 ready");
    struct store_answer got =
        must(s, (struct store_request){.operation = STORE_MULTI_GET, .keys = keys, .count = 2});
    assert_int_equal(got.count, 2);
    assert_memory_equal(got.list[1].data, "v2", 2);
    assert_false(must(s, (struct store_request){.operation = STORE_WAIT}).parked); /* for nothing */
    store_destroy(s);
}

static void cancel_leave_wipe(void **state)
{
    (void)state;
    struct store *s = store_create(NULL, NULL);
    struct muster_error err = {0};
    struct store_answer answer;
    assert_true(wait2(s, 1, "a", "b"));
    struct store_bytes key = text("c");
    struct store_request second = {.operation = STORE_WAIT, .client = 1, .keys = &key, .count = 1};
    assert_int_equal(store_step(s, &second, &answer, &err), -1);
    assert_int_equal(err.code, MUSTER_E_STATE);
    assert_true(must(s, (struct store_request){.operation = STORE_CANCEL, .client = 1}).found);
    assert_false(must(s, (struct store_request){.operation = STORE_CANCEL, .client = 1}).found);
    assert_int_equal(store_stats(s).bytes, 0); /* nothing is left of it */
    set(s, "a", "1");
    set(s, "b", "1");
    assert_string_equal(wakes(s), "");
    assert_true(wait2(s, 2, "x", NULL));
    set(s, "x", "1"); /* released, but he leaves before he is told */
    assert_true(must(s, (struct store_request){.operation = STORE_LEAVE, .client = 2}).found);
    assert_string_equal(wakes(s), "");
    value_is(ask(s, STORE_GET, "x"), "1"); /* keys stay */
    assert_true(wait2(s, 3, "y", "z"));
    assert_true(barrier(s, 4, "gate", 2));
    store_wipe(s);
    const char *told = wakes(s);
    assert_non_null(strstr(told, "3 wiped"));
    assert_non_null(strstr(told, "4 wiped"));
    assert_int_equal(store_stats(s).bytes, 0);
    assert_int_equal(store_stats(s).parked, 0);
    assert_false(ask(s, STORE_GET, "a").found);
    store_destroy(s);
}

static void queues(void **state)
{
    (void)state;
    struct store *s = store_create(NULL, NULL);
    struct store_request push = {.operation = STORE_QUEUE_PUSH, .key = text("q"), .value = text("one")};
    assert_int_equal(ask(s, STORE_QUEUE_POP, "q").number, 0);
    assert_true(wait2(s, 1, "q", NULL));
    assert_true(wait2(s, 2, "q", NULL));
    must(s, push);
    assert_string_equal(wakes(s), "1 ready"); /* one push, one waiter */
    assert_false(wait2(s, 3, "q", NULL));
    push.value = text("");
    must(s, push);
    assert_string_equal(wakes(s), "2 ready");
    assert_int_equal(ask(s, STORE_QUEUE_LEN, "q").number, 2);
    assert_int_equal(ask(s, STORE_NUM_KEYS, "").number, 0);
    assert_false(ask(s, STORE_GET, "q").found);
    set(s, "q", "a key of the same name");
    struct store_answer popped = ask(s, STORE_QUEUE_POP, "q");
    assert_int_equal(popped.number, 2);
    value_is(popped, "one");
    popped = ask(s, STORE_QUEUE_POP, "q");
    assert_int_equal(popped.number, 1);
    assert_true(popped.found);
    value_is(popped, "");
    assert_int_equal(ask(s, STORE_QUEUE_LEN, "q").number, 0);
    assert_int_equal(ask(s, STORE_DELETE, "q").number, 1);
    assert_int_equal(store_stats(s).bytes, 0);
    must(s, push);
    assert_int_equal(ask(s, STORE_DELETE, "q").number, 0); /* queue data is not key data */
    assert_int_equal(ask(s, STORE_QUEUE_LEN, "q").number, 1);
    struct store_bytes key = text("q");
    assert_true(must(s, (struct store_request){.operation = STORE_CHECK, .keys = &key, .count = 1}).found);
    store_destroy(s);
}

static void barriers(void **state)
{
    (void)state;
    struct store *s = store_create(NULL, NULL);
    assert_true(barrier(s, 1, "g", 3));
    assert_true(barrier(s, 2, "g", 3));
    value_is(ask(s, STORE_GET, "g"), "2");
    set(s, "other", "1");
    assert_string_equal(wakes(s), "");
    assert_false(barrier(s, 3, "g", 3));
    assert_string_equal(wakes(s), "1 ready, 2 ready");
    assert_false(barrier(s, 4, "g", 3)); /* late */
    assert_false(barrier(s, 4, "alone", 1));
    assert_false(barrier(s, 1, "nobody", 0)); /* who arrives is beyond that world's size */
    assert_false(barrier(s, 1, "nobody", -3));
    value_is(ask(s, STORE_GET, "nobody"), "2");
    assert_true(wait2(s, 7, "h", NULL)); /* the counter is a key like another */
    assert_true(barrier(s, 8, "h", 2));
    assert_string_equal(wakes(s), "7 ready");
    assert_true(must(s, (struct store_request){.operation = STORE_CANCEL, .client = 8}).found);
    store_destroy(s);
}

static void list_of_keys(void **state)
{
    (void)state;
    struct store *s = store_create(NULL, NULL);
    bool seen[1000] = {false};
    char name[16];
    for (int i = 0; i < 1000; i++) {
        (void)snprintf(name, sizeof name, "%d", i);
        set(s, name, "");
    }
    assert_true(wait2(s, 1, "not a key", NULL));
    struct store_answer answer = ask(s, STORE_LIST_KEYS, "");
    assert_int_equal(answer.count, 1000);
    for (size_t i = 0; i < answer.count; i++) {
        (void)snprintf(name, sizeof name, "%.*s", (int)answer.list[i].length,
                       (const char *)answer.list[i].data);
        assert_false(seen[atoi(name)]);
        seen[atoi(name)] = true;
    }
    store_destroy(s);
}

static int try(struct store *s, struct store_request request, struct muster_error *err)
{
    struct store_answer answer;
    return store_step(s, &request, &answer, err);
}

static void bounds(void **state)
{
    (void)state;
    struct store_limits limits = {
        .key_bytes = 8, .value_bytes = 32, .keys = 3, .wait_keys = 4, .total_bytes = 2000};
    struct store *s = store_create(&limits, NULL);
    struct muster_error err = {0};
    char big[64] = {0};
    assert_int_equal(
        try(s, (struct store_request){.operation = STORE_SET, .key = text("ninebytes"), .value = text("")},
            &err),
        -1);
    assert_int_equal(err.code, MUSTER_E_LIMIT);
    assert_string_equal(err.text, "set: key \"ninebytes\" has 9 bytes, at most 8 are allowed");
    char key[70];
    for (int length = 67; length <= 69; length++) { /* whole up to 68 bytes */
        memset(key, 'k', sizeof key);
        key[length] = '\0';
        assert_int_equal(
            try(s, (struct store_request){.operation = STORE_SET, .key = text(key), .value = text("")}, &err),
            -1);
        char wanted[160];
        (void)snprintf(wanted, sizeof wanted, "set: key \"%.68s%s\" has %d bytes, at most 8 are allowed", key,
                       length > 68 ? "..." : "", length);
        assert_string_equal(err.text, wanted);
    }
    assert_int_equal(
        try(s, (struct store_request){.operation = STORE_SET, .key = text("k"), .value = {big, 33}}, &err),
        -1);
    assert_string_equal(err.text, "set: the value of key \"k\" has 33 bytes, at most 32 are allowed");
    struct store_request append = {.operation = STORE_APPEND, .key = text("k"), .value = {big, 20}};
    assert_int_equal(try(s, append, &err), 0);
    assert_int_equal(try(s, append, &err), -1);
    assert_int_equal(err.code, MUSTER_E_LIMIT);
    assert_int_equal(ask(s, STORE_GET, "k").value.length, 20);
    struct store_bytes keys[] = {text("1"), text("2"), text("3"), text("4"), text("5")};
    assert_int_equal(try(s, (struct store_request){.operation = STORE_WAIT, .keys = keys, .count = 5}, &err),
                     -1);
    assert_non_null(strstr(err.text, "wait of 5 keys: at most 4"));
    assert_int_equal(try(s, (struct store_request){.operation = STORE_WAIT, .keys = keys, .count = 3}, &err),
                     -1);
    assert_non_null(strstr(err.text, "the store holds 3 names already, its limit"));
    assert_int_equal(store_stats(s).parked, 0);
    assert_int_equal(store_stats(s).names, 1); /* nothing is left of the failed wait */
    struct store_bytes none[3] = {{NULL, 0}};
    struct store_request sets = {.operation = STORE_MULTI_SET, .keys = keys, .values = none, .count = 3};
    assert_int_equal(try(s, sets, &err), -1); /* all or nothing */
    assert_int_equal(store_stats(s).names, 1);
    struct store_request push = {.operation = STORE_QUEUE_PUSH, .key = text("q"), .value = {big, 32}};
    int pushed = 0;
    while (pushed < 1000 && !try(s, push, &err))
        pushed++;
    assert_in_range(pushed, 1, 999);
    assert_non_null(strstr(err.text, "of at most 2000 bytes"));
    assert_true(store_stats(s).bytes <= 2000);
    store_wipe(s);
    assert_int_equal(store_stats(s).bytes, 0);
    store_destroy(s);
}

static void replacing_at_the_limit(void **state)
{
    (void)state;
    struct store_limits limits = {.total_bytes = 1024};
    struct store *s = store_create(&limits, NULL);
    char value[700] = {0};
    for (int i = 0; i < 3; i++) /* the old value's bytes count for the new one */
        must(s, (struct store_request){
                    .operation = STORE_SET, .key = text("k"), .value = {value, sizeof value}});
    store_destroy(s);
}

/* Every operation once, with whatever memory there is. The first failure ends it. */
static int everything(void *context)
{
    (void)context;
    GUARD(guard_store) struct store *s = store_create(NULL, NULL);
    if (!s)
        return -1;
    struct store_bytes keys[] = {text("a"), text("b"), text("a")};
    struct store_bytes vals[] = {text("1"), text("2"), text("3")};
    struct store_bytes missing[] = {text("w1"), text("a"), text("w2"), text("w1")};
    const struct store_request requests[] = {
        {.operation = STORE_WAIT, .client = 1, .keys = missing, .count = 4},
        {.operation = STORE_MULTI_SET, .keys = keys, .values = vals, .count = 3},
        {.operation = STORE_SET, .key = text("w1"), .value = text("x")},
        {.operation = STORE_ADD, .key = text("n"), .number = 2},
        {.operation = STORE_APPEND, .key = text("p"), .value = text("xyz")},
        {.operation = STORE_BARRIER, .client = 2, .key = text("bar"), .number = 2},
        {.operation = STORE_BARRIER, .client = 3, .key = text("bar"), .number = 2},
        {.operation = STORE_QUEUE_PUSH, .key = text("q"), .value = text("item")},
        {.operation = STORE_QUEUE_POP, .key = text("q")},
        {.operation = STORE_COMPARE_SET, .key = text("c"), .value = text("item")},
        {.operation = STORE_MULTI_GET, .keys = keys, .count = 3},
        {.operation = STORE_LIST_KEYS},
    };
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
        struct store_answer answer;
        struct store_stats before = store_stats(s);
        if (store_step(s, &requests[i], &answer, NULL)) {
            struct store_stats after = store_stats(s);
            if (memcmp(&before, &after, sizeof before))
                fail_msg("%s failed and left %zu bytes in %zu names, not %zu in %zu",
                         store_operation_name(requests[i].operation), after.bytes, after.names, before.bytes,
                         before.names);
            return -1;
        }
    }
    struct store_wake wake;
    while (store_next_wake(s, &wake))
        ;
    return store_stats(s).parked == 1 ? 0 : -1; /* client 1 misses w2 */
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    faults_sweep(everything, NULL);
}

/* The engine against a plain model, on random operations over few names. */
static void random_against_model(void **state)
{
    (void)state;
    enum { NAMES = 5, STEPS = 20000 };
    struct store *s = store_create(NULL, NULL);
    bool present[NAMES] = {false};
    int queued[NAMES] = {0};
    uint64_t seed = 12345;
    for (int step = 0; step < STEPS; step++) {
        seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
        unsigned draw = (unsigned)(seed >> 33), at = draw % NAMES;
        char name[2] = {(char)('a' + at), '\0'};
        struct store_request push = {.operation = STORE_QUEUE_PUSH, .key = text(name), .value = text("v")};
        uint64_t client = 100 + draw / 64 % 8;
        switch (draw / 8 % 7) {
        case 0:
            set(s, name, "1");
            present[at] = true;
            break;
        case 1:
            assert_int_equal(ask(s, STORE_DELETE, name).number, present[at]);
            present[at] = false;
            break;
        case 2:
            must(s, push);
            queued[at]++;
            break;
        case 3:
            assert_int_equal(ask(s, STORE_QUEUE_POP, name).number, queued[at]);
            queued[at] -= queued[at] > 0;
            break;
        case 4:
            must(s, (struct store_request){.operation = STORE_CANCEL, .client = client});
            assert_int_equal(wait2(s, client, name, NULL), !present[at] && !queued[at]);
            break;
        case 5:
            must(s, (struct store_request){.operation = STORE_LEAVE, .client = client});
            break;
        default:
            assert_int_equal(ask(s, STORE_GET, name).found, present[at]);
            break;
        }
        (void)wakes(s);
        int keys = 0;
        for (int i = 0; i < NAMES; i++)
            keys += present[i];
        assert_int_equal(store_stats(s).keys, keys);
    }
    store_wipe(s);
    (void)wakes(s);
    assert_int_equal(store_stats(s).bytes, 0);
    assert_int_equal(store_stats(s).parked, 0);
    store_destroy(s);
}

static uint64_t mixed(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * UINT64_C(0x9E3779B97F4A7C15);
    return hash ^ (hash >> 32);
}

/* The hash is public and no secret: any client can send two keys that share it. */
static void two_keys_of_one_hash_are_two(void **state)
{
    (void)state;
    uint64_t words[2][2] = {{1, 2}, {3, 0}};
    words[1][1] = words[0][1] ^ mixed(sizeof *words, 1) ^ mixed(sizeof *words, 3);
    struct store *s = store_create(NULL, NULL);
    for (int i = 0; i < 2; i++) {
        struct store_bytes key = {words[i], sizeof *words};
        assert_int_equal(mixed(mixed(key.length, words[i][0]), words[i][1]),
                         mixed(mixed(key.length, words[0][0]), words[0][1]));
        must(s, (struct store_request){.operation = STORE_SET, .key = key, .value = text(i ? "b" : "a")});
    }
    assert_int_equal(store_stats(s).keys, 2);
    for (int i = 0; i < 2; i++)
        value_is(must(s, (struct store_request){.operation = STORE_GET, .key = {words[i], sizeof *words}}),
                 i ? "b" : "a");
    store_destroy(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values),
        cmocka_unit_test(values_in_their_old_blocks),
        cmocka_unit_test(names_of_every_length),
        cmocka_unit_test(counters),
        cmocka_unit_test(compare_and_set),
        cmocka_unit_test(waits),
        cmocka_unit_test(cancel_leave_wipe),
        cmocka_unit_test(queues),
        cmocka_unit_test(barriers),
        cmocka_unit_test(list_of_keys),
        cmocka_unit_test(bounds),
        cmocka_unit_test(replacing_at_the_limit),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(random_against_model),
        cmocka_unit_test(two_keys_of_one_hash_are_two),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
