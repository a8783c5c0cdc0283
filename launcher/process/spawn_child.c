/* spawn_child.c - see spawn_child.h. System calls alone, but for options->enter: the memory is the parent's,
 * the C library's locks and a sanitizer's records among it. */
#include "launcher/process/spawn_child.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "proto/exit_code.h"

#ifndef CLOSE_RANGE_UNSHARE
#define CLOSE_RANGE_UNSHARE (1U << 1)
#endif
#ifndef CLOSE_RANGE_CLOEXEC
#define CLOSE_RANGE_CLOEXEC (1U << 2)
#endif

enum { SIGNALS = 64, SIGNAL_SET_BYTES = SIGNALS / 8 }; /* the kernel's set, on every machine that we know */

/* Returns the kernel's result: -1 to -4095 is an error's number, negated. */
static long raw_call(long number, long a, long b, long c, long d)
{
    long result = syscall(number, a, b, c, d);
    return result < 0 ? -errno : result;
}

static void child_fail(struct spawn_child *child, enum spawn_step step, long result)
    __attribute__((noreturn));
static void child_fail(struct spawn_child *child, enum spawn_step step, long result)
{
    child->obstacle = (struct spawn_obstacle){step, (int)-result};
    child->failed = true;
    if (child->report_fd >= 0) /* less than PIPE_BUF is never cut */
        (void)raw_call(SYS_write, child->report_fd, (long)&child->obstacle, sizeof child->obstacle, 0);
    for (;;)
        (void)raw_call(SYS_exit_group, EXIT_CODE_NOT_FOUND, 0, 0, 0);
}

static void check(struct spawn_child *child, enum spawn_step step, long result)
{
    if (result < 0)
        child_fail(child, step, result);
}

static long duplicate(int from, int to)
{
    return from == to ? raw_call(SYS_fcntl, to, F_SETFD, 0, 0) : raw_call(SYS_dup3, from, to, 0, 0);
}

/* Every descriptor from first on closes at the exec. */
static void close_rest(unsigned first)
{
    if (raw_call(SYS_close_range, first, UINT_MAX, CLOSE_RANGE_CLOEXEC, 0) == 0)
        return;
    enum { OLD_KERNEL_LIMIT = 65536 }; /* Linux before 5.11 */
    struct rlimit limit;
    if (raw_call(SYS_prlimit64, 0, RLIMIT_NOFILE, 0, (long)&limit) < 0 || limit.rlim_cur > OLD_KERNEL_LIMIT)
        limit.rlim_cur = OLD_KERNEL_LIMIT;
    for (unsigned fd = first; fd < limit.rlim_cur; fd++)
        (void)raw_call(SYS_fcntl, fd, F_SETFD, FD_CLOEXEC, 0); /* most are not open */
}

static long set_limit(int which, const struct rlimit *limit)
{
    return limit ? raw_call(SYS_prlimit64, 0, which, (long)limit, 0) : 0;
}

/* A lower hard limit is the user's choice: then it is found by its environment alone. */
static void put_mark(uint64_t mark)
{
    struct rlimit limit;
    if (!mark || raw_call(SYS_prlimit64, 0, RLIMIT_RTTIME, 0, (long)&limit) < 0 || limit.rlim_max < mark)
        return;
    limit.rlim_cur = mark;
    (void)set_limit(RLIMIT_RTTIME, &limit); /* up to the hard limit is always allowed */
}

int spawn_child_run(void *context)
{
    struct spawn_child *child = context;
    const struct spawn_options *o = child->options;
    child->ran = true;
    if (child->shared_from)
        check(child, SPAWN_UNSHARE,
              raw_call(SYS_close_range, child->shared_from, UINT_MAX, CLOSE_RANGE_UNSHARE, 0));
    check(child, SPAWN_SESSION, raw_call(SYS_setsid, 0, 0, 0, 0));
    if (o->enter && o->enter(o->enter_context) < 0)
        child_fail(child, SPAWN_ENTER, -errno);
    if (o->directory)
        check(child, SPAWN_DIRECTORY, raw_call(SYS_chdir, (long)o->directory, 0, 0, 0));
    if (!o->outlives)
        (void)raw_call(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0); /* a sandbox may refuse it */
    if (raw_call(SYS_getppid, 0, 0, 0, 0) != child->parent)
        child_fail(child, SPAWN_PARENT, -ESRCH); /* it died before the death signal was set */
    /* the caller's descriptors are above 2, or are the very number that they become; overwritten extra
     * descriptors are copied already, or are close-on-exec and the parent's */
    for (int i = 0; i < 2 + child->options->extra_count; i++)
        check(child, SPAWN_DESCRIPTORS, duplicate(child->given[i], i < 2 ? i + 1 : SPAWN_EXTRA_FD + i - 2));
    close_rest((unsigned)(SPAWN_EXTRA_FD + o->extra_count));
    check(child, SPAWN_DESCRIPTORS, set_limit(RLIMIT_NOFILE, o->descriptors));
    (void)set_limit(RLIMIT_CORE, o->core_dumps); /* the inherited limit: always allowed */
    if (o->cpus)
        check(child, SPAWN_CPUS,
              raw_call(SYS_sched_setaffinity, 0, sizeof o->cpus->bits, (long)o->cpus->bits, 0));
    put_mark(o->mark);
    const long initial[8] = {(long)SIG_DFL}; /* the kernel's struct, which is all zeros and shorter */
    const uint64_t none = 0;
    for (int number = 1; number <= SIGNALS; number++)
        if (child->reset >> (number - 1) & 1)
            (void)raw_call(SYS_rt_sigaction, number, (long)initial, 0, SIGNAL_SET_BYTES);
    (void)raw_call(SYS_rt_sigprocmask, SIG_SETMASK, (long)&none, 0, SIGNAL_SET_BYTES);
    child_fail(child, SPAWN_EXEC, raw_call(SYS_execve, (long)o->path, (long)o->argv, (long)o->envp, 0));
}
