/* job.c - see job.h. */
#include "launcher/local/job/job.h"

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

static void free_groups(struct local_job *job)
{
    for (int i = 0; i < job->group_count; i++) {
        struct local_group *group = &job->groups[i];
        for (int k = 0; k < group->rule_count; k++)
            mem_free(group->rules[k].codes);
        mem_free(group->rules);
        mem_free(group->name);
        mem_free(group->replicated);
    }
    mem_free(job->groups);
}

void local_job_free(struct local_job *job)
{
    if (!job)
        return;
    for (int i = 0; i < job->pod_count + job->spare_count; i++) {
        struct local_pod *pod = &job->pods[i];
        mem_free(pod->name);
        mem_free(pod->hostname);
        mem_free(pod->subdomain);
        local_mounts_free(pod->mounts, pod->mount_count);
        mem_free(pod->address);
        mem_free(pod->working_dir);
        text_list_free_items(pod->env);
        text_list_free_items(pod->command);
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
