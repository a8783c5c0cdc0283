/* nvml_usage.h - how busy one GPU is and how much of its memory is used, asked once a second by a thread.
 *
 * Any call can hang in a sick driver: a reader gets the last answer, and none once it is old; a thread that
 * hangs at the end stays, with its memory. */
#ifndef MUSTER_PROTO_NVML_NVML_USAGE_H
#define MUSTER_PROTO_NVML_NVML_USAGE_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct nvml_usage {
    double busy; /* share of the last moment in which a kernel ran, 0 to 1; below 0: not known (of MIG) */
    int64_t used, total; /* bytes; total 0: not known */
};

/* The entry of CUDA_VISIBLE_DEVICES for a rank of this node; visible NULL: not set. false: it has none.
 * *index: its number, -1 where `uuid` (size bytes) has how its UUID begins. Pure. */
bool nvml_usage_choose(const char *visible, int local_rank, int *index, char *uuid, unsigned size);

struct nvml_sampler;
/* library NULL: the driver's. NULL: no GPU is chosen, or no thread can be made; without NVML there are no
 * answers. */
struct nvml_sampler *nvml_sampler_start(const char *library, const char *visible, int local_rank);
/* false: no answer, or none for 10 s. sampler may be NULL. */
bool nvml_sampler_read(struct nvml_sampler *sampler, struct nvml_usage *usage);
/* Accepts NULL. */
void nvml_sampler_stop(struct nvml_sampler *sampler);

#ifdef __cplusplus
}
#endif
#endif
