/* job.c - see job.h. */
#include "launcher/local/job/job.h"

#include "proto/base/mem.h"
#include "proto/base/text_list.h"

void local_job_free(struct local_job *job)
{
    if (!job)
        return;
    for (int i = 0; i < job->pod_count + job->spare_count; i++) {
        struct local_pod *pod = &job->pods[i];
        mem_free(pod->name);
        mem_free(pod->hostname);
        mem_free(pod->address);
        mem_free(pod->working_dir);
        text_list_free_items(pod->env);
        text_list_free_items(pod->command);
    }
    mem_free(job->pods);
    mem_free(job->name);
    mem_free(job->namespace_);
    mem_free(job->warnings);
    *job = (struct local_job){0};
}
