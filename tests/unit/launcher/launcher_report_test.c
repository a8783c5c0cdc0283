/* launcher_report_test.c - the verdict as golden text, as a sentence, as JSON; the exit code by --exit-code;
 * the files that tell of it. */
#include "launcher/verdict/report.h"

#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "launcher/verdict/error_file.h"
#include "launcher/verdict/failure_files.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "rendezvous/failure/failure.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/folder.h"

/* The records that the entries of one test point to; more than any test has at once. */
static struct worker_failure records[32];
static size_t used;

static struct worker_failure *record_of(const struct report_failure *entry)
{
    return &records[entry->failure - records];
}

static struct report_failure failed(int rank, int exit_code, int signal, const char *tail)
{
    struct worker_failure *failure = &records[used++ % (sizeof records / sizeof records[0])];
    *failure = (struct worker_failure){.rank = rank,
                                       .local_rank = rank,
                                       .pid = 100 + rank,
                                       .exit_code = signal ? -1 : exit_code,
                                       .signal = signal,
                                       .wall_ns = INT64_C(1700000000) * NS_PER_S + 5 * NS_PER_MS,
                                       .host = "node0"};
    strncpy(failure->tail, tail, sizeof failure->tail - 1);
    return (struct report_failure){.failure = failure};
}

static struct report report_of(const struct report_failure *failures, int count)
{
    return (struct report){.program = "x.py",
                           .job_id = "job",
                           .host = "node0",
                           .failures = failures,
                           .count = count,
                           .total = count,
                           .exit_code = 3,
                           .max_restarts = 2,
                           .restarts = 2,
                           .round = 2,
                           .wall_ns = INT64_C(1700000000) * NS_PER_S};
}

static const char reset[] = "RuntimeError: [../gloo/transport/tcp/pair.cc:534] Connection closed by peer";

static void one_line(void **state)
{
    (void)state;
    struct report_failure f = failed(1, 0, SIGKILL, "");
    scope_buffer out = {0};
    assert_int_equal(report_line("train.py", f.failure, &out), 0);
    assert_string_equal(out.data, "failed (exitcode: -9) local_rank: 1 (pid: 101) of binary: train.py");
}

static void alone(void **state)
{
    (void)state;
    struct report_failure f = failed(0, 3, 0, "Traceback\nValueError: no");
    struct report report = report_of(&f, 1);
    scope_buffer out = {0};
    assert_int_equal(report_format(&report, &out), 0);
    assert_string_equal(
        out.data,
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n"
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
        "  traceback : none was recorded; exited with code 3, the last lines of its stderr are below\n"
        "  stderr    : the last lines\n"
        "    Traceback\n"
        "    ValueError: no\n"
        "============================================================\n");
}

static void rules_are_as_wide_as_the_text(void **state)
{
    (void)state;
    struct report_failure f = failed(0, 0, SIGSEGV, "");
    struct report report = report_of(&f, 1);
    scope_buffer out = {0};
    assert_int_equal(report_format(&report, &out), 0);
    /* "  traceback : Signal 11 (SIGSEGV) received by PID 100" has 53 characters */
    assert_non_null(strstr(out.data, "\n=====================================================\nx.py FAILED\n"
                                     "-----------------------------------------------------\nFailures:\n"));
}

/* A peer's lost connection is explained by a rank that left early; another first cause explains itself. */
static void ranks_that_left_early(void **state)
{
    (void)state;
    static const char section[] = "\nExited with code 0 before, which closed connections:\n"
                                  "  rank 1 (local_rank: 1) (pid: 7)\n---";
    static const struct report_stopped done[] = {{.rank = 1, .local_rank = 1, .pid = 7}};
    struct report_failure list[] = {failed(0, 1, 0, reset)};
    struct report report = report_of(list, 1);
    report.done = done;
    report.done_count = 1;
    scope_buffer out = {0}, other = {0}, json = {0};
    assert_int_equal(report_format(&report, &out), 0);
    assert_non_null(strstr(out.data, section));
    assert_int_equal(report_json(&report, &json), 0);
    assert_non_null(strstr(json.data, "\"exited_early\": [{\"rank\": 1, \"local_rank\": 1, \"pid\": 7}]"));
    list[0] = failed(0, 1, 0, "ValueError: no");
    assert_int_equal(report_format(&report, &other), 0);
    assert_null(strstr(other.data, "Exited with code 0"));
}

static void with_all_sections(void **state)
{
    (void)state;
    static struct report_failure list[4];
    list[0] = failed(1, 0, SIGSEGV, "the end");
    record_of(&list[0])->core_dumped = true;
    record_of(&list[0])->xid = 79;
    strcpy(record_of(&list[0])->pci, "0000:3b:00");
    strcpy(record_of(&list[0])->error_file, "/logs/1/error.json");
    list[1] = failed(5, 7, 0, "");
    list[1].timed = true;
    list[1].after_ns = 250 * NS_PER_MS;
    strcpy(record_of(&list[1])->host, "node1");
    strcpy(record_of(&list[1])->message, "ValueError: no");
    strcpy(record_of(&list[1])->traceback, "Traceback:\n  File \"x\"\nValueError: no");
    list[2] = failed(6, 0, SIGABRT, "");
    record_of(&list[2])->after_stop = true;
    list[3] = failed(0, 1, 0, reset);
    static const struct report_stopped stopped[] = {{2, 2, 102, -1, SIGTERM, NULL},
                                                    {3, 3, 103, 143, 0, NULL}};
    struct report report = report_of(list, 4);
    report.total = 9;
    report.stopped = stopped;
    report.stopped_count = 2;
    report.stopped_total = 5;
    scope_buffer out = {0};
    assert_int_equal(report_format(&report, &out), 0);
    assert_string_equal(
        out.data,
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n"
        "============================================================\n"
        "x.py FAILED\n"
        "------------------------------------------------------------\n"
        "Failures:\n"
        "[1]:\n"
        "  time      : 2023-11-14_22:13:20\n"
        "  host      : node1\n"
        "  rank      : 5 (local_rank: 5)\n"
        "  exitcode  : 7 (pid: 105)\n"
        "  error_file: <N/A>\n"
        "  traceback : Traceback:\n"
        "    File \"x\"\n"
        "  ValueError: no\n"
        "  after     : 0.250 s\n"
        "[2]:\n"
        "  time      : 2023-11-14_22:13:20\n"
        "  host      : node0\n"
        "  rank      : 6 (local_rank: 6)\n"
        "  exitcode  : -6 (pid: 106) (SIGABRT)\n"
        "  error_file: <N/A>\n"
        "  traceback : Signal 6 (SIGABRT) received by PID 106\n"
        "  note      : the launcher had sent it SIGTERM\n"
        "  and 5 more that are not listed here\n"
        "------------------------------------------------------------\n"
        "Followed another failure (a peer or the store was gone):\n"
        "[3]:\n"
        "  time      : 2023-11-14_22:13:20\n"
        "  host      : node0\n"
        "  rank      : 0 (local_rank: 0)\n"
        "  exitcode  : 1 (pid: 100)\n"
        "  error_file: <N/A>\n"
        "  traceback : none was recorded; exited with code 1, the most informative line of its stderr is "
        "below\n"
        "  output    : RuntimeError: [../gloo/transport/tcp/pair.cc:534] Connection closed by peer\n"
        "------------------------------------------------------------\n"
        "Terminated by the launcher:\n"
        "  rank 2 (local_rank: 2) (pid: 102) ended by SIGTERM\n"
        "  rank 3 (local_rank: 3) (pid: 103) exited with code 143\n"
        "  and 3 more\n"
        "------------------------------------------------------------\n"
        "Root Cause (first observed failure):\n"
        "[0]:\n"
        "  time      : 2023-11-14_22:13:20\n"
        "  host      : node0\n"
        "  rank      : 1 (local_rank: 1)\n"
        "  exitcode  : -11 (pid: 101) (SIGSEGV)\n"
        "  error_file: /logs/1/error.json\n"
        "  traceback : Signal 11 (SIGSEGV) received by PID 101, core dumped\n"
        "  gpu       : NVIDIA Xid 79 at 0000:3b:00: the GPU has fallen off the bus; drain and reboot the "
        "node; "
        "replace the GPU if this comes again\n"
        "  stderr    : the last lines\n"
        "    the end\n"
        "============================================================\n");
}

static void traceback_field(const struct report_failure *f, const char *expected)
{
    struct report report = report_of(f, 1);
    scope_buffer out = {0};
    assert_int_equal(report_format(&report, &out), 0);
    if (!strstr(out.data, expected))
        fail_msg("%s is not in\n%s", expected, out.data);
}

static void absent_field(const struct report_failure *list, int count, const char *unexpected)
{
    struct report report = report_of(list, count);
    scope_buffer out = {0};
    assert_int_equal(report_format(&report, &out), 0);
    if (strstr(out.data, unexpected))
        fail_msg("%s is in\n%s", unexpected, out.data);
}

static void a_sigkill_is_held_against_the_oom_killer(void **state)
{
    (void)state;
    struct report_failure f = failed(0, 0, SIGKILL, "");
    traceback_field(&f, "  memory    : unknown whether the kernel's OOM killer ended it: its counter "
                        "(cgroup oom_kill) was not read in time\n");
    record_of(&f)->oom_check = FAILURE_OOM_UNREADABLE;
    traceback_field(&f, "  memory    : unknown whether the kernel's OOM killer ended it: no memory cgroup "
                        "with an oom_kill counter");
    record_of(&f)->oom_check = FAILURE_OOM_COUNTED;
    traceback_field(&f, "  memory    : not the kernel's OOM killer: its counter for this container (cgroup "
                        "oom_kill) did not rise in this round;");
    record_of(&f)->oom_kills = 2;
    traceback_field(&f, "  memory    : perhaps the kernel's OOM killer: it killed 2 of this container's "
                        "processes in the same round");
    record_of(&f)->out_of_memory = true;
    traceback_field(&f, "  memory    : out of memory\n");
    absent_field(&f, 1, "perhaps");
    f = failed(0, 0, SIGKILL, ""); /* killed by the launcher */
    record_of(&f)->hung = true;
    absent_field(&f, 1, "  memory    : ");
    f = failed(0, 0, SIGSEGV, "");
    absent_field(&f, 1, "  memory    : ");
    static struct report_failure list[2]; /* what another node reported in brief has no evidence */
    list[0] = failed(0, 1, 0, "");
    list[1] = failed(1, 0, SIGKILL, "");
    absent_field(list, 2, "  memory    : ");
}

static void the_reason_of_each_kind(void **state)
{
    (void)state;
    struct report_failure f = failed(0, 0, SIGKILL, "");
    record_of(&f)->out_of_memory = true;
    record_of(&f)->memory_limit = INT64_C(1) << 30;
    traceback_field(&f, "  traceback : Signal 9 (SIGKILL) received by PID 100\n"
                        "  memory    : out of memory: the container's limit is 1.00 GB\n");
    f = failed(0, 1, 0, "");
    traceback_field(
        &f,
        "  traceback : none was recorded; exited with code 1, and nothing was captured from its stderr\n");
    record_of(&f)->oom_kills = 2;
    traceback_field(
        &f, "  memory    : the kernel killed 2 of this container's processes for lack of memory in the "
            "same round; a child of this worker may be one\n");
    f = failed(0, 127, 0, "");
    record_of(&f)->not_started = true;
    strcpy(record_of(&f)->message, "no such program");
    traceback_field(&f, "  traceback : could not be started: no such program\n");
    f = failed(0, 0, 0, "");
    record_of(&f)->lost_node = true;
    traceback_field(&f, "  traceback : the node was lost: its heartbeats stopped\n");
    strcpy(record_of(&f)->message, "its agent was restarted");
    traceback_field(&f, "  traceback : the node was lost: its agent was restarted\n");
    f = failed(0, 0, SIGABRT, "");
    record_of(&f)->hung = true;
    record_of(&f)->step = 12;
    traceback_field(&f, "  traceback : Hung: no heartbeat after step 12; ended by signal 6\n");
    record_of(&f)->step = -1;
    traceback_field(&f, "  traceback : Hung: no heartbeat; ended by signal 6\n");
    strcpy(record_of(&f)->traceback, "in step 3\ncomm of axis shard"); /* from its error file */
    traceback_field(&f, "  traceback : Hung: no heartbeat; ended by signal 6\n"
                        "  place     : in step 3\n    comm of axis shard\n");
    f = failed(0, 0, SIGKILL, "");
    record_of(&f)->unkillable = true;
    traceback_field(&f, "  traceback : survived SIGKILL\n");
    f = failed(0, 0, SIGTERM, "");
    record_of(&f)->after_stop = true;
    traceback_field(&f, "  note      : it was already failing when the launcher stopped it\n");
    f = failed(0, 1, 0, "");
    record_of(&f)->xid = 4711;
    record_of(&f)->xid_elsewhere = true;
    traceback_field(
        &f, "  gpu       : NVIDIA Xid 4711 at an unknown GPU (of this node, perhaps not of this rank): an "
            "error that is not in muster's table; ");
}

static void a_full_buffer_is_told(void **state)
{
    (void)state;
    struct report_failure f = failed(0, 3, 0, "");
    struct report report = report_of(&f, 1);
    scope_buffer out = {.limit = 100}, json = {.limit = 100}, sentence = {.limit = 10};
    assert_int_equal(report_format(&report, &out), -1);
    assert_int_equal(report_json(&report, &json), -1);
    assert_int_equal(report_sentence(&report, &sentence), -1);
}

static void sentence_is(const struct report *report, const char *expected)
{
    scope_buffer out = {0};
    assert_int_equal(report_sentence(report, &out), 0);
    assert_string_equal(out.data, expected);
}

static void sentences(void **state)
{
    (void)state;
    static struct report_failure list[3];
    list[0] = failed(1, 3, 0, "boom");
    struct report report = report_of(list, 1);
    sentence_is(&report,
                "rank 1 (pid 101 on node0) exited with code 3: boom; restarts used: 2 of 2; exit code 3");
    report.max_restarts = 0;
    report.total = 2;
    sentence_is(&report,
                "rank 1 (pid 101 on node0) exited with code 3: boom; 1 other failed too; exit code 3");
    report.total = 9;
    sentence_is(&report,
                "rank 1 (pid 101 on node0) exited with code 3: boom; 8 others failed too; exit code 3");
    report.count = report.total = 0;
    report.reason = "1 of 2 nodes joined";
    sentence_is(&report, "1 of 2 nodes joined; exit code 3");
    report.reason = NULL;
    sentence_is(&report, "the job failed; exit code 3");
    report = report_of(list, 1); /* as long as it gets */
    memset(record_of(&list[0])->host, 'h', sizeof record_of(&list[0])->host - 1);
    memset(record_of(&list[0])->message, 'm', sizeof record_of(&list[0])->message - 1);
    scope_buffer out = {0};
    assert_int_equal(report_sentence(&report, &out), 0);
    assert_true(out.length <= REPORT_SENTENCE_LIMIT);
}

/* A JSON reader that is not ours reads it. */
static void failure_json(void **state)
{
    (void)state;
    static struct report_failure list[2];
    list[0] = failed(1, 0, SIGKILL, "a \"quoted\" line\n\xff and a tab\t");
    list[0].timed = true;
    record_of(&list[0])->out_of_memory = true;
    record_of(&list[0])->oom_kills = 1;
    record_of(&list[0])->memory_limit = 4096;
    record_of(&list[0])->xid = 31;
    list[1] = failed(0, 1, 0, reset);
    static const struct report_stopped stopped[] = {{2, 2, 102, -1, SIGTERM, NULL}};
    struct report report = report_of(list, 2);
    report.stopped = stopped;
    report.stopped_count = report.stopped_total = 1;
    scope_buffer out = {0};
    assert_int_equal(report_json(&report, &out), 0);
    json_error_t why;
    json_t *root = json_loads(out.data, JSON_REJECT_DUPLICATES, &why);
    if (!root)
        fail_msg("%s: %s", why.text, out.data);
    int version, code, rank, sig, limit, xid, stopped_signal;
    const char *class_, *time, *tail, *follower, *verdict;
    json_t *exit_code, *after, *other_after;
    int result = json_unpack_ex(
        root, &why, 0,
        "{s:i, s:i, s:s, s:{s:s, s:i, s:s, s:i, s:o, s:o, s:s, s:{s:i}, s:{s:i}}, s:[{s:s, s:o}], s:[{s:i}]}",
        "version", &version, "exit_code", &code, "verdict", &verdict, "first_cause", "class", &class_, "rank",
        &rank, "time", &time, "signal", &sig, "exit_code", &exit_code, "after_s", &after, "stderr", &tail,
        "memory", "limit_bytes", &limit, "xid", "number", &xid, "others", "class", &follower, "after_s",
        &other_after, "terminated_by_launcher", "signal", &stopped_signal);
    if (result < 0)
        fail_msg("%s", why.text);
    assert_int_equal(version, 1);
    assert_int_equal(code, 3);
    assert_string_equal(class_, "signal");
    assert_int_equal(rank, 1);
    assert_string_equal(time, "2023-11-14T22:13:20.005Z");
    assert_int_equal(sig, SIGKILL);
    assert_true(json_is_null(exit_code));
    assert_true(json_number_value(after) == 0.0 && json_is_real(after));
    assert_string_equal(tail, "a \"quoted\" line\n\xef\xbf\xbd and a tab\t");
    assert_int_equal(limit, 4096);
    assert_int_equal(xid, 31);
    assert_string_equal(follower, "followed another failure");
    assert_true(json_is_null(other_after));
    assert_int_equal(stopped_signal, SIGTERM);
    json_decref(root);
    buffer_clear(&out);
    report.count = report.total = 0;
    report.reason = "nobody came";
    assert_int_equal(report_json(&report, &out), 0);
    root = json_loads(out.data, 0, &why);
    assert_non_null(root);
    assert_true(json_is_null(json_object_get(root, "first_cause")));
    json_decref(root);
}

static void exit_codes_by_mode(void **state)
{
    (void)state;
    const struct {
        int code;
        bool ran;
        int torchrun;
    } rows[] = {{0, true, 0},      {0, false, 0},  {85, true, 1}, {139, true, 1},    {143, true, 1},
                {143, false, 143}, {2, false, 2},  {2, true, 1},  {126, false, 126}, {127, true, 1},
                {138, false, 1},   {138, true, 1}, {1, false, 1}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(report_exit_code(EXIT_MODE_FIRST, rows[i].code, rows[i].ran), rows[i].code);
        assert_int_equal(report_exit_code(EXIT_MODE_TORCHRUN, rows[i].code, rows[i].ran), rows[i].torchrun);
    }
}

/* --- files --- */

static void content_is(const char *path, const char *expected)
{
    scope_buffer text = {0};
    assert_int_equal(io_read_file(path, 1 << 20, &text, NULL), 0);
    assert_string_equal(text.data, expected);
}

static void the_files_of_an_outcome(void **state)
{
    (void)state;
    char base[FOLDER_PATH], log[64], error[64], cause[64], json[64];
    assert_int_equal(folder_make(base, "outcome"), 0);
    (void)snprintf(log, sizeof log, "%s/termination-log", base);
    (void)snprintf(error, sizeof error, "%s/error.json", base);
    (void)snprintf(cause, sizeof cause, "%s/cause.json", base);
    (void)snprintf(json, sizeof json, "%s/failure.json", base);
    struct failure_files files = {.json = "{}\n",
                                  .json_directory = base,
                                  .sentence = "it broke",
                                  .termination_log = log,
                                  .error_file = error,
                                  .cause_error_file = cause,
                                  .traceback = "the report",
                                  .exit_code = 7};
    struct muster_error err = {0};
    scope_buffer complaints = {0}, text = {0};
    assert_int_equal(failure_files_write(&files, 60 * NS_PER_S, &complaints, &err), 0);
    assert_int_equal(complaints.length, 0);
    assert_int_equal(access(log, F_OK), -1); /* nobody asked for it by name */
    content_is(json, "{}\n");
    struct error_report report;
    assert_int_equal(io_read_file(error, 1 << 20, &text, NULL), 0);
    assert_int_equal(error_file_parse(text.data, text.length, &report, &err), 0);
    assert_string_equal(report.message, "it broke"); /* there is no file of the cause */
    /* the file of the cause, and a termination log that holds something longer */
    static const char theirs[] = "{\"message\": {\"message\": \"V\"}}",
                      old[] = "something that was there before\n";
    assert_int_equal(io_write_file_atomic(cause, theirs, strlen(theirs), 0600, &err), 0);
    assert_int_equal(io_write_file_atomic(log, old, strlen(old), 0600, &err), 0);
    assert_int_equal(failure_files_write(&files, 60 * NS_PER_S, &complaints, &err), 0);
    content_is(error, "{\"message\":{\"message\":\"V\",\"errorCode\":7}}");
    content_is(log, "it broke\n");
    /* at most as much as a kubelet reads */
    scope_buffer sentence = {0};
    for (int i = 0; i < 5000; i++)
        buffer_text(&sentence, "x");
    files.sentence = sentence.data;
    files.termination_log_asked = true;
    assert_int_equal(unlink(log), 0);
    assert_int_equal(failure_files_write(&files, 60 * NS_PER_S, &complaints, &err), 0);
    struct stat status;
    assert_int_equal(stat(log, &status), 0);
    assert_int_equal(status.st_size, TERMINATION_LOG_LIMIT);
    /* each that cannot be written is told once */
    files.termination_log = "/no/such/folder/log";
    files.json_directory = "/no/such/folder";
    files.error_file = "/no/such/folder/error.json";
    assert_int_equal(failure_files_write(&files, 60 * NS_PER_S, &complaints, &err), 0);
    int lines = 0;
    for (const char *at = complaints.data; (at = strchr(at, '\n')); at++)
        lines++;
    assert_int_equal(lines, 3);
    /* a receiver that does not answer */
    assert_int_equal(unlink(log), 0);
    assert_int_equal(mkfifo(log, 0600), 0);
    files = (struct failure_files){.sentence = "s", .termination_log = log};
    assert_int_equal(failure_files_write(&files, 20 * NS_PER_MS, &complaints, &err), -1);
    assert_int_equal(err.code, MUSTER_E_TIMEOUT);
    scope_close int reader = open(log, O_RDONLY | O_CLOEXEC); /* lets the thread go */
    assert_true(reader >= 0);
    char line[8];
    assert_int_equal(read(reader, line, sizeof line), 2);
    for (const char *const *at = (const char *const[]){log, error, cause, json, NULL}; *at; at++)
        assert_int_equal(unlink(*at), 0);
    assert_int_equal(rmdir(base), 0);
}

int main(void)
{
    (void)setenv("TZ", "UTC", 1);
    tzset();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_line),
        cmocka_unit_test(alone),
        cmocka_unit_test(rules_are_as_wide_as_the_text),
        cmocka_unit_test(ranks_that_left_early),
        cmocka_unit_test(with_all_sections),
        cmocka_unit_test(the_reason_of_each_kind),
        cmocka_unit_test(a_sigkill_is_held_against_the_oom_killer),
        cmocka_unit_test(a_full_buffer_is_told),
        cmocka_unit_test(sentences),
        cmocka_unit_test(failure_json),
        cmocka_unit_test(exit_codes_by_mode),
        cmocka_unit_test(the_files_of_an_outcome),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
