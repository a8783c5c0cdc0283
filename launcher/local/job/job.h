/* job.h - a PyTorchJob as `muster local` runs it: the pods that the operator would make, with their whole
 * environment and command.
 *
 * The manifest side (manifest.h, operator.h) fills it by pure functions; the runner (runner.h, lifecycle.h)
 * only reads it.
 */
#ifndef MUSTER_LAUNCHER_LOCAL_JOB_JOB_H
#define MUSTER_LAUNCHER_LOCAL_JOB_JOB_H

#include <stdbool.h>
#include <stdint.h>

enum local_replica_type { LOCAL_MASTER, LOCAL_WORKER, LOCAL_REPLICA_TYPES };
enum local_restart_policy {
    LOCAL_RESTART_ON_FAILURE,
    LOCAL_RESTART_ALWAYS,
    LOCAL_RESTART_NEVER,
    LOCAL_RESTART_EXIT_CODE
};
enum local_clean_policy { LOCAL_CLEAN_NONE, LOCAL_CLEAN_RUNNING, LOCAL_CLEAN_ALL };

/* One pod. All texts are its own memory. */
struct local_pod {
    char *name;     /* <job>-master-0, <job>-worker-<i> */
    char *hostname; /* the same, unless the template names one */
    char *address; /* loopback address of the name, also the pod's status.podIP: 127.77.0.1 for the first pod,
                      127.77.0.2 for the second (network.h) */
    enum local_replica_type type;
    int index;         /* within its replica type */
    char **env;        /* NULL-terminated NAME=value: the effective map of the container named pytorch, user's
                          entries first, then the operator's, the last of a name wins, $(VAR) expanded */
    char **command;    /* NULL-terminated: command and args, $(VAR) expanded, torchrun replaced by muster run;
                          NULL if unknown (dry run) */
    char *working_dir; /* NULL: the caller's */
    int gpus;          /* limits of a resource whose name is an NVIDIA GPU's; 0 for none */
    double grace_s;    /* terminationGracePeriodSeconds, 30 where not given */
};

struct local_replica {
    int count; /* 0: the job has none of this type */
    enum local_restart_policy restart_policy;
};

struct local_job {
    char *name, *namespace_;
    struct local_replica replicas[LOCAL_REPLICA_TYPES];
    bool elastic;
    int min_replicas, max_replicas; /* elastic: after the operator's defaulting */
    enum local_clean_policy clean_policy;
    int64_t backoff_limit;     /* -1: none */
    int64_t active_deadline_s; /* -1: none */
    int64_t ttl_s;             /* ttlSecondsAfterFinished, -1: none */
    bool suspended;            /* spec.runPolicy.suspend */
    struct local_pod *pods;    /* master first, then workers by index */
    int pod_count;
    int spare_count; /* elastic: workers behind these, up to max_replicas, for scaling up */
    int port;        /* the master's (elastic: worker's) pytorchjob-port, 23456 by default */
    char *warnings;  /* newline-separated, NULL for none: unknown fields, deprecated ones, features not
                        emulated */
};

/* Frees the job's memory and zeroes it. */
void local_job_free(struct local_job *job);

#endif
