/* muster_notice: messages from the launcher's socket, and the result without a socket. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "launcher/policy/stop_notice.h"
#include "proto/env_names.h"
#include "runtime/include/muster.h"
#include "tests/support/cmocka_all.h"

static void name_descriptor(int fd)
{
    char text[16];
    (void)snprintf(text, sizeof text, "%d", fd);
    assert_int_equal(setenv(ENV_NOTICE_FD, text, 1), 0);
}

/* As the launcher writes it. */
static void announce(int fd, const struct stop_notice *notice)
{
    scope_buffer line = {0};
    assert_int_equal(stop_notice_format(notice, clock_now(NULL), &line), 0);
    assert_int_equal(write(fd, line.data, line.length), line.length);
}

static void what_is_announced_is_heard(void **state)
{
    (void)state;
    int ends[2];
    char got[16] = {0};
    struct muster_notice heard = {.size = sizeof heard, .coming = -7};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
    name_descriptor(ends[1]);
    assert_int_equal(muster_notice_listen(NULL), 1);
    assert_int_equal(read(ends[0], got, sizeof got - 1), 6);
    assert_string_equal(got, "ready\n");
    assert_int_equal(muster_notice(&heard, NULL), 0);
    assert_int_equal(heard.coming, -7);
    struct instant deadline = instant_add(clock_now(NULL), 3600 * NS_PER_S);
    struct stop_notice notice = {.change = MEMBERSHIP_CHANGE_JOIN,
                                 .round = 3,
                                 .nodes = 2,
                                 .next_nodes = 5,
                                 .deadline = deadline,
                                 .reason = "\"round\": 9, \"coming\": \"job-stops\"\n"};
    announce(ends[0], &notice);
    for (int again = 0; again < 3; again++) {
        assert_int_equal(muster_notice(&heard, NULL), 1);
        assert_true(heard.coming == MUSTER_NODES_JOIN && heard.round == 3);
        assert_true(heard.nodes == 2 && heard.next_nodes == 5);
        assert_true(heard.deadline_ns == deadline.ns && heard.left_s > 0 && heard.left_s <= 3600);
    }
    /* a later message counts, once it is whole */
    assert_int_equal(write(ends[0], "{\"coming\": \"job-stops\"", 22), 22);
    assert_int_equal(muster_notice(&heard, NULL), 1);
    assert_int_equal(heard.coming, MUSTER_NODES_JOIN);
    assert_int_equal(write(ends[0], "}\n", 2), 2);
    notice.change = MEMBERSHIP_CHANGE_LEAVE;
    notice.next_nodes = 0;
    announce(ends[0], &notice);
    (void)close(ends[0]); /* the agent is gone: its message stays */
    assert_int_equal(muster_notice(&heard, NULL), 1);
    assert_true(heard.coming == MUSTER_NODE_LEAVES && heard.next_nodes == -1);
    assert_int_equal(muster_notice(NULL, NULL), 1);
    (void)close(ends[1]);
}

static void nobody_is_there(void **state)
{
    (void)state;
    int ends[2];
    struct muster_error err = {0};
    struct muster_notice heard = {.size = sizeof heard};
    (void)signal(SIGPIPE, SIG_DFL); /* a write must not kill */
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
    name_descriptor(ends[1]);
    (void)close(ends[0]);
    assert_int_equal(muster_notice(&heard, &err), 0);
    assert_int_equal(muster_notice_listen(&err), -1);
    assert_int_equal(err.code, MUSTER_E_IO);
    (void)close(ends[1]);
    assert_int_equal(unsetenv(ENV_NOTICE_FD), 0);
    assert_int_equal(muster_notice_listen(&err), 0);
    assert_int_equal(muster_notice(&heard, &err), 0);
}

static void what_is_wrong_is_named(void **state)
{
    (void)state;
    struct muster_error err = {0};
    struct muster_notice heard = {.size = 4};
    assert_int_equal(muster_notice(&heard, &err), -1);
    assert_non_null(strstr(err.text, "muster_notice has the size 4"));
    heard.size = sizeof heard;
    int pipe_ends[2];
    assert_int_equal(pipe(pipe_ends), 0);
    name_descriptor(pipe_ends[0]); /* no socket */
    assert_int_equal(muster_notice(&heard, &err), -1);
    assert_int_equal(err.code, MUSTER_E_INVALID);
    assert_non_null(strstr(err.text, ENV_NOTICE_FD));
    (void)close(pipe_ends[0]);
    (void)close(pipe_ends[1]);
    static const char *const wrong[] = {"x", "-1", "99999999999", "4x"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(setenv(ENV_NOTICE_FD, wrong[i], 1), 0);
        assert_int_equal(muster_notice_listen(&err), -1);
        assert_int_equal(muster_notice(NULL, &err), -1);
    }
    assert_int_equal(unsetenv(ENV_NOTICE_FD), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_announced_is_heard),
        cmocka_unit_test(nobody_is_there),
        cmocka_unit_test(what_is_wrong_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
