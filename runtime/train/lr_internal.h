/* lr_internal.h - the schedules of transformers, which lr_trainer.c computes for lr.c. */
#ifndef MUSTER_RUNTIME_TRAIN_LR_INTERNAL_H
#define MUSTER_RUNTIME_TRAIN_LR_INTERNAL_H

#include "proto/base/error.h"
#include "runtime/train/lr.h"

/* The rate of a schedule from LR_HF_LINEAR on; step: 0 at least. */
double lr_trainer_at(const struct lr_schedule *schedule, int64_t step);
int lr_trainer_check(const struct lr_schedule *schedule, const char *name, struct muster_error *err);

#endif
