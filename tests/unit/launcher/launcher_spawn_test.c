/* launcher_spawn_test.c - the environment of a worker's start, and the errors if it cannot start. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launcher/process/spawn.h"
#include "proto/base/buffer.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/folder.h"

static char *const no_environment[] = {"PATH=/usr/bin:/bin", NULL};

static const struct numa_mask *cpus; /* processors of the new process */

static pid_t start(const char *path, char *const *argv, int out, int *exit_code, struct muster_error *err)
{
    sigset_t ignored;
    spawn_ignored_signals(&ignored);
    struct spawn_options options = {.path = path,
                                    .argv = argv,
                                    .envp = no_environment,
                                    .out_fd = out,
                                    .err_fd = 2,
                                    .ignored = &ignored,
                                    .cpus = cpus};
    return spawn_worker(&options, exit_code, err);
}

/* Runs a shell script and returns its output. */
static void shell(const char *script, struct buffer *out, int *status)
{
    int ends[2], exit_code;
    char *const argv[] = {"sh", "-c", (char *)script, NULL};
    struct muster_error err = {0};
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    pid_t pid = start("/bin/sh", argv, ends[1], &exit_code, &err);
    if (pid < 0)
        fail_msg("%s", err.text);
    close(ends[1]);
    char chunk[512];
    for (ssize_t got; (got = read(ends[0], chunk, sizeof chunk)) > 0;)
        buffer_append(out, chunk, (size_t)got);
    close(ends[0]);
    assert_int_equal(waitpid(pid, status, 0), pid);
}

static void assert_no_child(void)
{
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
}

static void runs_in_its_own_session(void **state)
{
    (void)state;
    struct buffer out = {0};
    int status;
    shell("read -r pid name state parent group session rest < /proc/self/stat; echo $pid $group $session; "
          "exit 5",
          &out, &status);
    /* the shell reads its own stat: /proc/self is the shell, since read is built in */
    int pid, group, session;
    assert_int_equal(sscanf(out.data, "%d %d %d", &pid, &group, &session), 3);
    assert_int_equal(pid, group);
    assert_int_equal(pid, session);
    assert_int_not_equal(session, getsid(0));
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 5);
    buffer_free(&out);
}

static void runs_on_the_cpus_it_is_given(void **state)
{
    (void)state;
    struct numa_mask allowed = {0}, one = {0}, none = {0};
    assert_true(sched_getaffinity(0, sizeof allowed.bits, (cpu_set_t *)allowed.bits) == 0);
    int last = 0;
    for (int cpu = 0; cpu < NUMA_CPUS_LIMIT; cpu++)
        last = numa_mask_has(&allowed, cpu) ? cpu : last;
    numa_mask_add(&one, last);
    cpus = &one;
    struct buffer out = {0}, expected = {0};
    int status, exit_code;
    shell("while read -r name value; do test $name = Cpus_allowed_list: && echo $value; done < "
          "/proc/self/status",
          &out, &status);
    numa_mask_print(&one, &expected);
    buffer_text(&expected, "\n");
    assert_string_equal(out.data, expected.data);
    buffer_free(&out);
    buffer_free(&expected);
    char *const argv[] = {"true", NULL};
    struct muster_error err = {0};
    cpus = &none; /* the kernel refuses a set without a CPU of its own */
    assert_int_equal(start("/bin/true", argv, 1, &exit_code, &err), -1);
    assert_string_equal(err.text, "cannot set the CPUs of /bin/true: Invalid argument");
    assert_int_equal(exit_code, 1);
    assert_no_child();
    cpus = NULL;
}

static void only_three_descriptors(void **state)
{
    (void)state;
    int leaked = open("/dev/null", O_RDONLY); /* without close-on-exec, as a parent may have left it */
    assert_true(leaked > 2);
    struct buffer out = {0};
    int status;
    /* the shell opens the directory itself: one more, above the three */
    shell("for fd in /proc/self/fd/*; do n=${fd##*/}; [ -e /proc/$$/fd/$n ] && [ $n -gt 2 ] && "
          "readlink /proc/$$/fd/$n; done; true",
          &out, &status);
    if (out.data && strstr(out.data, "/dev/null"))
        fail_msg("an inherited descriptor reached the worker: %s", out.data);
    close(leaked);
    buffer_free(&out);
}

/* The agent blocks and ignores; the worker starts with defaults, but for what nohup wants kept. */
static void signals_are_reset(void **state)
{
    (void)state;
    struct sigaction ignore = {.sa_handler = SIG_IGN}, initial = {.sa_handler = SIG_DFL};
    sigset_t blocked, before;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGTERM);
    sigaddset(&blocked, SIGCHLD);
    sigprocmask(SIG_BLOCK, &blocked, &before);
    sigaction(SIGPIPE, &ignore, NULL);
    sigaction(SIGHUP, &ignore, NULL);
    struct buffer out = {0};
    int status;
    shell("grep -E '^Sig(Blk|Ign)' /proc/self/status", &out, &status);
    sigaction(SIGPIPE, &initial, NULL);
    sigaction(SIGHUP, &initial, NULL);
    sigset_t after;
    sigprocmask(SIG_SETMASK, &before, &after);
    assert_int_equal(sigismember(&after, SIGTERM), 1); /* ours is as it was */
    assert_int_equal(sigismember(&after, SIGINT), 0);
    assert_string_equal(out.data, "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000001\n");
    buffer_free(&out);
}

static void has_a_parent_death_signal(void **state)
{
    (void)state;
    /* PR_GET_PDEATHSIG has no window in /proc: a middle process starts a worker and dies */
    int ends[2];
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    pid_t middle = fork();
    if (middle == 0) {
        char *const argv[] = {"sleep", "1000", NULL};
        int exit_code;
        pid_t worker = start("/bin/sleep", argv, ends[1], &exit_code, NULL);
        _exit(worker > 0 ? 0 : 1);
    }
    close(ends[1]);
    int status;
    assert_int_equal(waitpid(middle, &status, 0), middle);
    assert_int_equal(status, 0);
    char byte;
    assert_int_equal(read(ends[0], &byte, 1), 0); /* the worker held the pipe: it is gone */
    close(ends[0]);
}

static void assert_refused(const char *path, int expected, const char *words)
{
    char *const argv[] = {(char *)path, NULL};
    struct muster_error err = {0};
    int exit_code = 0;
    assert_int_equal(start(path, argv, 1, &exit_code, &err), -1);
    assert_int_equal(exit_code, expected);
    if (!strstr(err.text, path) || !strstr(err.text, words))
        fail_msg("\"%s\" does not say \"%s\"", err.text, words);
    assert_no_child();
}

static void write_file(const char *path, const char *text, mode_t mode)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
}

static void exec_errors_come_back(void **state)
{
    (void)state;
    char directory[FOLDER_PATH], path[64];
    assert_int_equal(folder_make(directory, "spawn"), 0);
    assert_refused("/no/such/program", 127, "No such file or directory");
    assert_refused(directory, 126, "Permission denied");
    (void)snprintf(path, sizeof path, "%s/text", directory);
    write_file(path, "just text\n", 0755);
    assert_refused(path, 126, "#! line");
    write_file(path, "#!/no/such/interpreter\n", 0755);
    assert_refused(path, 127, "interpreter");
    unlink(path);
    rmdir(directory);
}

enum { MANY = 200 };

/* With many descriptors the child shares the table at first; each must still get its own, and nothing else.
 */
static void among_many_descriptors(void **state)
{
    (void)state;
    int many[MANY], ends[2], exit_code, status;
    for (int i = 0; i < MANY; i++)
        assert_true((many[i] = open("/dev/null", O_RDONLY)) >= 0); /* without close-on-exec */
    for (int round = 0; round < 12; round++) {
        char name[4], expected[8], out[64] = "";
        (void)snprintf(name, sizeof name, "%d", round);
        (void)snprintf(expected, sizeof expected, "%d\n", round);
        char *const argv[] = {"sh", "-c",
                              "echo $0; for fd in /proc/self/fd/*; do n=${fd##*/}; [ -e /proc/$$/fd/$n ] && "
                              "[ $n -gt 2 ] && readlink /proc/$$/fd/$n; done; true",
                              name, NULL};
        struct muster_error err = {0};
        assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
        pid_t pid = start("/bin/sh", argv, ends[1], &exit_code, &err);
        if (pid < 0)
            fail_msg("%s", err.text);
        close(ends[1]);
        size_t got = 0;
        for (ssize_t more; (more = read(ends[0], out + got, sizeof out - 1 - got)) > 0;)
            got += (size_t)more; /* it ends: no copy of the writing end is left here */
        assert_string_equal(out, expected);
        close(ends[0]);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
        assert_refused("/no/such/program", 127, "No such file or directory");
    }
    for (int i = 0; i < MANY; i++)
        close(many[i]);
    assert_no_child();
}

static void scope_kills_and_reaps(void **state)
{
    (void)state;
    char *const argv[] = {"sh", "-c", "sleep 1000 & sleep 1000", NULL};
    int exit_code;
    pid_t kept;
    {
        scope_worker pid_t pid = start("/bin/sh", argv, 1, &exit_code, NULL);
        assert_true(pid > 0);
        kept = pid;
    }
    assert_int_equal(kill(kept, 0), -1);
    assert_no_child();
    {
        scope_worker pid_t pid = start("/bin/true", argv, 1, &exit_code, NULL);
        kept = take_worker(&pid);
    }
    assert_int_equal(waitpid(kept, NULL, 0), kept);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_in_its_own_session),   cmocka_unit_test(runs_on_the_cpus_it_is_given),
        cmocka_unit_test(only_three_descriptors),    cmocka_unit_test(signals_are_reset),
        cmocka_unit_test(has_a_parent_death_signal), cmocka_unit_test(exec_errors_come_back),
        cmocka_unit_test(among_many_descriptors),    cmocka_unit_test(scope_kills_and_reaps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
