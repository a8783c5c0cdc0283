/* tcpstore_fuzz.c - arbitrary bytes from several connections into the TCPStore engine. See README.md in this
 * folder for the two ways to build it. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/buffer.h"
#include "proto/base/io.h"
#include "proto/base/text.h"
#include "rendezvous/tcpstore/tcpstore.h"

/* ONE_REPLY: of a wait that another client ended, which is not in the way of it. */
enum { CONNECTIONS = 4, ONE_REPLY = 64 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "broken: %s\n", what);
        abort();
    }
}

/* Two clients of torch 2.2 and later, a client of torch 2.1, and a client before its greeting. */
static bool speaks_2_1(size_t who)
{
    return who >= 2;
}
static struct tcpstore_connection *greeted(struct tcpstore *t, size_t who)
{
    static const unsigned char validate[] = {0x00, 0xCE, 0xF7, 0x85, 0x3C},
                               add[] = {3,   5,   0,   0, 0, 0, 0, 0, 0, 'i', 'n',
                                        'i', 't', '/', 1, 0, 0, 0, 0, 0, 0,   0};
    struct tcpstore_connection *c = tcpstore_open(t, NULL, NULL);
    check(c != NULL, "memory");
    if (!speaks_2_1(who))
        tcpstore_feed(c, validate, sizeof validate);
    else if (who == 2)
        tcpstore_feed(c, add, sizeof add);
    return c;
}

/* The shell's work after a turn: replace broken connections, send part of the output. */
static void settle(struct tcpstore *t, struct tcpstore_connection **all, unsigned pace)
{
    for (struct tcpstore_connection *c; (c = tcpstore_next_touched(t));) {
        size_t at = 0;
        while (at < CONNECTIONS && all[at] != c)
            at++;
        check(at < CONNECTIONS, "a connection that nobody opened was touched");
        check((tcpstore_broken_reason(c) != NULL) == (tcpstore_state(c) == TCPSTORE_STATE_BROKEN),
              "broken connections have a reason, others have none");
        if (tcpstore_state(c) == TCPSTORE_STATE_BROKEN) {
            check(!tcpstore_wants_input(c), "a broken connection is read");
            tcpstore_close(c);
            all[at] = greeted(t, at);
            continue;
        }
        size_t waiting = tcpstore_output(c).length;
        if (waiting)
            tcpstore_sent(c, pace % 2 ? waiting : waiting / 2 + 1);
    }
}

/* The input is a list of turns: a byte that says who and how, a byte of length, the bytes. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct store_limits limits = {
        .key_bytes = 64, .value_bytes = 2500, .keys = 32, .wait_keys = 16, .total_bytes = 1 << 14};
    struct tcpstore *t = tcpstore_create(&limits, NULL);
    struct tcpstore_connection *all[CONNECTIONS];
    check(t != NULL, "memory");
    if (size % 2) /* a job with a secret */
        tcpstore_guard(t, (const unsigned char *)"a key of a job.", (const unsigned char *)"of this engine.");
    for (int i = 0; i < CONNECTIONS; i++)
        all[i] = greeted(t, (size_t)i);
    while (size >= 2) {
        unsigned how = data[0];
        size_t length = data[1] < size - 2 ? data[1] : size - 2;
        struct tcpstore_connection **c = &all[how % CONNECTIONS];
        if (how >= 0xF8) {
            tcpstore_close(*c);
            *c = greeted(t, how % CONNECTIONS);
        } else if (how == 0xF0) {
            tcpstore_wipe(t);
        } else if (tcpstore_wants_input(*c)) {
            tcpstore_feed(*c, data + 2, length);
        }
        settle(t, all, how / CONNECTIONS);
        check(tcpstore_held(t) <= limits.total_bytes + CONNECTIONS * ONE_REPLY, "the budget is exceeded");
        check(tcpstore_stats(t).bytes <= limits.total_bytes, "the store is larger than its limit");
        check(tcpstore_stats(t).keys <= tcpstore_stats(t).names, "more keys than names");
        data += 2 + length;
        size -= 2 + length;
    }
    for (int i = 0; i < CONNECTIONS; i++)
        tcpstore_close(all[i]);
    check(tcpstore_stats(t).parked == 0, "a wait outlives its connection");
    tcpstore_wipe(t);
    check(tcpstore_stats(t).bytes == 0, "a wipe leaves bytes behind");
    tcpstore_destroy(t);
    return 0;
}

#ifndef MUSTER_LIBFUZZER

static uint64_t random_state;

static unsigned draw(unsigned below)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (unsigned)(random_state >> 33) % below;
}

static void put_u64(struct buffer *b, uint64_t value)
{
    (void)buffer_append(b, &value, sizeof value); /* a shorter input is an input too */
}

/* One request that is nearly right: names from a small set, so that clients meet. */
static void put_request(struct buffer *b, bool is_old)
{
    static const char *const bodies[] = {
#define FUZZ_BODY(symbol, name, body) body,
        TCPSTORE_QUERIES(FUZZ_BODY)
#undef FUZZ_BODY
    };
    unsigned query = 1 + draw(is_old ? TCPSTORE_CANCEL_WAIT : TCPSTORE_QUERY_COUNT - 1);
    uint8_t number = (uint8_t)(query - is_old);
    (void)buffer_append(b, &number, 1);
    for (const char *field = bodies[query]; *field; field++) {
        unsigned strings = 1;
        if (*field == 'u' || *field == 'i') {
            put_u64(b, draw(4)); /* for u: four bytes too many, so the stream slips now and then */
            b->length -= *field == 'u' ? 4 : 0;
            continue;
        }
        if (*field == 'K' || *field == 'P') {
            unsigned count = draw(4);
            put_u64(b, count);
            strings = *field == 'P' ? 2 * count : count;
        }
        for (; strings; strings--) {
            const bool is_value = *field == 'v' || (*field == 'P' && strings % 2);
            char text[8];
            if (is_value && draw(16) == 0) { /* a shared value, not copied */
                static const char large[2600];
                const unsigned size = 1000 + draw(1600);
                put_u64(b, size);
                (void)buffer_append(b, large, size);
                continue;
            }
            int length = snprintf(text, sizeof text, draw(8) ? "/%u" : "%u", draw(6));
            put_u64(b, (uint64_t)length);
            (void)buffer_append(b, text, (size_t)length);
        }
    }
    if (draw(50) == 0 && b->length)
        b->data[draw((unsigned)b->length)] ^= (char)(1 + draw(255));
}

static void random_input(struct buffer *input)
{
    buffer_clear(input);
    for (unsigned turns = 1 + draw(60); turns; turns--) {
        scope_buffer request = {0};
        unsigned who = draw(100) == 0 ? 0xF0 + draw(16) : draw(0xF0);
        for (unsigned requests = 1 + draw(3); requests; requests--)
            put_request(&request, speaks_2_1(who % CONNECTIONS));
        size_t at = 0;
        while (at < request.length) { /* split it, and keep to one connection */
            size_t piece = 1 + draw(200);
            piece = piece < request.length - at ? piece : request.length - at;
            uint8_t head[2] = {(uint8_t)who, (uint8_t)piece};
            (void)buffer_append(input, head, sizeof head);
            (void)buffer_append(input, request.data + at, piece);
            at += piece;
        }
    }
}

static int replay(const char *path)
{
    scope_buffer input = {0};
    struct muster_error err = {0};
    if (io_read_file(path, (size_t)1 << 20, &input, &err)) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    return LLVMFuzzerTestOneInput((const uint8_t *)input.data, input.length);
}

/* tcpstore_fuzz FILE... replays files; tcpstore_fuzz --random COUNT [SEED] makes its own inputs. */
int main(int argc, char **argv)
{
    int64_t count = 0, seed = 1;
    if (argc < 2 || strcmp(argv[1], "--random") != 0) {
        int failed = 0;
        for (int i = 1; i < argc; i++)
            failed |= replay(argv[i]);
        return failed;
    }
    if (argc < 3 || !text_int64(argv[2], &count) || (argc > 3 && !text_int64(argv[3], &seed))) {
        fprintf(stderr, "usage: tcpstore_fuzz FILE... | --random COUNT [SEED]\n");
        return 2;
    }
    printf("%lld random inputs from seed %lld\n", (long long)count, (long long)seed);
    scope_buffer input = {0};
    for (int64_t i = 0; i < count; i++) {
        random_state = (uint64_t)(seed + i);
        random_input(&input);
        if (LLVMFuzzerTestOneInput((const uint8_t *)input.data, input.length))
            return 1;
    }
    return 0;
}

#endif
