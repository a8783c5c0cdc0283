/* cluster.h - resources of this machine for all pods of a run, in place of a cluster: names, a folder of
 * commands, GPUs, an identity. */
#ifndef MUSTER_LAUNCHER_LOCAL_RUN_CLUSTER_H
#define MUSTER_LAUNCHER_LOCAL_RUN_CLUSTER_H

#include <stdbool.h>

#include "launcher/local/job/job.h"
#include "launcher/local/run/pod_isolation.h"
#include "launcher/local/run/runner.h"
#include "launcher/local/run/volume_folders.h"
#include "launcher/process/descendants.h"
#include "proto/base/temporary.h"
#include "proto/base/text_list.h"
#include "proto/include/muster_error.h"

/* What becomes of a volume on this machine. */
enum volume_verdict {
    VOLUME_USED,
    VOLUME_LEFT_OUT, /* its path stays this machine's; the others are mounted */
    VOLUME_REFUSED,  /* pods that mount it fail, as a cluster would not start them */
};
struct volume_state {
    enum volume_verdict verdict;
    char *why; /* NULL: USED */
};

struct cluster {
    const struct local_job *job;
    char id[DESCENDANTS_ID_LENGTH +
            1]; /* id of this run: all of its processes carry it, or the mark of its family */
    struct temporary_folder temporary;
    char *folder;   /* our own, in the folder for temporary files */
    char *commands; /* in it: links torchrun, python, python3 to this program */
    char *hosts;    /* in it: the pods' /etc/hosts; a Job's pods have one each */
    char *stage;    /* in it: an empty folder, which a pod's mounts cover (mount_plan.h) */
    char *program;  /* our own copy: pods run it */
    struct volume_folders volumes;
    struct volume_state *states; /* one for each volume of the job; NULL: it has none */
    bool mounts;                 /* volumes are mounted */
    struct muster_error why_not;
    char *machine_hosts;
    struct pod_isolation isolation;
    struct text_list gpus; /* CUDA_VISIBLE_DEVICES of each pod */
};

/* Makes the folder and reads the machine. On failure (MUSTER_E_LIMIT: too few GPUs) nothing is left. */
int cluster_set_up(struct cluster *cluster, const struct local_job *job, const struct local_options *options,
                   struct muster_error *err);
/* Finds out whether volumes can be mounted at all, and which cannot (cluster_volumes.c). */
int cluster_examine_volumes(struct cluster *cluster, struct muster_error *err);
/* -1, MUSTER_E_INVALID with the reason, if the pod mounts a volume that is refused. */
int cluster_check_volumes(const struct cluster *cluster, int pod, struct muster_error *err);
/* The mounts of a pod; MUSTER_E_INVALID where a mount cannot be made. */
int cluster_plan_mounts(const struct cluster *cluster, int pod, struct mount_plan *plan,
                        struct muster_error *err);
/* The /etc/hosts of a pod, the caller's. NULL on failure. */
char *cluster_hosts(const struct cluster *cluster, int pod, struct muster_error *err);
/* Removes the folder of a struct cluster, by system calls only: for a guardian. */
void cluster_remove_folder(const void *cluster);
/* Frees all, the folder too. Accepts a cluster that was not set up. */
void cluster_tear_down(struct cluster *cluster);

/* --- GPUs ---
 *
 * The GPUs visible to each pod (pure). */

/* How many GPUs the pods of the job request together, without spares. */
int gpu_wanted(const struct local_job *job);
/* Whether a pod has devices by resource claims, whose number a manifest does not say. */
bool gpu_claimed(const struct local_job *job);

/* Appends to out, for each pod of the job in order, its CUDA_VISIBLE_DEVICES: as many entries of visible
 * (a list as in CUDA_VISIBLE_DEVICES; NULL: all) as the pod's limit, none twice, "" for a pod without a
 * limit; pods with claims and no limit share the devices that the limits leave of a given list. Spares come
 * last and get the rest. available: the number of devices in visible. If there are too few: an error that
 * names both numbers (MUSTER_E_LIMIT), or, with shortage_allowed, fewer or none for the last pods. */
int gpu_divide(const struct local_job *job, const char *visible, int available, bool shortage_allowed,
               struct text_list *out, struct muster_error *err);

#endif
