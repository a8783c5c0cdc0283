/* lr.h - the learning rate as a pure function of the step. */
#ifndef MUSTER_RUNTIME_TRAIN_LR_H
#define MUSTER_RUNTIME_TRAIN_LR_H

#include <stdint.h>

/* Linear warm-up from peak/warmup_steps in step 0 to peak in step warmup_steps-1, then a half cosine that
 * starts at peak and reaches minimum in the last step (total_steps-1); later steps stay at minimum. */
struct lr_schedule {
    double peak, minimum;
    int64_t warmup_steps, total_steps;
};

/* step counts from 0; a negative one is taken as 0. */
double lr_at(const struct lr_schedule *schedule, int64_t step);

#endif
