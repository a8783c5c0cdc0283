/* batch.c - see lifecycle_internal.h: what the Job controller does to the pods of a Job, and JobSet's to its
 * Jobs; manifest/api.h has their releases. */
#include <regex.h>
#include <stdio.h>

#include "launcher/local/run/kubelet.h"
#include "launcher/local/run/lifecycle_internal.h"

enum { RECREATE_FIRST_S = 10, RECREATE_LIMIT_S = 600 };

/* --- one Job --- */

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

/* The Job controller's sentence. */
static void fail_by_policy(struct lifecycle *life, int group, int pod, struct instant now)
{
    char message[200];
    (void)snprintf(message, sizeof message,
                   "Container of pod %s/%s failed with exit code %d matching FailJob rule",
                   life->job->namespace_ ? life->job->namespace_ : "default", life->job->pods[pod].name,
                   life->pods[pod].exit_code);
    fail_group(life, group, pod, LOCAL_FAILED_POLICY, message, now);
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
        fail_by_policy(life, group, pod, now);
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

static void complete_group(struct lifecycle *life, int group)
{
    life->groups[group].state = GROUP_COMPLETE;
    life->groups[group].deadline = INSTANT_NEVER;
}

/* What still runs of a Job that has ended is deleted by its controller. */
static void delete_rest(struct lifecycle *life, int group, struct instant now)
{
    const struct local_group *spec = &life->job->groups[group];
    for (int i = spec->first; i < spec->first + spec->count; i++)
        if (kubelet_is_active(life->pods[i].state) || life->pods[i].state == POD_PENDING)
            kubelet_step(life, i, POD_DELETE, 0, now);
}

static void examine(struct lifecycle *life, int group, struct instant now)
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
    else if (is_satisfied(life, spec) || succeeded == spec->count)
        complete_group(life, group);
    else if (state->failed_indexes && succeeded + state->failed_indexes == spec->count)
        fail_group(life, group, last_failed_index(life, spec), LOCAL_FAILED_INDEXES, "Job has failed indexes",
                   now);
    else if (instant_reached(now, state->deadline))
        fail_group(life, group, -1, LOCAL_FAILED_DEADLINE, "Job was active longer than specified deadline",
                   now);
    if (state->state != GROUP_ACTIVE)
        delete_rest(life, group, now);
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

/* Ready counts failed Jobs, too, so that a dependency that fails does not hold back for ever. */
static bool may_start(const struct lifecycle *life, const struct local_group *spec)
{
    for (int k = 0; k < spec->after_count; k++)
        for (int i = 0; i < life->job->group_count; i++)
            if (life->job->groups[i].number == spec->after[k].number &&
                !(spec->after[k].ready ? is_ready(life, i) || life->groups[i].state == GROUP_FAILED
                                       : life->groups[i].state == GROUP_COMPLETE))
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

/* --- failed Jobs of a set --- */

static bool matches(char *const *patterns, const char *message)
{
    for (; *patterns; patterns++) {
        regex_t pattern;
        if (regcomp(&pattern, *patterns, REG_EXTENDED | REG_NOSUB) != 0)
            continue; /* the manifest's reader has refused it */
        bool found = regexec(&pattern, message, 0, NULL, 0) == 0;
        regfree(&pattern);
        if (found)
            return true;
    }
    return false;
}

static bool rule_fits(const struct lifecycle *life, const struct local_restart_rule *rule, int group)
{
    const struct lifecycle_group *state = &life->groups[group];
    return state->state == GROUP_FAILED && !state->remaking &&
           (!rule->targets || rule->targets[life->job->groups[group].number]) &&
           (!rule->reasons || rule->reasons & 1u << state->reason) &&
           (!rule->patterns || matches(rule->patterns, state->message));
}

/* The failed Job that fits the rule (NULL: any) and failed first; -1: there is none. */
static int failed_group(const struct lifecycle *life, const struct local_restart_rule *rule)
{
    static const struct local_restart_rule any = {.action = LOCAL_RESTART_SET};
    int first = -1;
    for (int i = 0; i < life->job->group_count; i++)
        if (rule_fits(life, rule ? rule : &any, i) &&
            (first < 0 || life->groups[i].failed_at.ns < life->groups[first].failed_at.ns))
            first = i;
    return first;
}

static void begin_anew(struct lifecycle *life, int group)
{
    const struct local_group *spec = &life->job->groups[group];
    struct lifecycle_group *state = &life->groups[group];
    *state = (struct lifecycle_group){
        .deadline = INSTANT_NEVER, .restarts = state->restarts, .counted = state->counted};
    for (int i = spec->first; i < spec->first + spec->count; i++) {
        life->pods[i].index_failures = 0;
        life->pods[i].index_failed = false;
    }
}

/* All Jobs anew: their pods are deleted first, then everything begins as at first. */
static void remake(struct lifecycle *life, struct instant now)
{
    lifecycle_delete_pods(life, true, now);
    for (int i = 0; i < life->pod_count; i++)
        if (life->pods[i].state != POD_ABSENT)
            return;
    for (int i = 0; i < life->job->group_count; i++) {
        life->groups[i].restarts = life->groups[i].counted = 0;
        begin_anew(life, i);
    }
    life->remaking = false;
}

/* One Job anew, once all of its pods are gone. */
static void remake_group(struct lifecycle *life, int group, struct instant now)
{
    const struct local_group *spec = &life->job->groups[group];
    bool gone = true;
    for (int i = spec->first; i < spec->first + spec->count; i++) {
        kubelet_step(life, i, POD_DELETE, 0, now);
        gone &= life->pods[i].state == POD_ABSENT;
    }
    if (gone)
        begin_anew(life, group);
}

static void restart_set(struct lifecycle *life, bool counts)
{
    life->remakes++;
    life->counted += counts;
    life->remaking = true;
    lifecycle_set(life, CONDITION_RESTARTING, true, "JobSetRestarting");
    log_warning(life->log, "%s %s: all Jobs are made anew (%d of maxRestarts %d)",
                local_kind_name(life->job->kind), life->job->name, life->counted, life->job->max_restarts);
}

static void restart_job(struct lifecycle *life, int group, bool counts)
{
    struct lifecycle_group *state = &life->groups[group];
    state->restarts++;
    state->counted += counts;
    state->remaking = true;
    lifecycle_set(life, CONDITION_RESTARTING, true, "JobSetRestarting");
    log_warning(life->log, "%s %s: the Job %s is made anew (%d)", local_kind_name(life->job->kind),
                life->job->name, life->job->groups[group].name, state->restarts);
}

/* failurePolicy: the first rule that fits a failed Job, else all Jobs anew up to maxRestarts. */
static void decide_failure(struct lifecycle *life, struct instant now)
{
    const struct local_job *job = life->job;
    enum local_restart_action action = LOCAL_RESTART_SET;
    int group = -1;
    for (int i = 0; group < 0 && i < job->restart_rule_count; i++) {
        group = failed_group(life, &job->restart_rules[i]);
        if (group >= 0) {
            action = job->restart_rules[i].action;
            log_info(life->log, "failurePolicy: the rule %s fits: %s", job->restart_rules[i].name,
                     local_restart_action_name(action));
        }
    }
    if (group < 0)
        group = failed_group(life, NULL);
    if (group < 0)
        return;
    bool one = action == LOCAL_RESTART_JOB || action == LOCAL_RESTART_JOB_FREELY;
    bool counts = action == LOCAL_RESTART_SET || action == LOCAL_RESTART_JOB;
    int used = life->counted + (one ? life->groups[group].counted : 0);
    if (action == LOCAL_FAIL_SET || (counts && used >= job->max_restarts))
        lifecycle_finish(life, false, life->groups[group].exit_code, now);
    else if (one)
        restart_job(life, group, counts);
    else
        restart_set(life, counts);
}

static void note_running(struct lifecycle *life)
{
    for (int i = 0; i < life->pod_count; i++)
        if (life->pods[i].state == POD_RUNNING) {
            lifecycle_set(life, CONDITION_RUNNING, true, "JobRunning");
            return;
        }
}

static void start_groups(struct lifecycle *life, struct instant now)
{
    for (int i = 0; i < life->job->group_count; i++) {
        const struct local_group *spec = &life->job->groups[i];
        struct lifecycle_group *state = &life->groups[i];
        if (state->state == GROUP_WAITING && may_start(life, spec)) {
            state->state = GROUP_ACTIVE;
            if (spec->active_deadline_s)
                state->deadline = instant_add(now, spec->active_deadline_s * NS_PER_S);
        }
        if (state->state == GROUP_ACTIVE)
            create_pods(life, i, now);
    }
}

void batch_reconcile(struct lifecycle *life, struct instant now)
{
    for (int i = 0; !life->remaking && i < life->job->group_count; i++)
        if (life->groups[i].state == GROUP_ACTIVE)
            examine(life, i, now);
    if (!life->remaking && failed_group(life, NULL) >= 0)
        decide_failure(life, now);
    else if (!life->remaking && is_complete(life))
        lifecycle_finish(life, true, 0, now);
    if (life->state != JOB_ACTIVE)
        return;
    if (life->remaking)
        remake(life, now);
    if (life->remaking)
        return;
    for (int i = 0; i < life->job->group_count; i++)
        if (life->groups[i].remaking)
            remake_group(life, i, now);
    note_running(life);
    start_groups(life, now);
}
