/* nvml_probe.h - this machine's GPUs as NVML tells them, asked once, with a bound on how long a sick driver
 * may take. */
#ifndef MUSTER_LAUNCHER_HOST_NVML_PROBE_H
#define MUSTER_LAUNCHER_HOST_NVML_PROBE_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/include/muster_error.h"
#include "runtime/nccl/nvml/nvml_describe.h"

/* One start's answer, which all that want to know share. Begins zeroed. */
struct nvml_probe {
    struct nvml_report
        *report; /* what was told until the end or the failure; NULL: not asked, or no driver */
    struct muster_error failure; /* MUSTER_OK: NVML answered to the end */
};

/* Whether a driver is there that NVML could be asked of; a look at /dev, which cannot block. */
bool nvml_probe_has_driver(void);
/* Asks NVML (MUSTER_NVML_LIBRARY's or the driver's) in a process of its own for at most patience_ns, unless
 * it was asked before or there is no driver. Where it hangs, refuses or crashes, failure says so. Fails
 * without memory only. For a program that still has one thread. */
int nvml_probe_ask(struct nvml_probe *probe, int64_t patience_ns, struct muster_error *err);
/* Asks, and puts the answer into a description: nvml and nvml_error say what went wrong. */
int nvml_probe_describe(struct nvml_probe *probe, int64_t patience_ns, struct description *description,
                        struct muster_error *err);
void nvml_probe_free(struct nvml_probe *probe);

#endif
