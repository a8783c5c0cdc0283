/* tcpstore_stream_test.c - connecting where nobody listens yet, at a port that the kernel may choose as the
 * connection's own. Needs a network of its own (tests/support/apart.c), else it is skipped. */
#include "rendezvous/tcpstore/tcpstore_stream.h"

#include <stdio.h>
#include <stdlib.h>

#include "proto/base/guard.h"
#include "rendezvous/net/tcp_listen.h"
#include "tests/support/cmocka_all.h"

enum { PORT = 40000 };

/* The kernel's choices. */
static void set_range(int first, int last)
{
    FILE *file = fopen("/proc/sys/net/ipv4/ip_local_port_range", "w");
    assert_non_null(file);
    (void)fprintf(file, "%d %d", first, last); /* seen by fclose */
    assert_int_equal(fclose(file), 0);
}

static void a_connection_is_never_its_own_other_end(void **state)
{
    (void)state;
    struct muster_error err = {0};
    struct instant deadline = instant_add(clock_now(NULL), 240 * NS_PER_S);
    uint16_t port;
    if (!getenv("TEST_APART"))
        skip_because("it needs a network of its own");
    set_range(PORT, PORT);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(tcpstore_stream_connect("127.0.0.1", PORT, deadline, &err), -1);
        assert_non_null(strstr(err.text, "Connection refused"));
    }
    scope_close int listener = tcp_listen("127.0.0.1", PORT, &port, &err); /* the port is free */
    assert_true(listener >= 0);
    set_range(PORT, PORT + 100);
    scope_close int fd = tcpstore_stream_connect("127.0.0.1", PORT, deadline, &err);
    assert_true(fd >= 0);
}

/* A client of another server of this machine, from the very port. */
static void a_source_port_keeps_no_server_away(void **state)
{
    (void)state;
    struct muster_error err = {0};
    struct instant deadline = instant_add(clock_now(NULL), 240 * NS_PER_S);
    uint16_t port, other_port;
    if (!getenv("TEST_APART"))
        skip_because("it needs a network of its own");
    set_range(PORT, PORT + 100);
    scope_close int other = tcp_listen("127.0.0.1", 0, &other_port, &err);
    assert_true(other >= 0);
    set_range(PORT + 200, PORT + 200);
    scope_close int fd = tcpstore_stream_connect("127.0.0.1", other_port, deadline, &err);
    assert_true(fd >= 0);
    scope_close int listener = tcp_listen(NULL, PORT + 200, &port, &err);
    assert_true(listener >= 0);
    set_range(PORT, PORT + 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_connection_is_never_its_own_other_end),
        cmocka_unit_test(a_source_port_keeps_no_server_away),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
