/* muster_heartbeat: what arrives in the pipe, and what happens where there is none. */
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/env_names.h"
#include "runtime/include/muster.h"
#include "tests/support/cmocka_all.h"

static void name_descriptor(int fd)
{
    char text[16];
    (void)snprintf(text, sizeof text, "%d", fd);
    assert_int_equal(setenv(ENV_HEARTBEAT_FD, text, 1), 0);
}

static void a_beat_is_a_line(void **state)
{
    (void)state;
    int ends[2];
    char got[64] = {0};
    assert_int_equal(pipe2(ends, O_NONBLOCK), 0);
    name_descriptor(ends[1]);
    assert_int_equal(muster_heartbeat(0, NULL), 0);
    assert_int_equal(muster_heartbeat(INT64_MAX, NULL), 0);
    assert_int_equal(muster_heartbeat(-1, NULL), 0);
    assert_true(read(ends[0], got, sizeof got - 1) > 0);
    assert_string_equal(got, "0\n9223372036854775807\n-1\n");
    (void)close(ends[0]);
    (void)close(ends[1]);
}

static void figures_are_a_line(void **state)
{
    (void)state;
    static const char *const names[] = {"loss", "mfu", "step_ms"};
    const double values[] = {2.5, NAN, 1.0 / 3};
    int ends[2];
    char got[64] = {0}, text[600];
    const char *const longest[] = {text};
    struct muster_error err;
    assert_int_equal(pipe2(ends, O_NONBLOCK), 0);
    name_descriptor(ends[1]);
    assert_int_equal(muster_figures(names, values, 3, NULL), 0);
    assert_int_equal(muster_figures(NULL, NULL, 0, NULL), 0);
    assert_true(read(ends[0], got, sizeof got - 1) > 0);
    assert_string_equal(got, "figures/1 loss=2.5 step_ms=0.333333333\nfigures/1\n");
    assert_int_equal(muster_figures(names, values, MUSTER_FIGURES + 1, &err), -1);
    assert_int_equal(err.code, MUSTER_E_LIMIT);
    memset(text, 'n', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    assert_int_equal(muster_figures(longest, values, 1, &err), -1);
    assert_int_equal(err.code, MUSTER_E_LIMIT);
    assert_int_equal(read(ends[0], got, sizeof got), -1); /* nothing was written */
    (void)close(ends[0]);
    (void)close(ends[1]);
}

static void the_end_of_a_checkpoint_is_a_line(void **state)
{
    (void)state;
    int ends[2];
    char got[1200] = {0}, text[600];
    memset(text, 't', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    assert_int_equal(pipe2(ends, O_NONBLOCK), 0);
    name_descriptor(ends[1]);
    assert_int_equal(muster_checkpointed(7, 1, "a/step-7: in 1 s", NULL), 0);
    assert_int_equal(muster_checkpointed(8, 0, "full\ndisk", NULL), 0);
    assert_true(read(ends[0], got, sizeof got - 1) > 0);
    assert_string_equal(got, "checkpoint/1 saved 7 a/step-7: in 1 s\ncheckpoint/1 failed 8 full disk\n");
    assert_int_equal(muster_checkpointed(9, 1, text, NULL), 0);
    ssize_t length = read(ends[0], got, sizeof got);
    assert_true(length > 400 && length <= 512 && got[length - 1] == '\n'); /* cut, and whole */
    (void)close(ends[0]);
    (void)close(ends[1]);
}

static void an_error_that_a_restart_does_not_mend_is_a_line(void **state)
{
    (void)state;
    int ends[2];
    char got[MUSTER_ERROR_TEXT + 16] = {0}, longest[MUSTER_ERROR_TEXT];
    struct muster_error error = {MUSTER_E_INVALID, "no such\nfile"};
    assert_int_equal(unsetenv(ENV_HEARTBEAT_FD), 0);
    assert_int_equal(muster_fatal(NULL, &error), 1); /* without a launcher it is printed all the same */
    assert_int_equal(pipe2(ends, O_NONBLOCK), 0);
    name_descriptor(ends[1]);
    assert_int_equal(muster_fatal(NULL, &error), 1);
    assert_true(read(ends[0], got, sizeof got - 1) > 0);
    assert_string_equal(got, "fatal no such file\n");
    memset(error.text, 'x', sizeof error.text - 1);
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = error.text[sizeof error.text - 1] = '\0';
    assert_int_equal(muster_fatal(NULL, &error), 1);
    memset(got, 0, sizeof got);
    assert_true(read(ends[0], got, sizeof got - 1) > 0);
    assert_true(!strncmp(got, "fatal ", 6) && !strncmp(got + 6, longest, strlen(longest)));
    assert_string_equal(got + 6 + strlen(longest), "\n");
    (void)close(ends[0]);
    (void)close(ends[1]);
}

static void a_full_pipe_does_not_hold_up(void **state)
{
    (void)state;
    int ends[2];
    assert_int_equal(pipe2(ends, O_NONBLOCK), 0);
    name_descriptor(ends[1]);
    for (int i = 0; i < 100000; i++)
        assert_int_equal(muster_heartbeat(i, NULL), 0);
    (void)close(ends[0]);
    struct muster_error err;
    assert_int_equal(muster_heartbeat(1, &err), -1); /* SIGPIPE is ignored here */
    assert_int_equal(err.code, MUSTER_E_IO);
    (void)close(ends[1]);
}

static void only_a_pipe_is_written_to(void **state)
{
    (void)state;
    struct muster_error err;
    assert_int_equal(unsetenv(ENV_HEARTBEAT_FD), 0);
    assert_int_equal(muster_heartbeat(1, &err), 0);
    int file = open("/dev/null", O_WRONLY);
    assert_true(file >= 0);
    name_descriptor(file);
    assert_int_equal(muster_heartbeat(1, &err), -1);
    assert_int_equal(err.code, MUSTER_E_INVALID);
    assert_non_null(strstr(err.text, ENV_HEARTBEAT_FD));
    (void)close(file);
    assert_int_equal(muster_heartbeat(1, &err), -1); /* closed */
    static const char *const wrong[] = {"x", "-1", "99999999999"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(setenv(ENV_HEARTBEAT_FD, wrong[i], 1), 0);
        assert_int_equal(muster_heartbeat(1, &err), -1);
    }
}

int main(void)
{
    (void)signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_beat_is_a_line),
        cmocka_unit_test(figures_are_a_line),
        cmocka_unit_test(the_end_of_a_checkpoint_is_a_line),
        cmocka_unit_test(an_error_that_a_restart_does_not_mend_is_a_line),
        cmocka_unit_test(a_full_pipe_does_not_hold_up),
        cmocka_unit_test(only_a_pipe_is_written_to),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
