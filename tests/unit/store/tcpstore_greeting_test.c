/* tcpstore_greeting_test.c - how a TCPStore classifies a new connection, and clients of torch 2.1, which
 * number their queries otherwise. */
#include "rendezvous/tcpstore/tcpstore_greeting.h"

#include <endian.h>

#include "proto/base/buffer.h"
#include "rendezvous/tcpstore/tcpstore.h"
#include "tests/support/cmocka_all.h"

#define MAGIC "\xCE\xF7\x85\x3C"

static void first_bytes(void **state)
{
    (void)state;
    enum { REFUSED = -1 };
    static const struct {
        const char *bytes;
        size_t length;
        int dialect;
    } cases[] = {
        {"\0", 1, TCPSTORE_DIALECT_UNKNOWN},
        {"\0\xCE", 2, TCPSTORE_DIALECT_UNKNOWN},
        {"\0\xCE\xF7\x85", 4, TCPSTORE_DIALECT_UNKNOWN},
        {"\0" MAGIC, 5, TCPSTORE_DIALECT_VALIDATED},
        {"\0" MAGIC "\x0D", 6, TCPSTORE_DIALECT_VALIDATED},
        {"\0\x02", 2, TCPSTORE_DIALECT_2_1},
        {"\0\x02\0\0\0\0\0\0\0/a", 11, TCPSTORE_DIALECT_2_1},
        {"\0\xCE\x0F", 3, TCPSTORE_DIALECT_2_1}, /* a key of 4,046 bytes, so far */
        {"\0\xCE\xF7\x85\x3D", 5, REFUSED},      /* a key of a gigabyte */
        {"\0\0\0\1", 4, REFUSED},
        {"\0wrong", 6, REFUSED},
        {"\3", 1, TCPSTORE_DIALECT_2_1},
        {"\3\5\0\0\0\0\0\0\0init/", 14, TCPSTORE_DIALECT_2_1},
        {"\1\0\x20\0", 4, TCPSTORE_DIALECT_2_1}, /* a key of 8,192 bytes */
        {"\1\1\x20\0", 4, REFUSED},
        {"\5\0\0\2\0", 5, TCPSTORE_DIALECT_2_1}, /* WAIT of 131,072 keys */
        {"\5\1\0\2\0", 5, REFUSED},
        {"\x0A\0\0\0\0\0\0\0\1", 9, REFUSED},
        {"\6\xFF\xFF\xFF\xFF", 5, TCPSTORE_DIALECT_2_1}, /* GETNUMKEYS has no body: another query follows */
        {"\x0B", 1, TCPSTORE_DIALECT_2_1},
        {"\x0C", 1, REFUSED}, /* 2.1 has no query 12 */
        {"\xFF", 1, REFUSED},
        {"GET / HTTP/1.1\r\n", 16, REFUSED},
        {"\x16\3\1\2\0", 5, REFUSED}, /* TLS */
    };
    struct store_limits limits = store_limits_default();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct muster_error err = {0};
        enum tcpstore_dialect dialect = TCPSTORE_DIALECT_2_1;
        int result = tcpstore_greeting(cases[i].bytes, cases[i].length, &limits, &dialect, &err);
        if ((result < 0 ? REFUSED : (int)dialect) != cases[i].dialect)
            fail_msg("case %zu: %d, dialect %d: %s", i, result, (int)dialect, err.text);
        assert_int_equal(err.code, result < 0 ? MUSTER_E_PROTOCOL : 0);
    }
}

static void first_keys(void **state)
{
    (void)state;
    static const struct {
        struct store_bytes key;
        bool is_torchs;
    } cases[] = {{{"/a", 2}, true},    {{"/", 1}, true},  {{"init/", 5}, true}, {{"init/x", 6}, false},
                 {{"init", 4}, false}, {{"a", 1}, false}, {{NULL, 0}, false},   {{"\0", 1}, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(tcpstore_greeting_key(cases[i].key), cases[i].is_torchs);
}

static void put_text(struct buffer *b, const char *text)
{
    uint64_t length = htole64(strlen(text));
    (void)buffer_append(b, &length, sizeof length); /* the tests compare the result */
    (void)buffer_append(b, text, strlen(text));
}

static void put_number(struct buffer *b, int64_t number)
{
    uint64_t wire = htole64((uint64_t)number);
    (void)buffer_append(b, &wire, sizeof wire);
}

static void put_query(struct buffer *b, uint8_t query)
{
    (void)buffer_append(b, &query, 1);
}

/* Every query of torch 2.1, by its own numbers, as its client writes them. */
static void put_everything_2_1(struct buffer *b, struct buffer *expected)
{
    put_query(b, 3); /* ADD */
    put_text(b, "init/");
    put_number(b, 1);
    put_number(expected, 1);
    put_query(b, 0); /* SET */
    put_text(b, "/a");
    put_text(b, "one");
    put_query(b, 5); /* WAIT */
    put_number(b, 1);
    put_text(b, "/a");
    (void)buffer_append(expected, "\0", 1);
    put_query(b, 2); /* GET */
    put_text(b, "/a");
    put_text(expected, "one");
    put_query(b, 1); /* COMPARE_SET */
    put_text(b, "/a");
    put_text(b, "one");
    put_text(b, "two");
    put_text(expected, "two");
    put_query(b, 4); /* CHECK */
    put_number(b, 2);
    put_text(b, "/a");
    put_text(b, "/b");
    (void)buffer_append(expected, "\1", 1);
    put_query(b, 8); /* APPEND */
    put_text(b, "/a");
    put_text(b, "!");
    put_query(b, 10); /* MULTI_SET */
    put_number(b, 1);
    put_text(b, "/b");
    put_text(b, "");
    put_query(b, 9); /* MULTI_GET */
    put_number(b, 2);
    put_text(b, "/a");
    put_text(b, "/b");
    put_text(expected, "two!");
    put_text(expected, "");
    put_query(b, 6); /* GETNUMKEYS */
    put_number(expected, 3);
    put_query(b, 7); /* DELETE_KEY */
    put_text(b, "/b");
    put_number(expected, 1);
    put_query(b, 5); /* WAIT, given up by CANCEL_WAIT */
    put_number(b, 1);
    put_text(b, "/never");
    put_query(b, 11);
    (void)buffer_append(expected, "\1", 1);
}

static void a_client_of_2_1_split_at_every_byte(void **state)
{
    (void)state;
    scope_buffer script = {0}, expected = {0};
    put_everything_2_1(&script, &expected);
    for (size_t piece = 1; piece <= script.length; piece++) {
        struct tcpstore *t = tcpstore_create(NULL, NULL);
        struct tcpstore_connection *c = tcpstore_open(t, NULL, NULL);
        for (size_t at = 0; at < script.length; at += piece)
            tcpstore_feed(c, script.data + at, piece < script.length - at ? piece : script.length - at);
        if (tcpstore_broken_reason(c))
            fail_msg("broken: %s", tcpstore_broken_reason(c)->text);
        struct store_bytes out = tcpstore_output(c);
        assert_int_equal(out.length, expected.length);
        assert_memory_equal(out.data, expected.data, expected.length);
        tcpstore_destroy(t);
    }
}

static void the_first_request_opens_it(void **state)
{
    (void)state;
    struct tcpstore *t = tcpstore_create(NULL, NULL);
    struct tcpstore_connection *c = tcpstore_open(t, NULL, NULL);
    tcpstore_feed(c, "\3\5\0\0\0\0\0\0\0in",
                  11); /* a peer that stops here is closed by the greeting's time */
    assert_int_equal(tcpstore_state(c), TCPSTORE_STATE_GREETING);
    tcpstore_feed(c, "it/\1\0\0\0\0\0\0\0", 11);
    assert_int_equal(tcpstore_state(c), TCPSTORE_STATE_OPEN);
    tcpstore_feed(c, "\x0C", 1); /* PING of later versions */
    assert_int_equal(tcpstore_state(c), TCPSTORE_STATE_BROKEN);
    assert_non_null(
        strstr(tcpstore_broken_reason(c)->text, "unknown query 12: this server knows 0 to 11 of torch 2.1"));
    tcpstore_destroy(t);
}

static void other_bytes_that_parse_as_2_1(void **state)
{
    (void)state;
    static const char zeros[64];
    struct tcpstore *t = tcpstore_create(NULL, NULL);
    struct tcpstore_connection *c = tcpstore_open(t, NULL, NULL);
    tcpstore_feed(c, zeros, sizeof zeros);
    assert_int_equal(tcpstore_state(c), TCPSTORE_STATE_BROKEN);
    assert_non_null(strstr(tcpstore_broken_reason(c)->text, "SET of a key that no client of PyTorch writes"));
    assert_int_equal(tcpstore_stats(t).keys, 0);
    tcpstore_destroy(t);
}

static void both_in_one_store(void **state)
{
    (void)state;
    struct tcpstore *t = tcpstore_create(NULL, NULL);
    struct tcpstore_connection *old = tcpstore_open(t, NULL, NULL), *new = tcpstore_open(t, NULL, NULL);
    tcpstore_feed(old, "\5\1\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0/a", 19); /* WAIT */
    assert_int_equal(tcpstore_state(old), TCPSTORE_STATE_PARKED);
    tcpstore_feed(new, "\0" MAGIC "\1\2\0\0\0\0\0\0\0/a\1\0\0\0\0\0\0\0v", 25); /* SET */
    assert_int_equal(tcpstore_state(old), TCPSTORE_STATE_OPEN);
    assert_int_equal(tcpstore_output(old).length, 1);
    tcpstore_destroy(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_bytes),
        cmocka_unit_test(first_keys),
        cmocka_unit_test(a_client_of_2_1_split_at_every_byte),
        cmocka_unit_test(the_first_request_opens_it),
        cmocka_unit_test(other_bytes_that_parse_as_2_1),
        cmocka_unit_test(both_in_one_store),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
