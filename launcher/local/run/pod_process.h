/* pod_process.h - the processes of one pod: starts the first, signals them, and checks that none is left. */
#ifndef MUSTER_LAUNCHER_LOCAL_RUN_POD_PROCESS_H
#define MUSTER_LAUNCHER_LOCAL_RUN_POD_PROCESS_H

#include <stdbool.h>
#include <sys/types.h>

#include "launcher/local/job/job.h"
#include "launcher/local/run/cluster.h"
#include "launcher/local/run/lifecycle.h"
#include "launcher/local/run/runner.h"
#include "launcher/output/pump.h"
#include "launcher/process/descendants.h"
#include "launcher/process/guardian.h"
#include "launcher/process/spawn.h"
#include "proto/base/buffer.h"

/* Shared by all pods of a run. */
struct pod_place {
    const struct cluster *cluster;
    const struct local_options *options;
    const char *outer_ids; /* MUSTER_AGENT_ID of this process, or NULL */
    char *const *inherited;
    const sigset_t *ignored;
    struct pump *pump;
    struct guardian *guardian;
};

struct pod_process {
    const struct local_pod *spec;
    int index; /* in the job */
    char
        id[DESCENDANTS_ID_LENGTH + 1]; /* carried by all of its processes, or its mark; of the run's family */
    pid_t pid;                         /* the first process and its session; 0: none */
    bool alive;                        /* not reaped */
    bool ended;    /* reaped, or it could not be started; the rest of the pod is being killed */
    bool lost;     /* ended without an exit code */
    int exit_code; /* once ended: 128 + n for signal n */
    bool renewed;  /* the pod is new: its emptyDirs are empty */
    int set_attempt, job_attempt; /* pod_env.h */
    int clean_looks;              /* scans in a row that found nothing of it */
    struct pump_stream *streams[3];
};

/* Starts the container. On failure the pod is ended (lost, or with 126 or 127) as if it had run. */
int pod_process_start(struct pod_process *pod, const struct pod_place *place, struct muster_error *err);
/* TERM and CONT to the first process, as a kubelet does. */
void pod_process_terminate(const struct pod_process *pod);
/* The first process was reaped: si_code and si_status of its end. */
void pod_process_reaped(struct pod_process *pod, int code, int status);
/* KILL to everything of the pod. Whether consecutive scans found nothing more to kill. */
bool pod_process_sweep(struct pod_process *pod);
/* found for each process that is left, which is not signalled. */
void pod_process_list(const struct pod_process *pod,
                      bool (*found)(void *, const struct descendants_process *), void *context);
/* Nothing is left: closes its streams and prepares it for another start. */
void pod_process_release(struct pod_process *pod, const struct pod_place *place);

/* --- the table ---
 *
 * The outcome of the pods and the job, as a table (pure). */

/* One line a pod: its end, last exit code, restarts in place, how often it was recreated, and the time
 * from its first start to its last end (now where it has not ended); then the job's condition. */
int pod_table_format(const struct lifecycle *life, struct instant now, struct buffer *out);

#endif
