/* describe_host.h - this machine as a complete description: local sources, the master's address, the log
 * directory's disk, the kernel log, and NVML. For `muster doctor` and for a check before a job. */
#ifndef MUSTER_LAUNCHER_HOST_DESCRIBE_HOST_H
#define MUSTER_LAUNCHER_HOST_DESCRIBE_HOST_H

#include <stdint.h>

#include "proto/include/muster_error.h"
#include "runtime/nccl/describe/description.h"

struct nvml_probe;

struct describe_request {
    const char *master;       /* name or address; NULL or "": one node */
    const char *log_dir;      /* NULL: none, TMPDIR's disk is checked */
    int nnodes;               /* 0 unknown */
    int local_workers;        /* 0: as many as there are GPUs, at least one */
    int64_t gpus_wanted;      /* -1: none asked */
    struct nvml_probe *nvml;  /* the start's report; queried here if it was not yet */
    int64_t nvml_patience_ns; /* limit for a sick driver */
    char *const *environment; /* NULL-terminated NAME=value */
};

/* Every call that can block has a limit, together under a second without NVML's. Fails without memory
 * only. For a program that still has one thread. */
int describe_host(const struct describe_request *request, struct description *description,
                  struct muster_error *err);

#endif
