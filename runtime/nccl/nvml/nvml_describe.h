/* nvml_describe.h - all properties of this machine's GPUs that NVML reports, for a description.
 *
 * Any call can hang in a sick driver, so nvml_describe runs in a process of its own. It writes its report
 * as it goes, and records each query before making it: with the report in memory shared by both processes,
 * a hang costs the remaining queries only, and the report names the query that hung. A flat struct without
 * pointers. */
#ifndef MUSTER_RUNTIME_NCCL_NVML_NVML_DESCRIBE_H
#define MUSTER_RUNTIME_NCCL_NVML_NVML_DESCRIBE_H

#include <stdbool.h>

#include "proto/include/muster_error.h"
#include "proto/nvml/nvml_library.h"
#include "runtime/nccl/describe/description.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    NVML_REPORT_PAIRS = DESCRIPTION_GPUS_LIMIT * (DESCRIPTION_GPUS_LIMIT - 1) / 2,
    NVML_REPORT_PROCESSES = 256,
    NVML_REPORT_INSTANCES = 256,
};

struct nvml_instance {
    int gpu;                   /* the number of the GPU that has it */
    char uuid[NVML_UUID_SIZE]; /* "MIG-..." */
};

struct nvml_report {
    bool started; /* NVML is there and returned the number of GPUs */
    bool finished;
    char doing[DESCRIPTION_TEXT]; /* the latest query */
    char driver[DESCRIPTION_NAME], cuda_driver[DESCRIPTION_NAME];
    int gpu_count; /* entries in gpus; the last entry may be incomplete */
    struct description_gpu gpus[DESCRIPTION_GPUS_LIMIT];
    int instance_count; /* MIG instances, by GPU */
    struct nvml_instance instances[NVML_REPORT_INSTANCES];
    int link_count; /* pairs of GPUs */
    struct description_link links[NVML_REPORT_PAIRS];
    int process_count;
    struct description_process processes[NVML_REPORT_PROCESSES];
    int omitted; /* GPUs, instances and processes that did not fit */
};

/* report must be zeroed. Fails as nvml_open does, or if the GPUs cannot be counted; a query that fails for
 * one GPU is recorded in that GPU's error and is not a failure. library NULL: the driver's.
 * processes_visible: the driver's process ids are ours too, so that /proc has their names. */
int nvml_describe(const char *library, bool processes_visible, struct nvml_report *report,
                  struct muster_error *err);

/* Merges a report into a description whose GPUs, if any, come from the PCI bus; fields known only from the
 * bus stay. failure: the error of nvml_describe, or of the process in which it ran; NULL for none. A
 * report whose writer was killed is merged as far as it goes. Pure. Distances unknown to NVML stay
 * unknown: reader_distances follows. */
int nvml_merge(const struct nvml_report *report, const struct muster_error *failure,
               struct description *description, struct muster_error *err);

#ifdef __cplusplus
}
#endif
#endif
