/* launcher_local_run_test.c - local_run with real processes: shells as containers, each test a run in a
 * child. */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launcher/local/job/job.h"
#include "launcher/local/run/cluster.h"
#include "launcher/local/run/pod_isolation.h"
#include "launcher/local/run/runner.h"
#include "proto/base/clock.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "tests/support/cmocka_all.h"

enum { PODS_LIMIT = 4, OUTPUT_LIMIT = 1 << 20 };

static char *no_entries[] = {NULL};

struct fixture {
    char folder[64]; /* the working directory of every pod */
    struct local_job job;
    struct local_pod pods[PODS_LIMIT];
    char *commands[PODS_LIMIT][4];
    struct local_options options;
    pid_t pid;
    struct buffer out, err;
};

/* --- a job of shells --- */

static void add_pod(struct fixture *f, enum local_replica_type type, int index, const char *script)
{
    int at = f->job.pod_count++;
    char *const command[] = {"/bin/sh", "-c", (char *)script, NULL};
    memcpy(f->commands[at], command, sizeof command);
    char *name = mem_printf("j-%s-%d", type == LOCAL_MASTER ? "master" : "worker", index);
    f->pods[at] = (struct local_pod){.name = name,
                                     .hostname = name,
                                     .address = mem_printf("127.77.0.%d", at + 1),
                                     .type = type,
                                     .index = index,
                                     .env = no_entries,
                                     .command = f->commands[at],
                                     .working_dir = f->folder,
                                     .grace_s = 20};
}

/* worker NULL: none; else `workers` of them run it. */
static void make_job(struct fixture *f, enum local_restart_policy policy, const char *master, int workers,
                     const char *worker)
{
    memset(f, 0, sizeof *f);
    (void)snprintf(f->folder, sizeof f->folder, "/tmp/muster_run_XXXXXX");
    assert_non_null(mkdtemp(f->folder));
    f->job = (struct local_job){
        .name = "j", .pods = f->pods, .backoff_limit = -1, .active_deadline_s = -1, .ttl_s = -1};
    f->options = (struct local_options){.grace_s = -1};
    f->job.replicas[LOCAL_MASTER] = (struct local_replica){master != NULL, policy};
    f->job.replicas[LOCAL_WORKER] = (struct local_replica){workers, policy};
    if (master)
        add_pod(f, LOCAL_MASTER, 0, master);
    for (int i = 0; i < workers; i++)
        add_pod(f, LOCAL_WORKER, i, worker);
}

/* folder/name, in static memory */
static const char *path_of(const struct fixture *f, const char *name)
{
    static char path[200];
    (void)snprintf(path, sizeof path, "%s/%s", f->folder, name);
    return path;
}

static void start(struct fixture *f)
{
    f->pid = fork();
    if (f->pid)
        return;
    struct sigaction initial = {.sa_handler = SIG_DFL};
    (void)sigaction(SIGINT, &initial, NULL); /* a shell's background ignores it, and so would the run */
    (void)setenv("TMPDIR", f->folder, 1);
    int out = open(path_of(f, "out"), O_WRONLY | O_CREAT | O_APPEND, 0600);
    int err = open(path_of(f, "err"), O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (dup2(out, 1) < 0 || dup2(err, 2) < 0)
        _exit(99);
    int log_fd = 2;
    struct log_sink log = {
        .write = log_write_to_fd, .context = &log_fd, .threshold = LOG_LEVEL_INFO, .who = "muster"};
    _exit(local_run(&f->job, &f->options, &log));
}

static void await_file(const struct fixture *f, const char *name)
{
    struct instant deadline = instant_add(clock_now(NULL), 240 * NS_PER_S);
    while (access(path_of(f, name), F_OK) < 0)
        if (instant_reached(clock_now(NULL), deadline))
            fail_msg("%s does not appear", name);
        else
            (void)poll(NULL, 0, 2);
}

static void finish(struct fixture *f, int expected)
{
    int status;
    assert_int_equal(waitpid(f->pid, &status, 0), f->pid);
    assert_int_equal(io_read_file(path_of(f, "out"), OUTPUT_LIMIT, &f->out, NULL), 0);
    assert_int_equal(io_read_file(path_of(f, "err"), OUTPUT_LIMIT, &f->err, NULL), 0);
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    if (code != expected)
        fail_msg("local_run gives %d, not %d\n%s%s", code, expected, f->out.data ? f->out.data : "",
                 f->err.data ? f->err.data : "");
}

static void remove_files(struct fixture *f)
{
    pid_t child = fork();
    if (child == 0) {
        (void)execlp("rm", "rm", "-rf", f->folder, (char *)NULL);
        _exit(1);
    }
    assert_int_equal(waitpid(child, NULL, 0), child);
    for (int i = 0; i < f->job.pod_count; i++) {
        mem_free(f->pods[i].name);
        mem_free(f->pods[i].address);
    }
    buffer_free(&f->out);
    buffer_free(&f->err);
}

static void run(struct fixture *f, int expected)
{
    start(f);
    finish(f, expected);
}

static void assert_in(const struct buffer *text, const char *part)
{
    if (!text->data || !strstr(text->data, part))
        fail_msg("no \"%s\" in:\n%s", part, text->data ? text->data : "");
}

/* --- how jobs end --- */

static void master_decides(void **state)
{
    (void)state;
    struct fixture f;
    make_job(&f, LOCAL_RESTART_ON_FAILURE, "while [ ! -e up ]; do sleep 0.01; done; echo done", 1,
             "trap 'touch told; exit 0' TERM; touch up; while :; do sleep 0.02; done");
    run(&f, 0);
    assert_int_equal(access(path_of(&f, "told"), F_OK), 0);
    assert_in(&f.out, "[j-master-0] done\n");
    assert_in(&f.err, "job j: Running");
    assert_in(&f.err, "job j: Succeeded\n");
    assert_in(&f.err, "j-worker-0  deleted        0 ");
    remove_files(&f);
}

static void workers_only(void **state)
{
    (void)state;
    struct fixture f;
    make_job(&f, LOCAL_RESTART_NEVER, NULL, 3, "exit 0");
    run(&f, 0);
    remove_files(&f);
    make_job(&f, LOCAL_RESTART_NEVER, NULL, 3, "case $HOSTNAME in *-1) exit 7;; esac; exec sleep 100");
    run(&f, 7);
    assert_in(&f.err, "pod j-worker-1 failed with exit code 7\n");
    assert_in(&f.err, "job j: Failed\n");
    remove_files(&f);
}

static void made_anew_by_exit_code(void **state)
{
    (void)state;
    struct fixture f;
    make_job(&f, LOCAL_RESTART_EXIT_CODE, "while [ ! -e second ]; do sleep 0.01; done", 1,
             "if [ -e first ]; then touch second; exec sleep 100; fi; touch first; kill -9 $$");
    f.job.clean_policy = LOCAL_CLEAN_RUNNING;
    run(&f, 0);
    assert_in(&f.err, "pod j-worker-0 failed with exit code 137\n");
    assert_in(&f.err, "pod j-worker-0: recreated (1)\n");
    assert_in(&f.err, "job j: Restarting\n");
    remove_files(&f);
}

static void started_again_in_place(void **state)
{
    (void)state;
    struct fixture f;
    make_job(&f, LOCAL_RESTART_ON_FAILURE, "echo x >> tries; [ $(wc -l < tries) -gt 3 ]", 0, NULL);
    run(&f, 0);
    assert_in(&f.err, "j-master-0  succeeded      0                      3          0 ");
    remove_files(&f);
    make_job(&f, LOCAL_RESTART_ON_FAILURE, "exit 5", 0, NULL);
    f.job.backoff_limit = 2;
    run(&f, 5);
    assert_in(&f.err, "more restarts than backoffLimit 2 allows\n");
    remove_files(&f);
}

static void deadline_of_a_job(void **state)
{
    (void)state;
    struct fixture f;
    make_job(&f, LOCAL_RESTART_ON_FAILURE, "exec sleep 100", 0, NULL);
    f.job.active_deadline_s = 0;
    run(&f, 1);
    assert_in(&f.err, "longer active than activeDeadlineSeconds 0\n");
    remove_files(&f);
}

static void what_cannot_be_started(void **state)
{
    (void)state;
    struct fixture f;
    make_job(&f, LOCAL_RESTART_NEVER, "", 0, NULL);
    f.commands[0][0] = "no-such-program-anywhere";
    run(&f, 127);
    assert_in(&f.err, "pod j-master-0 cannot be started: 'no-such-program-anywhere' was not found in PATH; "
                      "images are not used here, so their content must be installed on this machine\n");
    remove_files(&f);
    make_job(&f, LOCAL_RESTART_NEVER, "", 0, NULL);
    f.commands[0][0] = "/etc/hosts";
    run(&f, 126);
    remove_files(&f);
    /* it is tried again for as long as the policy says, and a signal is still heard */
    make_job(&f, LOCAL_RESTART_ON_FAILURE, "", 1, "touch up; exec sleep 100");
    f.commands[0][0] = "no-such-program-anywhere";
    start(&f);
    await_file(&f, "up");
    kill(f.pid, SIGTERM);
    finish(&f, 143);
    remove_files(&f);
    make_job(&f, LOCAL_RESTART_NEVER, "true", 0, NULL);
    f.pods[0].working_dir = "/no/such/folder";
    run(&f, 1);
    assert_in(&f.err,
              "cannot enter the working directory /no/such/folder: No such file or directory; images are");
    assert_in(&f.err, "pod j-master-0 failed without an exit code\n");
    remove_files(&f);
}

/* --- signals --- */

static void a_signal_ends_pods_in_order(void **state)
{
    (void)state;
    struct fixture f;
    make_job(&f, LOCAL_RESTART_ON_FAILURE, "trap 'touch told' TERM; touch up; while :; do sleep 0.02; done",
             0, NULL);
    f.options.grace_s = 0.5;
    start(&f);
    await_file(&f, "up");
    kill(f.pid, SIGINT);
    await_file(&f, "told");
    kill(f.pid, SIGINT); /* skips nothing */
    finish(&f, 130);
    assert_in(&f.err, "pod j-master-0 did not end within its grace period: killed\n");
    assert_in(&f.err, "SIGINT: already ending the pods");
    assert_in(&f.err, "deleted        137 (SIGKILL)");
    assert_in(&f.err, "job j: deleted\n");
    remove_files(&f);
}

static void suspended_and_resumed(void **state)
{
    (void)state;
    struct fixture f;
    make_job(&f, LOCAL_RESTART_ON_FAILURE, "if [ -e up ]; then exit 0; fi; touch up; exec sleep 100", 0,
             NULL);
    f.job.suspended = true;
    start(&f);
    struct instant deadline = instant_add(clock_now(NULL), 240 * NS_PER_S);
    for (;;) { /* it says how it is resumed once it listens */
        buffer_clear(&f.err);
        if (io_read_file(path_of(&f, "err"), OUTPUT_LIMIT, &f.err, NULL) == 0 && f.err.data &&
            strstr(f.err.data, "resumes it"))
            break;
        assert_false(instant_reached(clock_now(NULL), deadline));
        (void)poll(NULL, 0, 2);
    }
    assert_int_equal(access(path_of(&f, "up"), F_OK), -1);
    buffer_clear(&f.err);
    kill(f.pid, SIGUSR2);
    await_file(&f, "up");
    kill(f.pid, SIGUSR1);
    kill(f.pid, SIGUSR2); /* before the pod is gone: it is made anew when it is */
    finish(&f, 0);
    assert_in(&f.err, "job j: Suspended\n");
    assert_in(&f.err, "job j: Suspended no more\n");
    remove_files(&f);
}

/* --- nothing stays --- */

/* A pipe that everything of a run inherits is only possible below 3; a file that somebody locks does too: the
 * pods' processes hold a fifo open for writing. */
static int open_reader(const struct fixture *f)
{
    assert_int_equal(mkfifo(path_of(f, "held"), 0600), 0);
    int fd = open(path_of(f, "held"), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

static void assert_nobody_holds(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    char byte;
    assert_int_equal(poll(&p, 1, 20000), 1);
    assert_int_equal(read(fd, &byte, 1), 0);
    close(fd);
}

/* A child, a daemon in its own session, and a daemon without an environment; they hold the pipe, and
 * the last one is in its place when the script goes on. */
static const char leaves_daemons[] = "exec 3>held; sleep 1000 & (setsid sleep 1000 &); "
                                     "(setsid env -i /bin/sh -c ': >hidden; exec /bin/sleep 1000' &); "
                                     "while ! [ -e hidden ]; do sleep 0.01; done; ";

/* Nothing of the pod but its mark: found while the job goes on, not only at its end. */
static void a_hidden_orphan_ends_with_its_container(void **state)
{
    (void)state;
    struct fixture f;
    char script[300] = "";
    make_job(&f, LOCAL_RESTART_ON_FAILURE, "touch up; while ! [ -e gone ]; do sleep 0.02; done", 1, script);
    (void)snprintf(script, sizeof script, "%sexit 0", leaves_daemons);
    int held = open_reader(&f);
    start(&f);
    await_file(&f, "up");
    assert_nobody_holds(held);
    assert_int_equal(waitpid(f.pid, NULL, WNOHANG), 0);
    close(open(path_of(&f, "gone"), O_WRONLY | O_CREAT, 0600));
    finish(&f, 0);
    remove_files(&f);
}

static void a_container_ends_with_its_first_process(void **state)
{
    (void)state;
    struct fixture f;
    char script[300] = "";
    make_job(&f, LOCAL_RESTART_NEVER, script, 0, NULL);
    (void)snprintf(script, sizeof script, "%sexit 0", leaves_daemons);
    int held = open_reader(&f);
    run(&f, 0);
    assert_nobody_holds(held);
    remove_files(&f);
}

static bool has_own_folder(const struct fixture *f)
{
    glob_t found = {0};
    int result = glob(path_of(f, "muster_local_*"), 0, NULL, &found);
    globfree(&found);
    return result == 0;
}

static void nothing_outlives_a_killed_run(void **state)
{
    (void)state;
    struct fixture f;
    char script[300] = "";
    make_job(&f, LOCAL_RESTART_NEVER, script, 0, NULL);
    (void)snprintf(script, sizeof script, "%stouch up; wait", leaves_daemons);
    int held = open_reader(&f);
    start(&f);
    await_file(&f, "up");
    assert_true(has_own_folder(&f));
    kill(f.pid, SIGKILL);
    assert_int_equal(waitpid(f.pid, NULL, 0), f.pid);
    assert_nobody_holds(held);
    struct instant deadline = instant_add(clock_now(NULL), 240 * NS_PER_S);
    while (has_own_folder(&f)) /* it goes too */
        if (instant_reached(clock_now(NULL), deadline))
            fail_msg("the run's folder stays");
        else
            (void)poll(NULL, 0, 2);
    remove_files(&f);
}

/* --- a pod's view --- */

static void runs_at_once_have_networks_of_their_own(void **state)
{
    (void)state;
    int first_fd, second_fd, first = network_claim(&first_fd), second = network_claim(&second_fd);
    assert_true(first_fd >= 0 && second_fd >= 0);
    assert_in_range(first, NETWORK_FIRST, NETWORK_LAST);
    assert_in_range(second, NETWORK_FIRST, NETWORK_LAST);
    assert_int_not_equal(first, second);
    close(first_fd);
    close(second_fd);
}

static bool has_namespaces(void)
{
    return pod_isolation_probe("/etc/hosts").kind != POD_ISOLATION_NONE;
}

static void names_of_pods(void **state)
{
    (void)state;
    struct fixture f;
    if (!has_namespaces())
        skip_because("no namespaces here");
    make_job(&f, LOCAL_RESTART_NEVER, "uname -n; getent hosts j-worker-0 localhost", 1,
             "uname -n; getent hosts j-master-0; exec sleep 100");
    f.job.clean_policy = LOCAL_CLEAN_ALL;
    f.options.no_prefix = true;
    f.options.linger_s = 5;
    run(&f, 0);
    assert_in(&f.out, "j-master-0\n");
    assert_in(&f.out, "127.77.0.2      j-worker-0 ");
    remove_files(&f);
}

static void gpus_of_pods(void **state)
{
    (void)state;
    struct fixture f;
    make_job(&f, LOCAL_RESTART_NEVER, "echo \"<$CUDA_VISIBLE_DEVICES>\"", 0, NULL);
    f.options.gpus = ""; /* independent of the machine */
    run(&f, 0);
    assert_in(&f.out, "[j-master-0] <>\n");
    remove_files(&f);
    make_job(&f, LOCAL_RESTART_NEVER, "exit 0", 0, NULL);
    f.options.gpus = "";
    f.pods[0].gpus = 3;
    run(&f, 2);
    assert_in(&f.err, "request 3 GPUs and this machine has 0");
    remove_files(&f);
}

/* Pods with resource claims share the rest of a given list, after the limits of the others. */
static void gpus_of_claims(void **state)
{
    (void)state;
    struct local_pod pods[] = {{.gpus = 1}, {.claims = true}, {.claims = true}, {.gpus = 0}};
    const struct local_job job = {.name = (char *)"j", .pods = pods, .pod_count = 4};
    static const char *const shared[] = {"a", "b,c", "d,e", ""}, *const unknown[] = {"0", "", "", ""};
    for (int given = 0; given < 2; given++) {
        struct text_list out = {0};
        struct muster_error err = {0};
        assert_int_equal(gpu_divide(&job, given ? "a,b,c,d,e" : NULL, 5, false, &out, &err), 0);
        for (int i = 0; i < 4; i++)
            assert_string_equal(out.items[i], given ? shared[i] : unknown[i]);
        text_list_free(&out);
    }
    assert_true(gpu_claimed(&job) && gpu_wanted(&job) == 1);
}

static void no_input(void **state)
{
    (void)state;
    struct fixture f;
    make_job(&f, LOCAL_RESTART_NEVER, "cat", 0, NULL);
    run(&f, 0);
    remove_files(&f);
}

/* --- output --- */

static void output_in_files(void **state)
{
    (void)state;
    struct fixture f;
    char logs[100];
    scope_buffer text = {0};
    make_job(&f, LOCAL_RESTART_ON_FAILURE, "echo one; echo two >&2; printf three", 0, NULL);
    (void)snprintf(logs, sizeof logs, "%s/a/b", f.folder);
    f.options.log_dir = logs;
    run(&f, 0);
    assert_in(&f.out, "[j-master-0] one\n[j-master-0] three");
    assert_in(&f.err, "[j-master-0] two\n");
    assert_int_equal(io_read_file(path_of(&f, "a/b/j-master-0.log"), OUTPUT_LIMIT, &text, NULL), 0);
    assert_in(&text, "one\n");
    assert_in(&text, "two\n");
    assert_in(&text, "three");
    remove_files(&f);
}

static void quiet_output(void **state)
{
    (void)state;
    struct fixture f;
    char logs[100];
    scope_buffer text = {0};
    make_job(&f, LOCAL_RESTART_ON_FAILURE, "echo one; echo two >&2", 0, NULL);
    (void)snprintf(logs, sizeof logs, "%s/logs", f.folder);
    f.options.log_dir = logs;
    f.options.quiet = true;
    run(&f, 0);
    assert_int_equal(f.out.length, 0);
    assert_null(strstr(f.err.data, "two"));
    assert_int_equal(io_read_file(path_of(&f, "logs/j-master-0.log"), OUTPUT_LIMIT, &text, NULL), 0);
    assert_string_equal(text.data, "one\ntwo\n");
    remove_files(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(master_decides),
        cmocka_unit_test(workers_only),
        cmocka_unit_test(made_anew_by_exit_code),
        cmocka_unit_test(started_again_in_place),
        cmocka_unit_test(deadline_of_a_job),
        cmocka_unit_test(what_cannot_be_started),
        cmocka_unit_test(a_signal_ends_pods_in_order),
        cmocka_unit_test(suspended_and_resumed),
        cmocka_unit_test(a_container_ends_with_its_first_process),
        cmocka_unit_test(a_hidden_orphan_ends_with_its_container),
        cmocka_unit_test(nothing_outlives_a_killed_run),
        cmocka_unit_test(runs_at_once_have_networks_of_their_own),
        cmocka_unit_test(names_of_pods),
        cmocka_unit_test(gpus_of_pods),
        cmocka_unit_test(gpus_of_claims),
        cmocka_unit_test(no_input),
        cmocka_unit_test(output_in_files),
        cmocka_unit_test(quiet_output),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
