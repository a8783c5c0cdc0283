/* pod_env.h - pure: the environment of a pod's processes on this machine instead of a container: names of
 * the other pods, and variables. */
#ifndef MUSTER_LAUNCHER_LOCAL_RUN_POD_ENV_H
#define MUSTER_LAUNCHER_LOCAL_RUN_POD_ENV_H

#include <stdbool.h>

#include "launcher/local/job/job.h"
#include "proto/base/buffer.h"
#include "proto/base/text_list.h"

/* A private /etc/hosts of a pod: the pods' names (also with the namespace and cluster.local after it, as in a
 * cluster's DNS), then the machine's own file. It is the same for all pods of a PyTorchJob. */
int pod_env_hosts(const struct local_job *job, int of, const char *machine_hosts, struct buffer *out);

/* host or host:port, or a list of them with commas, a host being a pod's name (or a longer form of it):
 * *numeric is the same with the pods' addresses, in fresh memory; NULL if it names no pod. -1 without memory.
 */
int pod_env_numeric(const struct local_job *job, const char *address, char **numeric);

struct pod_env_place {
    const struct local_job *job;
    int pod;
    char *const
        *inherited; /* `muster local`'s own: PATH, HOME and the like stay, placement in a job does not */
    const char *agent_ids;        /* MUSTER_AGENT_ID: outer agents', the runner's, the pod's */
    const char *gpus;             /* CUDA_VISIBLE_DEVICES */
    const char *front;            /* goes before PATH; NULL: nothing */
    int set_attempt, job_attempt; /* how often the JobSet and the pod's Job were made anew */
    bool named;                   /* names resolve inside the pod; otherwise they are replaced by addresses */
};

/* The environment of the pod's first process: the inherited one, then the pod's own, then ours. -1 without
 * memory. */
int pod_env_build(const struct pod_env_place *place, struct text_list *out);
/* Its command; without names, --master-addr, --rdzv-endpoint and the like get addresses too. */
int pod_env_command(const struct pod_env_place *place, struct text_list *out);

#endif
