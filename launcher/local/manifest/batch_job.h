/* batch_job.h - the pods of one Job of batch/v1, alone or in a JobSet, as the Job controller makes them. */
#ifndef MUSTER_LAUNCHER_LOCAL_MANIFEST_BATCH_JOB_H
#define MUSTER_LAUNCHER_LOCAL_MANIFEST_BATCH_JOB_H

#include "launcher/local/manifest/building.h"

struct batch_job {
    const char *file, *namespace_, *name;
    const struct tree_node *spec;
    const struct path *path;
    /* in a JobSet: */
    const char *replicated; /* NULL: a Job alone */
    int number;             /* the replicated job's */
    const char *subdomain;  /* all pods', unless the template names one; NULL: none */
    const struct facts *labels;
    const struct tree_node *claims; /* volumeClaimPolicies; NULL: none */
    const char *claims_of;          /* the JobSet's name */
    /* in a TrainJob: */
    int64_t nodes;         /* parallelism and completions; 0: the spec's */
    const char *container; /* the container that is run; NULL: the first */
    struct pod_overlay over;
    const struct text_list *more;  /* words after the command */
    const struct facts *variables; /* for every pod; %INDEX% as value is the pod's index */
};

extern const char batch_job_index[]; /* that value */

/* Checks the spec and appends a group and its pods. -1 without memory or beyond a limit. */
int batch_job_add(struct building *b, const struct batch_job *job);

/* The schemas of the kinds, and of their parts. */
extern const struct schema batch_job_schema, jobset_schema, jobset_spec_schema, trainjob_schema,
    training_runtime_schema;

/* A warning where another controller than its own is to run the object. */
void batch_check_manager(const struct building *b, const struct tree_node *spec, const char *own);
/* Name, namespace, suspend, deadline and time to live of b->job, from the object and its spec. */
int batch_fill_job(struct building *b, const struct tree_node *spec, const char *name);

#endif
