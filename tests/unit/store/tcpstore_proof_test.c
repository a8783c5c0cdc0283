/* tcpstore_proof_test.c - muster's own keys in a store are for connections that have proven the job's key. */
#include "rendezvous/tcpstore/tcpstore.h"

#include <endian.h>

#include "proto/base/buffer.h"
#include "tests/support/cmocka_all.h"

static const unsigned char key[MAC_KEY_SIZE] = "a key of a job.", other[MAC_KEY_SIZE] = "another's key..",
                           random_bytes[MAC_KEY_SIZE] = "of this engine.";

static void add_string(struct buffer *b, const void *data, size_t length)
{
    const uint64_t wire = htole64(length);
    assert_int_equal(buffer_append(b, &wire, sizeof wire), 0);
    assert_int_equal(buffer_append(b, data, length), 0);
}

static void add_number(struct buffer *b, uint64_t number)
{
    number = htole64(number);
    assert_int_equal(buffer_append(b, &number, sizeof number), 0);
}

/* A whole request whose keys are all `name`. */
static void add_request(struct buffer *b, int query, const char *body, const char *name)
{
    const char byte = (char)query;
    assert_int_equal(buffer_append(b, &byte, 1), 0);
    for (; *body; body++)
        switch (*body) {
        case 'k':
            add_string(b, name, strlen(name));
            break;
        case 'v':
            add_string(b, "1", 1);
            break;
        case 'i':
            add_number(b, 1);
            break;
        case 'K':
        case 'P':
            add_number(b, 2);
            for (int i = 0; i < 2; i++) {
                add_string(b, i ? name : "/free", i ? strlen(name) : 5);
                if (*body == 'P')
                    add_string(b, "1", 1);
            }
            break;
        default:
            fail();
        }
}

static struct tcpstore_connection *greet(struct tcpstore *t)
{
    static const unsigned char hello[] = {0, 0xCE, 0xF7, 0x85, 0x3C};
    struct tcpstore_connection *c = tcpstore_open(t, NULL, NULL);
    assert_non_null(c);
    tcpstore_feed(c, hello, sizeof hello);
    return c;
}

static void ask_challenge(struct tcpstore_connection *c, unsigned char challenge[MAC_SIZE])
{
    scope_buffer b = {0};
    add_request(&b, TCPSTORE_GET, "k", TCPSTORE_CHALLENGE_KEY);
    tcpstore_feed(c, b.data, b.length);
    const struct store_bytes out = tcpstore_output(c);
    assert_int_equal(out.length, 8 + MAC_SIZE);
    memcpy(challenge, (const char *)out.data + 8, MAC_SIZE);
    tcpstore_sent(c, out.length);
}

static void send_proof(struct tcpstore_connection *c, const void *proof, size_t length)
{
    scope_buffer b = {0};
    const char byte = TCPSTORE_SET;
    assert_int_equal(buffer_append(&b, &byte, 1), 0);
    add_string(&b, TCPSTORE_PROOF_KEY, sizeof TCPSTORE_PROOF_KEY - 1);
    add_string(&b, proof, length);
    tcpstore_feed(c, b.data, b.length);
}

static void prove(struct tcpstore_connection *c, const unsigned char with[MAC_KEY_SIZE])
{
    unsigned char challenge[MAC_SIZE], proof[MAC_SIZE];
    ask_challenge(c, challenge);
    tcpstore_prove(with, challenge, proof);
    send_proof(c, proof, sizeof proof);
}

static bool is_refused(const struct tcpstore_connection *c)
{
    return tcpstore_state(c) == TCPSTORE_STATE_BROKEN && tcpstore_broken_reason(c)->code == MUSTER_E_REFUSED;
}

static void every_query_of_a_guarded_key_needs_the_proof(void **state)
{
    static const struct {
        const char *name, *body;
    } queries[] = {
#define QUERY_BODY(symbol, name, body) [symbol] = {name, body},
        TCPSTORE_QUERIES(QUERY_BODY)
#undef QUERY_BODY
    };
    (void)state;
    for (int query = TCPSTORE_SET; query < TCPSTORE_QUERY_COUNT; query++) {
        if (!strpbrk(queries[query].body, "kKP"))
            continue;
        for (int proven = 0; proven < 2; proven++) {
            struct tcpstore *t = tcpstore_create(NULL, NULL);
            scope_buffer free_key = {0}, guarded = {0};
            tcpstore_guard(t, key, random_bytes);
            struct tcpstore_connection *c = greet(t);
            if (proven)
                prove(c, key);
            if (query != TCPSTORE_WAIT) {
                add_request(&free_key, query, queries[query].body, "/default_pg/0//muster/"); /* PyTorch's */
                tcpstore_feed(c, free_key.data, free_key.length);
                assert_int_not_equal(tcpstore_state(c), TCPSTORE_STATE_BROKEN);
            }
            add_request(&guarded, query, queries[query].body, "/muster/0.0/at/1");
            tcpstore_feed(c, guarded.data, guarded.length);
            assert_int_equal(is_refused(c), !proven);
            if (!proven) {
                assert_non_null(strstr(tcpstore_broken_reason(c)->text, queries[query].name));
                assert_non_null(strstr(tcpstore_broken_reason(c)->text, "\"/muster/0.0/at/1\""));
            }
            tcpstore_destroy(t);
        }
    }
}

static void what_proves_nothing(void **state)
{
    unsigned char challenge[MAC_SIZE], theirs[MAC_SIZE], proof[MAC_SIZE];
    (void)state;
    struct tcpstore *t = tcpstore_create(NULL, NULL);
    tcpstore_guard(t, key, random_bytes);
    struct tcpstore_connection *wrong = greet(t), *worker = greet(t), *again = greet(t), *cut = greet(t);
    prove(wrong, other);
    assert_true(is_refused(wrong));
    ask_challenge(worker, challenge);
    tcpstore_prove(key, challenge, proof);
    ask_challenge(again, theirs);
    assert_memory_not_equal(challenge, theirs, MAC_SIZE);
    send_proof(again, proof, sizeof proof); /* heard on the worker's connection */
    assert_true(is_refused(again));
    send_proof(cut, proof, sizeof proof - 1);
    assert_true(is_refused(cut));
    send_proof(worker, proof, sizeof proof);
    assert_int_equal(tcpstore_state(worker), TCPSTORE_STATE_OPEN);
    assert_int_equal(tcpstore_output(worker).length, 0);
    assert_int_equal(tcpstore_stats(t).keys, 0); /* neither is a key */
    tcpstore_destroy(t);
}

static void without_a_secret_nothing_is_guarded(void **state)
{
    scope_buffer b = {0};
    (void)state;
    struct tcpstore *t = tcpstore_create(NULL, NULL);
    struct tcpstore_connection *c = greet(t);
    add_request(&b, TCPSTORE_SET, "kv", "/muster/0.0/at/1");
    add_request(&b, TCPSTORE_GET, "k", TCPSTORE_CHALLENGE_KEY);
    tcpstore_feed(c, b.data, b.length);
    assert_int_equal(tcpstore_state(c), TCPSTORE_STATE_OPEN);
    assert_int_equal(tcpstore_output(c).length, 8); /* an empty value: it asks for no proof */
    tcpstore_destroy(t);
}

/* From the reference implementation of SipHash-2-4-128: the key and the input are 0, 1, 2 ... */
static void codes_are_those_of_siphash(void **state)
{
    static const struct {
        size_t length;
        unsigned char code[MAC_SIZE];
    } rows[] = {
        {0, {0xa3, 0x81, 0x7f, 0x04, 0xba, 0x25, 0xa8, 0xe6, 0x6d, 0xf6, 0x72, 0x14, 0xc7, 0x55, 0x02, 0x93}},
        {15,
         {0x54, 0x93, 0xe9, 0x99, 0x33, 0xb0, 0xa8, 0x11, 0x7e, 0x08, 0xec, 0x0f, 0x97, 0xcf, 0xc3, 0xd9}},
        {30,
         {0xea, 0x5c, 0x7f, 0x47, 0x1f, 0xaf, 0x6b, 0xde, 0x2b, 0x1a, 0xd7, 0xd4, 0x68, 0x6d, 0x22, 0x87}},
    };
    unsigned char counting[32], code[MAC_SIZE];
    (void)state;
    for (int i = 0; i < 32; i++)
        counting[i] = (unsigned char)i;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        mac_make(counting, counting, rows[i].length, code);
        assert_memory_equal(code, rows[i].code, MAC_SIZE);
        assert_true(mac_equal(code, rows[i].code));
        code[i] ^= 1;
        assert_false(mac_equal(code, rows[i].code));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_query_of_a_guarded_key_needs_the_proof),
        cmocka_unit_test(what_proves_nothing),
        cmocka_unit_test(without_a_secret_nothing_is_guarded),
        cmocka_unit_test(codes_are_those_of_siphash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
