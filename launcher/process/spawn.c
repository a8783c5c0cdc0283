/* spawn.c - see spawn.h.
 *
 * vfork, so that the cost does not grow with the agent: the child borrows the parent's memory until it
 * executes, and makes system calls only. Everything it needs was computed before. */
#include "launcher/process/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdbool.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/exit_code.h"

#ifndef CLOSE_RANGE_CLOEXEC
#define CLOSE_RANGE_CLOEXEC (1U << 2)
#endif

/* step, what the error says */
#define SPAWN_STEPS(X)                                                                                       \
    X(SPAWN_SESSION, "cannot make a session for")                                                            \
    X(SPAWN_ENTER, "cannot set up the namespaces of")                                                        \
    X(SPAWN_DIRECTORY, "cannot enter the working directory")                                                 \
    X(SPAWN_PARENT, "the agent is gone before it started")                                                   \
    X(SPAWN_DESCRIPTORS, "cannot set up stdout, stderr and the limit of descriptors for")                    \
    X(SPAWN_CPUS, "cannot set the CPUs of")                                                                  \
    X(SPAWN_EXEC, "cannot execute")

enum spawn_step {
#define STEP_ENUM(symbol, text) symbol,
    SPAWN_STEPS(STEP_ENUM)
#undef STEP_ENUM
};

static const char *const step_texts[] = {
#define STEP_TEXT(symbol, text) text,
    SPAWN_STEPS(STEP_TEXT)
#undef STEP_TEXT
};

/* What the child writes into the close-on-exec pipe where it fails. */
struct obstacle {
    enum spawn_step step;
    int error;
};

struct child {
    const struct spawn_options *options;
    sigset_t reset; /* signals whose action becomes the default */
    pid_t parent;
    int report_fd;
};

void spawn_ignored_signals(sigset_t *ignored)
{
    sigemptyset(ignored);
    for (int number = 1; number < NSIG; number++) {
        struct sigaction action;
        if (sigaction(number, NULL, &action) == 0 && action.sa_handler == SIG_IGN)
            sigaddset(ignored, number);
    }
}

/* --- in the child --- */

static void fail(const struct child *child, enum spawn_step step) __attribute__((noreturn));
static void fail(const struct child *child, enum spawn_step step)
{
    struct obstacle obstacle = {step, errno};
    ssize_t done = write(child->report_fd, &obstacle, sizeof obstacle);
    (void)done; /* the parent is gone, or reads it: less than PIPE_BUF is never cut */
    _exit(EXIT_CODE_NOT_FOUND);
}

static void reset_signals(const struct child *child)
{
    struct sigaction initial = {.sa_handler = SIG_DFL};
    sigset_t none;
    for (int number = 1; number < NSIG; number++)
        if (sigismember(&child->reset, number) == 1)
            (void)sigaction(number, &initial, NULL); /* fails for no signal that can be ignored */
    sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
}

/* What stands there is copied already, or is close-on-exec and the parent's. */
static bool take_extras(const int *fds, int count)
{
    for (int i = 0; i < count; i++) {
        int wanted = SPAWN_EXTRA_FD + i;
        if (fds[i] == wanted ? fcntl(wanted, F_SETFD, 0) < 0 : dup2(fds[i], wanted) < 0)
            return false;
    }
    return true;
}

/* A hard limit below it is somebody's wish: then it is found by its environment alone. */
static void put_mark(uint64_t mark)
{
    struct rlimit limit;
    if (!mark || getrlimit(RLIMIT_RTTIME, &limit) < 0 || limit.rlim_max < mark)
        return;
    limit.rlim_cur = mark;
    (void)setrlimit(RLIMIT_RTTIME, &limit); /* up to the hard limit is always allowed */
}

/* Everything from first on closes at the exec, whoever opened it. */
static void close_rest(unsigned first)
{
    if (syscall(SYS_close_range, first, UINT_MAX, CLOSE_RANGE_CLOEXEC) == 0)
        return;
    enum { OLD_KERNEL_LIMIT = 65536 }; /* Linux before 5.11 */
    long limit = sysconf(_SC_OPEN_MAX);
    for (int fd = (int)first; fd < limit && fd < OLD_KERNEL_LIMIT; fd++)
        (void)fcntl(fd, F_SETFD, FD_CLOEXEC); /* most are not open */
}

static void run_child(const struct child *child) __attribute__((noreturn));
static void run_child(const struct child *child)
{
    const struct spawn_options *o = child->options;
    if (setsid() < 0)
        fail(child, SPAWN_SESSION);
    if (o->enter && o->enter(o->enter_context) < 0)
        fail(child, SPAWN_ENTER);
    if (o->directory && chdir(o->directory) < 0)
        fail(child, SPAWN_DIRECTORY);
    /* the parent may have died before it was asked to tell us */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != child->parent)
        fail(child, SPAWN_PARENT);
    /* the caller's descriptors are above 2, or are the very number that they become */
    if ((o->out_fd != 1 && dup2(o->out_fd, 1) < 0) || (o->err_fd != 2 && dup2(o->err_fd, 2) < 0))
        fail(child, SPAWN_DESCRIPTORS);
    if (!take_extras(o->extra_fds, o->extra_count))
        fail(child, SPAWN_DESCRIPTORS);
    close_rest((unsigned)(SPAWN_EXTRA_FD + o->extra_count));
    if (o->descriptors && setrlimit(RLIMIT_NOFILE, o->descriptors) < 0)
        fail(child, SPAWN_DESCRIPTORS);
    if (o->core_dumps)
        (void)setrlimit(RLIMIT_CORE, o->core_dumps); /* what was inherited: always allowed */
    if (o->cpus && sched_setaffinity(0, sizeof o->cpus->bits, (const cpu_set_t *)o->cpus->bits) < 0)
        fail(child, SPAWN_CPUS);
    put_mark(o->mark);
    reset_signals(child);
    (void)execve(o->path, o->argv, o->envp);
    fail(child, SPAWN_EXEC);
}

/* A function of its own, so that nothing lives in registers across the return of vfork. */
static pid_t __attribute__((noinline)) start_child(const struct child *child)
{
    pid_t pid = vfork();
    if (pid == 0)
        run_child(child);
    return pid;
}

/* --- in the agent --- */

static void prepare(struct child *child, const struct spawn_options *options)
{
    static const int kept[] = {SIGHUP, SIGINT, SIGQUIT};
    child->options = options;
    child->parent = getpid();
    child->reset = *options->ignored;
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        sigdelset(&child->reset, kept[i]);
}

/* Whether the child said why it failed; no word means that it executes the program. */
static bool read_obstacle(int fd, struct obstacle *obstacle)
{
    ssize_t got;
    do
        got = read(fd, obstacle, sizeof *obstacle);
    while (got < 0 && errno == EINTR);
    return got == sizeof *obstacle;
}

static int explain(const struct spawn_options *options, const struct obstacle *obstacle, int *exit_code,
                   struct muster_error *err)
{
    const char *hint = "";
    *exit_code = EXIT_CODE_FAILURE;
    if (obstacle->step == SPAWN_EXEC) {
        *exit_code = obstacle->error == ENOENT ? EXIT_CODE_NOT_FOUND : EXIT_CODE_CANNOT_EXECUTE;
        if (obstacle->error == ENOENT && access(options->path, F_OK) == 0)
            hint = " (the file is there: its #! interpreter or dynamic loader is not)";
        else if (obstacle->error == ENOEXEC)
            hint = " (neither a binary of this machine nor a script with a #! line)";
    }
    errno = obstacle->error;
    if (obstacle->step == SPAWN_DIRECTORY)
        return error_errno(err, "%s %s", step_texts[SPAWN_DIRECTORY], options->directory);
    return error_errno(err, "%s %s%s", step_texts[obstacle->step], options->path, hint);
}

pid_t spawn_worker(const struct spawn_options *options, int *exit_code, struct muster_error *err)
{
    struct child child;
    struct obstacle obstacle;
    int ends[2];
    sigset_t all, before;
    *exit_code = EXIT_CODE_FAILURE;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return error_errno(err, "cannot make a pipe for %s (ulimit -n limits them)", options->path);
    scope_close int reader = ends[0], writer = ends[1];
    const int free_of_extras =
        SPAWN_EXTRA_FD + SPAWN_EXTRA_LIMIT; /* the child overwrites what stands below */
    if (writer < free_of_extras) {
        int higher = fcntl(writer, F_DUPFD_CLOEXEC, free_of_extras);
        if (higher < 0)
            return error_errno(err, "cannot make a pipe for %s (ulimit -n limits them)", options->path);
        guard_close(&writer);
        writer = higher;
    }
    prepare(&child, options);
    child.report_fd = writer;
    sigfillset(&all); /* a handler must not run on the memory that parent and child share */
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    scope_worker pid_t pid = start_child(&child);
    int error = errno;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (pid < 0) {
        errno = error;
        return error_errno(err,
                           "cannot make a process for %s (ulimit -u and the cgroup's pids.max limit them)",
                           options->path);
    }
    guard_close(&writer); /* the reader's end of file is the exec */
    writer = -1;
    if (read_obstacle(reader, &obstacle))
        return explain(options, &obstacle, exit_code, err);
    return take_worker(&pid);
}

void spawn_reap(pid_t *pid)
{
    if (*pid <= 0)
        return;
    int kept = errno;
    (void)kill(-*pid, SIGKILL); /* its session, where it got so far */
    (void)kill(*pid, SIGKILL);
    while (waitpid(*pid, NULL, 0) < 0 && errno == EINTR)
        ;
    *pid = 0;
    errno = kept;
}
