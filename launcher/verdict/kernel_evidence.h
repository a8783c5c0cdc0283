/* kernel_evidence.h - the kernel's evidence about a round: processes killed for lack of memory, errors
 * reported by the GPU driver.
 *
 * Opened when a round starts, read when a worker has died. Reads files of the kernel and of a driver that
 * may hang: never on the agent's main thread. Unreadable sources are not errors: they give no evidence. */
#ifndef MUSTER_LAUNCHER_VERDICT_KERNEL_EVIDENCE_H
#define MUSTER_LAUNCHER_VERDICT_KERNEL_EVIDENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/base/clock.h"
#include "proto/xid.h"
#include "rendezvous/failure/failure.h"

enum { KERNEL_EVIDENCE_XIDS_KEPT = 32, KERNEL_EVIDENCE_GPU_LIMIT = 64, KERNEL_EVIDENCE_UUID_LIMIT = 48 };

struct kernel_evidence_paths {
    const char *kernel_log; /* "/dev/kmsg"; records are read from now on */
    const char *gpus;       /* "/proc/driver/nvidia/gpus" */
    const char *visible;    /* CUDA_VISIBLE_DEVICES; NULL: all */
};
/* This machine's; the visible devices are this process's. */
struct kernel_evidence_paths kernel_evidence_paths(void);

struct kernel_evidence_gpu {
    char pci[FAILURE_PCI_LIMIT];
    char uuid[KERNEL_EVIDENCE_UUID_LIMIT];
};

struct kernel_evidence_account {
    struct instant opened; /* since when oom_kills counts */
    bool oom_counted;  /* the kernel has a counter of out-of-memory kills here; else the next four are 0 */
    int64_t oom_kills; /* in the round so far */
    bool oom_beyond;   /* no limit was hit: the machine was out of memory, not the container */
    int64_t memory_limit, memory_peak;                 /* 0: unknown */
    struct xid_report xids[KERNEL_EVIDENCE_XIDS_KEPT]; /* in order; of too many the first of the weakest kind
                                                          are left out */
    int xid_count;
    bool log_lost;        /* records of the kernel log were overwritten before they were read */
    bool pids_comparable; /* the driver's process ids are ours too: this is the machine's first pid namespace
                           */
    struct kernel_evidence_gpu
        gpus[KERNEL_EVIDENCE_GPU_LIMIT]; /* by PCI address; only where there is an Xid, or log_lost */
    int gpu_count;
};

struct kernel_evidence;

/* paths are copied. NULL without memory. */
struct kernel_evidence *kernel_evidence_open(const struct kernel_evidence_paths *paths);
void kernel_evidence_close(struct kernel_evidence *evidence); /* accepts NULL */
/* Everything since it was opened; one caller at a time. */
void kernel_evidence_read(struct kernel_evidence *evidence, struct kernel_evidence_account *out);

/* The PCI address of the GPU that the worker of this local rank uses, by the rule of all launchers: the
 * local_rank-th of the visible devices ("2,3" or UUIDs; NULL: all). "" if unknown. Pure. */
const char *kernel_evidence_gpu_of(const struct kernel_evidence_gpu *gpus, int count, const char *visible,
                                   int local_rank);

/* Adds the evidence to the failures of one batch (ends of workers of one round, in the order in which they
 * were seen). *attributed counts the out-of-memory kills of the round that are attributed to a worker. An
 * error of a GPU is a worker's only where this node has that GPU and the worker may have used it. Pure. */
void kernel_evidence_apply(const struct kernel_evidence_account *account, const char *visible,
                           int64_t *attributed, struct worker_failure *const failures[], int count);
/* Whether an error of a GPU of this node may have been among records that were lost. Pure. */
bool kernel_evidence_is_short(const struct kernel_evidence_account *account,
                              const struct worker_failure *failure);
/* Takes back the proof by a count without a kill, if the evidence was opened only after the worker had
 * ended. Pure. */
void kernel_evidence_doubt(const struct kernel_evidence_account *account, struct instant ended,
                           struct worker_failure *failure);

#endif
