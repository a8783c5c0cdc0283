/* batch_set.c - see lifecycle_internal.h: what JobSet's controller does to the Jobs of a set; manifest/api.h
 * has the release. A Job alone is a set of one. */
#include <regex.h>

#include "launcher/local/run/kubelet.h"
#include "launcher/local/run/lifecycle_internal.h"

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
    else if (one) {
        struct lifecycle_group *state = &life->groups[group];
        state->restarts++;
        state->counted += counts;
        state->remaking = true;
        lifecycle_set(life, CONDITION_RESTARTING, true, "JobSetRestarting");
        log_warning(life->log, "%s %s: the Job %s is made anew (%d)", local_kind_name(life->job->kind),
                    life->job->name, life->job->groups[group].name, state->restarts);
    } else {
        life->remakes++;
        life->counted += counts;
        life->remaking = true;
        lifecycle_set(life, CONDITION_RESTARTING, true, "JobSetRestarting");
        log_warning(life->log, "%s %s: all Jobs are made anew (%d of maxRestarts %d)",
                    local_kind_name(life->job->kind), life->job->name, life->counted,
                    life->job->max_restarts);
    }
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
            batch_examine(life, i, now);
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
    for (int i = 0; i < life->job->group_count; i++) {
        const struct local_group *spec = &life->job->groups[i];
        struct lifecycle_group *state = &life->groups[i];
        if (state->state == GROUP_WAITING && may_start(life, spec)) {
            state->state = GROUP_ACTIVE;
            if (spec->active_deadline_s)
                state->deadline = instant_add(now, spec->active_deadline_s * NS_PER_S);
        }
        if (state->state == GROUP_ACTIVE)
            batch_create_pods(life, i, now);
    }
}
