/* batch.c - see lifecycle_internal.h: the Job controller and the pods of a Job; manifest/api.h has
 * the release. batch_set.c has JobSet's controller. */
#include <stdio.h>

#include "launcher/local/run/kubelet.h"
#include "launcher/local/run/lifecycle_internal.h"

enum { RECREATE_FIRST_S = 10, RECREATE_LIMIT_S = 600 };

static void fail_group(struct lifecycle *life, int group, int pod, enum local_failure reason,
                       const char *message, struct instant now)
{
    struct lifecycle_group *state = &life->groups[group];
    state->state = GROUP_FAILED;
    state->exit_code = pod >= 0 ? life->pods[pod].exit_code : 0;
    state->reason = reason;
    state->failed_at = now;
    state->deadline = INSTANT_NEVER;
    (void)snprintf(state->message, sizeof state->message, "%s", message);
    log_error(life->log, "Job %s failed: %s (%s)", life->job->groups[group].name, message,
              local_failure_name(reason));
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

/* backoffLimitPerIndex: an index that failed too often ends, the others go on. */
static void handle_failed_index(struct lifecycle *life, int group, int pod, enum local_failure_action action,
                                struct instant now)
{
    const struct local_group *spec = &life->job->groups[group];
    struct lifecycle_group *state = &life->groups[group];
    struct lifecycle_pod *p = &life->pods[pod];
    p->index_failures += action == LOCAL_FAILURE_COUNT;
    if (action != LOCAL_FAILURE_FAIL_INDEX && p->index_failures <= spec->index_limit) {
        lifecycle_recreate(life, pod, pause_ns(life, p->index_failures), now);
        return;
    }
    p->index_failed = true;
    state->failed_indexes++;
    log_warning(life->log, "Job %s: index %d failed for good", spec->name, life->job->pods[pod].index);
    if (spec->failed_indexes >= 0 && state->failed_indexes > spec->failed_indexes)
        fail_group(life, group, pod, LOCAL_FAILED_MAX_INDEXES,
                   "Job has exceeded the specified maximal number of failed indexes", now);
}

static void handle_failed(struct lifecycle *life, int group, int pod, struct instant now)
{
    const struct local_group *spec = &life->job->groups[group];
    struct lifecycle_group *state = &life->groups[group];
    enum local_failure_action action = action_of(spec, &life->pods[pod]);
    if (action == LOCAL_FAILURE_FAIL_JOB) {
        /* The Job controller's sentence. */
        char message[200];
        (void)snprintf(message, sizeof message,
                       "Container of pod %s/%s failed with exit code %d matching FailJob rule",
                       life->job->namespace_ ? life->job->namespace_ : "default", life->job->pods[pod].name,
                       life->pods[pod].exit_code);
        fail_group(life, group, pod, LOCAL_FAILED_POLICY, message, now);
        return;
    }
    if (spec->per_index) {
        handle_failed_index(life, group, pod, action, now);
        return;
    }
    state->failures += action == LOCAL_FAILURE_COUNT;
    if (state->failures > spec->backoff_limit)
        fail_group(life, group, pod, LOCAL_FAILED_BACKOFF, "Job has reached the specified backoff limit",
                   now);
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

static int last_failed_index(const struct lifecycle *life, const struct local_group *spec)
{
    int last = -1;
    for (int i = spec->first; i < spec->first + spec->count; i++)
        if (life->pods[i].index_failed &&
            (last < 0 || life->pods[i].last_end.ns >= life->pods[last].last_end.ns))
            last = i;
    return last;
}

/* Whether one rule of the Job's successPolicy holds. */
static bool is_satisfied(const struct lifecycle *life, const struct local_group *spec)
{
    for (int r = 0; r < spec->success_count; r++) {
        const struct local_success_rule *rule = &spec->success[r];
        int succeeded = 0, named = 0;
        for (int i = 0; i < spec->count; i++) {
            bool counts = !rule->indexes || rule->indexes[i];
            named += counts;
            succeeded += counts && life->pods[spec->first + i].state == POD_SUCCEEDED;
        }
        if (succeeded && succeeded >= (rule->count ? rule->count : named))
            return true;
    }
    return false;
}

/* What still runs of a Job that has ended is deleted by its controller. */
static void delete_rest(struct lifecycle *life, int group, struct instant now)
{
    const struct local_group *spec = &life->job->groups[group];
    for (int i = spec->first; i < spec->first + spec->count; i++)
        if (kubelet_is_active(life->pods[i].state) || life->pods[i].state == POD_PENDING)
            kubelet_step(life, i, POD_DELETE, 0, now);
}

void batch_examine(struct lifecycle *life, int group, struct instant now)
{
    const struct local_group *spec = &life->job->groups[group];
    struct lifecycle_group *state = &life->groups[group];
    int succeeded = 0, last;
    for (int i = spec->first; i < spec->first + spec->count; i++) {
        if (life->pods[i].state == POD_FAILED && !life->pods[i].index_failed)
            handle_failed(life, group, i, now);
        if (state->state == GROUP_FAILED)
            break;
        succeeded += life->pods[i].state == POD_SUCCEEDED;
    }
    if (state->state == GROUP_FAILED)
        ;
    else if (spec->restart_policy == LOCAL_RESTART_ON_FAILURE && is_past_limit(life, group, &last))
        fail_group(life, group, last, LOCAL_FAILED_BACKOFF, "Job has reached the specified backoff limit",
                   now);
    else if (is_satisfied(life, spec) || succeeded == spec->count) {
        life->groups[group].state = GROUP_COMPLETE;
        life->groups[group].deadline = INSTANT_NEVER;
    } else if (state->failed_indexes && succeeded + state->failed_indexes == spec->count)
        fail_group(life, group, last_failed_index(life, spec), LOCAL_FAILED_INDEXES, "Job has failed indexes",
                   now);
    else if (instant_reached(now, state->deadline))
        fail_group(life, group, -1, LOCAL_FAILED_DEADLINE, "Job was active longer than specified deadline",
                   now);
    if (state->state != GROUP_ACTIVE)
        delete_rest(life, group, now);
}

void batch_create_pods(struct lifecycle *life, int group, struct instant now)
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
