/* job.c - see job.h. */
#include "launcher/local/job/job.h"

#include <string.h>

#include "proto/base/buffer.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "proto/base/text_list.h"

const char *local_kind_name(enum local_kind kind)
{
    static const char *const names[] = {"PyTorchJob", "Job", "JobSet", "TrainJob"};
    return names[kind];
}

const char *local_kind_success(enum local_kind kind)
{
    static const char *const names[] = {"Succeeded", "Complete", "Completed", "Complete"};
    return names[kind];
}

enum local_restart_policy local_job_policy(const struct local_job *job, int pod)
{
    const struct local_pod *one = &job->pods[pod];
    return job->groups ? job->groups[one->group].restart_policy : job->replicas[one->type].restart_policy;
}

const char *local_policy_name(enum local_restart_policy policy)
{
    static const char *const names[] = {"OnFailure", "Always", "Never", "ExitCode"};
    return names[policy];
}

const char *local_restart_action_name(enum local_restart_action action)
{
#define RESTART_NAME(symbol, name, meaning) [symbol] = (name),
    static const char *const names[] = {LOCAL_RESTARTS(RESTART_NAME)};
    return names[action];
}

const char *local_failure_name(enum local_failure failure)
{
#define FAILURE_NAME(symbol, name) [symbol] = (name),
    static const char *const names[] = {LOCAL_FAILURES(FAILURE_NAME)};
    return names[failure];
}

/* --- attempts --- */

static const char set_mark[] = LOCAL_ATTEMPT_SET, job_mark[] = LOCAL_ATTEMPT_JOB;

bool local_has_attempt(const char *text)
{
    return strstr(text, set_mark) || strstr(text, job_mark);
}

char *local_attempt_text(const char *text, int set_attempt, int job_attempt)
{
    scope_buffer out = {0};
    buffer_text(&out, "");
    while (*text) {
        bool set = !strncmp(text, set_mark, sizeof set_mark - 1);
        if (set || !strncmp(text, job_mark, sizeof job_mark - 1)) {
            buffer_printf(&out, "%d", set ? set_attempt : job_attempt);
            text += set ? sizeof set_mark - 1 : sizeof job_mark - 1;
        } else {
            buffer_append(&out, text++, 1);
        }
    }
    return buffer_take(&out);
}

/* --- memory --- */

static void free_groups(struct local_job *job)
{
    for (int i = 0; i < job->group_count; i++) {
        struct local_group *group = &job->groups[i];
        for (int k = 0; k < group->rule_count; k++)
            mem_free(group->rules[k].codes);
        mem_free(group->rules);
        for (int k = 0; k < group->success_count; k++)
            mem_free(group->success[k].indexes);
        mem_free(group->success);
        mem_free(group->name);
        mem_free(group->replicated);
    }
    mem_free(job->groups);
    for (int i = 0; i < job->restart_rule_count; i++) {
        mem_free(job->restart_rules[i].name);
        mem_free(job->restart_rules[i].targets);
        text_list_free_items(job->restart_rules[i].patterns);
    }
    mem_free(job->restart_rules);
}

void local_job_free(struct local_job *job)
{
    if (!job)
        return;
    for (int i = 0; i < job->pod_count + job->spare_count; i++) {
        struct local_pod *pod = &job->pods[i];
        mem_free(pod->name);
        mem_free(pod->hostname);
        mem_free(pod->own_hostname);
        mem_free(pod->subdomain);
        local_mounts_free(pod->mounts, pod->mount_count);
        mem_free(pod->address);
        mem_free(pod->working_dir);
        text_list_free_items(pod->aliases);
        text_list_free_items(pod->env);
        text_list_free_items(pod->command);
        text_list_free_items(pod->env_of_attempt);
        text_list_free_items(pod->command_of_attempt);
    }
    mem_free(job->pods);
    mem_free(job->name);
    mem_free(job->namespace_);
    mem_free(job->warnings);
    mem_free(job->apart);
    free_groups(job);
    local_volumes_free(&job->volumes);
    *job = (struct local_job){0};
}
