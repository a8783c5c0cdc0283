/* thread.c - see thread.h. */
#include "proto/base/thread.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "proto/base/cgroup.h"

int thread_start(pthread_t *thread, size_t stack_bytes, void *(*run)(void *context), void *context)
{
    sigset_t all, before;
    pthread_attr_t attributes;
    pthread_t made;
    int failure = pthread_attr_init(&attributes);
    if (failure)
        return failure;
    if (stack_bytes)
        (void)pthread_attr_setstacksize(&attributes, stack_bytes); /* else the default, which is larger */
    sigfillset(&all);
    failure = pthread_sigmask(SIG_SETMASK, &all, &before);
    if (!failure) {
        failure = pthread_create(&made, &attributes, run, context);
        (void)pthread_sigmask(SIG_SETMASK, &before, NULL); /* it has just worked with the same arguments */
        if (!failure && thread)
            *thread = made;
        else if (!failure)
            (void)pthread_detach(made); /* cannot fail for a thread that was just created */
    }
    (void)pthread_attr_destroy(&attributes);
    return failure;
}

/* "the cgroup's pids.max is 512, and 512 are in use; ulimit -u is 1024" */
static void limits_text(char *out, size_t size)
{
    struct cgroup_pids pids;
    struct rlimit user, space;
    char group[96] = "no readable cgroup sets pids.max", most[24] = "unlimited", stacks[64] = "";
    cgroup_pids("", &pids);
    if (pids.limit >= 0)
        (void)snprintf(group, sizeof group, "the cgroup's pids.max is %lld, and %lld are in use",
                       (long long)pids.limit, (long long)pids.used);
    if (getrlimit(RLIMIT_NPROC, &user) == 0 && user.rlim_cur != RLIM_INFINITY)
        (void)snprintf(most, sizeof most, "%llu", (unsigned long long)user.rlim_cur);
    if (getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY) /* a thread maps its stack */
        (void)snprintf(stacks, sizeof stacks, "; ulimit -v is %llu KiB",
                       (unsigned long long)space.rlim_cur / 1024);
    (void)snprintf(out, size, "%s; ulimit -u is %s%s", group, most, stacks);
}

int thread_error(struct muster_error *err, int failed, const char *format, ...)
{
    char which[160], reason[64], limits[224];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(which, sizeof which, format, args); /* a longer name is cut */
    va_end(args);
    limits_text(limits, sizeof limits);
    return error_set(err, MUSTER_E_NOMEM, "cannot start %s: %s (%s)", which,
                     strerror_r(failed, reason, sizeof reason), limits);
}
