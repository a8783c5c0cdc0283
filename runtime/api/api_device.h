/* api_device.h - what a trainer computes on and communicates with: found by each rank for itself, then chosen
 * once for all of them. */
#ifndef MUSTER_RUNTIME_API_API_DEVICE_H
#define MUSTER_RUNTIME_API_API_DEVICE_H

#include "runtime/device/device_module.h"
#include "runtime/train/offers.h"
#include "runtime/train/trainer.h"

struct muster_trainer;
struct muster_world;

struct api_found_device {
    struct device_chosen device;
    struct rank_offer offer;
};

/* This rank alone: the device of its settings, and whether there is NCCL for it. */
int api_device_find(const struct muster_trainer *trainer, int local_rank, struct api_found_device *found,
                    struct muster_error *err);
/* Collective: what all ranks have found becomes the options' device and comm, the same everywhere; an error
 * names who lacks what. */
int api_device_choose(struct muster_trainer *trainer, struct muster_world *world,
                      struct trainer_options *options, struct muster_error *err);

#endif
