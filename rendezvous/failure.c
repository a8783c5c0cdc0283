/* failure.c - see failure.h. */
#include "rendezvous/failure.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "proto/exit_code.h"

/* What workers write when the other end of their communication went away: NCCL, gloo, torch's store, and
 * libmuster. */
static const char *const cascade_marks[] = {
    "NCCL error",
    "ncclSystemError",
    "ncclRemoteError",
    "ncclInternalError",
    "DistBackendError",
    "DistNetworkError",
    "DistStoreError",
    "Watchdog caught collective operation timeout",
    "gloo/transport",
    "Connection closed by peer",
    "Connection reset by peer",
    "Broken pipe",
    "recvValue failed",
};

static bool says_peer_gone(const char *tail)
{
    for (size_t i = 0; i < sizeof cascade_marks / sizeof *cascade_marks; i++)
        if (strstr(tail, cascade_marks[i]))
            return true;
    return false;
}

enum failure_class failure_class_of(const struct worker_failure *failure)
{
    if (failure->lost_node)
        return FAILURE_LOST_NODE;
    if (failure->hung)
        return FAILURE_SIGNAL;
    /* NCCL's watchdog and gloo end their own process by abort() when a peer is gone */
    bool own_end = failure->signal == 0 || failure->signal == SIGABRT;
    if (own_end && !failure->out_of_memory && says_peer_gone(failure->tail))
        return FAILURE_CASCADE;
    if (failure->signal > 0 || failure->out_of_memory)
        return FAILURE_SIGNAL;
    return FAILURE_EXIT;
}

const char *failure_class_name(enum failure_class class_)
{
    static const char *const names[] = {
#define FAILURE_NAME(symbol, name) [symbol] = (name),
        FAILURE_CLASSES(FAILURE_NAME)
#undef FAILURE_NAME
    };
    return (unsigned)class_ < FAILURE_CLASS_COUNT ? names[class_] : "unknown";
}

bool failure_precedes(const struct worker_failure *a, struct instant a_at, const struct worker_failure *b,
                      struct instant b_at)
{
    enum failure_class a_class = failure_class_of(a), b_class = failure_class_of(b);
    if (a_class != b_class)
        return a_class < b_class;
    if (a_at.ns != b_at.ns)
        return a_at.ns < b_at.ns;
    return a->rank < b->rank;
}

int failure_exit_code(const struct worker_failure *failure)
{
    if (failure->lost_node)
        return EXIT_CODE_NODE;
    if (failure->signal > 0)
        return EXIT_CODE_SIGNAL_BASE + failure->signal;
    /* An exit status is one byte; a failure that claims 0 is still a failure. */
    return failure->exit_code > 0 && failure->exit_code < 256 ? failure->exit_code : EXIT_CODE_FAILURE;
}

void failure_describe(const struct worker_failure *failure, char *out, size_t size)
{
    if (failure->lost_node)
        (void)snprintf(out, size, "node rank %d (%s) is lost", failure->group_rank, failure->host);
    else if (failure->hung)
        (void)snprintf(out, size, "rank %d (pid %d on %s) hung after step %lld", failure->rank, failure->pid,
                       failure->host, (long long)failure->step);
    else if (failure->signal > 0)
        (void)snprintf(out, size, "rank %d (pid %d on %s) was killed by signal %d%s%s", failure->rank,
                       failure->pid, failure->host, failure->signal,
                       failure->out_of_memory ? ", out of memory" : "",
                       failure->core_dumped ? ", core dumped" : "");
    else
        (void)snprintf(out, size, "rank %d (pid %d on %s) exited with code %d%s", failure->rank, failure->pid,
                       failure->host, failure->exit_code, failure->out_of_memory ? ", out of memory" : "");
}
