/* tcpstore_test.c - the TCPStore protocol engine: wire bytes, splits at every byte, order, limits,
 * back-pressure. */
#include "rendezvous/tcpstore/tcpstore.h"

#include <endian.h>

#include "proto/base/buffer.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/faults.h"

/* --- requests as a client writes them --- */

static void put(struct buffer *b, const void *data, size_t length)
{
    (void)buffer_append(b, data, length); /* the tests compare the result */
}

static void put_u8(struct buffer *b, uint8_t value)
{
    put(b, &value, 1);
}

static void put_i64(struct buffer *b, int64_t value)
{
    uint64_t wire = htole64((uint64_t)value);
    put(b, &wire, sizeof wire);
}

static void put_text(struct buffer *b, const char *text)
{
    put_i64(b, (int64_t)strlen(text));
    put(b, text, strlen(text));
}

static void put_query(struct buffer *b, enum tcpstore_query query, const char *key)
{
    put_u8(b, (uint8_t)query);
    put_text(b, key);
}

static void put_set(struct buffer *b, const char *key, const char *value)
{
    put_query(b, TCPSTORE_SET, key);
    put_text(b, value);
}

static void put_wait(struct buffer *b, const char *key)
{
    put_u8(b, TCPSTORE_WAIT);
    put_i64(b, 1);
    put_text(b, key);
}

static void put_add(struct buffer *b, const char *key, int64_t delta)
{
    put_query(b, TCPSTORE_ADD, key);
    put_i64(b, delta);
}

static void put_greeting(struct buffer *b)
{
    static const char greeting[] = {0x00, (char)0xCE, (char)0xF7, (char)0x85, 0x3C};
    put(b, greeting, sizeof greeting);
}

/* --- an engine and its connections --- */

static struct tcpstore_connection *greeted(struct tcpstore *t)
{
    scope_buffer hello = {0};
    struct tcpstore_connection *c = tcpstore_open(t, NULL, NULL);
    put_greeting(&hello);
    tcpstore_feed(c, hello.data, hello.length);
    assert_int_equal(tcpstore_state(c), TCPSTORE_STATE_OPEN);
    return c;
}

static void feed(struct tcpstore_connection *c, struct buffer *b)
{
    tcpstore_feed(c, b->data, b->length);
    buffer_clear(b);
}

/* Moves the replies of c to the end of out. */
static void drain(struct tcpstore_connection *c, struct buffer *out)
{
    for (struct store_bytes bytes; (bytes = tcpstore_output(c)).length > 0;) {
        put(out, bytes.data, bytes.length);
        tcpstore_sent(c, bytes.length);
    }
}

/* Bytes of replies that were not sent. */
static size_t waiting(const struct tcpstore_connection *c)
{
    static struct iovec runs[1000];
    const size_t count = tcpstore_output_runs(c, runs, 1000);
    size_t bytes = 0;
    for (size_t i = 0; i < count; i++)
        bytes += runs[i].iov_len;
    return bytes;
}

static void expect_output(struct tcpstore_connection *c, const void *bytes, size_t length)
{
    scope_buffer out = {0};
    drain(c, &out);
    assert_int_equal(out.length, length);
    if (length)
        assert_memory_equal(out.data, bytes, length);
}

static void expect_broken(struct tcpstore_connection *c, int code, const char *part)
{
    assert_int_equal(tcpstore_state(c), TCPSTORE_STATE_BROKEN);
    assert_int_equal(tcpstore_broken_reason(c)->code, code);
    if (!strstr(tcpstore_broken_reason(c)->text, part))
        fail_msg("\"%s\" does not say \"%s\"", tcpstore_broken_reason(c)->text, part);
}

/* Every query once, with replies that do not depend on other clients. */
static void put_everything(struct buffer *b)
{
    put_greeting(b);
    put_u8(b, TCPSTORE_PING);
    put(b, "\x01\x02\x03\x04", 4);
    put_set(b, "/a", "one");
    put_query(b, TCPSTORE_GET, "/a");
    put_query(b, TCPSTORE_GET, "/missing");
    put_add(b, "/n", 7);
    put_query(b, TCPSTORE_COMPARE_SET, "/a");
    put_text(b, "one");
    put_text(b, "two");
    put_u8(b, TCPSTORE_CHECK);
    put_i64(b, 2);
    put_text(b, "/a");
    put_text(b, "/b");
    put_wait(b, "/a");
    put_u8(b, TCPSTORE_MULTI_SET);
    put_i64(b, 2);
    put_text(b, "/k1");
    put_text(b, "v1");
    put_text(b, "/k2");
    put_text(b, "");
    put_u8(b, TCPSTORE_MULTI_GET);
    put_i64(b, 3);
    put_text(b, "/k1");
    put_text(b, "/none");
    put_text(b, "/k2");
    put_u8(b, TCPSTORE_CHECK);
    put_i64(b, 0);
    put_u8(b, TCPSTORE_GETNUMKEYS);
    put_query(b, TCPSTORE_DELETE_KEY, "/k1");
    put_query(b, TCPSTORE_DELETE_KEY, "/k1");
    put_query(b, TCPSTORE_DELETE_KEY, "/k2");
    put_query(b, TCPSTORE_DELETE_KEY, "/n");
    put_query(b, TCPSTORE_APPEND, "/a");
    put_text(b, "!");
    put_query(b, TCPSTORE_QUEUE_POP, "/q");
    put_query(b, TCPSTORE_QUEUE_PUSH, "/q");
    put_text(b, "item");
    put_query(b, TCPSTORE_QUEUE_LEN, "/q");
    put_query(b, TCPSTORE_QUEUE_POP, "/q");
    put_u8(b, TCPSTORE_LIST_KEYS);
    put_query(b, TCPSTORE_BARRIER, "/bar");
    put_i64(b, 1);
    put_wait(b, "/never");
    put_u8(b, TCPSTORE_CANCEL_WAIT);
    put_query(b, TCPSTORE_BARRIER, "/bar2");
    put_i64(b, 2);
    put_u8(b, TCPSTORE_CANCEL_WAIT);
    put_u8(b, TCPSTORE_CANCEL_WAIT);
}

static void put_expected_replies(struct buffer *b)
{
    put(b, "\x01\x02\x03\x04", 4); /* PING */
    put_text(b, "one");
    put_text(b, "");
    put_i64(b, 7);
    put_text(b, "two");
    put_u8(b, 1); /* CHECK: not all */
    put_u8(b, 0); /* WAIT */
    put_text(b, "v1");
    put_text(b, "");
    put_text(b, "");
    put_u8(b, 0);  /* CHECK of nothing */
    put_i64(b, 4); /* /a /n /k1 /k2 */
    put_i64(b, 1);
    put_i64(b, 0);
    put_i64(b, 1);
    put_i64(b, 1);
    put_i64(b, 0); /* QUEUE_POP of nothing: no vector */
    put_i64(b, 1); /* QUEUE_LEN */
    put_i64(b, 1); /* QUEUE_POP */
    put_text(b, "item");
    put_i64(b, 1); /* LIST_KEYS */
    put_text(b, "/a");
    put_u8(b, 0); /* BARRIER of one */
    put_u8(b, 1); /* CANCEL_WAIT, three times */
    put_u8(b, 1);
    put_u8(b, 1);
}

static void replay(const char *data, size_t length, size_t first, size_t piece, struct buffer *out)
{
    struct tcpstore *t = tcpstore_create(NULL, NULL);
    struct tcpstore_connection *c = tcpstore_open(t, NULL, NULL);
    for (size_t at = 0; at < length;) {
        size_t n = at == 0 ? first : piece;
        n = n < length - at ? n : length - at;
        tcpstore_feed(c, data + at, n);
        at += n;
        drain(c, out);
    }
    if (tcpstore_broken_reason(c))
        fail_msg("broken: %s", tcpstore_broken_reason(c)->text);
    tcpstore_destroy(t);
}

static void every_query_split_at_every_byte(void **state)
{
    (void)state;
    scope_buffer script = {0}, expected = {0};
    put_everything(&script);
    put_expected_replies(&expected);
    for (size_t first = 1; first <= script.length; first++) {
        scope_buffer out = {0};
        replay(script.data, script.length, first, script.length, &out);
        assert_int_equal(out.length, expected.length);
        assert_memory_equal(out.data, expected.data, expected.length);
    }
    for (size_t piece = 1; piece <= 9; piece++) {
        scope_buffer out = {0};
        replay(script.data, script.length, piece, piece, &out);
        assert_int_equal(out.length, expected.length);
        assert_memory_equal(out.data, expected.data, expected.length);
    }
}

/* The bytes that torch 2.13 puts on the wire, written out by hand from the protocol's description. */
static void golden_bytes(void **state)
{
    (void)state;
    static const unsigned char requests[] = {
        0x00, 0xCE, 0xF7, 0x85, 0x3C,                                        /* VALIDATE */
        0x0D, 0x39, 0x05, 0x00, 0x00,                                        /* PING 1337 */
        0x04, 5,    0,    0,    0,    0, 0, 0, 0,   'i', 'n', 'i', 't', '/', /* ADD "init/" */
        1,    0,    0,    0,    0,    0, 0, 0,                               /* 1 */
        0x01, 2,    0,    0,    0,    0, 0, 0, 0,   '/', 'k',                /* SET "/k" */
        3,    0,    0,    0,    0,    0, 0, 0, 'x', 'y', 'z',                /* "xyz" */
        0x06, 1,    0,    0,    0,    0, 0, 0, 0,                            /* WAIT for one key */
        2,    0,    0,    0,    0,    0, 0, 0, '/', 'k',                     /* "/k" */
        0x03, 2,    0,    0,    0,    0, 0, 0, 0,   '/', 'k',                /* GET "/k" */
        0x10, 1,    0,    0,    0,    0, 0, 0, 0,   'q',                     /* QUEUE_LEN "q" */
        0x12, 1,    0,    0,    0,    0, 0, 0, 0,   'b', 1,   0,   0,   0,   0, 0, 0, 0, /* BARRIER "b" 1 */
        0x11,                                                                            /* LIST_KEYS */
    };
    static const unsigned char replies[] = {
        0x39, 0x05, 0x00, 0x00,                            /* PING */
        1,    0,    0,    0,    0, 0, 0, 0,                /* ADD */
        0,                                                 /* WAIT */
        3,    0,    0,    0,    0, 0, 0, 0, 'x', 'y', 'z', /* GET */
        0,    0,    0,    0,    0, 0, 0, 0,                /* QUEUE_LEN */
        0,                                                 /* BARRIER */
        3,    0,    0,    0,    0, 0, 0, 0,                /* LIST_KEYS: three, in any order */
    };
    scope_buffer out = {0};
    replay((const char *)requests, sizeof requests, sizeof requests, 1, &out);
    assert_true(out.length > sizeof replies);
    assert_memory_equal(out.data, replies, sizeof replies);
    assert_int_equal(out.length, sizeof replies + 3 * 8 + strlen("init/") + strlen("/k") + strlen("b"));
}

static void replies_keep_order_over_a_parked_wait(void **state)
{
    (void)state;
    struct tcpstore *t = tcpstore_create(NULL, NULL);
    struct tcpstore_connection *a = greeted(t), *b = greeted(t), *c = greeted(t);
    scope_buffer request = {0}, expected = {0};
    put_wait(&request, "x");
    put_query(&request, TCPSTORE_GET, "x");
    put_set(&request, "y", "from a"); /* releases c in the same breath */
    put_add(&request, "n", 1);
    feed(a, &request);
    put_wait(&request, "y");
    feed(c, &request);
    assert_int_equal(tcpstore_state(a), TCPSTORE_STATE_PARKED);
    assert_int_equal(tcpstore_state(c), TCPSTORE_STATE_PARKED);
    expect_output(a, NULL, 0);
    while (tcpstore_next_touched(t))
        ;
    put_set(&request, "x", "value");
    feed(b, &request);
    put_u8(&expected, 0);
    put_text(&expected, "value");
    put_i64(&expected, 1);
    expect_output(a, expected.data, expected.length);
    expect_output(c, "\0", 1);
    assert_ptr_equal(tcpstore_next_touched(t), a);
    assert_ptr_equal(tcpstore_next_touched(t), c);
    assert_null(tcpstore_next_touched(t));
    assert_int_equal(tcpstore_state(c), TCPSTORE_STATE_OPEN);
    tcpstore_destroy(t);
}

static void cancel_races(void **state)
{
    (void)state;
    struct tcpstore *t = tcpstore_create(NULL, NULL);
    struct tcpstore_connection *a = greeted(t), *b = greeted(t);
    scope_buffer request = {0};
    put_wait(&request, "x");
    feed(a, &request);
    put_u8(&request, TCPSTORE_CANCEL_WAIT);
    feed(a, &request);
    expect_output(a, "\1", 1);
    put_set(&request, "x", "1");
    feed(b, &request);
    expect_output(a, NULL, 0); /* forgotten */
    put_wait(&request, "y");
    feed(a, &request);
    put_set(&request, "y", "1");
    feed(b, &request);
    put_u8(&request, TCPSTORE_CANCEL_WAIT); /* too late: the client reads both bytes */
    feed(a, &request);
    expect_output(a, "\0\1", 2);
    put_wait(&request, "z");
    feed(a, &request);
    assert_int_equal(tcpstore_stats(t).parked, 1);
    tcpstore_close(a);
    assert_int_equal(tcpstore_stats(t).parked, 0);
    put_set(&request, "z", "1");
    feed(b, &request);
    assert_int_equal(tcpstore_stats(t).keys, 3);
    tcpstore_destroy(t);
}

static void put_get(struct buffer *b, const char *key)
{
    put_query(b, TCPSTORE_GET, key);
}

/* A connection that has asked whose server this is. */
static struct tcpstore_connection *asked(struct tcpstore *t)
{
    struct tcpstore_connection *c = greeted(t);
    scope_buffer request = {0};
    put_u8(&request, TCPSTORE_CHECK);
    put_i64(&request, 1);
    put_text(&request, TCPSTORE_MUSTER_KEY);
    feed(c, &request);
    expect_output(c, "\0", 1);
    assert_int_equal(tcpstore_stats(t).names, 0); /* a key that is there and is not */
    return c;
}

static void a_value_asked_for_with_the_wait_for_it(void **state)
{
    (void)state;
    struct tcpstore *t = tcpstore_create(NULL, NULL);
    struct tcpstore_connection *a = asked(t), *b = greeted(t);
    scope_buffer request = {0};
    put_wait(&request, "x");
    put_get(&request, "x");
    feed(a, &request);
    expect_output(a, NULL, 0);
    put_set(&request, "x", "v");
    feed(b, &request);
    expect_output(a, "\0\1\0\0\0\0\0\0\0v", 10);
    put_wait(&request, "y");
    put_get(&request, "y");
    put_u8(&request, TCPSTORE_CANCEL_WAIT);
    put_get(&request, "x");
    feed(a, &request);
    expect_output(a, NULL,
                  0); /* a client that asks for more after a CANCEL_WAIT does not wait for its answer */
    put_set(&request, "y", "");
    feed(b, &request);
    expect_output(a,
                  "\0"
                  "\0\0\0\0\0\0\0\0"
                  "\1"
                  "\1\0\0\0\0\0\0\0v",
                  19);
    tcpstore_destroy(t);
}

/* Byte by byte, and a cancelled wait is gone. */
static void cancel_takes_the_get_back(void **state)
{
    (void)state;
    struct tcpstore *t = tcpstore_create(NULL, NULL);
    struct tcpstore_connection *a = asked(t), *b = greeted(t);
    scope_buffer request = {0};
    put_wait(&request, "\14"); /* CANCEL_WAIT's number, in a key */
    put_get(&request, "\14");
    put_u8(&request, TCPSTORE_CANCEL_WAIT);
    for (size_t i = 0; i < request.length; i++)
        tcpstore_feed(a, request.data + i, 1);
    buffer_clear(&request);
    expect_output(a, "\1", 1);
    assert_int_equal(tcpstore_stats(t).parked, 0);
    put_set(&request, "\14", "late");
    feed(b, &request);
    expect_output(a, NULL, 0);
    /* The wait ends first: the client reads all three. */
    put_wait(&request, "z");
    put_get(&request, "z");
    feed(a, &request);
    put_set(&request, "z", "");
    feed(b, &request);
    put_u8(&request, TCPSTORE_CANCEL_WAIT);
    feed(a, &request);
    expect_output(a, "\0\0\0\0\0\0\0\0\0\1", 10);
    /* A SET is never cancelled, nor is a wait of a client that has not asked for it. */
    put_wait(&request, "never");
    put_set(&request, "kept", "");
    put_u8(&request, TCPSTORE_CANCEL_WAIT);
    feed(a, &request);
    expect_output(a, NULL, 0);
    put_wait(&request, "never");
    put_get(&request, "z");
    put_u8(&request, TCPSTORE_CANCEL_WAIT);
    feed(b, &request);
    expect_output(b, NULL, 0);
    assert_int_equal(tcpstore_stats(t).parked, 2);
    tcpstore_destroy(t);
}

static void a_barrier_again_and_again(void **state)
{
    (void)state;
    struct tcpstore *t = tcpstore_create(NULL, NULL);
    struct tcpstore_connection *a = asked(t), *b = asked(t);
    scope_buffer request = {0};
    for (int turn = 0; turn < 3; turn++) {
        put_query(&request, TCPSTORE_BARRIER, "gate");
        put_i64(&request, 2);
        feed(turn % 2 ? a : b, &request);
        expect_output(turn % 2 ? a : b, NULL, 0);
        put_query(&request, TCPSTORE_BARRIER, "gate");
        put_i64(&request, 2);
        feed(turn % 2 ? b : a, &request);
        expect_output(a, "\0", 1);
        expect_output(b, "\0", 1);
    }
    put_query(&request, TCPSTORE_BARRIER, "nobody");
    put_i64(&request, 0);
    feed(a, &request);
    expect_output(a, "\0", 1);
    tcpstore_destroy(t);
}

static void barriers_release_all(void **state)
{
    (void)state;
    enum { WORLD = 5 };
    struct tcpstore *t = tcpstore_create(NULL, NULL);
    struct tcpstore_connection *c[WORLD];
    scope_buffer request = {0};
    for (int i = 0; i < WORLD; i++) {
        c[i] = greeted(t);
        put_query(&request, TCPSTORE_BARRIER, "gate");
        put_i64(&request, WORLD);
        put_add(&request, "after", 1);
        feed(c[i], &request);
        assert_int_equal(tcpstore_state(c[i]), i < WORLD - 1 ? TCPSTORE_STATE_PARKED : TCPSTORE_STATE_OPEN);
    }
    for (int i = 0; i < WORLD; i++)
        assert_int_equal(tcpstore_output(c[i]).length, 1 + 8);
    tcpstore_destroy(t);
}

static void bad_bytes_break_the_connection(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t length;
        int code;
        const char *says;
    } cases[] = {
        {"\xff\0\0\0\0\0\0\0\1\x7f", 10, MUSTER_E_PROTOCOL,
         "as in the greeting of a muster agent: not a TCPStore client"},
        {"GET / HTTP/1.1\r\n", 16, MUSTER_E_PROTOCOL,
         "first byte is 0x47, and the bytes after it are neither"},
        {"\0\1\2\3\4", 5, MUSTER_E_PROTOCOL, "first byte is 0x00, and the bytes after it are neither"},
        {"\0\xCE\xF7\x85\x3C\0\1\2\3\4", 10, MUSTER_E_PROTOCOL,
         "VALIDATE carries 0x04030201, not 0x3C85F7CE"},
        {"\0\xCE\xF7\x85\x3C\x13", 6, MUSTER_E_PROTOCOL, "unknown query 19: this server knows 0 to 18"},
        {"\0\xCE\xF7\x85\x3C\xFF", 6, MUSTER_E_PROTOCOL, "unknown query 255"},
        {"\0\xCE\xF7\x85\x3C\x03\x01\x20\0\0\0\0\0\0", 14, MUSTER_E_LIMIT,
         "GET with a key of 8193 bytes: at most 8192"},
        {"\0\xCE\xF7\x85\x3C\x01\x01\0\0\0\0\0\0\0k\x01\0\x80\0\0\0\0\0", 23, MUSTER_E_LIMIT,
         "SET with a value of 8388609 bytes: at most 8388608"},
        {"\0\xCE\xF7\x85\x3C\x06\x01\0\x02\0\0\0\0\0", 14, MUSTER_E_LIMIT,
         "WAIT of 131073 keys: at most 131072"},
        {"\0\xCE\xF7\x85\x3C\x0B\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF", 14, MUSTER_E_LIMIT,
         "MULTI_SET of 1844674"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tcpstore *t = tcpstore_create(NULL, NULL);
        struct tcpstore_connection *c = tcpstore_open(t, t, NULL);
        tcpstore_feed(c, cases[i].bytes, cases[i].length);
        expect_broken(c, cases[i].code, cases[i].says);
        assert_ptr_equal(tcpstore_next_touched(t), c);
        assert_ptr_equal(tcpstore_owner(c), t);
        assert_false(tcpstore_wants_input(c));
        tcpstore_feed(c, "more", 4); /* is ignored */
        tcpstore_destroy(t);
    }
    struct tcpstore *t = tcpstore_create(NULL, NULL);
    struct tcpstore_connection *c = tcpstore_open(t, NULL, NULL);
    tcpstore_feed(c, "\0", 1); /* the first byte of VALIDATE alone is no fault */
    assert_int_equal(tcpstore_state(c), TCPSTORE_STATE_GREETING);
    scope_buffer request = {0};
    struct tcpstore_connection *d = greeted(t);
    put_set(&request, "n", "word");
    put_add(&request, "n", 1);
    feed(d, &request);
    expect_broken(d, MUSTER_E_INVALID, "\"word\" of key \"n\" does not begin with a decimal number");
    tcpstore_destroy(t);
}

static void a_request_has_a_limit_as_a_whole(void **state)
{
    (void)state;
    enum { VALUE = 8 << 20 };
    const struct store_limits limits = {.total_bytes = (size_t)1 << 30};
    struct tcpstore *t = tcpstore_create(&limits, NULL);
    struct tcpstore_connection *c = greeted(t);
    scope_buffer request = {0};
    scope_free char *value = mem_calloc(1, VALUE);
    put_u8(&request, TCPSTORE_MULTI_SET);
    put_i64(&request, 9);
    feed(c, &request);
    for (int i = 0; i < 8; i++) { /* 64 MiB and the lengths */
        put_text(&request, "k");
        put_i64(&request, VALUE);
        feed(c, &request);
        tcpstore_feed(c, value, VALUE);
    }
    expect_broken(c, MUSTER_E_LIMIT, "MULTI_SET exceeds 67108864 bytes");
    assert_int_equal(tcpstore_stats(t).keys, 0);
    tcpstore_destroy(t);
}

/* A request of exactly the limit is taken, one byte more is not: seen at its last length. */
static void the_limit_of_a_request_is_its_last_byte(void **state)
{
    (void)state;
    for (int64_t over = 0; over <= 1; over++) {
        struct store_limits limits = {.value_bytes = 2 * TCPSTORE_MESSAGE_LIMIT};
        struct tcpstore *t = tcpstore_create(&limits, NULL);
        struct tcpstore_connection *c = greeted(t);
        scope_buffer request = {0};
        put_query(&request, TCPSTORE_SET, "k");
        put_i64(&request, (int64_t)(TCPSTORE_MESSAGE_LIMIT - request.length - 8) + over);
        feed(c, &request);
        assert_int_equal(tcpstore_state(c), over ? TCPSTORE_STATE_BROKEN : TCPSTORE_STATE_OPEN);
        tcpstore_destroy(t);
    }
}

/* Up to TCPSTORE_OUTPUT_HIGH unread bytes the next request is served; a byte more, and it waits. */
static void output_is_held_back_above_its_limit(void **state)
{
    (void)state;
    for (size_t over = 0; over <= 1; over++) {
        struct tcpstore *t = tcpstore_create(NULL, NULL);
        struct tcpstore_connection *c = greeted(t);
        scope_buffer request = {0};
        const size_t size = TCPSTORE_OUTPUT_HIGH - 8 + over;
        scope_free char *value = mem_calloc(1, size);
        put_query(&request, TCPSTORE_SET, "big");
        put_i64(&request, (int64_t)size);
        put(&request, value, size);
        put_query(&request, TCPSTORE_GET, "big");
        feed(c, &request);
        assert_int_equal(waiting(c), TCPSTORE_OUTPUT_HIGH + over);
        put_query(&request, TCPSTORE_GET, "big");
        feed(c, &request);
        assert_int_equal(waiting(c), (TCPSTORE_OUTPUT_HIGH + over) * (over ? 1 : 2));
        tcpstore_sent(c, waiting(c));
        assert_int_equal(waiting(c), over ? TCPSTORE_OUTPUT_HIGH + 1 : 0);
        tcpstore_sent(c, waiting(c));
        put_query(&request, TCPSTORE_GET, "big"); /* and a reply of a single byte, which waits alone */
        put_u8(&request, TCPSTORE_GETNUMKEYS);
        feed(c, &request);
        tcpstore_sent(c, TCPSTORE_OUTPUT_HIGH + over);
        assert_int_equal(waiting(c), 8);
        tcpstore_destroy(t);
    }
}

static void input_of_a_parked_client_is_held_back_at_its_limit(void **state)
{
    (void)state;
    struct tcpstore *t = tcpstore_create(NULL, NULL);
    struct tcpstore_connection *c = greeted(t);
    scope_buffer request = {0};
    scope_free char *pings = mem_calloc(1, TCPSTORE_INPUT_HIGH);
    put_wait(&request, "never");
    feed(c, &request);
    tcpstore_feed(c, pings, TCPSTORE_INPUT_HIGH - 1);
    assert_true(tcpstore_wants_input(c));
    tcpstore_feed(c, pings, 1);
    assert_false(tcpstore_wants_input(c));
    tcpstore_destroy(t);
}

static void a_slow_reader_is_held_back(void **state)
{
    (void)state;
    enum { VALUE = 300 << 10, GETS = 50 };
    struct tcpstore *t = tcpstore_create(NULL, NULL);
    struct tcpstore_connection *c = greeted(t);
    scope_buffer request = {0}, out = {0};
    scope_free char *value = mem_calloc(1, VALUE);
    put_query(&request, TCPSTORE_SET, "big");
    put_i64(&request, VALUE);
    put(&request, value, VALUE);
    for (int i = 0; i < GETS; i++)
        put_query(&request, TCPSTORE_GET, "big");
    feed(c, &request);
    assert_true(waiting(c) > TCPSTORE_OUTPUT_HIGH);
    assert_true(waiting(c) <= TCPSTORE_OUTPUT_HIGH + VALUE + 8);
    assert_true(tcpstore_wants_input(c));
    while (tcpstore_wants_input(c)) {
        put_query(&request, TCPSTORE_GET, "none");
        feed(c, &request);
    }
    tcpstore_sent(c, 1000); /* sent in pieces, served in pieces */
    drain(c, &out);
    assert_true(out.length > (size_t)GETS * (VALUE + 8) - 1000);
    assert_true(tcpstore_wants_input(c));
    /* A parked one as well: its requests wait, and reading stops before they fill the memory. */
    put_wait(&request, "never");
    feed(c, &request);
    while (tcpstore_wants_input(c)) {
        put_query(&request, TCPSTORE_GET, "none");
        feed(c, &request);
    }
    assert_int_equal(tcpstore_state(c), TCPSTORE_STATE_PARKED);
    tcpstore_destroy(t);
}

static void a_reply_has_a_limit(void **state)
{
    (void)state;
    enum { VALUE = 8 << 20 };
    const struct store_limits limits = {.total_bytes = (size_t)1 << 30};
    struct tcpstore *t = tcpstore_create(&limits, NULL);
    struct tcpstore_connection *c = greeted(t);
    scope_buffer request = {0};
    scope_free char *value = mem_calloc(1, VALUE);
    put_query(&request, TCPSTORE_SET, "big");
    put_i64(&request, VALUE);
    put(&request, value, VALUE);
    put_u8(&request, TCPSTORE_MULTI_GET);
    put_i64(&request, 9);
    for (int i = 0; i < 9; i++)
        put_text(&request, "big");
    feed(c, &request);
    expect_broken(c, MUSTER_E_LIMIT, "the reply to MULTI_GET exceeds the limit");
    tcpstore_destroy(t);
}

static void a_wipe_ends_every_connection(void **state)
{
    (void)state;
    struct tcpstore *t = tcpstore_create(NULL, NULL);
    struct tcpstore_connection *a = greeted(t), *b = greeted(t), *c = tcpstore_open(t, NULL, NULL);
    scope_buffer request = {0};
    put_set(&request, "stale", "1");
    feed(a, &request);
    put_wait(&request, "never");
    feed(b, &request);
    tcpstore_wipe(t);
    expect_broken(a, MUSTER_E_CANCELLED, "the round is over");
    expect_broken(b, MUSTER_E_CANCELLED, "the round is over");
    expect_broken(c, MUSTER_E_CANCELLED, "the round is over");
    for (struct tcpstore_connection *touched; (touched = tcpstore_next_touched(t));)
        tcpstore_close(touched);
    assert_int_equal(tcpstore_stats(t).bytes, 0);
    assert_int_equal(tcpstore_stats(t).round, 1);
    tcpstore_destroy(t);
}

static void names(void **state)
{
    (void)state;
    assert_string_equal(tcpstore_query_name(TCPSTORE_QUEUE_LEN), "QUEUE_LEN");
    assert_string_equal(tcpstore_query_name(99), "unknown");
    assert_string_equal(tcpstore_state_name(TCPSTORE_STATE_PARKED), "parked");
    assert_string_equal(tcpstore_state_name(-1), "unknown");
    assert_int_equal(TCPSTORE_BARRIER, 18);
    assert_int_equal(TCPSTORE_CANCEL_WAIT, 12);
}

static int whole_session(void *context)
{
    const struct buffer *script = context;
    GUARD(guard_tcpstore) struct tcpstore *t = tcpstore_create(NULL, NULL);
    struct tcpstore_connection *c = t ? tcpstore_open(t, NULL, NULL) : NULL;
    if (!c)
        return -1;
    tcpstore_feed(c, script->data, script->length);
    int result = tcpstore_state(c) == TCPSTORE_STATE_BROKEN ? -1 : 0;
    tcpstore_close(c);
    return result;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    scope_buffer script = {0};
    put_everything(&script);
    faults_sweep(whole_session, &script);
    struct tcpstore *t = tcpstore_create(NULL, NULL);
    struct muster_error err = {0};
    faults_begin();
    faults_fail_after(0);
    assert_null(tcpstore_open(t, NULL, &err));
    assert_int_equal(faults_end(), 0);
    assert_int_equal(err.code, MUSTER_E_NOMEM);
    assert_string_equal(err.text, "no memory for a connection of the TCPStore");
    tcpstore_destroy(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_query_split_at_every_byte),
        cmocka_unit_test(golden_bytes),
        cmocka_unit_test(replies_keep_order_over_a_parked_wait),
        cmocka_unit_test(cancel_races),
        cmocka_unit_test(a_value_asked_for_with_the_wait_for_it),
        cmocka_unit_test(cancel_takes_the_get_back),
        cmocka_unit_test(a_barrier_again_and_again),
        cmocka_unit_test(barriers_release_all),
        cmocka_unit_test(bad_bytes_break_the_connection),
        cmocka_unit_test(a_request_has_a_limit_as_a_whole),
        cmocka_unit_test(the_limit_of_a_request_is_its_last_byte),
        cmocka_unit_test(output_is_held_back_above_its_limit),
        cmocka_unit_test(input_of_a_parked_client_is_held_back_at_its_limit),
        cmocka_unit_test(a_slow_reader_is_held_back),
        cmocka_unit_test(a_reply_has_a_limit),
        cmocka_unit_test(a_wipe_ends_every_connection),
        cmocka_unit_test(names),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
