/* launcher_guardian_test.c - which processes are descendants, and that none survives an agent that was
 * killed. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launcher/process/descendants.h"
#include "launcher/process/guardian.h"
#include "proto/base/clock.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/folder.h"

/* Each test's own: the guardian of the test before may still be looking, and the same program may run at the
 * same time.
 */
static char id[DESCENDANTS_ID_LENGTH + 1], other_id[DESCENDANTS_ID_LENGTH + 1];

static int make_ids(void **state)
{
    (void)state;
    (void)snprintf(id, sizeof id, "%016llx%016llx", (unsigned long long)getpid(),
                   (unsigned long long)clock_wall_ns());
    (void)snprintf(other_id, sizeof other_id, "f%.31s", id);
    return 0;
}

static void parses_stat(void **state)
{
    (void)state;
    struct descendants_process p;
    static const char odd[] = "42 (a) b) (c\n) D 7 -1 9 0 0";
    assert_true(descendants_parse_stat(odd, sizeof odd - 1, &p));
    assert_int_equal(p.pid, 42);
    assert_int_equal(p.state, 'D');
    assert_int_equal(p.parent, 7);
    assert_int_equal(p.group, -1);
    assert_int_equal(p.session, 9);
    assert_string_equal(p.name, "a) b) (c\n");
    static const char *const broken[] = {"",         "42",           "42 (a", "42 a) R 1 2 3",
                                         "42 (a) R", "42 (a) R 1 2", ")(",    "x (a) R 1 2 3"};
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++)
        assert_false(descendants_parse_stat(broken[i], strlen(broken[i]), &p));
}

static void parses_the_mark(void **state)
{
    (void)state;
    static const char limits[] =
        "Limit                     Soft Limit           Hard Limit           Units     \n"
        "Max realtime priority     0                    0                              \n"
        "Max realtime timeout      4611686018427387905  unlimited            us        \n";
    uint64_t mark = descendants_mark("00000000000000080000000000000000");
    assert_true(mark == UINT64_C(4611686018427387905));
    assert_true(descendants_parse_mark(limits, sizeof limits - 1) == mark);
    assert_true(descendants_parse_mark("", 0) == 0);
    assert_true(descendants_parse_mark("Max realtime timeout  unlimited", 31) == 0);
    assert_true(descendants_parse_mark("Max realtime timeout  200000 ", 28) == 0);
    assert_true(descendants_mark("ffffffffffffffff") < UINT64_MAX / 2);
}

/* A process that carries an id in its environment and holds `held`; detached: in a session of its own. */
static pid_t start_sleeper(const char *carried, bool detached, int held)
{
    pid_t pid = fork();
    if (pid)
        return pid;
    char variable[64];
    (void)snprintf(variable, sizeof variable, "MUSTER_AGENT_ID=%s", carried ? carried : "");
    char *const argv[] = {"sleep", "1000", NULL};
    char *const environment[] = {"A=1", variable, NULL};
    if (detached)
        (void)setsid();
    (void)dup2(held, 9); /* without close-on-exec */
    execve("/bin/sleep", argv, environment);
    _exit(1);
}

static bool count_only(void *context, const struct descendants_process *process)
{
    (void)context;
    (void)process;
    return false;
}

static int count(const struct descendants *descendants)
{
    return descendants_sweep(descendants, SIGKILL, count_only, NULL);
}

/* Waits until the process executes sleep: only then does it carry the id. */
static void await_kin(const struct descendants *descendants, int expected)
{
    struct instant deadline = instant_add(clock_now(NULL), 120 * NS_PER_S);
    while (count(descendants) != expected)
        if (instant_reached(clock_now(NULL), deadline))
            fail_msg("%d processes are descendants, not %d", count(descendants), expected);
        else
            (void)poll(NULL, 0, 1);
}

/* As a daemon leaves its parent and session, but keeps a mark. */
static pid_t start_marked(const char *marked)
{
    pid_t pid = fork();
    if (pid)
        return pid;
    char *const argv[] = {"sleep", "1000", NULL}, *const nothing[] = {NULL};
    struct rlimit limit = {descendants_mark(marked), RLIM_INFINITY};
    if (setrlimit(RLIMIT_RTTIME, &limit) < 0)
        _exit(1);
    (void)setsid();
    execve("/bin/sleep", argv, nothing);
    _exit(127);
}

static void the_mark_survives_an_empty_environment(void **state)
{
    (void)state;
    pid_t pid = start_marked(id);
    struct descendants descendants = {.id = id, .blind = true}, other = {.id = other_id};
    await_kin(&descendants, 1);
    assert_int_equal(count(&other), 0);
    assert_int_equal(descendants_sweep(&descendants, SIGKILL, NULL, NULL), 1);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
}

static void kill_and_reap(pid_t pid)
{
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* The parts of a run have ids that begin alike. */
static void marks_of_a_family(void **state)
{
    (void)state;
    char part[DESCENDANTS_ID_LENGTH + 1], unrelated[DESCENDANTS_ID_LENGTH + 1];
    memcpy(part, id, sizeof part);
    memcpy(unrelated, id, sizeof unrelated);
    part[DESCENDANTS_FAMILY_LENGTH] = part[DESCENDANTS_FAMILY_LENGTH] == '0' ? '1' : '0';
    unrelated[DESCENDANTS_FAMILY_LENGTH - 1] = unrelated[DESCENDANTS_FAMILY_LENGTH - 1] == '0' ? '1' : '0';
    pid_t first = start_marked(part), second = start_marked(unrelated);
    struct descendants own = {.id = id, .blind = true}, by_part = {.id = part, .blind = true}, family = own,
                       others = {.id = unrelated, .blind = true};
    family.family = true;
    await_kin(&by_part, 1);
    await_kin(&others, 1);
    assert_int_equal(count(&own), 0);
    assert_int_equal(count(&family), 1);
    kill_and_reap(first);
    kill_and_reap(second);
}

static void descendants_by_id_session_and_parent(void **state)
{
    (void)state;
    pid_t marked = start_sleeper(id, true, 0), unrelated = start_sleeper(other_id, true, 0);
    struct descendants_session sessions[] = {{.id = marked}};
    struct descendants by_id = {.id = id}, by_session = {.sessions = sessions, .session_count = 1};
    struct descendants by_parent = {.parent = getpid()},
                       but_one = {.parent = getpid(), .except = {unrelated, 0}};
    struct descendants nobody = {0};
    await_kin(&by_id, 1);
    await_kin(&by_session, 1);
    assert_int_equal(count(&by_parent), 2);
    assert_int_equal(count(&but_one), 1);
    assert_int_equal(count(&nobody), 0);
    assert_int_equal(descendants_sweep(&by_id, SIGKILL, NULL, NULL), 1);
    int status;
    assert_int_equal(waitpid(marked, &status, 0), marked);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    assert_int_equal(waitpid(unrelated, &status, WNOHANG), 0);
    kill_and_reap(unrelated);
}

/* End of file within the limit: everyone who held the pipe is gone. */
static void assert_all_gone(int fd, int limit_ms)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    char byte;
    assert_int_equal(poll(&p, 1, limit_ms), 1);
    assert_int_equal(read(fd, &byte, 1), 0);
}

/* The number of a session whose leader was reaped, when another process has it by now. */
static void a_reused_pid_is_left_alone(void **state)
{
    (void)state;
    pid_t unrelated = start_sleeper(other_id, true, 0);
    struct descendants_session session = {.id = unrelated};
    struct descendants descendants = {.sessions = &session, .session_count = 1};
    await_kin(&descendants, 1);
    session.leaderless = true;
    assert_int_equal(count(&descendants), 0);
    struct guardian guardian;
    struct muster_error err = {0};
    assert_int_equal(guardian_start(&(struct guardian_task){.id = id}, &guardian, &err), 0);
    guardian_add(&guardian, unrelated);
    guardian_reaped(&guardian, unrelated);
    close(guardian.fd); /* as if the agent had died */
    assert_int_equal(waitpid(guardian.pid, NULL, __WALL), guardian.pid);
    assert_int_equal(waitpid(unrelated, NULL, WNOHANG), 0);
    kill_and_reap(unrelated);
}

/* The agent may die before it could tell the successor of a killed guardian anything. */
static void a_successor_is_born_knowing(void **state)
{
    (void)state;
    pid_t worker = start_sleeper(NULL, true, 0);
    struct descendants_session session = {.id = worker};
    struct descendants descendants = {.sessions = &session, .session_count = 1};
    await_kin(&descendants, 1);
    struct guardian_task task = {.id = id, .sessions = &session, .session_count = 1};
    struct guardian guardian;
    struct muster_error err = {0};
    assert_int_equal(guardian_start(&task, &guardian, &err), 0);
    close(guardian.fd);
    assert_int_equal(waitpid(guardian.pid, NULL, __WALL), guardian.pid);
    int status;
    assert_int_equal(waitpid(worker, &status, 0), worker);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void remove_folder(const void *path)
{
    (void)rmdir(path);
}

/* The folder that a killed agent cannot take back itself; not where something is in it. */
static void an_empty_folder_is_taken_back(void **state)
{
    (void)state;
    char parent[FOLDER_PATH], empty[64], full[64], kept[80];
    struct muster_error err = {0};
    assert_int_equal(folder_make(parent, "guardian"), 0);
    (void)snprintf(empty, sizeof empty, "%s/empty", parent);
    (void)snprintf(full, sizeof full, "%s/full", parent);
    (void)snprintf(kept, sizeof kept, "%s/kept", full);
    const char *const folders[] = {empty, full};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        struct guardian guardian;
        struct guardian_task task = {.id = id, .afterwards = remove_folder, .context = folders[i]};
        assert_int_equal(mkdir(folders[i], 0700), 0);
        if (folders[i] == full)
            assert_int_equal(mkdir(kept, 0700), 0);
        assert_int_equal(guardian_start(&task, &guardian, &err), 0);
        close(guardian.fd); /* as if the agent had died */
        assert_int_equal(waitpid(guardian.pid, NULL, __WALL), guardian.pid);
    }
    assert_int_equal(access(empty, F_OK), -1);
    assert_int_equal(access(kept, F_OK), 0);
    assert_int_equal(rmdir(kept), 0);
    assert_int_equal(rmdir(full), 0);
    assert_int_equal(rmdir(parent), 0);
}

/* Processes that outlive a leader are still ours. */
static void a_session_outlives_its_leader(void **state)
{
    (void)state;
    int held[2];
    assert_int_equal(pipe2(held, O_CLOEXEC), 0);
    pid_t leader = fork();
    if (leader == 0) {
        (void)setsid();
        (void)start_sleeper(NULL, false, held[1]);
        _exit(0);
    }
    close(held[1]);
    assert_int_equal(waitpid(leader, NULL, 0), leader);
    struct descendants_session session = {.id = leader, .leaderless = true};
    struct descendants descendants = {.sessions = &session, .session_count = 1};
    assert_int_equal(descendants_sweep(&descendants, SIGKILL, NULL, NULL), 1);
    assert_all_gone(held[0], 120000);
    close(held[0]);
}

/* A zombie is not counted: nobody could do anything about it. */
static void zombies_are_not_kin(void **state)
{
    (void)state;
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    siginfo_t info;
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
    struct descendants by_parent = {.parent = getpid()};
    assert_int_equal(count(&by_parent), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* The agent of this test: a guardian, a worker's session with a grandchild, a detached grandchild that
 * carries the id, and the word when all is set up. */
static void be_agent(int held, int ready)
{
    struct guardian guardian;
    struct muster_error err;
    if (guardian_start(&(struct guardian_task){.id = id}, &guardian, &err) < 0)
        _exit(1);
    pid_t worker = fork();
    if (worker == 0) {
        (void)setsid();
        (void)start_sleeper(NULL, false, held); /* same session, no id */
        (void)start_sleeper(id, true, held);    /* another session, but marked */
        execve("/bin/sleep", (char *const[]){"sleep", "1000", NULL}, (char *const[]){NULL});
        _exit(1);
    }
    guardian_add(&guardian, worker);
    if (write(ready, "x", 1) != 1)
        _exit(1);
    for (;;)
        (void)pause();
}

static void nobody_outlives_a_killed_agent(void **state)
{
    (void)state;
    int held[2], ready[2];
    char byte;
    assert_int_equal(pipe2(held, O_CLOEXEC), 0);
    assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
    pid_t bystander = start_sleeper(other_id, true, 0);
    pid_t agent = fork();
    if (agent == 0)
        be_agent(held[1], ready[1]);
    close(held[1]);
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    struct descendants descendants = {.id = id};
    await_kin(&descendants, 1);
    kill_and_reap(agent);
    assert_all_gone(held[0], 120000);
    await_kin(&descendants, 0);
    assert_int_equal(waitpid(bystander, NULL, WNOHANG), 0);
    kill_and_reap(bystander);
    close(held[0]);
    close(ready[0]);
}

static void dismissed_guardian_kills_nobody(void **state)
{
    (void)state;
    struct guardian guardian;
    struct muster_error err = {0};
    assert_int_equal(guardian_start(&(struct guardian_task){.id = id}, &guardian, &err), 0);
    pid_t pid = guardian.pid, marked = start_sleeper(id, true, 0);
    guardian_add(&guardian, marked);
    guardian_remove(&guardian, marked);
    struct descendants descendants = {.id = id};
    await_kin(&descendants, 1);
    guardian_dismiss(&guardian);
    guardian_dismiss(&guardian); /* twice is once */
    assert_int_equal(kill(pid, 0), -1);
    assert_int_equal(errno, ESRCH);
    assert_int_equal(waitpid(marked, NULL, WNOHANG), 0);
    kill_and_reap(marked);
}

/* Its pipe ends while it is dying: it must not take that for its agent's death. */
static void released_guardian_kills_nobody(void **state)
{
    (void)state;
    struct guardian guardian;
    struct muster_error err = {0};
    assert_int_equal(guardian_start(&(struct guardian_task){.id = id}, &guardian, &err), 0);
    const pid_t pid = guardian.pid, marked = start_sleeper(id, true, 0);
    struct descendants descendants = {.id = id};
    await_kin(&descendants, 1);
    assert_int_equal(guardian_release(&guardian), pid);
    assert_int_equal(guardian_release(&guardian), 0);
    guardian_dismiss(&guardian); /* waits for none */
    assert_int_equal(guardian.fd, -1);
    assert_int_equal(kill(pid, 0), 0);
    guardian_reap(pid);
    assert_int_equal(kill(pid, 0), -1);
    guardian_reap(0); /* none */
    assert_int_equal(waitpid(marked, NULL, WNOHANG), 0);
    kill_and_reap(marked);
}

/* It must stay when the terminal or an operator signals everybody, and must not keep the agent's files. */
static void guardian_is_apart(void **state)
{
    (void)state;
    struct guardian guardian;
    struct muster_error err = {0};
    int held[2];
    assert_int_equal(pipe2(held, O_CLOEXEC), 0);
    assert_int_equal(guardian_start(&(struct guardian_task){.id = id}, &guardian, &err), 0);
    close(held[1]);
    assert_all_gone(held[0], 120000);
    static const int signals[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGPIPE, SIGTSTP};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        assert_int_equal(kill(guardian.pid, signals[i]), 0);
    assert_int_equal(getsid(guardian.pid), guardian.pid);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* a plain wait does not see it */
    assert_int_equal(errno, ECHILD);
    guardian_add(&guardian, 1 << 30);
    assert_int_equal(kill(guardian.pid, 0), 0); /* it is still there */
    /* a guardian that was killed shows on its pipe */
    kill(guardian.pid, SIGKILL);
    struct pollfd p = {.fd = guardian.fd};
    assert_int_equal(poll(&p, 1, 120000), 1);
    assert_true(p.revents & POLLERR);
    guardian_add(&guardian, 1); /* harms nobody */
    guardian_dismiss(&guardian);
    close(held[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(parses_stat, make_ids),
        cmocka_unit_test_setup(parses_the_mark, make_ids),
        cmocka_unit_test_setup(the_mark_survives_an_empty_environment, make_ids),
        cmocka_unit_test_setup(marks_of_a_family, make_ids),
        cmocka_unit_test_setup(descendants_by_id_session_and_parent, make_ids),
        cmocka_unit_test_setup(a_reused_pid_is_left_alone, make_ids),
        cmocka_unit_test_setup(a_successor_is_born_knowing, make_ids),
        cmocka_unit_test_setup(an_empty_folder_is_taken_back, make_ids),
        cmocka_unit_test_setup(a_session_outlives_its_leader, make_ids),
        cmocka_unit_test_setup(zombies_are_not_kin, make_ids),
        cmocka_unit_test_setup(nobody_outlives_a_killed_agent, make_ids),
        cmocka_unit_test_setup(dismissed_guardian_kills_nobody, make_ids),
        cmocka_unit_test_setup(released_guardian_kills_nobody, make_ids),
        cmocka_unit_test_setup(guardian_is_apart, make_ids),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
