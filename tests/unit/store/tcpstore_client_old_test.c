/* tcpstore_client_old_test.c - our TCPStore client and servers of torch 2.1, which know no VALIDATE and
 * number the queries lower by one. The server is played from a script of its expected requests and its
 * answers. */
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "proto/base/clock.h"
#include "proto/base/guard.h"
#include "proto/base/thread.h"
#include "rendezvous/net/tcp_listen.h"
#include "rendezvous/tcpstore/tcpstore.h"
#include "rendezvous/tcpstore/tcpstore_client.h"
#include "tests/support/cmocka_all.h"

#define LONG_NS (60 * NS_PER_S)

struct played {
    int listener;
    const char *wrong; /* NULL: everything was as it is to be */
};

static bool is_sent(int fd, const void *bytes, size_t length)
{
    char got[128];
    return length <= sizeof got && recv(fd, got, length, MSG_WAITALL) == (ssize_t)length &&
           !memcmp(got, bytes, length);
}

/* The first connection begins with VALIDATE, which such a server cannot read: it closes it. */
static const char *play_rejection(int listener)
{
    char byte;
    scope_close int fd = accept(listener, NULL, NULL);
    if (fd < 0 || recv(fd, &byte, 1, 0) != 1 || byte != TCPSTORE_VALIDATE)
        return "the first greeting";
    return NULL;
}

#define OURS_LENGTH "\x17\0\0\0\0\0\0\0"
static const char *play_old(int listener)
{
    static const char check[] = "\4\1\0\0\0\0\0\0\0" OURS_LENGTH TCPSTORE_MUSTER_KEY;
    static const char set_and_wait[] = "\0\2\0\0\0\0\0\0\0/k\1\0\0\0\0\0\0\0v"
                                       "\5\1\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0/k";
    static const char get[] = "\2\2\0\0\0\0\0\0\0/k", never[] = "\5\1\0\0\0\0\0\0\0\6\0\0\0\0\0\0\0/never";
    scope_close int fd = accept(listener, NULL, NULL);
    if (fd < 0 || !is_sent(fd, check, sizeof check - 1) || send(fd, "\1", 1, 0) != 1)
        return "the second greeting";
    if (!is_sent(fd, set_and_wait, sizeof set_and_wait - 1) || send(fd, "\0", 1, 0) != 1)
        return "SET and WAIT";
    if (!is_sent(fd, get, sizeof get - 1) || send(fd, "\1\0\0\0\0\0\0\0v", 9, 0) != 9)
        return "GET";
    if (!is_sent(fd, never, sizeof never - 1) || !is_sent(fd, "\x0B", 1) || send(fd, "\1", 1, 0) != 1)
        return "WAIT and CANCEL_WAIT";
    return NULL;
}

static void *play(void *argument)
{
    struct played *played = argument;
    played->wrong = play_rejection(played->listener);
    if (!played->wrong)
        played->wrong = play_old(played->listener);
    return NULL;
}

static void a_server_of_2_1_is_understood(void **state)
{
    (void)state;
    struct muster_error err = {0};
    uint16_t port = 0;
    scope_close int listener = tcp_listen("127.0.0.1", 0, &port, &err);
    struct timeval patience = {.tv_sec = 60}; /* a call that blocks too long fails */
    assert_true(listener >= 0);
    assert_int_equal(fcntl(listener, F_SETFL, 0), 0);
    assert_int_equal(setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience), 0);
    struct played played = {.listener = listener};
    pthread_t thread;
    assert_int_equal(thread_start(&thread, 0, play, &played), 0);
    struct tcpstore_client_options options = {.host = "127.0.0.1", .port = port, .timeout_ns = LONG_NS};
    struct tcpstore_client *c = tcpstore_client_connect(&options, &err);
    if (!c)
        fail_msg("%s", err.text);
    scope_buffer value = {0};
    int set = tcpstore_client_set(c, "k", "v", 1, &err),
        got = tcpstore_client_get(c, "k", &value, LONG_NS, &err),
        never = tcpstore_client_wait(c, (const char *[]){"never"}, 1, NS_PER_MS, &err);
    tcpstore_client_destroy(c);
    assert_int_equal(pthread_join(thread, NULL), 0);
    if (played.wrong)
        fail_msg("%s: %s", played.wrong, err.text);
    assert_int_equal(set, 0);
    assert_int_equal(got, 0);
    assert_string_equal(value.data, "v");
    assert_int_equal(never, -1);
    assert_int_equal(err.code, MUSTER_E_TIMEOUT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_server_of_2_1_is_understood)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
