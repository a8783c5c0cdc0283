/* witness.h - what the machine itself saw of a round: processes that the kernel killed for want of memory,
 * errors that the GPU driver reported.
 *
 * Opened when a round starts, asked when somebody has died. Both read files of the kernel and of a driver
 * that may be sick: never on the agent's main thread. Nothing here is an error: what cannot be read was not
 * seen. */
#ifndef MUSTER_LAUNCHER_WITNESS_H
#define MUSTER_LAUNCHER_WITNESS_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/xid.h"
#include "rendezvous/failure.h"

enum { WITNESS_XIDS_KEPT = 32, WITNESS_GPU_LIMIT = 64, WITNESS_UUID_LIMIT = 48 };

struct witness_paths {
    const char *kernel_log; /* "/dev/kmsg"; records are told from now on */
    const char *gpus;       /* "/proc/driver/nvidia/gpus" */
    const char *visible;    /* CUDA_VISIBLE_DEVICES; NULL: all */
};
/* This machine's; the visible devices are those of this process. */
struct witness_paths witness_paths(void);

struct witness_gpu {
    char pci[FAILURE_PCI_LIMIT];
    char uuid[WITNESS_UUID_LIMIT];
};

struct witness_account {
    int64_t oom_kills; /* in the round so far */
    bool oom_beyond;   /* without a limit being hit: the machine was out of memory, not the container */
    int64_t memory_limit, memory_peak;         /* 0: unknown */
    struct xid_report xids[WITNESS_XIDS_KEPT]; /* in order; later ones are left out */
    int xid_count;
    bool pids_comparable; /* the driver's process ids are ours too: this is the machine's first pid namespace
                           */
    struct witness_gpu gpus[WITNESS_GPU_LIMIT]; /* by PCI address; only where there is an Xid */
    int gpu_count;
};

struct witness;

/* paths are copied. NULL without memory. */
struct witness *witness_open(const struct witness_paths *paths);
void witness_close(struct witness *witness); /* accepts NULL */
/* Everything since it was opened; one caller at a time. */
void witness_hear(struct witness *witness, struct witness_account *out);

/* The PCI address of the GPU that the worker of this local rank uses, by the rule that all launchers teach:
 * the local_rank-th of the visible devices ("2,3" or UUIDs; NULL: all). "" where it cannot be told. Pure. */
const char *witness_gpu_of(const struct witness_gpu *gpus, int count, const char *visible, int local_rank);

/* Writes into the failures of one batch (ends of workers of one round, in the order in which they were seen)
 * what the account tells of them. *attributed counts the out-of-memory kills of the round that already have
 * their worker. Pure. */
void witness_apply(const struct witness_account *account, const char *visible, int64_t *attributed,
                   struct worker_failure *const failures[], int count);

#endif
