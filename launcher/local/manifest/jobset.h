/* jobset.h - the Jobs of a JobSet (jobset.x-k8s.io/v1alpha2), written as one or made by Kubeflow Trainer. */
#ifndef MUSTER_LAUNCHER_LOCAL_MANIFEST_JOBSET_H
#define MUSTER_LAUNCHER_LOCAL_MANIFEST_JOBSET_H

#include "launcher/local/manifest/batch_job.h"

struct jobset {
    const char *file, *namespace_, *name;
    const struct tree_node *spec;
    const struct path *path;
    /* For a TrainJob: fills in its additions to a replicated job (job->spec is set), or returns 0 to leave
     * the replicated job out. NULL: nothing. */
    int (*adapt)(void *context, const struct tree_node *replicated, struct batch_job *job);
    void *context;
};

/* Appends the groups of all replicated jobs and the policies. */
int jobset_add(struct building *b, const struct jobset *set);
/* The list of replicated jobs, or NULL; the number of one by its name, -1 for none. */
const struct tree_node *jobset_jobs(const struct jobset *set);
int jobset_number_of(const struct jobset *set, const char *name);
/* failurePolicy, once the Jobs are there. -1 without memory. */
int jobset_read_failure(struct building *b, const struct jobset *set);
/* Every template of volumeClaimPolicies needs a container that mounts it. */
void jobset_check_claims(struct building *b, const struct jobset *set);

#endif
