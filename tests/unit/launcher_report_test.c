/* launcher_report_test.c - which failure is the first cause, the exit code, and the report as golden text. */
#include "launcher/report.h"

#include <signal.h>
#include <stdlib.h>
#include <time.h>

#include "rendezvous/failure.h"
#include "tests/support/cmocka_all.h"

/* age in milliseconds before the report */
static struct worker_failure failure(int rank, int exit_code, int signal, int age_ms, const char *tail)
{
    struct worker_failure f = {.rank = rank,
                               .local_rank = rank,
                               .pid = 100 + rank,
                               .exit_code = signal ? -1 : exit_code,
                               .signal = signal,
                               .age_ns = age_ms * NS_PER_MS,
                               .wall_ns = INT64_C(1700000000) * NS_PER_S,
                               .host = "node0"};
    strncpy(f.tail, tail, sizeof f.tail - 1);
    return f;
}

static const char watchdog[] = "[rank0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=3)";
static const char reset[] = "RuntimeError: [../gloo/transport/tcp/pair.cc:534] Connection closed by peer";

static void the_first_cause(void **state)
{
    (void)state;
    struct worker_failure oom = failure(4, 1, 0, 1, "");
    oom.out_of_memory = true;
    struct worker_failure lost = failure(5, 0, 0, 9, "");
    lost.lost_node = true;
    const struct {
        struct worker_failure list[3];
        int first;
    } rows[] = {
        /* a signal beats an earlier exit code; the earliest of a class; equal ages: the first */
        {{failure(0, 1, 0, 90, ""), failure(1, 0, SIGSEGV, 5, ""), failure(2, 3, 0, 99, "")}, 1},
        {{failure(0, 1, 0, 10, ""), failure(1, 2, 0, 90, ""), failure(2, 3, 0, 50, "")}, 1},
        {{failure(0, 1, 0, 10, ""), failure(1, 2, 0, 10, ""), failure(2, 3, 0, 10, "")}, 0},
        /* what follows another failure is last, whatever its age, an abort by the watchdog too */
        {{failure(0, 1, 0, 99, reset), failure(1, 7, 0, 1, "ValueError"), failure(2, 1, 0, 98, reset)}, 1},
        {{failure(0, 0, SIGABRT, 99, watchdog), failure(1, 7, 0, 1, ""), failure(2, 1, 0, 98, reset)}, 1},
        {{failure(0, 0, SIGABRT, 2, "assertion failed"), failure(1, 7, 0, 9, ""),
          failure(2, 1, 0, 98, reset)},
         0},
        {{failure(0, 0, SIGKILL, 2, reset), failure(1, 7, 0, 9, ""), lost}, 0},
        /* a lost node between a signal and an exit code */
        {{failure(0, 1, 0, 99, ""), lost, failure(2, 1, 0, 98, reset)}, 1},
        {{oom, lost, failure(2, 1, 0, 98, "")}, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(report_first_cause(rows[i].list, 3), rows[i].first);
}

static void exit_codes(void **state)
{
    (void)state;
    struct worker_failure lost = failure(0, 0, 0, 0, "");
    lost.lost_node = true;
    struct worker_failure f = failure(0, 85, 0, 0, "");
    assert_int_equal(report_exit_code(&f), 85);
    f = failure(0, 0, SIGSEGV, 0, "");
    assert_int_equal(report_exit_code(&f), 139);
    f = failure(0, 0, 0, 0, "");
    assert_int_equal(report_exit_code(&f), 1);
    assert_int_equal(report_exit_code(&lost), 138);
}

static void signal_names(void **state)
{
    (void)state;
    char scratch[16];
    assert_string_equal(failure_signal_name(SIGSEGV, scratch, sizeof scratch), "SIGSEGV");
    assert_string_equal(failure_signal_name(SIGKILL, scratch, sizeof scratch), "SIGKILL");
    assert_string_equal(failure_signal_name(99, scratch, sizeof scratch), "SIG99");
}

static void one_line(void **state)
{
    (void)state;
    struct worker_failure f = failure(1, 0, SIGKILL, 0, "");
    scope_buffer out = {0};
    assert_int_equal(report_line("train.py", &f, &out), 0);
    assert_string_equal(out.data, "failed (exitcode: -9) local_rank: 1 (pid: 101) of binary: train.py");
}

static void alone(void **state)
{
    (void)state;
    struct worker_failure f = failure(0, 3, 0, 0, "Traceback\nValueError: no");
    scope_buffer out = {0};
    assert_int_equal(report_format("x.py", &f, 1, &out), 0);
    assert_string_equal(out.data, "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n"
                                  "============================================================\n"
                                  "x.py FAILED\n"
                                  "------------------------------------------------------------\n"
                                  "Failures:\n"
                                  "  <NO_OTHER_FAILURES>\n"
                                  "------------------------------------------------------------\n"
                                  "Root Cause (first observed failure):\n"
                                  "[0]:\n"
                                  "  time      : 2023-11-14_22:13:20\n"
                                  "  host      : node0\n"
                                  "  rank      : 0 (local_rank: 0)\n"
                                  "  exitcode  : 3 (pid: 100)\n"
                                  "  error_file: <N/A>\n"
                                  "  traceback : exited with code 3; what it said is below or in its log\n"
                                  "  stderr    : the last lines\n"
                                  "    Traceback\n"
                                  "    ValueError: no\n"
                                  "============================================================\n");
}

static void with_a_cascade(void **state)
{
    (void)state;
    struct worker_failure list[] = {failure(0, 1, 0, 50, reset), failure(1, 0, SIGSEGV, 9, "")};
    list[1].core_dumped = true;
    strcpy(list[1].error_file, "/logs/1/error.json");
    scope_buffer out = {0};
    assert_int_equal(report_format("x.py", list, 2, &out), 0);
    assert_non_null(strstr(out.data, "Failures:\n[0]:\n"));
    assert_non_null(strstr(out.data, "  class     : followed another failure\n"));
    assert_non_null(strstr(out.data, "Root Cause (first observed failure):\n"
                                     "[1]:\n"
                                     "  time      : 2023-11-14_22:13:20\n"
                                     "  host      : node0\n"
                                     "  rank      : 1 (local_rank: 1)\n"
                                     "  exitcode  : -11 (pid: 101) (SIGSEGV)\n"
                                     "  error_file: /logs/1/error.json\n"
                                     "  traceback : Signal 11 (SIGSEGV) received by PID 101, core dumped\n"
                                     "====="));
}

static void out_of_memory_is_named(void **state)
{
    (void)state;
    struct worker_failure f = failure(0, 0, SIGKILL, 0, "");
    f.out_of_memory = true;
    scope_buffer out = {0};
    assert_int_equal(report_format("x.py", &f, 1, &out), 0);
    assert_non_null(strstr(
        out.data, "Signal 9 (SIGKILL) received by PID 100, killed by the kernel because the cgroup was "
                  "out of memory\n"));
}

static void a_full_buffer_is_told(void **state)
{
    (void)state;
    struct worker_failure f = failure(0, 3, 0, 0, "");
    scope_buffer out = {.limit = 100};
    assert_int_equal(report_format("x.py", &f, 1, &out), -1);
}

int main(void)
{
    (void)setenv("TZ", "UTC", 1);
    tzset();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_cause),
        cmocka_unit_test(exit_codes),
        cmocka_unit_test(signal_names),
        cmocka_unit_test(one_line),
        cmocka_unit_test(alone),
        cmocka_unit_test(with_a_cascade),
        cmocka_unit_test(out_of_memory_is_named),
        cmocka_unit_test(a_full_buffer_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
