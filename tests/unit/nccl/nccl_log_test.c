/* nccl_log.h: NCCL's own files of a round's workers are found by their names, read once, and their warnings
 * of is said once. */
#include "launcher/nccl/nccl_log.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/base/clock.h"
#include "proto/base/guard.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/folder.h"

static const int64_t patience_ns = 240 * NS_PER_S;

/* A folder, and a log of two workers whose files are in it. */
struct fixture {
    char folder[64], pattern[128];
    pid_t pids[2];
    struct nccl_log *log;
};

static int make(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    (void)snprintf(f->folder, sizeof f->folder, "/tmp/muster-nccl-XXXXXX");
    assert_non_null(mkdtemp(f->folder));
    (void)snprintf(f->pattern, sizeof f->pattern, "%s/a[1].%%h.%%p.log", f->folder);
    f->pids[0] = getpid();
    f->pids[1] = 999999999; /* no process has this number */
    f->log = nccl_log_create(f->pattern, "node7.cluster.local", 4);
    assert_non_null(f->log);
    *state = f;
    return 0;
}

static int clear(void **state)
{
    struct fixture *f = *state;
    nccl_log_release(f->log);
    assert_int_equal(folder_remove(f->folder), 0);
    free(f);
    return 0;
}

static void append(const struct fixture *f, pid_t pid, const char *text)
{
    char path[NCCL_LOG_PATH];
    assert_true(nccl_log_path(f->pattern, "node7", pid, path, sizeof path));
    scope_fclose FILE *file = fopen(path, "a");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
}

static void read_all(struct fixture *f, const pid_t *pids)
{
    struct muster_error err = {0};
    struct background_job *job = nccl_log_read(f->log, pids, 2, &err);
    assert_non_null(job);
    assert_true(background_job_wait(job, patience_ns));
    background_job_release(job);
}

static void assert_next(struct fixture *f, int rank, const char *text)
{
    struct nccl_log_warning got;
    assert_true(nccl_log_take(f->log, &got));
    assert_string_equal(got.text, text);
    assert_int_equal(got.rank, rank);
    assert_memory_equal(got.path, f->folder, strlen(f->folder));
}

static void assert_none(struct fixture *f)
{
    struct nccl_log_warning got;
    assert_false(nccl_log_take(f->log, &got));
}

static void test_names_are_made_as_nccl_makes_them(void **state)
{
    char path[32];
    (void)state;
    assert_true(nccl_log_path("/l/%h.%p", "node7.cluster.local", 12, path, sizeof path));
    assert_string_equal(path, "/l/node7.12");
    assert_true(nccl_log_path("100%%.%x%", "h", 1, path, sizeof path));
    assert_string_equal(path, "100%.%x%");
    assert_true(nccl_log_path("[a]*%h?.%p", "h*", -1, path, sizeof path));
    assert_string_equal(path, "\\[a]\\*h\\*\\?.[0-9]*");
    assert_true(nccl_log_path("/l/%p/%p", "h", 7, path, 7));
    assert_string_equal(path, "/l/7/7");
    assert_false(nccl_log_path("/l/%p/%p", "h", 7, path, 6));
    assert_false(nccl_log_path("", "h", 7, path, 0));
}

static void test_streams_are_no_files(void **state)
{
    (void)state;
    assert_true(nccl_log_is_file("nccl.log") && nccl_log_is_file("/devices/nccl.%p"));
    assert_false(nccl_log_is_file(NULL) || nccl_log_is_file(""));
    assert_false(nccl_log_is_file("/dev/stderr") || nccl_log_is_file("/proc/self/fd/2"));
}

static void test_warnings_are_read_as_they_come(void **state)
{
    struct fixture *f = *state;
    read_all(f, f->pids); /* there is no file yet */
    assert_none(f);
    append(f, f->pids[0], "h:1:2 [0] NCCL INFO all is well\nh:1:2 [0] NCCL WARN first\nh:1:2 [0] NCCL WA");
    append(f, f->pids[1], "h:1:2 [0] NCCL WARN second\n");
    read_all(f, f->pids);
    assert_next(f, 4, "NCCL WARN first");
    assert_next(f, 5, "NCCL WARN second");
    assert_none(f);
    append(f, f->pids[0], "RN third\n");
    append(f, f->pids[1], "x NCCL WARN first\n"); /* said already */
    read_all(f, NULL);
    assert_next(f, 4, "NCCL WARN third");
    assert_none(f);
}

static void test_so_many_are_said_and_no_more(void **state)
{
    struct fixture *f = *state;
    char line[64];
    for (int i = 0; i < NCCL_LOG_WARNINGS + 4; i++) {
        (void)snprintf(line, sizeof line, "x NCCL WARN number %d\n", i);
        append(f, f->pids[0], line);
        read_all(f, f->pids);
        if (i < NCCL_LOG_WARNINGS)
            assert_next(f, 4, strstr(strtok(line, "\n"), "NCCL"));
        assert_none(f);
    }
}

/* A worker that is a script: NCCL is in a process of its session. Another job's process is not looked at. */
static void test_processes_of_a_workers_session_belong_to_it(void **state)
{
    struct fixture *f = *state;
    int hold[2], ready[2];
    char byte;
    assert_int_equal(pipe(hold) | pipe(ready), 0);
    const pid_t worker = fork();
    assert_true(worker >= 0);
    if (!worker) {
        (void)setsid();
        const pid_t child = fork();
        if (child)
            _exit(write(ready[1], &child, sizeof child) == sizeof child && close(hold[1]) == 0 &&
                          waitpid(child, NULL, 0) == child
                      ? 0
                      : 1);
        (void)close(hold[1]);
        _exit(read(hold[0], &byte, 1) == 0 ? 0 : 1); /* until the test closes its end */
    }
    pid_t child = 0;
    assert_int_equal(read(ready[0], &child, sizeof child), sizeof child);
    append(f, child, "x NCCL WARN of a child\n");
    append(f, getppid(), "x NCCL WARN of another job\n");
    f->pids[0] = 0; /* not started */
    f->pids[1] = worker;
    read_all(f, f->pids);
    assert_next(f, 5, "NCCL WARN of a child");
    assert_none(f);
    (void)close(hold[1]);
    assert_int_equal(waitpid(worker, NULL, 0), worker);
    (void)close(hold[0]);
    (void)close(ready[0]);
    (void)close(ready[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_are_made_as_nccl_makes_them),
        cmocka_unit_test(test_streams_are_no_files),
        cmocka_unit_test_setup_teardown(test_warnings_are_read_as_they_come, make, clear),
        cmocka_unit_test_setup_teardown(test_so_many_are_said_and_no_more, make, clear),
        cmocka_unit_test_setup_teardown(test_processes_of_a_workers_session_belong_to_it, make, clear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
