/* nvml_describe.h - all that NVML tells of this machine's GPUs, for a description.
 *
 * Any call can hang in a sick driver, so nvml_describe belongs into a process of its own. It writes its
 * report as it goes, and says beforehand what it is about to ask: with the report in memory that both
 * processes see, a hang costs what was not asked yet, and says which question it was. A flat struct without
 * pointers. */
#ifndef MUSTER_RUNTIME_NCCL_NVML_NVML_DESCRIBE_H
#define MUSTER_RUNTIME_NCCL_NVML_NVML_DESCRIBE_H

#include <stdbool.h>

#include "proto/include/muster_error.h"
#include "runtime/nccl/describe/description.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    NVML_REPORT_PAIRS = DESCRIPTION_GPUS_LIMIT * (DESCRIPTION_GPUS_LIMIT - 1) / 2,
    NVML_REPORT_PROCESSES = 256,
};

struct nvml_report {
    bool started; /* NVML is there and told how many GPUs there are */
    bool finished;
    char doing[DESCRIPTION_TEXT]; /* what it was last asked */
    char driver[DESCRIPTION_NAME], cuda_driver[DESCRIPTION_NAME];
    int gpu_count; /* of gpus; the last one may be half done */
    struct description_gpu gpus[DESCRIPTION_GPUS_LIMIT];
    int link_count; /* pairs of GPUs */
    struct description_link links[NVML_REPORT_PAIRS];
    int process_count;
    struct description_process processes[NVML_REPORT_PROCESSES];
    int omitted; /* GPUs and processes that did not fit */
};

/* report must be zeroed. Fails as nvml_open does, or where the GPUs cannot be counted; what one GPU does not
 * answer stands in its error and is no failure. library NULL: the driver's. processes_visible: the driver's
 * process ids are ours too, so that /proc knows their names. */
int nvml_describe(const char *library, bool processes_visible, struct nvml_report *report,
                  struct muster_error *err);

/* Puts a report into a description whose GPUs, if any, come from the PCI bus; what only the bus told stays.
 * failure: how nvml_describe, or the process in which it ran, failed; NULL where it did not. A report that
 * another process was writing when it was killed is taken as it is. Pure. Distances that NVML did not tell
 * stay unknown: reader_distances follows. */
int nvml_merge(const struct nvml_report *report, const struct muster_error *failure,
               struct description *description, struct muster_error *err);

#ifdef __cplusplus
}
#endif
#endif
