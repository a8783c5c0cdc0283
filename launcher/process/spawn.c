/* spawn.c - see spawn.h.
 *
 * As vfork, so that the cost does not grow with the agent: the child borrows the parent's memory until it
 * executes, and makes system calls only (spawn_child.c). Everything it needs was computed before, and it
 * reports a failure in that memory.
 *
 * Nor does the cost grow with the descriptors of the workers there are: the child borrows the table of
 * descriptors too, and then takes a copy of its beginning alone (close_range with CLOSE_RANGE_UNSHARE). The
 * descriptors that it inherits are at low numbers for that. With a copy of the whole, which the exec closes
 * one by one, 256 workers' starts close 130,000 descriptors. */
#include "launcher/process/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launcher/process/spawn_child.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/thread.h"
#include "proto/exit_code.h"

#ifndef CLOSE_RANGE_CLOEXEC
#define CLOSE_RANGE_CLOEXEC (1U << 2)
#endif

static const char *const step_texts[] = {
#define STEP_TEXT(symbol, text) text,
    SPAWN_STEPS(STEP_TEXT)
#undef STEP_TEXT
};

enum {
    LOW_LIMIT = 64, /* with fewer descriptors than that, a copy of all costs the same */
    STACK_BYTES = 16384,
};

struct spawn_start {
    struct spawn_child child;
    bool low;                             /* its descriptors are at the low places */
    int reader, writer;                   /* ends of a pipe for obstacles; -1: none */
    _Alignas(16) char stack[STACK_BYTES]; /* the child's: two cannot return on one */
};

/* Learned at the first start: a child's memory was ours, so that no pipe is needed (an emulator makes it a
 * copy). Main thread only. */
static bool memory_is_borrowed;

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
    int empty; /* their placeholder until then */
    int fds[SPAWN_GIVEN_LIMIT];
} low;

/* Linux 5.11, whose close_range has all flags; asks with a range that holds nothing. */
static bool may_share(void)
{
    return syscall(SYS_close_range, UINT_MAX, UINT_MAX, CLOSE_RANGE_CLOEXEC) == 0;
}

/* If a place cannot be reserved, the reserved ones are lost, and none is used. */
static bool reserve_low(void)
{
    if (low.state != LOW_UNTRIED)
        return low.state == LOW_RESERVED;
    low.state = LOW_NONE;
    low.empty = may_share() ? open("/dev/null", O_RDWR | O_CLOEXEC) : -1;
    if (low.empty < 0)
        return false;
    for (int i = 0; i < SPAWN_GIVEN_LIMIT; i++)
        if ((low.fds[i] = fcntl(low.empty, F_DUPFD_CLOEXEC, 0)) < 0)
            return false;
    low.state = LOW_RESERVED;
    return true;
}

/* Empties the places again: a pipe held there would never end. */
static void clear_low(struct spawn_start *start)
{
    for (int i = 0; start->low && i < SPAWN_GIVEN_LIMIT; i++)
        (void)dup3(low.empty, low.fds[i], O_CLOEXEC); /* both are open: cannot fail */
    start->low = false;
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
    if (highest < LOW_LIMIT || child->report_fd >= 0 || !reserve_low())
        return;
    start->low = true;
    for (int i = 0; i < count; i++)
        if (dup3(child->given[i], low.fds[i], O_CLOEXEC) < 0) {
            clear_low(start); /* the child copies the whole table instead */
            return;
        }
    for (int i = 0; i < count; i++) {
        child->given[i] = low.fds[i];
        if ((unsigned)low.fds[i] >= child->shared_from)
            child->shared_from = (unsigned)low.fds[i] + 1;
    }
}

/* --- the pipe for obstacles --- */

/* Until one child's memory was ours. Above the numbers that the child overwrites. */
static int open_report(struct spawn_start *start, const char *path, struct muster_error *err)
{
    int ends[2];
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
    start->reader = start->writer = start->child.report_fd = -1;
    start->child.options = options;
    start->child.parent = getpid();
    for (int number = 1; number <= 64; number++)
        if (sigismember(options->ignored, number) == 1)
            start->child.reset |= UINT64_C(1) << (number - 1);
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        start->child.reset &= ~(UINT64_C(1) << (kept[i] - 1));
}

/* The program is not at fault: disk, memory, processes, descriptors. */
static bool is_passing(int error)
{
    return error == EIO || error == ESTALE || error == ENOMEM || error == EAGAIN || error == EMFILE ||
           error == ENFILE || error == ETIMEDOUT || error == EREMOTEIO || error == ENOTCONN;
}

static size_t text_bytes_of(char *const *texts)
{
    size_t bytes = 0;
    for (; texts && *texts; texts++)
        bytes += strlen(*texts) + 1;
    return bytes;
}

/* The worker's environment has more than the agent's: a line that the agent was given may be too long for it.
 */
static void explain_length(const struct spawn_options *options, struct muster_error *err)
{
    errno = E2BIG;
    error_errno(err,
                "%s %s (%zu bytes of arguments, %zu of environment; the kernel takes %ld of both together, a "
                "quarter of ulimit -s, and 128 KiB in each: put long lists into a file)",
                step_texts[SPAWN_EXEC], options->path, text_bytes_of(options->argv),
                text_bytes_of(options->envp), sysconf(_SC_ARG_MAX));
}

static void explain(const struct spawn_options *options, const struct spawn_obstacle *obstacle,
                    int *exit_code, struct muster_error *err)
{
    const char *hint = "";
    *exit_code = is_passing(obstacle->error) ? EXIT_CODE_ENVIRONMENT : EXIT_CODE_FAILURE;
    if (obstacle->step == SPAWN_EXEC && !is_passing(obstacle->error)) {
        *exit_code = obstacle->error == ENOENT ? EXIT_CODE_NOT_FOUND : EXIT_CODE_CANNOT_EXECUTE;
        if (obstacle->error == ENOENT && access(options->path, F_OK) == 0)
            hint = " (the file exists, but its #! interpreter or dynamic loader does not)";
        else if (obstacle->error == ENOEXEC)
            hint = " (neither a binary of this machine nor a script with a #! line)";
    }
    errno = obstacle->error;
    if (obstacle->step == SPAWN_EXEC && obstacle->error == E2BIG)
        explain_length(options, err);
    else if (obstacle->step == SPAWN_DIRECTORY)
        error_errno(err, "%s %s", step_texts[SPAWN_DIRECTORY], options->directory);
    else
        error_errno(err, "%s %s%s", step_texts[obstacle->step], options->path, hint);
}

/* Returns when the child has executed its program or has ended. */
static pid_t clone_child(struct spawn_start *start)
{
    sigset_t all, before;
    sigfillset(&all); /* a handler must not run on the memory that parent and child share */
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    pid_t pid =
        clone(spawn_child_run, start->stack + sizeof start->stack,
              CLONE_VM | CLONE_VFORK | SIGCHLD | (start->child.shared_from ? CLONE_FILES : 0), &start->child);
    int error = errno;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = error;
    return pid;
}

/* Whether the child failed; child->obstacle says at what. */
static bool child_failed(struct spawn_start *start)
{
    struct spawn_child *child = &start->child;
    memory_is_borrowed |= child->ran;
    guard_close(&start->writer); /* the reader's end of file is the exec */
    start->writer = -1;
    return child->ran ? child->failed : start->reader >= 0 && read_obstacle(start->reader, &child->obstacle);
}

pid_t spawn_worker(const struct spawn_options *options, int *exit_code, struct muster_error *err)
{
    struct spawn_start start;
    *exit_code = EXIT_CODE_ENVIRONMENT; /* no process, no pipe */
    spawn_prepare(&start, options);
    if (!memory_is_borrowed && open_report(&start, options->path, err) < 0) {
        guard_close(&start.reader);
        return -1;
    }
    place_given(&start, options);
    pid_t pid = clone_child(&start);
    if (pid < 0)
        thread_error(err, errno, "a process for %s", options->path);
    else if (child_failed(&start)) {
        explain(options, &start.child.obstacle, exit_code, err);
        spawn_reap(&pid);
        pid = -1;
    }
    clear_low(&start);
    guard_close(&start.reader);
    guard_close(&start.writer);
    return pid;
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
