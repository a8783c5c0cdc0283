/* spawn.c - see spawn.h.
 *
 * As vfork, so that the cost does not grow with the agent: the child borrows the parent's memory until it
 * executes, and makes system calls only. Everything it needs was computed before, and it reports a failure
 * in that memory.
 *
 * Nor does it grow with the descriptors of the workers there are: the child borrows the table of
 * descriptors too, and then takes a copy of its beginning alone (close_range with CLOSE_RANGE_UNSHARE).
 * The descriptors that it inherits are at low numbers for that. With a copy of the whole, which the exec
 * closes one by one, 256 workers' starts close 130,000 descriptors. */
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

#ifndef CLOSE_RANGE_UNSHARE
#define CLOSE_RANGE_UNSHARE (1U << 1)
#endif
#ifndef CLOSE_RANGE_CLOEXEC
#define CLOSE_RANGE_CLOEXEC (1U << 2)
#endif

/* step, error text */
#define SPAWN_STEPS(X)                                                                                       \
    X(SPAWN_UNSHARE, "cannot copy the descriptors for")                                                      \
    X(SPAWN_SESSION, "cannot make a session for")                                                            \
    X(SPAWN_ENTER, "cannot set up the namespaces of")                                                        \
    X(SPAWN_DIRECTORY, "cannot enter the working directory")                                                 \
    X(SPAWN_PARENT, "the agent died before the start of")                                                    \
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

enum {
    LOW_LIMIT = 64,                      /* with fewer descriptors than that, a copy of all costs the same */
    GIVEN_LIMIT = 2 + SPAWN_EXTRA_LIMIT, /* descriptors for a worker: its output, and the extra ones */
    STACK_BYTES = 16384,
};

struct child {
    const struct spawn_options *options;
    sigset_t reset; /* signals whose action becomes the default */
    pid_t parent;
    int given[GIVEN_LIMIT]; /* the options', or the low numbers they are copied to */
    unsigned shared_from;   /* 0: the table is a copy. Else it is the parent's, and is copied up to here */
    /* the child's answer; parent and child take turns, unseen by the compiler */
    volatile bool failed;
    volatile enum spawn_step step;
    volatile int error;
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

static void fail(struct child *child, enum spawn_step step) __attribute__((noreturn));
static void fail(struct child *child, enum spawn_step step)
{
    child->error = errno;
    child->step = step;
    child->failed = true;
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

/* Descriptors there are copied already, or are close-on-exec and the parent's. */
static bool take_extras(const int *fds, int count)
{
    for (int i = 0; i < count; i++) {
        int wanted = SPAWN_EXTRA_FD + i;
        if (fds[i] == wanted ? fcntl(wanted, F_SETFD, 0) < 0 : dup2(fds[i], wanted) < 0)
            return false;
    }
    return true;
}

/* A lower hard limit is the user's choice: then it is found by its environment alone. */
static void put_mark(uint64_t mark)
{
    struct rlimit limit;
    if (!mark || getrlimit(RLIMIT_RTTIME, &limit) < 0 || limit.rlim_max < mark)
        return;
    limit.rlim_cur = mark;
    (void)setrlimit(RLIMIT_RTTIME, &limit); /* up to the hard limit is always allowed */
}

/* Every descriptor from first on closes at the exec. */
static void close_rest(unsigned first)
{
    if (syscall(SYS_close_range, first, UINT_MAX, CLOSE_RANGE_CLOEXEC) == 0)
        return;
    enum { OLD_KERNEL_LIMIT = 65536 }; /* Linux before 5.11 */
    long limit = sysconf(_SC_OPEN_MAX);
    for (int fd = (int)first; fd < limit && fd < OLD_KERNEL_LIMIT; fd++)
        (void)fcntl(fd, F_SETFD, FD_CLOEXEC); /* most are not open */
}

static void run_child(struct child *child) __attribute__((noreturn));
static void run_child(struct child *child)
{
    const struct spawn_options *o = child->options;
    if (child->shared_from && syscall(SYS_close_range, child->shared_from, UINT_MAX, CLOSE_RANGE_UNSHARE) < 0)
        fail(child, SPAWN_UNSHARE);
    if (setsid() < 0)
        fail(child, SPAWN_SESSION);
    if (o->enter && o->enter(o->enter_context) < 0)
        fail(child, SPAWN_ENTER);
    if (o->directory && chdir(o->directory) < 0)
        fail(child, SPAWN_DIRECTORY);
    /* the parent may have died before the death signal was set */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != child->parent)
        fail(child, SPAWN_PARENT);
    /* the caller's descriptors are above 2, or are the very number that they become */
    if ((child->given[0] != 1 && dup2(child->given[0], 1) < 0) ||
        (child->given[1] != 2 && dup2(child->given[1], 2) < 0))
        fail(child, SPAWN_DESCRIPTORS);
    if (!take_extras(child->given + 2, o->extra_count))
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

static int enter_child(void *context)
{
    run_child(context);
}

/* The parent is suspended until the child executes or ends. A stack of its own, since two cannot return on
 * one. */
static pid_t start_child(struct child *child)
{
    _Alignas(16) char stack[STACK_BYTES];
    const int flags = CLONE_VM | CLONE_VFORK | SIGCHLD, files = child->shared_from ? CLONE_FILES : 0;
    pid_t pid = clone(enter_child, stack + sizeof stack, flags | files, child);
    if (pid >= 0 || errno != EINVAL || !files)
        return pid;
    child->shared_from = 0; /* an emulator of system calls, whose child has a copy of everything */
    return clone(enter_child, stack + sizeof stack, flags, child);
}

/* --- low places --- */

/* Low descriptors that are used only while a worker is started; main thread only. */
static struct {
    enum { LOW_UNTRIED, LOW_NONE, LOW_RESERVED } state;
    int empty; /* their placeholder meanwhile */
    int fds[GIVEN_LIMIT];
} low;

/* Linux 5.11, whose close_range has all flags; asks with a range that holds nothing. */
static bool may_share(void)
{
    return syscall(SYS_close_range, UINT_MAX, UINT_MAX, CLOSE_RANGE_CLOEXEC) == 0;
}

static bool reserve_low(void)
{
    low.state = LOW_NONE;
    scope_close int empty = may_share() ? open("/dev/null", O_RDWR | O_CLOEXEC) : -1;
    for (int i = 0; i < GIVEN_LIMIT && empty >= 0; i++)
        if ((low.fds[i] = fcntl(empty, F_DUPFD_CLOEXEC, 0)) < 0) {
            while (i-- > 0)
                (void)close(low.fds[i]); /* of /dev/null */
            return false;
        }
    if (empty < 0)
        return false;
    low.empty = take_fd(&empty);
    low.state = LOW_RESERVED;
    return true;
}

/* Empties the low descriptors again: a pipe held there would never end. */
static void clear_low(const int *count)
{
    for (int i = 0; i < *count; i++)
        (void)dup3(low.empty, low.fds[i], O_CLOEXEC); /* both are open: cannot fail */
}

/* Fills in the child's descriptors, at low numbers if there are many descriptors. Returns how many of
 * those are used. */
static int place_given(struct child *child, const struct spawn_options *options)
{
    int count = 2 + options->extra_count, highest = 0, taken = 0;
    child->given[0] = options->out_fd;
    child->given[1] = options->err_fd;
    for (int i = 0; i < options->extra_count; i++)
        child->given[2 + i] = options->extra_fds[i];
    for (int i = 0; i < count; i++)
        highest = child->given[i] > highest ? child->given[i] : highest;
    if (highest < LOW_LIMIT || low.state == LOW_NONE || (low.state == LOW_UNTRIED && !reserve_low()))
        return 0;
    for (; taken < count && dup3(child->given[taken], low.fds[taken], O_CLOEXEC) >= 0; taken++)
        child->given[taken] = low.fds[taken];
    for (int i = 0; i < taken && taken == count; i++)
        child->shared_from =
            (unsigned)low.fds[i] >= child->shared_from ? (unsigned)low.fds[i] + 1 : child->shared_from;
    return taken;
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

static int explain(const struct spawn_options *options, enum spawn_step step, int error, int *exit_code,
                   struct muster_error *err)
{
    const char *hint = "";
    *exit_code = EXIT_CODE_FAILURE;
    if (step == SPAWN_EXEC) {
        *exit_code = error == ENOENT ? EXIT_CODE_NOT_FOUND : EXIT_CODE_CANNOT_EXECUTE;
        if (error == ENOENT && access(options->path, F_OK) == 0)
            hint = " (the file exists, but its #! interpreter or dynamic loader does not)";
        else if (error == ENOEXEC)
            hint = " (neither a binary of this machine nor a script with a #! line)";
    }
    errno = error;
    if (step == SPAWN_DIRECTORY)
        return error_errno(err, "%s %s", step_texts[SPAWN_DIRECTORY], options->directory);
    return error_errno(err, "%s %s%s", step_texts[step], options->path, hint);
}

pid_t spawn_worker(const struct spawn_options *options, int *exit_code, struct muster_error *err)
{
    struct child child = {0};
    sigset_t all, before;
    *exit_code = EXIT_CODE_FAILURE;
    prepare(&child, options);
    int __attribute__((cleanup(clear_low))) taken = place_given(&child, options);
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
    if (child.failed)
        return explain(options, child.step, child.error, exit_code, err);
    return take_worker(&pid);
}

void spawn_reap(pid_t *pid)
{
    if (*pid <= 0)
        return;
    int kept = errno;
    (void)kill(-*pid, SIGKILL); /* its session, if it got that far */
    (void)kill(*pid, SIGKILL);
    while (waitpid(*pid, NULL, 0) < 0 && errno == EINTR)
        ;
    *pid = 0;
    errno = kept;
}
