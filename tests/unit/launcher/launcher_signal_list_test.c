/* signal_names.h: lists of names, and what /proc/PID/status says of a signal. */
#include "launcher/host/signal_names.h"

#include <signal.h>

#include "tests/support/cmocka_all.h"

static void check(const char *text, signal_bits bits, const char *unknown)
{
    struct buffer left_out = {0};
    assert_true(signal_names_parse(text, &left_out) == bits);
    assert_string_equal(left_out.data ? left_out.data : "", unknown);
    buffer_free(&left_out);
}

static void names_with_and_without_sig(void **state)
{
    (void)state;
    check("", 0, "");
    check("SIGTERM,SIGINT,SIGHUP,SIGQUIT",
          signal_bit(SIGTERM) | signal_bit(SIGINT) | signal_bit(SIGHUP) | signal_bit(SIGQUIT), "");
    check(" usr1 ,USR2,,", signal_bit(SIGUSR1) | signal_bit(SIGUSR2), "");
    check("SIGTERM,SIGTERM", signal_bit(SIGTERM), "");
}

static void what_cannot_be_taken_is_named(void **state)
{
    (void)state;
    check("SIGFOO,TERM,SIG,15", signal_bit(SIGTERM), "SIGFOO,SIG,15");
    check("KILL,STOP,CHLD", 0, "KILL,STOP,CHLD");
}

static const char status[] = "Name:\tx\nSigBlk:\tffffffffffffffff\nSigIgn:\t0000000000000004\n"
                             "SigCgt:\t0000000000014002\nCapInh:\t0000000000000000\n";

static void a_handler_shows_in_the_status(void **state)
{
    (void)state;
    assert_true(signal_is_caught(status, SIGINT));
    assert_true(signal_is_caught(status, SIGTERM));
    assert_false(signal_is_caught(status, SIGUSR1));
    assert_false(signal_is_caught(status, SIGQUIT));
    assert_false(signal_is_caught("Name:\tx\n", SIGTERM));
    assert_false(signal_is_caught("", SIGTERM));
}

static void only_a_shell_without_a_trap_swallows(void **state)
{
    (void)state;
    assert_true(signal_is_swallowed("bash", status, SIGHUP));
    assert_true(signal_is_swallowed("sh", "", SIGTERM));
    assert_false(signal_is_swallowed("bash", status, SIGTERM));
    assert_false(signal_is_swallowed("tini", status, SIGHUP));
    assert_false(signal_is_swallowed("systemd", "", SIGTERM));
    assert_false(signal_is_swallowed("", "", SIGTERM));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_with_and_without_sig),
        cmocka_unit_test(what_cannot_be_taken_is_named),
        cmocka_unit_test(a_handler_shows_in_the_status),
        cmocka_unit_test(only_a_shell_without_a_trap_swallows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
