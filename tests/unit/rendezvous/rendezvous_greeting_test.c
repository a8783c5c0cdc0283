/* rendezvous_greeting_test.c - a node whose secret is not like the server's says its whole greeting, and a
 * real server's socket receives the fault from it. */
#include "rendezvous/client/whole_greeting.h"

#include <arpa/inet.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zmq.h>

#include "proto/base/clock.h"
#include "proto/base/error.h"
#include "rendezvous/net/tcp_listen.h"
#include "rendezvous/security/secret.h"
#include "rendezvous/zmq/handshake.h"
#include "rendezvous/zmq/zmq_socket.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/free_port.h"

enum { SIZE = 64, LIMIT_MS = 240000 };

static void read_greeting(int listener, char bytes[SIZE])
{
    int fd = -1, got = 0;
    struct pollfd coming = {listener, POLLIN, 0};
    assert_int_equal(poll(&coming, 1, LIMIT_MS), 1);
    fd = accept(listener, NULL, NULL);
    assert_true(fd >= 0);
    while (got < SIZE) {
        ssize_t more = recv(fd, bytes + got, (size_t)(SIZE - got), 0);
        assert_true(more > 0);
        got += (int)more;
    }
    close(fd);
}

static void what_is_said(void **state)
{
    (void)state;
    static const struct {
        const char *address;
        bool secret;
        const char *mechanism;
    } cases[] = {{"127.0.0.1", true, "CURVE"}, {"127.0.0.1", false, "NULL"}, {"::1", true, "CURVE"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char bytes[SIZE], expected[SIZE] = "\xff\0\0\0\0\0\0\0\0\x7f\x03";
        struct whole_greeting greeting = {0};
        uint16_t port;
        int listener = tcp_listen(cases[i].address, 0, &port, NULL);
        assert_true(listener >= 0);
        whole_greeting_step(&greeting, cases[i].address, port, cases[i].secret);
        assert_false(greeting.sent);
        whole_greeting_step(&greeting, cases[i].address, port, cases[i].secret);
        assert_true(greeting.sent);
        whole_greeting_step(&greeting, cases[i].address, port, cases[i].secret); /* nothing more */
        assert_true(greeting.open);
        read_greeting(listener, bytes);
        strcpy(expected + 12, cases[i].mechanism);
        assert_memory_equal(bytes, expected, SIZE);
        whole_greeting_close(&greeting);
        assert_false(greeting.open || greeting.sent);
        close(listener);
    }
}

static void who_is_not_reached_is_tried_again(void **state)
{
    (void)state;
    struct whole_greeting greeting = {0};
    char bytes[SIZE];
    uint16_t port;
    int listener = tcp_listen("127.0.0.1", 0, &port, NULL);
    close(listener);
    for (int i = 0; i < 5; i++) {
        whole_greeting_step(&greeting, "127.0.0.1", port, false);
        assert_false(greeting.sent);
    }
    whole_greeting_step(&greeting, "no address", port, false);
    assert_false(greeting.sent);
    listener = tcp_listen("127.0.0.1", port, &port, NULL);
    assert_true(listener >= 0);
    for (int i = 0; i < 3 && !greeting.sent; i++)
        whole_greeting_step(&greeting, "127.0.0.1", port, false);
    assert_true(greeting.sent);
    read_greeting(listener, bytes);
    whole_greeting_close(&greeting);
    close(listener);
}

/* A server's events about a greeting that fails. */
static enum handshake_fault first_fault(struct zmq_socket *server)
{
    const struct instant deadline = instant_add(clock_now(NULL), LIMIT_MS * NS_PER_MS);
    while (!instant_reached(clock_now(NULL), deadline)) {
        int event, value;
        while (zmq_socket_next_event(server, &event, &value)) {
            enum handshake_fault fault = handshake_fault(event, value);
            if (fault != HANDSHAKE_FINE)
                return fault;
        }
        assert_int_equal(zmq_socket_wait(server, NULL, 0, 100), 0);
    }
    return HANDSHAKE_FINE;
}

static void a_server_hears_the_mismatch(void **state)
{
    (void)state;
    for (int secret = 0; secret < 2; secret++) {
        struct job_keys keys = {0};
        struct muster_error err = {0};
        struct whole_greeting greeting = {0};
        struct zmq_socket server = {0};
        const struct job_secret job = {0}; /* any */
        assert_int_equal(secret_derive(&job, "a job", &keys, &err), 0);
        const struct zmq_socket_options options = {
            .host = "127.0.0.1", .port = test_free_port(), .keys = secret ? NULL : &keys, .nodes = 2};
        assert_int_equal(zmq_socket_bind_router(&server, &options, &err), 0);
        whole_greeting_step(&greeting, options.host, options.port, secret);
        whole_greeting_step(&greeting, options.host, options.port, secret);
        assert_true(greeting.sent);
        assert_int_equal(first_fault(&server), HANDSHAKE_MISMATCH);
        whole_greeting_close(&greeting);
        zmq_socket_close(&server, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_said),
        cmocka_unit_test(who_is_not_reached_is_tried_again),
        cmocka_unit_test(a_server_hears_the_mismatch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
