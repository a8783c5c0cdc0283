/* tcpstore_listen_test.c - listeners, and ports that are held for somebody else's. */
#include "rendezvous/net/tcp_listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <time.h>

#include "proto/base/guard.h"
#include "tests/support/cmocka_all.h"

/* Binds as a program does that knows nothing of us. Returns the socket or -1 with errno. */
static int bind_to(uint16_t port, bool reuses)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    int yes = 1;
    scope_close int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || (reuses && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes)) ||
        bind(fd, (struct sockaddr *)&address, sizeof address))
        return -1;
    return take_fd(&fd);
}

static bool answers(uint16_t port)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    scope_close int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return fd >= 0 && !connect(fd, (struct sockaddr *)&address, sizeof address);
}

static void a_held_port_is_for_who_asks_by_number(void **state)
{
    (void)state;
    struct muster_error err = {0};
    uint16_t port = 0;
    scope_close int held = tcp_hold_port(NULL, 0, &port, &err);
    if (held < 0)
        fail_msg("%s", err.text);
    assert_true(port > 0);
    assert_false(answers(port)); /* nobody listens */
    errno = 0;
    assert_int_equal(bind_to(port, false), -1);
    assert_int_equal(errno, EADDRINUSE);
    scope_close int theirs = bind_to(port, true);
    assert_true(theirs >= 0);
    assert_int_equal(listen(theirs, 8), 0);
    assert_true(answers(port));
}

static void a_port_on_which_somebody_listens_cannot_be_held(void **state)
{
    (void)state;
    struct muster_error err = {0};
    uint16_t port = 0, again = 0;
    scope_close int held = tcp_hold_port(NULL, 0, &port, &err);
    int server = tcp_listen(NULL, port, &again, &err);
    if (server < 0)
        fail_msg("%s", err.text);
    assert_int_equal(again, port); /* ours listens where ours holds */
    assert_int_equal(tcp_hold_port(NULL, port, &again, &err), -1);
    assert_non_null(strstr(err.text, "in use by"));
    (void)close(server);
    scope_close int probe = tcp_hold_port(NULL, port, &again, &err); /* next to the first */
    assert_true(probe >= 0);
    assert_int_equal(again, port);
}

/* As the pods of muster local. */
static void a_port_is_held_at_one_address_next_to_others(void **state)
{
    (void)state;
    struct muster_error err = {0};
    uint16_t port = 0, again = 0;
    scope_close int server = tcp_listen("127.0.0.1", 0, &port, &err);
    assert_true(server >= 0);
    assert_int_equal(tcp_hold_port(NULL, port, &again, &err), -1);
    assert_int_equal(tcp_hold_port("127.0.0.1", port, &again, &err), -1);
    assert_non_null(strstr(err.text, "cannot listen on 127.0.0.1: port"));
    scope_close int held = tcp_hold_port("127.0.0.2", port, &again, &err);
    if (held < 0)
        fail_msg("%s", err.text);
    assert_int_equal(again, port);
}

static void *close_soon(void *fd)
{
    const struct timespec moment = {0, 100 * 1000 * 1000};
    (void)nanosleep(&moment, NULL);
    (void)close(*(int *)fd);
    return NULL;
}

/* No machine has the third address: there the port is awaited on every address. */
static void a_port_is_awaited_for_a_second(void **state)
{
    (void)state;
    static const char *const addresses[] = {NULL, "127.0.0.1", "203.0.113.9"};
    for (size_t i = 0; i < sizeof addresses / sizeof *addresses; i++) {
        struct muster_error err = {0};
        uint16_t port = 0;
        pthread_t ending;
        int holder = tcp_listen(NULL, 0, &port, &err);
        if (holder < 0)
            fail_msg("%s", err.text);
        assert_int_equal(pthread_create(&ending, NULL, close_soon, &holder), 0);
        assert_true(tcp_await_port(addresses[i], port));
        assert_false(answers(port));
        assert_int_equal(pthread_join(ending, NULL), 0);
    }
    struct muster_error err = {0};
    uint16_t port = 0;
    scope_close int stays = tcp_listen(NULL, 0, &port, &err);
    assert_false(tcp_await_port(NULL, port));
    assert_true(answers(port));
    errno = EADDRINUSE;
    assert_true(tcp_await_port("no address", port)); /* the error is its user's */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_held_port_is_for_who_asks_by_number),
        cmocka_unit_test(a_port_on_which_somebody_listens_cannot_be_held),
        cmocka_unit_test(a_port_is_held_at_one_address_next_to_others),
        cmocka_unit_test(a_port_is_awaited_for_a_second),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
