/* nvml_describe_internal.h - shared by the parts of nvml_describe.h. */
#ifndef MUSTER_RUNTIME_NCCL_NVML_NVML_DESCRIBE_INTERNAL_H
#define MUSTER_RUNTIME_NCCL_NVML_NVML_DESCRIBE_INTERNAL_H

#include "proto/nvml/nvml_library.h"
#include "runtime/nccl/nvml/nvml_describe.h"

/* Records the next query. */
void nvml_doing(struct nvml_report *report, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Records the meaning of a code for a GPU. false: it has fallen off the bus, and no further query makes
 * sense. */
bool nvml_note(const struct nvml_library *nvml, struct description_gpu *gpu, const char *what, int code);
/* Distances, NVLinks and direct access of all pairs; a device that does not respond is NULL. */
void nvml_ask_pairs(const struct nvml_library *nvml, nvmlDevice_t devices[DESCRIPTION_GPUS_LIMIT],
                    struct nvml_report *report);

#endif
