/* spawn.c - see spawn.h.
 *
 * As vfork, so that the cost does not grow with the agent: the child borrows the parent's memory until it
 * executes, and makes system calls only (spawn_child.c). Everything it needs was computed before, and it
 * reports a failure in that memory. Unlike vfork, the parent goes on meanwhile if the child can do without
 * the C library: the kernel clears a word and wakes its waiters once the memory is given back, as for a
 * thread that is joined.
 *
 * Nor does the cost grow with the descriptors of the workers there are: the child borrows the table of
 * descriptors too, and then takes a copy of its beginning alone (close_range with CLOSE_RANGE_UNSHARE). The
 * descriptors that it inherits are at low numbers for that. With a copy of the whole, which the exec closes
 * one by one, 256 workers' starts close 130,000 descriptors. */
#include "launcher/process/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launcher/process/raw_call.h"
#include "launcher/process/spawn_child.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "proto/exit_code.h"

#ifndef CLOSE_RANGE_CLOEXEC
#define CLOSE_RANGE_CLOEXEC (1U << 2)
#endif

/* Sanitizers keep what they know of a thread where the child would overwrite it. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__) || !RAW_CALLS_LEAVE_ERRNO
#define PARENT_MUST_WAIT true
#else
#define PARENT_MUST_WAIT false
#endif

static const char *const step_texts[] = {
#define STEP_TEXT(symbol, text) text,
    SPAWN_STEPS(STEP_TEXT)
#undef STEP_TEXT
};

enum {
    LOW_LIMIT = 32, /* with fewer descriptors than that, a copy of all costs the same */
    STACK_BYTES = 16384,
    NO_SET = -1,
};

struct spawn_start {
    struct spawn_child child;
    pid_t pid;
    int running;        /* the child's, cleared by the kernel when it has given our memory back; atomic */
    int set;            /* of low places; NO_SET: none */
    int reader, writer; /* of a pipe for obstacles; -1: none */
    _Alignas(16) char stack[STACK_BYTES]; /* two cannot return on one */
};

/* What this process has learned; main thread only. */
static struct {
    bool borrows;   /* a child's memory was ours, so that no pipe is needed: an emulator makes it a copy */
    bool must_wait; /* the kernel has no child that borrows and does not stop us */
} learned;

void spawn_ignored_signals(sigset_t *ignored)
{
    sigemptyset(ignored);
    for (int number = 1; number < NSIG; number++) {
        struct sigaction action;
        if (sigaction(number, NULL, &action) == 0 && action.sa_handler == SIG_IGN)
            sigaddset(ignored, number);
    }
}

/* --- low descriptors --- */

/* Low descriptors that are used only while a worker is started; main thread only. */
static struct {
    enum { LOW_UNTRIED, LOW_NONE, LOW_RESERVED } state;
    int empty; /* their placeholder meanwhile */
    struct low_set {
        bool taken;
        int fds[SPAWN_GIVEN_LIMIT];
    } sets[SPAWN_STARTS_LIMIT];
} low;

/* Linux 5.11, whose close_range has all flags; asks with a range that holds nothing. */
static bool may_share(void)
{
    return syscall(SYS_close_range, UINT_MAX, UINT_MAX, CLOSE_RANGE_CLOEXEC) == 0;
}

/* Those that were reserved before one could not be are lost, and nobody gets any. */
static bool reserve_low(void)
{
    low.state = LOW_NONE;
    low.empty = may_share() ? open("/dev/null", O_RDWR | O_CLOEXEC) : -1;
    for (int i = 0; i < SPAWN_STARTS_LIMIT && low.empty >= 0; i++)
        for (int k = 0; k < SPAWN_GIVEN_LIMIT; k++)
            if ((low.sets[i].fds[k] = fcntl(low.empty, F_DUPFD_CLOEXEC, 0)) < 0)
                return false;
    if (low.empty < 0)
        return false;
    low.state = LOW_RESERVED;
    return true;
}

static int find_set(void)
{
    if (low.state == LOW_NONE || (low.state == LOW_UNTRIED && !reserve_low()))
        return NO_SET;
    for (int i = 0; i < SPAWN_STARTS_LIMIT; i++)
        if (!low.sets[i].taken)
            return i;
    return NO_SET;
}

/* Empties the set again: a pipe held there would never end. */
static void clear_set(struct spawn_start *start)
{
    if (start->set == NO_SET)
        return;
    struct low_set *set = &low.sets[start->set];
    for (int i = 0; i < SPAWN_GIVEN_LIMIT; i++)
        (void)dup3(low.empty, set->fds[i], O_CLOEXEC); /* both are open: cannot fail */
    set->taken = false;
    start->set = NO_SET;
}

/* Fills in the child's descriptors, at low numbers if there are many descriptors. */
static void place_given(struct spawn_start *start, const struct spawn_options *options)
{
    struct spawn_child *child = &start->child;
    int count = 2 + options->extra_count, highest = 0;
    child->given[0] = options->out_fd;
    child->given[1] = options->err_fd;
    for (int i = 0; i < options->extra_count; i++)
        child->given[2 + i] = options->extra_fds[i];
    for (int i = 0; i < count; i++)
        highest = child->given[i] > highest ? child->given[i] : highest;
    start->set = highest < LOW_LIMIT || child->report_fd >= 0 ? NO_SET : find_set();
    if (start->set == NO_SET)
        return;
    struct low_set *set = &low.sets[start->set];
    set->taken = true;
    for (int i = 0; i < count; i++)
        if (dup3(child->given[i], set->fds[i], O_CLOEXEC) < 0) {
            clear_set(start); /* a copy of all it is: those that stand low already are the same */
            child->shared_from = 0;
            return;
        }
    for (int i = 0; i < count; i++) {
        child->given[i] = set->fds[i];
        child->shared_from =
            (unsigned)set->fds[i] >= child->shared_from ? (unsigned)set->fds[i] + 1 : child->shared_from;
    }
}

/* --- the pipe for obstacles --- */

/* Until one child's memory was ours. Above what the child overwrites. */
static int open_report(struct spawn_start *start, const char *path, struct muster_error *err)
{
    int ends[2];
    if (learned.borrows)
        return 0;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return error_errno(err, "cannot make a pipe for %s (ulimit -n limits them)", path);
    start->reader = ends[0];
    start->writer = fcntl(ends[1], F_DUPFD_CLOEXEC, SPAWN_EXTRA_FD + SPAWN_EXTRA_LIMIT);
    int error = errno;
    (void)close(ends[1]); /* a pipe */
    errno = error;
    if (start->writer < 0)
        return error_errno(err, "cannot make a pipe for %s (ulimit -n limits them)", path);
    start->child.report_fd = start->writer;
    return 0;
}

/* Whether the child said why it failed; no word means that it executes the program. */
static bool read_obstacle(int fd, struct spawn_obstacle *obstacle)
{
    ssize_t got;
    do
        got = read(fd, obstacle, sizeof *obstacle);
    while (got < 0 && errno == EINTR);
    return got == sizeof *obstacle;
}

/* --- in the agent --- */

static void spawn_prepare(struct spawn_start *start, const struct spawn_options *options)
{
    static const int kept[] = {SIGHUP, SIGINT, SIGQUIT};
    memset(start, 0, offsetof(struct spawn_start, stack));
    start->set = NO_SET;
    start->reader = start->writer = start->child.report_fd = -1;
    start->child.options = options;
    start->child.parent = getpid();
    for (int number = 1; number <= 64; number++)
        if (sigismember(options->ignored, number) == 1)
            start->child.reset |= UINT64_C(1) << (number - 1);
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        start->child.reset &= ~(UINT64_C(1) << (kept[i] - 1));
}

static int explain(const struct spawn_options *options, const struct spawn_obstacle *obstacle, int *exit_code,
                   struct muster_error *err)
{
    const char *hint = "";
    *exit_code = EXIT_CODE_FAILURE;
    if (obstacle->step == SPAWN_EXEC) {
        *exit_code = obstacle->error == ENOENT ? EXIT_CODE_NOT_FOUND : EXIT_CODE_CANNOT_EXECUTE;
        if (obstacle->error == ENOENT && access(options->path, F_OK) == 0)
            hint = " (the file exists, but its #! interpreter or dynamic loader does not)";
        else if (obstacle->error == ENOEXEC)
            hint = " (neither a binary of this machine nor a script with a #! line)";
    }
    errno = obstacle->error;
    if (obstacle->step == SPAWN_DIRECTORY)
        return error_errno(err, "%s %s", step_texts[SPAWN_DIRECTORY], options->directory);
    return error_errno(err, "%s %s%s", step_texts[obstacle->step], options->path, hint);
}

static pid_t clone_child(struct spawn_start *start)
{
    const int flags = CLONE_VM | SIGCHLD | (start->child.shared_from ? CLONE_FILES : 0);
    char *top = start->stack + sizeof start->stack;
    if (!PARENT_MUST_WAIT && !learned.must_wait && !start->child.options->enter) {
        start->running = 1;
        pid_t pid = clone(spawn_child_run, top, flags | CLONE_CHILD_CLEARTID, &start->child, NULL, NULL,
                          &start->running);
        if (pid >= 0 || errno != EINVAL)
            return pid;
        learned.must_wait = true;
    }
    start->running = 0;
    return clone(spawn_child_run, top, flags | CLONE_VFORK, &start->child);
}

static void free_start(struct spawn_start *start)
{
    clear_set(start);
    guard_close(&start->reader);
    guard_close(&start->writer);
    mem_free(start);
}

struct spawn_start *spawn_begin(const struct spawn_options *options, pid_t *pid, struct muster_error *err)
{
    struct spawn_start *start = mem_realloc(NULL, 1, sizeof *start);
    sigset_t all, before;
    *pid = 0;
    if (!start) {
        error_set(err, MUSTER_E_NOMEM, "no memory to start %s", options->path);
        return NULL;
    }
    spawn_prepare(start, options);
    if (open_report(start, options->path, err) < 0) {
        free_start(start);
        return NULL;
    }
    place_given(start, options);
    sigfillset(&all); /* a handler must not run on the memory that parent and child share */
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    start->pid = clone_child(start);
    int error = errno;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (start->pid < 0) {
        errno = error;
        error_errno(err, "cannot make a process for %s (ulimit -u and the cgroup's pids.max limit them)",
                    options->path);
        free_start(start);
        return NULL;
    }
    *pid = start->pid;
    return start;
}

static void await_memory(struct spawn_start *start)
{
    int running;
    while ((running = __atomic_load_n(&start->running, __ATOMIC_ACQUIRE)) != 0)
        (void)syscall(SYS_futex, &start->running, FUTEX_WAIT, running, NULL, NULL, 0); /* or it is 0 by now */
}

int spawn_finish(struct spawn_start *start, int *exit_code, struct muster_error *err)
{
    await_memory(start);
    struct spawn_child *child = &start->child;
    learned.borrows |= child->ran;
    guard_close(&start->writer); /* the reader's end of file is the exec */
    start->writer = -1;
    bool failed =
        child->ran ? child->failed : start->reader >= 0 && read_obstacle(start->reader, &child->obstacle);
    int result = 0;
    *exit_code = EXIT_CODE_FAILURE;
    if (failed) {
        result = explain(child->options, &child->obstacle, exit_code, err);
        spawn_reap(&start->pid);
    }
    free_start(start);
    return result;
}

pid_t spawn_worker(const struct spawn_options *options, int *exit_code, struct muster_error *err)
{
    pid_t pid;
    *exit_code = EXIT_CODE_FAILURE;
    struct spawn_start *start = spawn_begin(options, &pid, err);
    return start && spawn_finish(start, exit_code, err) == 0 ? pid : -1;
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
