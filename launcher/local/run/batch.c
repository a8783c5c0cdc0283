/* batch.c - see lifecycle_internal.h: what the Job controller does to the pods of a Job, and JobSet's to its
 * Jobs (Kubernetes 1.33, JobSet v1alpha2). */
#include "launcher/local/run/kubelet.h"
#include "launcher/local/run/lifecycle_internal.h"

enum { RECREATE_FIRST_S = 10, RECREATE_LIMIT_S = 600 };

/* --- one Job --- */

static void fail_group(struct lifecycle *life, int group, int pod, const char *why)
{
    life->groups[group].state = GROUP_FAILED;
    life->groups[group].exit_code = pod >= 0 ? life->pods[pod].exit_code : 0;
    log_error(life->log, "Job %s failed: %s", life->job->groups[group].name, why);
}

/* podFailurePolicy: the first rule that fits decides. */
static enum local_failure_action action_of(const struct local_group *group, const struct lifecycle_pod *pod)
{
    for (int i = 0; pod->has_code && i < group->rule_count; i++) {
        const struct local_failure_rule *rule = &group->rules[i];
        bool listed = false;
        for (int k = 0; k < rule->code_count; k++)
            listed |= rule->codes[k] == pod->exit_code;
        if (listed != rule->others)
            return rule->action;
    }
    return LOCAL_FAILURE_COUNT;
}

/* 10 s, 20 s, 40 s ... 10 min. */
static int64_t pause_ns(const struct lifecycle *life, int failures)
{
    int64_t seconds = RECREATE_FIRST_S;
    for (int i = 1; i < failures && seconds < RECREATE_LIMIT_S; i++)
        seconds *= 2;
    if (seconds > RECREATE_LIMIT_S)
        seconds = RECREATE_LIMIT_S;
    return (int64_t)((double)seconds * life->options.backoff_scale * (double)NS_PER_S);
}

static void handle_failed(struct lifecycle *life, int group, int pod, struct instant now)
{
    const struct local_group *spec = &life->job->groups[group];
    struct lifecycle_group *state = &life->groups[group];
    enum local_failure_action action = action_of(spec, &life->pods[pod]);
    if (action == LOCAL_FAILURE_FAIL_JOB) {
        fail_group(life, group, pod, "its podFailurePolicy does not try this exit code again");
        return;
    }
    state->failures += action == LOCAL_FAILURE_COUNT;
    if (state->failures > spec->backoff_limit)
        fail_group(life, group, pod, "more pods failed than its backoffLimit allows");
    else
        lifecycle_recreate(life, pod, pause_ns(life, state->failures), now);
}

/* Restarts in place count against the limit as they do in the Job controller. */
static bool is_past_limit(const struct lifecycle *life, int group, int *last)
{
    const struct local_group *spec = &life->job->groups[group];
    int64_t restarts = 0;
    *last = -1;
    for (int i = spec->first; i < spec->first + spec->count; i++) {
        const struct lifecycle_pod *pod = &life->pods[i];
        if (kubelet_is_active(pod->state))
            restarts += pod->restart_count;
        if (pod->has_code && pod->exit_code &&
            (*last < 0 || pod->last_end.ns >= life->pods[*last].last_end.ns))
            *last = i;
    }
    return spec->backoff_limit ? restarts >= spec->backoff_limit : restarts > 0;
}

static void examine(struct lifecycle *life, int group, struct instant now)
{
    const struct local_group *spec = &life->job->groups[group];
    int succeeded = 0, last;
    for (int i = spec->first; i < spec->first + spec->count; i++) {
        if (life->pods[i].state == POD_FAILED)
            handle_failed(life, group, i, now);
        if (life->groups[group].state == GROUP_FAILED)
            return;
        succeeded += life->pods[i].state == POD_SUCCEEDED;
    }
    if (spec->restart_policy == LOCAL_RESTART_ON_FAILURE && is_past_limit(life, group, &last))
        fail_group(life, group, last, "its containers started again more often than its backoffLimit allows");
    else if (succeeded == spec->count)
        life->groups[group].state = GROUP_COMPLETE;
}

static void create_pods(struct lifecycle *life, int group, struct instant now)
{
    const struct local_group *spec = &life->job->groups[group];
    int live = 0;
    for (int i = spec->first; i < spec->first + spec->count; i++)
        live += kubelet_is_live(life->pods[i].state);
    for (int i = spec->first; i < spec->first + spec->count && live < spec->parallelism; i++)
        if (life->pods[i].state == POD_ABSENT) {
            kubelet_step(life, i, POD_CREATE, 0, now);
            live++;
        }
}

/* --- the set --- */

static bool is_ready(const struct lifecycle *life, int group)
{
    const struct local_group *spec = &life->job->groups[group];
    int running = 0;
    for (int i = spec->first; i < spec->first + spec->count; i++)
        running += kubelet_is_active(life->pods[i].state) || life->pods[i].state == POD_SUCCEEDED;
    return life->groups[group].state == GROUP_COMPLETE || running >= spec->parallelism;
}

static bool may_start(const struct lifecycle *life, const struct local_group *spec)
{
    for (int i = 0; spec->after >= 0 && i < life->job->group_count; i++)
        if (life->job->groups[i].number == spec->after &&
            !(spec->after_ready ? is_ready(life, i) : life->groups[i].state == GROUP_COMPLETE))
            return false;
    return true;
}

static bool is_complete(const struct lifecycle *life)
{
    int wanted = 0, complete = 0;
    for (int i = 0; i < life->job->group_count; i++) {
        wanted += life->job->groups[i].decides;
        complete += life->job->groups[i].decides && life->groups[i].state == GROUP_COMPLETE;
    }
    return life->job->success_any ? complete > 0 : complete == wanted;
}

static int failed_group(const struct lifecycle *life)
{
    for (int i = 0; i < life->job->group_count; i++)
        if (life->groups[i].state == GROUP_FAILED)
            return i;
    return -1;
}

/* All Jobs anew: their pods are deleted first, then everything begins as at first. */
static void remake(struct lifecycle *life, struct instant now)
{
    lifecycle_delete_pods(life, true, now);
    for (int i = 0; i < life->pod_count; i++)
        if (life->pods[i].state != POD_ABSENT)
            return;
    for (int i = 0; i < life->job->group_count; i++)
        life->groups[i] = (struct lifecycle_group){0};
    life->remaking = false;
}

static void decide_failure(struct lifecycle *life, int group, struct instant now)
{
    if (life->remakes >= life->job->max_restarts) {
        lifecycle_finish(life, false, life->groups[group].exit_code, now);
        return;
    }
    life->remakes++;
    life->remaking = true;
    lifecycle_set(life, CONDITION_RESTARTING, true, "JobSetRestarting");
    log_warning(life->log, "%s %s: all Jobs are made anew (%d of maxRestarts %d)",
                local_kind_name(life->job->kind), life->job->name, life->remakes, life->job->max_restarts);
}

static void note_running(struct lifecycle *life)
{
    for (int i = 0; i < life->pod_count; i++)
        if (life->pods[i].state == POD_RUNNING) {
            lifecycle_set(life, CONDITION_RUNNING, true, "JobRunning");
            return;
        }
}

void batch_reconcile(struct lifecycle *life, struct instant now)
{
    for (int i = 0; !life->remaking && i < life->job->group_count; i++)
        if (life->groups[i].state == GROUP_ACTIVE)
            examine(life, i, now);
    int failed = failed_group(life);
    if (!life->remaking && failed >= 0)
        decide_failure(life, failed, now);
    else if (!life->remaking && is_complete(life))
        lifecycle_finish(life, true, 0, now);
    if (life->state != JOB_ACTIVE)
        return;
    if (life->remaking)
        remake(life, now);
    if (life->remaking)
        return;
    note_running(life);
    for (int i = 0; i < life->job->group_count; i++) {
        if (life->groups[i].state == GROUP_WAITING && may_start(life, &life->job->groups[i]))
            life->groups[i].state = GROUP_ACTIVE;
        if (life->groups[i].state == GROUP_ACTIVE)
            create_pods(life, i, now);
    }
}
