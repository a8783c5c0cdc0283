/* nvml.h - lists NVIDIA GPUs and MIG instances by the driver's library NVML, which is loaded on demand.
 *
 * A hung driver can block for ever and a call cannot be cancelled: a caller that must not block calls this
 * in a process of its own (launcher/host/isolated_call.h). */
#ifndef MUSTER_RUNTIME_NCCL_NVML_NVML_H
#define MUSTER_RUNTIME_NCCL_NVML_NVML_H

#include <stdbool.h>

#include "proto/include/muster_error.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { NVML_DEVICES_LIMIT = 256, NVML_UUID_SIZE = 96, NVML_BUS_SIZE = 32 };

struct nvml_device {
    int gpu;                   /* the GPU's index, in NVML's order: by PCI address */
    bool mig;                  /* an instance of that GPU, not the whole */
    bool divided;              /* a GPU whose MIG instances follow it in the list */
    char uuid[NVML_UUID_SIZE]; /* "GPU-..." or "MIG-..." */
    char bus[NVML_BUS_SIZE];   /* the GPU's PCI address as /sys spells it: "0000:3b:00.0" */
};

struct nvml_inventory {
    int gpus;
    int count; /* of devices: GPUs, each followed by its MIG instances */
    struct nvml_device devices[NVML_DEVICES_LIMIT];
};

/* library: the file of NVML, NULL for the one the driver installs (libnvidia-ml.so.1). MUSTER_E_NOT_FOUND
 * if it cannot be loaded, MUSTER_E_IO with NVML's text if it fails. A machine without GPUs is not an
 * error. */
int nvml_read(const char *library, struct nvml_inventory *inventory, struct muster_error *err);

#ifdef __cplusplus
}
#endif
#endif
