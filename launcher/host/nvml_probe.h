/* nvml_probe.h - this machine's GPUs from NVML, queried once, with a time limit for a sick driver. */
#ifndef MUSTER_LAUNCHER_HOST_NVML_PROBE_H
#define MUSTER_LAUNCHER_HOST_NVML_PROBE_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/include/muster_error.h"
#include "runtime/nccl/nvml/nvml_describe.h"

/* The report of one start, shared by all that need it. Begins zeroed. */
struct nvml_probe {
    struct nvml_report *report; /* the report up to the end or the failure; NULL: not queried, or no driver */
    struct muster_error failure; /* MUSTER_OK: the report is complete */
};

/* Whether a driver is there for NVML to query; checks /dev, which cannot block. */
bool nvml_probe_has_driver(void);
/* Queries NVML (MUSTER_NVML_LIBRARY's or the driver's) in a process of its own for at most patience_ns,
 * unless it was queried before or there is no driver. If it hangs, fails or crashes, failure holds the
 * reason. Fails without memory only. For a program that still has one thread. */
int nvml_probe_ask(struct nvml_probe *probe, int64_t patience_ns, struct muster_error *err);
/* Queries NVML and merges the report into a description: nvml and nvml_error describe a failure. */
int nvml_probe_describe(struct nvml_probe *probe, int64_t patience_ns, struct description *description,
                        struct muster_error *err);
void nvml_probe_free(struct nvml_probe *probe);

#endif
