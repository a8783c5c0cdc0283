/* gpu_division.h - pure: the GPUs visible to each pod. */
#ifndef MUSTER_LAUNCHER_LOCAL_RUN_GPU_DIVISION_H
#define MUSTER_LAUNCHER_LOCAL_RUN_GPU_DIVISION_H

#include <stdbool.h>

#include "launcher/local/job/job.h"
#include "proto/base/text_list.h"
#include "proto/include/muster_error.h"

/* How many GPUs the pods of the job request together, without spares. */
int gpu_wanted(const struct local_job *job);
/* Whether a pod has devices by resource claims, whose number a manifest does not say. */
bool gpu_claimed(const struct local_job *job);

/* Appends to out, for each pod of the job in order, its CUDA_VISIBLE_DEVICES: as many entries of visible
 * (a list as in CUDA_VISIBLE_DEVICES; NULL: all) as the pod's limit, none twice, "" for a pod without a
 * limit; pods with claims and no limit share what the limits leave of a given list. Spares come last and get
 * the rest. available: the number of devices in visible. If there are too few: an error that names both
 * numbers (MUSTER_E_LIMIT), or, with shortage_allowed, fewer or none for the last pods. */
int gpu_divide(const struct local_job *job, const char *visible, int available, bool shortage_allowed,
               struct text_list *out, struct muster_error *err);

#endif
