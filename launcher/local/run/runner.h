/* runner.h - `muster local` itself: runs the pods of a job on this machine and follows the job's life cycle.
 */
#ifndef MUSTER_LAUNCHER_LOCAL_RUN_RUNNER_H
#define MUSTER_LAUNCHER_LOCAL_RUN_RUNNER_H

#include <stdbool.h>

#include "launcher/local/job/job.h"
#include "proto/base/log.h"

/* Differences of this machine from a cluster. */
struct local_options {
    double backoff_scale; /* times the kubelet's 10 s to 5 min before a container starts again; 0: none */
    double grace_s;       /* terminationGracePeriodSeconds of every pod; negative: each pod's own */
    bool keep_going;      /* wait for the pods that a finished job leaves running (cleanPodPolicy None) */
    double linger_s;      /* otherwise: how long they may go on before they are deleted */
    bool quiet;           /* the pods' lines are not printed (they still reach log_dir) */
    bool no_prefix;       /* the pods' lines are printed as they are, without "[<pod>] " */
    const char *log_dir;  /* a file <pod>.log for each pod, added to; NULL: none */
    const char *volumes;  /* folder of the PersistentVolumeClaims; NULL: they are deleted with the run */
    const char
        *gpus; /* the GPUs to divide, as in CUDA_VISIBLE_DEVICES; NULL: those visible to this process */
    bool gpu_shortage_allowed; /* pods without a GPU left get none, instead of an error */
};

/* Runs the job until it is finished and nothing of it is left, on the main thread, whose signals and
 * children it takes over. Returns the exit code: 0 if the operator's status would be Succeeded; if Failed,
 * the code of the container that failed the job (1 for a deadline); 128 + n if signal n deleted the job
 * before; 138 if a process of a pod cannot be killed; 2 if there are too few GPUs; 1 if the pods could not
 * be set up. Events go to log; the pods' output goes to this process's own. */
int local_run(const struct local_job *job, const struct local_options *options, const struct log_sink *log);

#endif
