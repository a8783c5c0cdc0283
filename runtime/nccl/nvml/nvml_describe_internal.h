/* nvml_describe_internal.h - what the parts of nvml_describe.h share. */
#ifndef MUSTER_RUNTIME_NCCL_NVML_NVML_DESCRIBE_INTERNAL_H
#define MUSTER_RUNTIME_NCCL_NVML_NVML_DESCRIBE_INTERNAL_H

#include "runtime/nccl/nvml/nvml_describe.h"
#include "runtime/nccl/nvml/nvml_library.h"

/* Says what will be asked next. */
void nvml_doing(struct nvml_report *report, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Keeps what a code says about a GPU. false: it is gone, and nothing more need be asked. */
bool nvml_note(const struct nvml_library *nvml, struct description_gpu *gpu, const char *what, int code);
/* Distances, NVLinks and direct access of all pairs; a device that does not answer is NULL. */
void nvml_ask_pairs(const struct nvml_library *nvml, nvmlDevice_t devices[DESCRIPTION_GPUS_LIMIT],
                    struct nvml_report *report);

#endif
