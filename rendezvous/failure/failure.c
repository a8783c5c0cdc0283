/* failure.c - the rules of failure.h: classes, their order, exit codes. */
#include "rendezvous/failure/failure.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "proto/exit_code.h"

/* NCCL's watchdog and gloo end their own process by abort() after a peer is lost; a write to a closed
 * connection ends a program without a SIGPIPE handler. */
static bool ended_by_its_peer(const struct worker_failure *failure)
{
    if (failure->signal == SIGPIPE)
        return true;
    if (failure->signal != 0 && failure->signal != SIGABRT)
        return false;
    /* an exception in its error file is the reason of its end, whatever communication errors it printed */
    if (*failure->message)
        return failure_says_peer_gone(failure->message, failure->rank);
    return failure_says_peer_gone(failure->tail, failure->rank);
}

enum failure_class failure_class_of(const struct worker_failure *failure)
{
    if (failure->lost_node || failure->unkillable)
        return FAILURE_LOST_NODE;
    if (failure->out_of_memory || failure->hung || (failure->xid && !failure->xid_elsewhere))
        return FAILURE_SIGNAL;
    if (failure->not_started)
        return FAILURE_EXIT;
    if (ended_by_its_peer(failure))
        return FAILURE_CASCADE;
    /* a SIGKILL that its agent did not send is not the answer to a stop */
    if (failure->after_stop && failure->signal != SIGKILL)
        return FAILURE_AFTER_STOP;
    return failure->signal > 0 ? FAILURE_SIGNAL : FAILURE_EXIT;
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

struct failure_key failure_key_of(const struct worker_failure *failure, struct instant at)
{
    return (struct failure_key){failure_class_of(failure), at, failure->rank, failure->local_rank,
                                failure->pid};
}

static int compare(int64_t a, int64_t b)
{
    return (a > b) - (a < b);
}

int failure_key_compare(const struct failure_key *a, const struct failure_key *b)
{
    int by_class = compare(a->class_, b->class_), by_time = compare(a->at.ns, b->at.ns),
        by_rank = compare(a->rank, b->rank), by_local_rank = compare(a->local_rank, b->local_rank);
    if (by_class)
        return by_class;
    if (by_time)
        return by_time;
    if (by_rank)
        return by_rank;
    return by_local_rank ? by_local_rank : compare(a->pid, b->pid);
}

bool failure_is_cut_short(const struct worker_failure *failure)
{
    return failure->after_stop && (failure->signal == SIGTERM || failure->signal == SIGINT ||
                                   failure->signal == SIGHUP || failure->signal == SIGQUIT);
}

int failure_exit_code(const struct worker_failure *failure)
{
    if (failure->lost_node || failure->unkillable)
        return EXIT_CODE_NODE;
    if (failure_is_cut_short(failure))
        return EXIT_CODE_FAILURE;
    if (failure->signal > 0)
        return EXIT_CODE_SIGNAL_BASE + failure->signal;
    /* Its peers or the store were lost, and nothing in this job has failed before: the network did, or a
     * stranger. */
    if (failure->exit_code == EXIT_CODE_FAILURE && failure_class_of(failure) == FAILURE_CASCADE)
        return EXIT_CODE_NODE;
    /* An exit status is one byte; a failure that claims 0 is still a failure. */
    return failure->exit_code > 0 && failure->exit_code < 256 ? failure->exit_code : EXIT_CODE_FAILURE;
}

struct failure_brief failure_brief_of(const struct worker_failure *failure)
{
    struct failure_brief brief = {
        .rank = failure->rank,
        .local_rank = failure->local_rank,
        .group_rank = failure->group_rank,
        .pid = failure->pid,
        .exit_code = failure->exit_code,
        .signal = failure->signal,
        .xid = failure->xid_elsewhere ? 0 : failure->xid,
        .class_ = (int)failure_class_of(failure),
        .core_dumped = failure->core_dumped,
        .out_of_memory = failure->out_of_memory,
        .hung = failure->hung,
        .step = failure->step,
        .wall_ns = failure->wall_ns,
    };
    (void)snprintf(brief.host, sizeof brief.host, "%.*s", FAILURE_BRIEF_HOST - 1, failure->host);
    failure_excerpt(failure, brief.excerpt, sizeof brief.excerpt);
    return brief;
}

void failure_from_brief(const struct failure_brief *brief, int64_t cause_age_ns, struct worker_failure *out)
{
    *out = (struct worker_failure){
        .rank = brief->rank,
        .local_rank = brief->local_rank,
        .group_rank = brief->group_rank,
        .pid = brief->pid,
        .exit_code = brief->exit_code,
        .signal = brief->signal,
        .xid = brief->xid,
        .lost_node = brief->class_ == FAILURE_LOST_NODE,
        .after_stop = brief->class_ == FAILURE_AFTER_STOP,
        .core_dumped = brief->core_dumped,
        .out_of_memory = brief->out_of_memory,
        .hung = brief->hung,
        .step = brief->step,
        .age_ns = cause_age_ns - brief->after_ns,
        .wall_ns = brief->wall_ns,
    };
    (void)snprintf(out->host, sizeof out->host, "%s", brief->host);
    (void)snprintf(out->tail, sizeof out->tail, "%s", brief->excerpt);
}
