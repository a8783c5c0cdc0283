/* launcher_verdict_test.c - findings about workers that ended: the cause of the end, error files, the
 * kernel's counters, GPU errors, and the thread that looks. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launcher/policy/worker_group.h"
#include "launcher/verdict/error_file.h"
#include "launcher/verdict/kernel_evidence.h"
#include "launcher/verdict/postmortem.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/folder.h"

/* --- ends --- */

static void whose_doing_an_end_was(void **state)
{
    (void)state;
    const struct {
        enum worker_group_state state;
        bool leaving, exited;
        int status;
        enum end_kind kind;
    } rows[] = {
        {GROUP_RUNNING, false, true, 0, END_DONE},
        {GROUP_RUNNING, false, true, 1, END_OWN},
        {GROUP_RUNNING, false, false, SIGTERM, END_OWN},
        {GROUP_STOPPING, false, true, 0, END_STOPPED},
        {GROUP_STOPPING, false, true, 1, END_SUSPECT},
        {GROUP_STOPPING, false, false, SIGTERM, END_SUSPECT},
        {GROUP_STOPPING, false, false, SIGPIPE, END_SUSPECT},
        {GROUP_STOPPING, false, false, SIGSEGV, END_AFTER_STOP},
        {GROUP_STOPPING, false, false, SIGKILL, END_AFTER_STOP},
        {GROUP_STOPPING, true, false, SIGKILL, END_STOPPED},
        {GROUP_STOPPING, true, true, 1, END_STOPPED},
        {GROUP_KILLING, false, false, SIGKILL, END_STOPPED},
        {GROUP_KILLING, false, false, SIGSEGV, END_STOPPED},
        {GROUP_DONE, false, true, 0, END_STOPPED},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        enum end_kind kind = end_kind_of(rows[i].state, rows[i].leaving, rows[i].exited, rows[i].status);
        if (kind != rows[i].kind)
            fail_msg("row %zu is %s", i, end_kind_name(kind));
    }
    assert_string_equal(end_kind_name(END_KIND_COUNT), "?");
}

/* --- error files --- */

static int parse(const char *text, struct error_report *report)
{
    struct muster_error err = {0};
    int result = error_file_parse(text, strlen(text), report, &err);
    assert_int_equal(result < 0, *err.text != '\0');
    return result;
}

static void error_files_of_both_shapes(void **state)
{
    (void)state;
    struct error_report report;
    assert_int_equal(
        parse("{\"message\": {\"message\": \"ValueError: no\", \"extraInfo\": {\"py_callstack\": "
              "\"Traceback:\\n  File\\nValueError: no\\n\", \"timestamp\": \"1700000000\"}}}",
              &report),
        0);
    assert_string_equal(report.message, "ValueError: no");
    assert_string_equal(report.traceback, "Traceback:\n  File\nValueError: no");
    assert_true(report.timed);
    assert_true(report.wall_ns == INT64_C(1700000000) * NS_PER_S && report.grain_ns == NS_PER_S);
    assert_int_equal(parse("{\"message\": \"out of\\nluck\", \"timestamp\": 1700000000.5}", &report), 0);
    assert_string_equal(report.message, "out of luck");
    assert_string_equal(report.traceback, "");
    assert_true(report.wall_ns == INT64_C(1700000000) * NS_PER_S + NS_PER_S / 2 && report.grain_ns == 0);
    assert_int_equal(
        parse("{\"message\": {\"message\": \"a\", \"extraInfo\": {\"timestamp\": \"soon\"}}}", &report), 0);
    assert_false(report.timed);
    assert_int_equal(parse("{\"message\": {}}", &report), 0);
    assert_string_equal(report.message, "");
    /* as Python writes a character beyond 16 bits, half of one (a path that is not UTF-8), and a NUL */
    assert_int_equal(parse("{\"message\": \"\\ud83d\\ude00 \\udcff \\ud83d. \\\\ud83d\"}", &report), 0);
    assert_string_equal(report.message, "\xf0\x9f\x98\x80 \xef\xbf\xbd \xef\xbf\xbd. \\ud83d");
    assert_int_equal(parse("{\"message\": \"a\\u0000b\", \"x\": NaN}", &report), -1);
    assert_int_equal(parse("{\"message\": \"a\\u0000b\"}", &report), 0);
    assert_string_equal(report.message, "a");
}

static void error_files_that_are_rejected(void **state)
{
    (void)state;
    struct error_report report;
    struct muster_error err;
    static const char *const texts[] = {"",
                                        "nonsense",
                                        "{",
                                        "[]",
                                        "3",
                                        "{}",
                                        "{\"message\": 3}",
                                        "{\"message\": []}",
                                        "{\"message\": \"a\"} more",
                                        "{\"message\": \"\xff\xfe\"}"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        assert_int_equal(parse(texts[i], &report), -1);
    scope_buffer big = {0};
    buffer_text(&big, "{\"message\": \"");
    char *place = buffer_reserve(&big, ERROR_FILE_LIMIT);
    assert_non_null(place);
    memset(place, 'x', ERROR_FILE_LIMIT);
    big.length += ERROR_FILE_LIMIT;
    buffer_text(&big, "\"}");
    assert_int_equal(error_file_parse(big.data, big.length, &report, &err), -1);
    assert_int_equal(err.code, MUSTER_E_LIMIT);
    buffer_clear(&big);
    for (int i = 0; i < 100000; i++)
        buffer_text(&big, "{\"message\":[");
    assert_int_equal(error_file_parse(big.data, big.length, &report, &err), -1);
    assert_int_equal(err.code, MUSTER_E_LIMIT);
    buffer_clear(&big);
    buffer_text(
        &big,
        "{\"message\": \"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\\\"[[[[\"}"); /* inside a text */
    assert_int_equal(error_file_parse(big.data, big.length, &report, &err), 0);
}

static void long_texts_are_cut(void **state)
{
    (void)state;
    struct error_report report;
    scope_buffer text = {0};
    buffer_text(&text, "{\"message\": {\"message\": \"");
    for (int i = 0; i < 2000; i++)
        buffer_text(&text, "m");
    buffer_text(&text, "\", \"extraInfo\": {\"py_callstack\": \"");
    for (int i = 0; i < 2000; i++)
        buffer_printf(&text, "line %d\\n", i);
    buffer_text(&text, "\"}}}");
    assert_int_equal(parse(text.data, &report), 0);
    assert_int_equal(strlen(report.message), sizeof report.message - 1);
    assert_string_equal(report.message + sizeof report.message - 4, "...");
    assert_memory_equal(report.traceback, "line ", 5); /* whole lines */
    assert_string_equal(report.traceback + strlen(report.traceback) - 10, "\nline 1999");
}

static void error_files_are_handed_on(void **state)
{
    (void)state;
    struct error_report report;
    static const char text[] =
        "{\"message\": {\"message\": \"V\", \"extraInfo\": {\"py_callstack\": \"T\"}}, \"more\": 1}";
    scope_buffer out = {0}, own = {0}, plain = {0};
    assert_int_equal(error_file_with_code(text, strlen(text), 7, &out, NULL), 0);
    assert_non_null(strstr(out.data, "\"errorCode\":7"));
    assert_non_null(strstr(out.data, "\"more\":1"));
    assert_int_equal(parse(out.data, &report), 0);
    assert_string_equal(report.message, "V");
    assert_int_equal(error_file_with_code("{\"message\": \"V\"}", 16, 7, &plain, NULL), 0);
    assert_string_equal(plain.data, "{\"message\":\"V\"}");
    assert_int_equal(error_file_with_code("no", 2, 7, &plain, NULL), -1);
    assert_int_equal(error_file_format("a \"b\"", "c\nd", INT64_C(5) * NS_PER_S, 137, &own), 0);
    assert_int_equal(parse(own.data, &report), 0);
    assert_string_equal(report.message, "a \"b\"");
    assert_string_equal(report.traceback, "c\nd");
    assert_true(report.wall_ns == 5 * NS_PER_S);
    assert_non_null(strstr(own.data, "\"errorCode\": 137"));
}

static void make(const char *root, const char *directory, const char *file, const char *text)
{
    char path[256];
    (void)snprintf(path, sizeof path, "%s%s", root, directory);
    assert_int_equal(io_make_directories(path, 0700, NULL), 0);
    (void)snprintf(path, sizeof path, "%s%s/%s", root, directory, file);
    assert_int_equal(io_write_file_atomic(path, text, strlen(text), 0600, NULL), 0);
}

static void remove_tree(const char *path)
{
    pid_t pid = fork();
    if (pid == 0) {
        execl("/bin/rm", "rm", "-rf", path, (char *)NULL);
        _exit(1);
    }
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* --- the evidence --- */

static void the_kernels_kills_find_their_workers(void **state)
{
    (void)state;
    static struct kernel_evidence_account account;
    account = (struct kernel_evidence_account){
        .oom_counted = true, .oom_kills = 1, .memory_limit = 100, .memory_peak = 90};
    struct worker_failure own = {.exit_code = 1}, killed = {.exit_code = -1, .signal = SIGKILL},
                          also_killed = {.exit_code = -1, .signal = SIGKILL};
    struct worker_failure *batch[] = {&own, &killed, &also_killed};
    int64_t attributed = 0;
    kernel_evidence_apply(&account, NULL, &attributed, batch, 3);
    assert_false(own.out_of_memory);
    assert_int_equal(own.oom_check, FAILURE_OOM_COUNTED);
    assert_int_equal(own.oom_kills, 1); /* perhaps a child of it: the report mentions it */
    assert_true(killed.out_of_memory);
    assert_false(killed.memory_host);
    assert_int_equal(killed.memory_limit, 100);
    assert_int_equal(killed.memory_peak, 90);
    assert_false(also_killed.out_of_memory); /* somebody else's KILL */
    struct worker_failure later = {.exit_code = -1, .signal = SIGKILL}, *next[] = {&later};
    kernel_evidence_apply(&account, NULL, &attributed, next, 1);
    assert_false(later.out_of_memory); /* the kill was answered for */
    account.oom_kills = 2;
    account.oom_beyond = true;
    kernel_evidence_apply(&account, NULL, &attributed, next, 1);
    assert_true(later.out_of_memory);
    assert_true(later.memory_host);
    assert_int_equal(attributed, 2);
    kernel_evidence_doubt(&account, account.opened, &later);
    assert_int_equal(later.oom_check, FAILURE_OOM_COUNTED);
    const int64_t kills = later.oom_kills;
    later.oom_kills = 0;
    kernel_evidence_doubt(&account, account.opened, &later); /* it ended at the instant at which it began */
    assert_int_equal(later.oom_check, FAILURE_OOM_COUNTED);
    later.oom_kills = kills;
    account.opened = instant_add(account.opened, 1); /* it ended before the count began */
    kernel_evidence_doubt(&account, (struct instant){0}, &later);
    assert_int_equal(later.oom_check, FAILURE_OOM_COUNTED); /* a kill that was counted is one */
    later.oom_kills = 0;
    kernel_evidence_doubt(&account, (struct instant){0}, &later);
    assert_int_equal(later.oom_check, FAILURE_OOM_NOT_CHECKED);
    account = (struct kernel_evidence_account){0};
    kernel_evidence_apply(&account, NULL, &attributed, next, 1);
    assert_int_equal(later.oom_check, FAILURE_OOM_UNREADABLE);
}

static void gpus_of_workers(void **state)
{
    (void)state;
    static const struct kernel_evidence_gpu gpus[] = {{"0000:3b:00", "GPU-aaa"}, {"0000:5e:00", "GPU-bbb"}};
    const struct {
        const char *visible;
        int local_rank;
        const char *pci;
    } rows[] = {
        {NULL, 1, "0000:5e:00"},
        {NULL, 2, ""},
        {"1,0", 0, "0000:5e:00"},
        {"1, 0", 1, "0000:3b:00"},
        {"GPU-bb", 0, "0000:5e:00"},
        {"", 0, ""},
        {"7", 0, ""},
        {"1,0", 2, ""},
        {"MIG-x", 0, ""},
        {NULL, -1, ""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_string_equal(kernel_evidence_gpu_of(gpus, 2, rows[i].visible, rows[i].local_rank),
                            rows[i].pci);
}

static void gpu_errors_find_their_workers(void **state)
{
    (void)state;
    static struct kernel_evidence_account account;
    account = (struct kernel_evidence_account){.xids = {{79, "0000:5e:00", 0}, {31, "0000:3b:00", 4000}},
                                               .xid_count = 2,
                                               .pids_comparable = true,
                                               .gpus = {{"0000:3b:00", ""}, {"0000:5e:00", ""}},
                                               .gpu_count = 2};
    struct worker_failure first = {.local_rank = 0, .pid = 1}, second = {.local_rank = 1, .pid = 2};
    struct worker_failure *batch[] = {&first, &second};
    int64_t attributed = 0;
    kernel_evidence_apply(&account, NULL, &attributed, batch, 2);
    assert_int_equal(first.xid, 31);
    assert_int_equal(second.xid, 79);
    assert_string_equal(second.pci, "0000:5e:00");
    assert_false(second.xid_elsewhere);
    struct worker_failure known = {.local_rank = 0, .pid = 4000}, unknown = {.local_rank = 5, .pid = 2};
    struct worker_failure *again[] = {&known, &unknown}; /* two GPUs: nothing says which the sixth uses */
    kernel_evidence_apply(&account, NULL, &attributed, again, 2);
    assert_int_equal(known.xid, 31);
    assert_false(known.xid_elsewhere);
    assert_int_equal(unknown.xid, 79);
    assert_true(unknown.xid_elsewhere);
    account.pids_comparable = false;
    known = (struct worker_failure){.local_rank = 5, .pid = 4000};
    kernel_evidence_apply(&account, NULL, &attributed, again, 1);
    assert_true(known.xid_elsewhere);
}

/* The kernel log is the machine's: its lines about GPUs are no cause if this node has no such GPU, or if
 * the workers see none. */
static void errors_of_other_gpus_are_no_cause(void **state)
{
    (void)state;
    static struct kernel_evidence_account account;
    account = (struct kernel_evidence_account){
        .xids = {{79, "0000:5e:00", 7}}, .xid_count = 1, .pids_comparable = true};
    const struct {
        const char *what, *visible;
        int gpu_count, pid, xid;
        struct kernel_evidence_gpu gpu;
    } rows[] = {
        {"no GPU", NULL, 0, 1, 0, {"", ""}},
        {"no GPU, and the process that the line names", NULL, 0, 7, 0, {"", ""}},
        {"another GPU", NULL, 1, 1, 0, {"0000:3b:00", ""}},
        {"its GPU, of which the worker sees nothing", "", 1, 1, 0, {"0000:5e:00", ""}},
        {"the same by a number", "-1", 1, 1, 0, {"0000:5e:00", ""}},
        {"the driver knows better", "-1", 1, 7, 79, {"0000:5e:00", ""}},
        {"its GPU", "0", 1, 1, 79, {"0000:5e:00", ""}},
        {"a part of a GPU that is not known", "MIG-x", 1, 1, 79, {"0000:5e:00", ""}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct worker_failure failure = {.local_rank = 0, .pid = rows[i].pid};
        struct worker_failure *batch[] = {&failure};
        int64_t attributed = 0;
        print_message("%s\n", rows[i].what);
        account.gpus[0] = rows[i].gpu;
        account.gpu_count = rows[i].gpu_count;
        kernel_evidence_apply(&account, rows[i].visible, &attributed, batch, 1);
        assert_int_equal(failure.xid, rows[i].xid);
    }
}

static _Atomic(int) overwrites = -1; /* the next read of this file meets records that are no more */

ssize_t __real_read(int fd, void *to, size_t size);
ssize_t __wrap_read(int fd, void *to, size_t size);

ssize_t __wrap_read(int fd, void *to, size_t size)
{
    int expected = fd;
    if (fd < 0 || !atomic_compare_exchange_strong(&overwrites, &expected, -1))
        return __real_read(fd, to, size);
    errno = EPIPE;
    return -1;
}

/* The descriptor that is open on this file; -1: none is. */
static int open_on(const char *path)
{
    char link[64], target[256];
    for (int fd = 0; fd < 256; fd++) {
        (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        const ssize_t length = readlink(link, target, sizeof target);
        if (length == (ssize_t)strlen(path) && !memcmp(target, path, (size_t)length))
            return fd;
    }
    return -1;
}

static void append_report(const char *path, const char *pci, int number, int pid)
{
    char line[128];
    const int length =
        snprintf(line, sizeof line, "4,1,1,-;NVRM: Xid (PCI:%s): %d, pid=%d\n", pci, number, pid);
    scope_close int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    assert_int_equal(write(fd, line, (size_t)length), length);
}

/* A file stands for the kernel log: it reads the lines appended after the evidence is opened. */
static void evidence_is_what_is_new(void **state)
{
    (void)state;
    char root[FOLDER_PATH], log[64], gpus[64];
    assert_int_equal(folder_make(root, "evidence"), 0);
    (void)snprintf(log, sizeof log, "%s/kmsg", root);
    (void)snprintf(gpus, sizeof gpus, "%s/gpus", root);
    make(root, "", "kmsg", "4,1,1,-;NVRM: Xid (PCI:0000:3b:00): 13, old\n");
    make(root, "/gpus/0000:5e:00.0", "information", "Model: T4\nGPU UUID:\t GPU-bbb\nBus Location: x\n");
    make(root, "/gpus/0000:3b:00.0", "information", "Model: T4\n");
    make(root, "/gpus/unrelated", "information", "");
    struct kernel_evidence_paths paths = {log, gpus, NULL};
    struct kernel_evidence *evidence = kernel_evidence_open(&paths);
    assert_non_null(evidence);
    static struct kernel_evidence_account account;
    kernel_evidence_read(evidence, &account);
    assert_int_equal(account.xid_count, 0);
    append_report(log, "0000:5e:00", 79, 0);
    for (int i = 0; i < 2; i++) { /* once read, it stays */
        kernel_evidence_read(evidence, &account);
        assert_int_equal(account.xid_count, 1);
        assert_int_equal(account.xids[0].number, 79);
    }
    assert_int_equal(account.gpu_count, 2);
    assert_string_equal(account.gpus[0].pci, "0000:3b:00");
    assert_string_equal(account.gpus[1].uuid, "GPU-bbb");
    kernel_evidence_close(evidence);
    paths = (struct kernel_evidence_paths){"/no/such/log", "/no/such/gpus", NULL};
    evidence = kernel_evidence_open(&paths);
    assert_non_null(evidence);
    kernel_evidence_read(evidence, &account);
    assert_int_equal(account.xid_count, 0);
    kernel_evidence_close(evidence);
    kernel_evidence_close(NULL);
    remove_tree(root);
}

/* A neighbour's program, again and again, and after each the report of the driver that cleans up. */
static void reports_of_a_long_round(void **state)
{
    (void)state;
    enum { KEPT = KERNEL_EVIDENCE_XIDS_KEPT, MORE = 100 };
    char root[FOLDER_PATH], log[64];
    static struct kernel_evidence_account account;
    assert_int_equal(folder_make(root, "evidence"), 0);
    (void)snprintf(log, sizeof log, "%s/kmsg", root);
    make(root, "", "kmsg", "");
    const struct kernel_evidence_paths paths = {log, "/no/such/gpus", NULL};
    struct kernel_evidence *evidence = kernel_evidence_open(&paths);
    assert_non_null(evidence);
    for (int i = 0; i <= MORE; i++) { /* one read has all lines of a file, of which the first counts */
        append_report(log, "0000:3b:00", i ? 31 : 79, i);
        kernel_evidence_read(evidence, &account);
        append_report(log, "0000:3b:00", 45, i);
        kernel_evidence_read(evidence, &account);
    }
    assert_int_equal(account.xid_count, KEPT);
    assert_int_equal(account.xids[0].number, 79); /* the gravest stays, and the newest of the others */
    for (int i = 1; i < KEPT; i++)
        assert_true(account.xids[i].number == 31 && account.xids[i].pid == MORE - KEPT + 1 + i);
    assert_false(account.log_lost);
    kernel_evidence_close(evidence);
    remove_tree(root);
}

/* --- the thread --- */

static const struct kernel_evidence_paths no_paths = {"/no/such/log", "/no/such/gpus", NULL};

/* Sends the thread and waits for it. */
static void look(struct postmortem *p)
{
    postmortem_go(p);
    assert_true(postmortem_is_busy(p));
    struct pollfd done = {.fd = postmortem_fd(p), .events = POLLIN};
    if (done.fd >= 0) {
        assert_int_equal(poll(&done, 1, 60000), 1);
        assert_true(postmortem_wait(p, 60 * NS_PER_S));
    }
}

static struct observed_failure *observe(int rank, const char *stderr_file, const char *error_file)
{
    struct observed_failure *failure = calloc(1, sizeof *failure);
    assert_non_null(failure);
    failure->failure = (struct worker_failure){.rank = rank, .exit_code = 1, .tail = "from the pipe"};
    failure->stderr_file = stderr_file ? strdup(stderr_file) : NULL;
    failure->error_file = error_file ? strdup(error_file) : NULL;
    return failure;
}

/* The examination of two ends; how many of them have a note about records that were lost. */
static int notes_about_lost_records(struct postmortem *p, int xid)
{
    int said = 0;
    for (int i = 0; i < 2; i++)
        postmortem_add(p, observe(0, NULL, NULL));
    look(p);
    for (int i = 0; i < 2; i++) {
        struct observed_failure *failure = postmortem_take(p);
        assert_non_null(failure);
        said += strstr(failure->note, "may be missing here: see the node's journal") != NULL;
        assert_true(overwrites != -1 || failure->failure.xid == xid);
        observed_failure_free(failure);
    }
    return said;
}

/* Once a batch, where the node has GPUs and no report explains the failure. */
static void lost_records_are_said(void **state)
{
    (void)state;
    char root[FOLDER_PATH], log[64], gpus[64];
    struct muster_error err = {0};
    assert_int_equal(folder_make(root, "evidence"), 0);
    (void)snprintf(log, sizeof log, "%s/kmsg", root);
    (void)snprintf(gpus, sizeof gpus, "%s/gpus", root);
    make(root, "", "kmsg", "");
    make(root, "/gpus/0000:3b:00.0", "information", "Model: T4\n");
    for (int i = 0; i < 4; i++) {
        const bool lost = i > 0, has_gpus = i != 2, has_report = i == 3;
        const struct kernel_evidence_paths paths = {log, has_gpus ? gpus : "/no/such/gpus", NULL};
        struct postmortem *p = postmortem_create(&paths, clock_now(NULL), &err);
        int said;
        assert_non_null(p);
        while (open_on(log) < 0)
            clock_sleep_until(instant_add(clock_now(NULL), NS_PER_MS));
        overwrites = lost ? open_on(log) : -1;
        if (has_report)
            append_report(log, "0000:3b:00", 79, 0);
        do /* until the thread that opens the log has ended */
            said = notes_about_lost_records(p, has_report ? 79 : 0);
        while (overwrites != -1);
        assert_int_equal(said, lost && has_gpus && !has_report);
        postmortem_destroy(p);
    }
    remove_tree(root);
}

static void remains_of_workers(void **state)
{
    (void)state;
    char base[FOLDER_PATH], log[64], error[64], bad[64], missing[64];
    assert_int_equal(folder_make(base, "remains"), 0);
    (void)snprintf(log, sizeof log, "%s/log", base);
    (void)snprintf(error, sizeof error, "%s/error", base);
    (void)snprintf(bad, sizeof bad, "%s/bad", base);
    (void)snprintf(missing, sizeof missing, "%s/missing", base);
    make(base, "", "log", "one\ntwo\n");
    make(base, "", "error", "{\"message\": {\"message\": \"V\", \"extraInfo\": {\"py_callstack\": \"T\"}}}");
    make(base, "", "bad", "{");
    struct muster_error err = {0};
    struct postmortem *p = postmortem_create(&no_paths, clock_now(NULL), &err);
    assert_non_null(p);
    assert_false(postmortem_is_busy(p));
    struct observed_failure *const failures[] = {observe(0, log, error), observe(1, NULL, bad),
                                                 observe(2, missing, missing), observe(3, NULL, NULL)};
    failures[0]->suspect = true;
    for (int i = 0; i < 4; i++)
        postmortem_add(p, failures[i]);
    assert_true(postmortem_is_due(p));
    look(p);
    for (int i = 0; i < 4; i++)
        assert_ptr_equal(postmortem_take(p), failures[i]); /* the same objects, in order */
    assert_null(postmortem_take(p));
    assert_false(postmortem_is_busy(p));
    assert_string_equal(failures[0]->failure.tail, "one\ntwo");
    assert_string_equal(failures[0]->failure.message, "V");
    assert_string_equal(failures[0]->failure.traceback, "T");
    assert_string_equal(failures[0]->failure.error_file, error);
    assert_true(failures[0]->suspect && failures[0]->more_found);
    assert_string_equal(failures[1]->failure.tail, "from the pipe");
    assert_string_equal(failures[1]->failure.error_file, bad);
    assert_non_null(strstr(failures[1]->note, "not JSON"));
    assert_string_equal(failures[2]->failure.error_file, "");
    assert_string_equal(failures[3]->note, "");
    assert_false(failures[3]->more_found);
    for (int i = 0; i < 4; i++)
        observed_failure_free(failures[i]);
    postmortem_destroy(p);
    postmortem_destroy(NULL);
    remove_tree(base);
}

/* A file that does not answer: nobody writes to the pipe, so opening it hangs. */
static void a_file_system_that_stalls(void **state)
{
    (void)state;
    char base[FOLDER_PATH], fifo[64], log[64];
    assert_int_equal(folder_make(base, "remains"), 0);
    (void)snprintf(fifo, sizeof fifo, "%s/fifo", base);
    (void)snprintf(log, sizeof log, "%s/log", base);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    make(base, "", "log", "words\n");
    struct muster_error err = {0};
    struct postmortem *p = postmortem_create(&no_paths, clock_now(NULL), &err);
    assert_non_null(p);
    struct observed_failure *stuck = observe(1, fifo, NULL), *fine = observe(2, log, NULL);
    postmortem_add(p, stuck);
    postmortem_go(p);
    postmortem_add(p, fine);
    postmortem_go(p); /* one at a time */
    assert_false(postmortem_is_due(p));
    assert_false(postmortem_wait(p, 50 * NS_PER_MS));
    assert_null(postmortem_take(p));
    assert_true(postmortem_is_busy(p));
    postmortem_give_up(p); /* both come as they are known: no second wait in this round */
    assert_int_equal(postmortem_fd(p), -1);
    assert_ptr_equal(postmortem_take(p), stuck);
    assert_ptr_equal(postmortem_take(p), fine);
    assert_string_equal(fine->failure.tail, "from the pipe");
    assert_false(fine->more_found);
    assert_false(postmortem_is_busy(p));
    observed_failure_free(stuck);
    postmortem_add(p, fine);
    look(p);
    assert_ptr_equal(postmortem_take(p), fine);
    postmortem_add(p, fine); /* entries that are not taken are freed with it */
    postmortem_destroy(p);
    int writer = open(fifo, O_WRONLY | O_CLOEXEC); /* lets the thread go */
    assert_true(writer >= 0);
    close(writer);
    remove_tree(base);
}

static void a_folder_for_error_files(void **state)
{
    (void)state;
    struct stat status;
    struct temporary_folder temporary;
    char *directory = error_directory_make(&temporary);
    assert_non_null(directory);
    assert_int_equal(stat(directory, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0700);
    char *file = error_directory_file(directory, 3, 1);
    assert_string_equal(file + strlen(directory), "/error_3_1.json");
    assert_int_equal(io_write_file_atomic(file, "{}", 2, 0600, NULL), 0);
    error_directory_discard(directory);
    assert_int_equal(access(directory, F_OK), -1);
    error_directory_discard(directory);
    mem_free(file);
    mem_free(directory);
    assert_int_equal(setenv("TMPDIR", "/no/such/folder", 1), 0);
    scope_free char *elsewhere = error_directory_make(&temporary);
    assert_non_null(elsewhere);
    assert_non_null(strstr(temporary.warning, "TMPDIR=/no/such/folder cannot be used"));
    error_directory_discard(elsewhere);
    assert_int_equal(unsetenv("TMPDIR"), 0);
}

/* A network file system is not to be had here; /proc stands for all that are on no disk. */
static void what_may_hang_is_left_to_a_thread(void **state)
{
    (void)state;
    static const struct {
        const char *folder;
        bool prompt;
    } rows[] = {{"/", true}, {"/proc", false}, {"/no/such/folder", false}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(setenv("TMPDIR", rows[i].folder, 1), 0);
        assert_int_equal(error_directory_is_prompt(), rows[i].prompt);
    }
    assert_int_equal(unsetenv("TMPDIR"), 0);
    struct temporary_folder temporary;
    char *directory = error_directory_make(&temporary);
    if (!strncmp(directory, "/dev/shm/", 9))
        assert_true(error_directory_is_prompt());
    error_directory_discard(directory);
    mem_free(directory);
}

static void when_an_exception_happened(void **state)
{
    (void)state;
    const int64_t s = NS_PER_S, wall = INT64_C(1700000000) * s;
    const struct {
        int64_t file_wall, grain, expected;
    } rows[] = {
        {wall - 5 * s, 0, 95 * s},    /* five seconds of tidying up */
        {wall - 5 * s, s, 96 * s},    /* a whole second may have passed more */
        {wall - s / 2, s, 100 * s},   /* the same second */
        {wall + 5 * s, 0, 100 * s},   /* the clock was set back */
        {wall - 500 * s, 0, 100 * s}, /* evidence of an earlier run */
        {wall - 91 * s, s, 100 * s},  /* before the round */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct instant at = postmortem_time((struct instant){10 * s}, (struct instant){100 * s}, wall,
                                            rows[i].file_wall, rows[i].grain);
        assert_true(at.ns == rows[i].expected);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whose_doing_an_end_was),
        cmocka_unit_test(error_files_of_both_shapes),
        cmocka_unit_test(error_files_that_are_rejected),
        cmocka_unit_test(long_texts_are_cut),
        cmocka_unit_test(error_files_are_handed_on),
        cmocka_unit_test(the_kernels_kills_find_their_workers),
        cmocka_unit_test(gpus_of_workers),
        cmocka_unit_test(gpu_errors_find_their_workers),
        cmocka_unit_test(errors_of_other_gpus_are_no_cause),
        cmocka_unit_test(evidence_is_what_is_new),
        cmocka_unit_test(reports_of_a_long_round),
        cmocka_unit_test(lost_records_are_said),
        cmocka_unit_test(remains_of_workers),
        cmocka_unit_test(a_file_system_that_stalls),
        cmocka_unit_test(a_folder_for_error_files),
        cmocka_unit_test(what_may_hang_is_left_to_a_thread),
        cmocka_unit_test(when_an_exception_happened),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
