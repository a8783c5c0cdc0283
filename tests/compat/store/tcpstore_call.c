/* tcpstore_call.c - our TCPStore client as a program, for servers that are not ours.
 *
 *     tcpstore_call HOST PORT
 *
 * Makes every call of the client once or more and exits 0 where all answers are right. It finds "greeting" =
 * "hello" in the store, leaves "answer" = "world" there, and meets one other client in the barrier "meet"
 * twice: it is both of them. */
#include <stdio.h>
#include <string.h>

#include "proto/base/clock.h"
#include "proto/base/text.h"
#include "rendezvous/tcpstore/tcpstore_client.h"

#define LONG_NS (60 * NS_PER_S)

static int expect(const struct buffer *got, const char *wanted)
{
    if (got->length == strlen(wanted) && (!got->length || !memcmp(got->data, wanted, got->length)))
        return 0;
    fprintf(stderr, "tcpstore_call: got \"%.*s\", wanted \"%s\"\n", (int)got->length,
            got->data ? got->data : "", wanted);
    return -1;
}

static int values(struct tcpstore_client *c, struct muster_error *err)
{
    scope_buffer out = {0};
    struct store_bytes empty = {NULL, 0}, one = {"one", 3}, two = {"two", 3};
    int64_t number = 0;
    bool flag = false;
    if (tcpstore_client_get(c, "greeting", &out, LONG_NS, err) || expect(&out, "hello") ||
        tcpstore_client_add(c, "n", 40, NULL, err) || tcpstore_client_add(c, "n", 2, &number, err) ||
        number != 42 || tcpstore_client_get(c, "n", &out, LONG_NS, err) || expect(&out, "42"))
        return -1;
    if (tcpstore_client_compare_set(c, "c", two, one, &out, err) || expect(&out, "two") ||
        tcpstore_client_compare_set(c, "c", empty, one, &out, err) || expect(&out, "one") ||
        tcpstore_client_compare_set(c, "c", one, two, &out, err) || expect(&out, "two") ||
        tcpstore_client_append(c, "c", "!", 1, err) || tcpstore_client_get(c, "c", &out, LONG_NS, err) ||
        expect(&out, "two!"))
        return -1;
    if (tcpstore_client_check(c, (const char *[]){"c", "n"}, 2, &flag, err) || !flag ||
        tcpstore_client_delete(c, "c", &flag, err) || !flag || tcpstore_client_delete(c, "c", &flag, err) ||
        flag || tcpstore_client_check(c, (const char *[]){"c", "n"}, 2, &flag, err) || flag ||
        tcpstore_client_num_keys(c, &number, err) || number < 2)
        return -1;
    return tcpstore_client_set(c, "answer", "world", 5, err);
}

static int lists(struct tcpstore_client *c, struct muster_error *err)
{
    const char *const keys[] = {"m1", "m2"};
    const struct store_bytes set[] = {{"first", 5}, {NULL, 0}};
    struct buffer got[2] = {{0}};
    int failed = tcpstore_client_multi_set(c, keys, set, 2, err) ||
                 tcpstore_client_wait(c, keys, 2, LONG_NS, err) ||
                 tcpstore_client_multi_get(c, keys, 2, got, LONG_NS, err) || expect(&got[0], "first") ||
                 expect(&got[1], "");
    buffer_free(&got[0]);
    buffer_free(&got[1]);
    return failed ? -1 : 0;
}

static int waits(struct tcpstore_client *c, struct muster_error *err)
{
    scope_buffer out = {0};
    if (!tcpstore_client_get(c, "never", &out, 100 * NS_PER_MS, err) || err->code != MUSTER_E_TIMEOUT)
        return -1;
    /* The cancelled wait left nothing in the stream. */
    return tcpstore_client_get(c, "greeting", &out, LONG_NS, err) || expect(&out, "hello") ? -1 : 0;
}

static int meet(struct tcpstore_client *c, struct muster_error *err)
{
    for (int turn = 0; turn < 2; turn++) {
        /* The first of two cannot wait for the second in one thread: it arrives, gives up waiting, and the
         * second opens the barrier. */
        if (!tcpstore_client_barrier(c, "meet", 2, NS_PER_MS, err) || err->code != MUSTER_E_TIMEOUT)
            return -1;
        if (tcpstore_client_barrier(c, "meet", 2, LONG_NS, err))
            return -1;
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct muster_error err = {0};
    int64_t port = 0;
    if (argc != 3 || !text_int64(argv[2], &port) || port < 1 || port > 65535) {
        fprintf(stderr, "usage: tcpstore_call HOST PORT\n");
        return 2;
    }
    struct tcpstore_client_options options = {.host = argv[1], .port = (uint16_t)port, .timeout_ns = LONG_NS};
    GUARD(guard_tcpstore_client) struct tcpstore_client *c = tcpstore_client_connect(&options, &err);
    if (c && !values(c, &err) && !lists(c, &err) && !waits(c, &err) && !meet(c, &err))
        return 0;
    fprintf(stderr, "tcpstore_call: %s\n", err.code ? err.text : "a wrong answer");
    return 1;
}
