/* lifecycle.c - see lifecycle.h: the operator's actions on a job. kubelet.c has those on one pod. */
#include "launcher/local/run/lifecycle.h"

#include <stdio.h>

#include "launcher/local/run/kubelet.h"
#include "launcher/local/run/lifecycle_internal.h"
#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "proto/exit_code.h"

enum { RETRYABLE_FROM = 128, BACKOFF_FIRST_S = 10, BACKOFF_LIMIT_S = 300 };

static const int64_t tell_after_ns = NS_PER_S;

/* --- names and rules --- */

#define LIFECYCLE_NAME(symbol, name, ...) [symbol] = (name),

const char *pod_state_name(enum pod_state state)
{
    static const char *const names[] = {POD_STATES(LIFECYCLE_NAME)};
    return (unsigned)state < POD_STATE_COUNT ? names[state] : "?";
}

const char *pod_event_name(enum pod_event event)
{
    static const char *const names[] = {POD_EVENTS(LIFECYCLE_NAME)};
    return (unsigned)event < POD_EVENT_COUNT ? names[event] : "?";
}

const char *pod_action_name(enum pod_action action)
{
    static const char *const names[] = {POD_ACTIONS(LIFECYCLE_NAME)};
    return (unsigned)action < POD_ACTION_COUNT ? names[action] : "?";
}

bool lifecycle_is_retryable(int exit_code)
{
    return exit_code >= RETRYABLE_FROM;
}

int64_t lifecycle_backoff_ns(int failures_in_row)
{
    int64_t seconds = failures_in_row > 1 ? BACKOFF_FIRST_S : 0;
    for (int i = 2; i < failures_in_row && seconds < BACKOFF_LIMIT_S; i++)
        seconds *= 2;
    return (seconds < BACKOFF_LIMIT_S ? seconds : BACKOFF_LIMIT_S) * NS_PER_S;
}

/* --- the operator's view --- */

struct tally {
    int active, succeeded, failed;
};

static struct tally count_pods(const struct lifecycle *life, enum local_replica_type type)
{
    struct tally tally = {0};
    for (int i = 0; i < life->pod_count; i++) {
        if (life->job->pods[i].type != type)
            continue;
        tally.active += kubelet_is_active(life->pods[i].state);
        tally.succeeded += life->pods[i].state == POD_SUCCEEDED;
        tally.failed += life->pods[i].state == POD_FAILED;
    }
    return tally;
}

static bool is_finished(const struct lifecycle *life)
{
    return life->state == JOB_SUCCEEDED || life->state == JOB_FAILED;
}

/* --- conditions --- */

void lifecycle_set(struct lifecycle *life, enum condition_type type, bool status, const char *reason)
{
    if (conditions_set(&life->conditions, type, status, reason))
        log_info(life->log, "job %s: %s%s", life->job->name,
                 type == CONDITION_SUCCEEDED ? local_kind_success(life->job->kind) : condition_name(type),
                 status ? "" : " no more");
}

void lifecycle_finish(struct lifecycle *life, bool succeeded, int exit_code, struct instant now)
{
    life->state = succeeded ? JOB_SUCCEEDED : JOB_FAILED;
    life->exit_code = succeeded ? EXIT_CODE_OK : exit_code ? exit_code : EXIT_CODE_FAILURE;
    life->active_deadline = INSTANT_NEVER;
    /* cleanPodPolicy None: pods may go on until ttlSecondsAfterFinished deletes the job, or we leave. */
    const struct local_job *job = life->job;
    int64_t patience = life->options.linger_ns;
    life->leaving = patience != INT64_MAX;
    if (job->ttl_s >= 0 && job->ttl_s * NS_PER_S < patience)
        patience = job->ttl_s * NS_PER_S;
    life->linger_until = instant_add(now, patience);
    if (job->clean_policy == LOCAL_CLEAN_NONE && patience > tell_after_ns)
        life->linger_told = instant_add(now, tell_after_ns);
    lifecycle_set(life, succeeded ? CONDITION_SUCCEEDED : CONDITION_FAILED, true,
                  succeeded ? "PyTorchJobSucceeded" : "PyTorchJobFailed");
}

/* --- limits --- */

/* Restarts in place of existing pods; the operator forgets the restarts of recreated pods, and so do we. */
static bool is_past_backoff_limit(const struct lifecycle *life)
{
    int64_t limit = life->job->backoff_limit, restarts = 0, failed = 0;
    if (limit < 0)
        return false;
    for (int i = 0; i < life->pod_count; i++) {
        const struct lifecycle_pod *pod = &life->pods[i];
        failed += pod->state == POD_FAILED;
        if (kubelet_is_active(pod->state) && kubelet_policy(life, i) != LOCAL_RESTART_NEVER)
            restarts += pod->restart_count;
    }
    return limit ? restarts >= limit : restarts > 0 || failed > 0;
}

/* The code of the container that ended last otherwise than with 0. */
static int last_failure(const struct lifecycle *life)
{
    int code = 0;
    struct instant latest = {INT64_MIN};
    for (int i = 0; i < life->pod_count; i++) {
        const struct lifecycle_pod *pod = &life->pods[i];
        if (!pod->has_code || !pod->exit_code || pod->last_end.ns < latest.ns)
            continue;
        latest = pod->last_end;
        code = pod->exit_code;
    }
    return code;
}

/* --- status --- */

static bool has_succeeded(const struct lifecycle *life)
{
    if (life->wanted[LOCAL_MASTER])
        return count_pods(life, LOCAL_MASTER).succeeded == life->wanted[LOCAL_MASTER];
    int succeeded = count_pods(life, LOCAL_WORKER).succeeded;
    return succeeded >= life->wanted[LOCAL_WORKER] || (life->job->elastic && succeeded > 0);
}

static bool has_failed_for_good(const struct lifecycle *life, int pod)
{
    const struct lifecycle_pod *p = &life->pods[pod];
    enum local_restart_policy policy = kubelet_policy(life, pod);
    if (p->state != POD_FAILED)
        return false;
    return policy == LOCAL_RESTART_NEVER ||
           (policy == LOCAL_RESTART_EXIT_CODE && p->has_code && !lifecycle_is_retryable(p->exit_code));
}

/* Until the recreated pod runs. (The operator may call the job Running a moment before.) */
static bool is_restarting(const struct lifecycle *life)
{
    for (int i = 0; i < life->pod_count; i++)
        if (life->pods[i].state == POD_PENDING)
            return conditions_hold(&life->conditions, CONDITION_RESTARTING);
    return false;
}

static void update_status(struct lifecycle *life, struct instant now)
{
    enum local_replica_type decider = life->wanted[LOCAL_MASTER] ? LOCAL_MASTER : LOCAL_WORKER;
    if (has_succeeded(life)) {
        lifecycle_finish(life, true, EXIT_CODE_OK, now);
        return;
    }
    if (count_pods(life, decider).active && !is_restarting(life))
        lifecycle_set(life, CONDITION_RUNNING, true, "PyTorchJobRunning");
    for (int i = 0; i < life->pod_count; i++)
        if (has_failed_for_good(life, i)) {
            lifecycle_finish(life, false, life->pods[i].exit_code, now);
            return;
        }
}

/* --- pods --- */

void lifecycle_recreate(struct lifecycle *life, int pod, int64_t pause_ns, struct instant now)
{
    struct lifecycle_pod *p = &life->pods[pod];
    kubelet_step(life, pod, POD_DELETE, 0, now);
    kubelet_step(life, pod, POD_CREATE, 0, now);
    p->deadline = instant_add(now, pause_ns);
    p->recreated++;
    log_info(life->log, "pod %s: recreated (%d)", life->job->pods[pod].name, p->recreated);
}

/* Pods as the job wants them: recreates failed ones, creates missing ones, deletes surplus ones. */
static void manage_pods(struct lifecycle *life, struct instant now)
{
    for (int i = 0; i < life->pod_count; i++) {
        enum pod_state state = life->pods[i].state;
        const struct local_pod *spec = &life->job->pods[i];
        if (spec->index >= life->wanted[spec->type])
            kubelet_step(life, i, POD_DELETE, 0, now);
        else if (state == POD_FAILED) {
            lifecycle_set(life, CONDITION_RESTARTING, true, "PyTorchJobRestarting");
            lifecycle_recreate(
                life, i, (int64_t)(LIFECYCLE_RECREATE_S * life->options.backoff_scale * (double)NS_PER_S),
                now);
        } else if (state == POD_ABSENT)
            kubelet_step(life, i, POD_CREATE, 0, now);
    }
}

void lifecycle_delete_pods(struct lifecycle *life, bool ended_too, struct instant now)
{
    for (int i = 0; i < life->pod_count; i++) {
        enum pod_state state = life->pods[i].state;
        if (ended_too || (state != POD_SUCCEEDED && state != POD_FAILED))
            kubelet_step(life, i, POD_DELETE, 0, now);
    }
}

/* cleanPodPolicy. Pods that it leaves running continue for as long as we stay. */
static void clean_up(struct lifecycle *life, struct instant now)
{
    /* The operator creates no pods of a finished job. */
    for (int i = 0; i < life->pod_count; i++)
        if (life->pods[i].state == POD_PENDING)
            kubelet_step(life, i, POD_DELETE, 0, now);
    if (life->job->clean_policy != LOCAL_CLEAN_NONE) {
        lifecycle_delete_pods(life, life->job->clean_policy == LOCAL_CLEAN_ALL, now);
        return;
    }
    for (int i = 0; i < life->pod_count; i++)
        if (life->leaving && life->pods[i].state == POD_BACKOFF)
            kubelet_step(life, i, POD_DELETE, 0, now); /* we would leave before it could achieve anything */
    if (instant_reached(now, life->linger_until))
        lifecycle_delete_pods(life, false, now);
    else if (instant_reached(now, life->linger_told)) {
        char end[48] = "waiting for them";
        int running = 0;
        for (int i = 0; i < life->pod_count; i++)
            running += kubelet_is_active(life->pods[i].state);
        life->linger_told = INSTANT_NEVER;
        if (life->linger_until.ns != INSTANT_NEVER.ns)
            (void)snprintf(end, sizeof end, "ended in %.1f s",
                           (double)instant_diff_ns(life->linger_until, now) / (double)NS_PER_S);
        if (running)
            log_info(life->log, "job %s is decided, cleanPodPolicy None leaves %d pod%s running: %s",
                     life->job->name, running, running == 1 ? "" : "s", end);
    }
}

/* --- one look --- */

static void reconcile(struct lifecycle *life, struct instant now)
{
    if (life->state == JOB_ACTIVE) {
        if (is_past_backoff_limit(life)) {
            log_error(life->log, "job %s: more restarts than backoffLimit %lld allows", life->job->name,
                      (long long)life->job->backoff_limit);
            lifecycle_finish(life, false, last_failure(life), now);
        } else if (instant_reached(now, life->active_deadline)) {
            log_error(life->log, "job %s: longer active than activeDeadlineSeconds %lld", life->job->name,
                      (long long)life->job->active_deadline_s);
            lifecycle_finish(life, false, EXIT_CODE_FAILURE, now);
        }
        if (life->state == JOB_ACTIVE && life->groups)
            batch_reconcile(life, now);
        else if (life->state == JOB_ACTIVE)
            update_status(life, now);
        if (life->state == JOB_ACTIVE && !life->groups)
            manage_pods(life, now);
    }
    if (life->state == JOB_SUSPENDED || life->state == JOB_DELETED) /* a Job keeps its complete pods */
        lifecycle_delete_pods(life, !life->groups || life->state == JOB_DELETED, now);
    else if (is_finished(life))
        clean_up(life, now);
}

/* --- events of the job --- */

static void activate(struct lifecycle *life, struct instant now)
{
    life->state = JOB_ACTIVE;
    if (life->job->active_deadline_s >= 0)
        life->active_deadline = instant_add(now, life->job->active_deadline_s * NS_PER_S);
}

static void suspend(struct lifecycle *life)
{
    life->state = JOB_SUSPENDED;
    life->active_deadline = INSTANT_NEVER;
    if (conditions_find(&life->conditions, CONDITION_RUNNING))
        lifecycle_set(life, CONDITION_RUNNING, false, "PyTorchJobSuspended");
    lifecycle_set(life, CONDITION_SUSPENDED, true, "PyTorchJobSuspended");
}

static void begin(struct lifecycle *life, struct instant now)
{
    lifecycle_set(life, CONDITION_CREATED, true, "PyTorchJobCreated");
    if (life->job->suspended)
        suspend(life);
    else
        activate(life, now);
}

static void delete_job(struct lifecycle *life, int signal, struct instant now)
{
    if (is_finished(life)) { /* the verdict stands; remaining pods are ended */
        life->linger_until = now;
        life->leaving = true;
        return;
    }
    life->active_deadline = INSTANT_NEVER;
    life->leaving = true;
    if (life->state != JOB_DELETED)
        life->exit_code = EXIT_CODE_SIGNAL_BASE + signal;
    life->state = JOB_DELETED;
}

static void scale(struct lifecycle *life, int workers)
{
    log_info(life->log, "job %s: %d workers requested instead of %d", life->job->name, workers,
             life->wanted[LOCAL_WORKER]);
    life->wanted[LOCAL_WORKER] = workers;
}

static void handle(struct lifecycle *life, const struct job_event *event, struct instant now)
{
    switch (event->kind) {
    case JOB_BEGIN:
        begin(life, now);
        break;
    case JOB_POD_ENDED:
        kubelet_step(life, event->pod, POD_ENDED, event->number, now);
        break;
    case JOB_POD_LOST:
        kubelet_step(life, event->pod, POD_LOST, 0, now);
        break;
    case JOB_SUSPEND:
        if (life->state == JOB_ACTIVE)
            suspend(life);
        break;
    case JOB_RESUME:
        if (life->state == JOB_SUSPENDED) {
            lifecycle_set(life, CONDITION_SUSPENDED, false, "PyTorchJobResumed");
            activate(life, now);
        }
        break;
    case JOB_SCALE:
        scale(life, event->number);
        break;
    case JOB_DELETE:
        delete_job(life, event->number, now);
        break;
    default: /* JOB_TIME: below */
        break;
    }
}

static bool has_stuck_pod(const struct lifecycle *life)
{
    for (int i = 0; i < life->pod_count; i++)
        if (life->pods[i].state == POD_STUCK)
            return true;
    return false;
}

void lifecycle_step(struct lifecycle *life, const struct job_event *event, struct instant now)
{
    handle(life, event, now);
    reconcile(life, now);
    for (int i = 0; i < life->pod_count; i++)
        if (instant_reached(now, life->pods[i].deadline))
            kubelet_step(life, i, POD_DEADLINE, 0, now); /* a pod that is due at once starts in this turn, */
    reconcile(life, now);                                /* and the operator sees it run */
    if (has_stuck_pod(life))
        life->exit_code = EXIT_CODE_NODE;
}

struct instant lifecycle_deadline(const struct lifecycle *life)
{
    struct instant next = life->active_deadline;
    for (int i = 0; life->state == JOB_ACTIVE && !life->remaking && i < life->job->group_count; i++)
        if (life->groups[i].state == GROUP_ACTIVE)
            next = instant_min(next, life->groups[i].deadline);
    for (int i = 0; i < life->pod_count; i++) {
        next = instant_min(next, life->pods[i].deadline);
        if (kubelet_is_active(life->pods[i].state))
            next = instant_min(next, instant_min(life->linger_until, life->linger_told));
    }
    return next;
}

bool lifecycle_over(const struct lifecycle *life)
{
    if (life->state == JOB_ACTIVE || life->state == JOB_SUSPENDED)
        return false;
    for (int i = 0; i < life->pod_count; i++)
        if (kubelet_is_live(life->pods[i].state))
            return false;
    return true;
}

/* --- life --- */

int lifecycle_init(struct lifecycle *life, const struct local_job *job,
                   const struct lifecycle_options *options, const struct log_sink *log,
                   struct muster_error *err)
{
    *life = (struct lifecycle){.job = job,
                               .options = *options,
                               .log = log,
                               .pod_count = job->pod_count + job->spare_count,
                               .state = JOB_SUSPENDED, /* until it begins */
                               .active_deadline = INSTANT_NEVER,
                               .linger_until = INSTANT_NEVER,
                               .linger_told = INSTANT_NEVER};
    life->pods = mem_calloc((size_t)life->pod_count, sizeof *life->pods);
    if (!life->pods)
        return error_set(err, MUSTER_E_NOMEM, "no memory for %d pods", life->pod_count);
    if (job->group_count) {
        life->groups = mem_calloc((size_t)job->group_count, sizeof *life->groups);
        if (!life->groups) {
            lifecycle_free(life);
            return error_set(err, MUSTER_E_NOMEM, "no memory for %d Jobs", job->group_count);
        }
    }
    for (int i = 0; i < job->group_count; i++)
        life->groups[i].deadline = INSTANT_NEVER;
    for (int i = 0; i < life->pod_count; i++)
        life->pods[i] = (struct lifecycle_pod){
            .deadline = INSTANT_NEVER, .first_start = INSTANT_NEVER, .last_end = INSTANT_NEVER};
    for (int type = 0; type < LOCAL_REPLICA_TYPES; type++)
        life->wanted[type] = job->replicas[type].count;
    return 0;
}

void lifecycle_free(struct lifecycle *life)
{
    mem_free(life->pods);
    mem_free(life->groups);
    life->pods = NULL;
    life->groups = NULL;
}
