/* manifest.h - makes the job for the runner from the objects of some files (pure). */
#ifndef MUSTER_LAUNCHER_LOCAL_MANIFEST_MANIFEST_H
#define MUSTER_LAUNCHER_LOCAL_MANIFEST_MANIFEST_H

#include "launcher/local/job/job.h"
#include "launcher/local/pod/container_env.h"
#include "launcher/local/pod/pod_command.h"

struct manifest_settings {
    const char *job; /* metadata.name of the job; NULL: the only one */
    struct pod_command_settings command;
    char *const *env; /* NAME=value, NULL-terminated, set after the manifest's own; NULL: none */
    struct local_machine machine;
    int network; /* second number of the pods' addresses; 0: NETWORK_FIRST */
};

/* Chooses the job (a PyTorchJob, TrainJob, JobSet or Job), defaults it, validates it and makes its pods. All
 * findings go to problems; if problems->fatal is not 0 afterwards no pods could be made and job is zeroed. -1
 * if there is no such job or no memory. local_job_free(job). */
int manifest_build(const struct documents *documents, const struct manifest_settings *settings,
                   struct local_job *job, struct problems *problems, struct muster_error *err);

#endif
