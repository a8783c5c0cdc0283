/* launcher_agent_parts_test.c - the loop, log directories, the resolver. */
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launcher/config/config.h"
#include "launcher/loop/loop.h"
#include "launcher/loop/resolver.h"
#include "launcher/output/log_files.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "proto/base/mem.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/folder.h"

/* --- loop --- */

struct pair {
    struct loop *loop;
    struct loop_source *other;
    int calls;
};

static void drop_other(void *context, uint32_t events)
{
    struct pair *pair = context;
    assert_true(events & EPOLLIN);
    pair->calls++;
    loop_remove(pair->loop, pair->other);
}

/* What one handler removes is not called any more, though the same turn saw it ready. */
static void removed_in_the_same_turn(void **state)
{
    (void)state;
    struct loop loop;
    int a[2], b[2];
    assert_int_equal(loop_init(&loop, NULL), 0);
    assert_int_equal(pipe(a) | pipe(b), 0);
    assert_int_equal(write(a[1], "x", 1) + write(b[1], "x", 1), 2);
    struct loop_source first, second;
    struct pair one = {&loop, &second, 0}, two = {&loop, &first, 0};
    first = (struct loop_source){a[0], drop_other, &one};
    second = (struct loop_source){b[0], drop_other, &two};
    assert_int_equal(loop_add(&loop, &first, EPOLLIN, NULL), 0);
    assert_int_equal(loop_add(&loop, &second, EPOLLIN, NULL), 0);
    assert_int_equal(loop_turn(&loop, INSTANT_NEVER, NULL), 0);
    assert_int_equal(one.calls + two.calls, 1);
    struct muster_error err = {0};
    assert_int_equal(loop_add(&loop, &(struct loop_source){.fd = -1}, EPOLLIN, &err), -1);
    assert_int_equal(err.code, MUSTER_E_IO);
    loop_close(&loop);
    close(a[0]);
    close(a[1]);
    close(b[0]);
    close(b[1]);
}

static void deadlines_end_a_turn(void **state)
{
    (void)state;
    struct loop loop;
    assert_int_equal(loop_init(&loop, NULL), 0);
    struct instant start = clock_now(NULL), deadline = instant_add(start, 20 * NS_PER_MS);
    while (!instant_reached(clock_now(NULL), deadline))
        assert_int_equal(loop_turn(&loop, deadline, NULL), 0);
    assert_int_equal(loop_turn(&loop, start, NULL), 0); /* in the past: does not wait */
    assert_int_equal(loop_turn(&loop, instant_add(clock_now(NULL), NS_PER_MS), NULL), 0);
    loop_close(&loop);
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

/* --- log directories --- */

static void log_directories(void **state)
{
    (void)state;
    char base[FOLDER_PATH];
    assert_int_equal(folder_make(base, "logdir"), 0);
    struct muster_error err = {0};
    struct run_config config = {.nproc_per_node = 2, .rdzv_id = "team/job", .redirects = "0", .tee = "0"};
    assert_false(config_wants_log_directory(&config));
    config.tee = "1:3";
    assert_true(config_wants_log_directory(&config));
    config.tee = "2:3"; /* a rank that is not there */
    assert_false(config_wants_log_directory(&config));
    config.log_dir = base;
    assert_true(config_wants_log_directory(&config));
    struct temporary_folder temporary;
    char *run = log_directory_make(config.log_dir, config.rdzv_id, 0, &temporary, &err),
         *again = log_directory_make(config.log_dir, config.rdzv_id, 1, &temporary, &err);
    assert_non_null(run);
    assert_non_null(again);
    assert_string_not_equal(run, again);
    assert_memory_equal(run + strlen(base), "/team_job_", 10);
    assert_int_equal(strlen(run), strlen(base) + 10 + 8);
    struct stat status;
    assert_int_equal(stat(run, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0700);
    char *worker = log_directory_worker(run, 2, 1, &err);
    assert_non_null(worker);
    assert_memory_equal(worker + strlen(run), "/attempt_2/1", 13);
    for (int i = 0; i < 2; i++) { /* a second opening keeps the contents */
        int fd = log_directory_open(worker, "stdout.log", &err);
        assert_true(fd >= 0);
        assert_int_equal(write(fd, "x", 1), 1);
        assert_int_equal(fstat(fd, &status), 0);
        assert_int_equal(status.st_size, i + 1);
        close(fd);
    }
    assert_int_equal(log_directory_open(worker, "no/such", &err), -1);
    config.log_dir = "/dev/null";
    assert_false(config_wants_log_directory(&config));
    char file[64];
    (void)snprintf(file, sizeof file, "%s/file", base);
    assert_int_equal(io_write_file_atomic(file, "", 0, 0600, NULL), 0);
    config.log_dir = file;
    assert_null(log_directory_make(config.log_dir, config.rdzv_id, 0, &temporary, &err));
    assert_non_null(strstr(err.text, "--log-dir"));
    mem_free(run);
    mem_free(again);
    mem_free(worker);
    remove_tree(base);
}

static struct log_files *open_round(const char *run, const uint8_t *streams, struct muster_error *err)
{
    struct log_round round = {.run = run, .attempt = 1, .workers = 2, .streams = streams, .filtered = 2};
    struct log_files *files = log_files_open(&round, err);
    assert_non_null(files);
    struct pollfd done = {.fd = log_files_fd(files), .events = POLLIN};
    assert_int_equal(poll(&done, 1, 60000), 1);
    assert_true(log_files_done(files));
    return files;
}

/* A round that comes again with the same attempt appends, and finds no error file of the earlier one. */
static void files_of_a_round(void **state)
{
    (void)state;
    char run[FOLDER_PATH];
    assert_int_equal(folder_make(run, "logdir"), 0);
    static const uint8_t streams[] = {STREAM_BOTH, STREAM_STDERR};
    struct muster_error err = {0};
    scope_free char *report = mem_printf("%s/attempt_1/0/error.json", run);
    scope_free char *aside = mem_printf("%s.1", report);
    for (int i = 0; i < 2; i++) {
        struct log_files *files = open_round(run, streams, &err);
        assert_int_equal(log_files_result(files, &err), 0);
        struct log_file file = log_files_take(files, 0, 1), none = log_files_take(files, 1, 1);
        assert_true(file.fd >= 0);
        assert_int_equal(none.fd, -1);
        assert_int_equal(log_files_take(files, 0, 1).fd, -1); /* taken */
        assert_int_equal(file.size, i * 4);
        assert_int_equal(write(file.fd, "text", 4), 4);
        struct log_file shared = log_files_take_filtered(files, 2);
        assert_true(shared.fd >= 0);
        assert_int_equal(log_files_take_filtered(files, 1).fd, -1);
        close(file.fd);
        close(shared.fd);
        mem_free(file.path);
        mem_free(shared.path);
        log_files_release(files); /* closes the rest */
        assert_int_equal(access(report, F_OK), -1);
        assert_int_equal(access(aside, F_OK), i - 1);
        if (i == 0)
            assert_int_equal(io_write_file_atomic(report, "{}", 2, 0600, NULL), 0);
    }
    scope_free char *missing = mem_printf("%s/attempt_1/1/stderr.log", run);
    assert_int_equal(unlink(missing), 0);
    assert_int_equal(mkdir(missing, 0700), 0);
    struct log_files *files = open_round(run, streams, &err);
    assert_int_equal(log_files_result(files, &err), -1);
    assert_non_null(strstr(err.text, missing));
    log_files_release(files);
    remove_tree(run);
}

/* A run that ends before its first worker leaves no folder; what holds something stays. */
static void empty_log_directories_are_taken_back(void **state)
{
    (void)state;
    char base[FOLDER_PATH];
    assert_int_equal(folder_make(base, "logdir"), 0);
    assert_int_equal(setenv("TMPDIR", base, 1), 0);
    struct run_config config = {.nproc_per_node = 1, .rdzv_id = "job", .redirects = "3", .tee = "0"};
    struct temporary_folder temporary;
    scope_free char *chosen = log_directory_make(config.log_dir, config.rdzv_id, 0, &temporary, NULL);
    assert_non_null(chosen);
    log_directory_discard(config.log_dir, chosen);
    assert_int_equal(rmdir(base), 0);
    config.log_dir = base;
    scope_free char *empty = log_directory_make(config.log_dir, config.rdzv_id, 0, &temporary, NULL),
                    *used = log_directory_make(config.log_dir, config.rdzv_id, 1, &temporary, NULL);
    scope_free char *worker = log_directory_worker(used, 0, 0, NULL);
    assert_non_null(worker);
    log_directory_discard(config.log_dir, empty);
    log_directory_discard(config.log_dir, used);
    assert_int_equal(access(empty, F_OK), -1);
    assert_int_equal(access(worker, F_OK), 0);
    assert_int_equal(unsetenv("TMPDIR"), 0);
    remove_tree(base);
}

/* --- names --- */

static int resolve(const char *host, int64_t limit_ns, char *address, size_t size, struct muster_error *err)
{
    struct resolver *r = resolver_start(host, instant_add(clock_now(NULL), limit_ns), err);
    assert_non_null(r);
    struct pollfd p = {.fd = resolver_fd(r), .events = POLLIN};
    assert_int_equal(poll(&p, 1, 30000), 1);
    int result = resolver_result(r, address, size, err);
    resolver_destroy(r);
    return result;
}

static void names(void **state)
{
    (void)state;
    char address[ADDRESS_TEXT];
    struct muster_error err = {0};
    assert_true(address_is_numeric("10.1.2.3"));
    assert_true(address_is_numeric("::1"));
    assert_false(address_is_numeric("localhost"));
    assert_false(address_is_numeric("10.1.2"));
    assert_true(resolver_is_local("127.0.0.1"));
    assert_false(resolver_is_local("192.0.2.1")); /* reserved for documentation */
    assert_false(resolver_is_local("localhost"));
    assert_int_equal(resolve("127.0.0.1", NS_PER_S, address, sizeof address, &err), 0);
    assert_string_equal(address, "127.0.0.1");
    assert_int_equal(resolve("localhost", 120 * NS_PER_S, address, sizeof address, &err), 0);
    assert_true(address_is_numeric(address));
    assert_int_equal(resolve("no-such-host.invalid", 0, address, sizeof address, &err), -1);
    assert_int_equal(err.code, MUSTER_E_TIMEOUT);
    assert_non_null(strstr(err.text, "no-such-host.invalid"));
    /* given up before there is an outcome */
    struct resolver *r = resolver_start("no-such-host.invalid", INSTANT_NEVER, &err);
    assert_non_null(r);
    resolver_destroy(r);
    resolver_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(removed_in_the_same_turn),
        cmocka_unit_test(deadlines_end_a_turn),
        cmocka_unit_test(log_directories),
        cmocka_unit_test(files_of_a_round),
        cmocka_unit_test(empty_log_directories_are_taken_back),
        cmocka_unit_test(names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
