/* visible_gpus.h - which GPUs workers will see: NVML's list, narrowed by CUDA_VISIBLE_DEVICES as CUDA reads
 * it. */
#ifndef MUSTER_LAUNCHER_HOST_VISIBLE_GPUS_H
#define MUSTER_LAUNCHER_HOST_VISIBLE_GPUS_H

#include <stdbool.h>

#include "runtime/nccl/nvml/nvml.h"

/* The devices that a value of CUDA_VISIBLE_DEVICES names, as indices into all->devices and in its order;
 * returns how many. NULL: every GPU, or the MIG instances of one that is divided. Entries are indices of
 * GPUs, "GPU-" UUIDs (a beginning that is unique is enough) and "MIG-" UUIDs; the first that names nothing
 * ends the list, and one that comes twice makes it empty. */
int visible_gpus(const struct nvml_inventory *all, const char *visible_devices,
                 int devices[NVML_DEVICES_LIMIT]);

/* Whether a driver is there that NVML could be asked of; a look at /dev, which cannot block. */
bool visible_gpus_have_driver(void);

/* nvml_read in a process of its own, with a bound. The library is MUSTER_NVML_LIBRARY's or the driver's. */
int visible_gpus_read(struct nvml_inventory *all, struct muster_error *err);

#endif
