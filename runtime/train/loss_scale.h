/* loss_scale.h - the factor of the loss in fp16 training: a state machine of the overflows. Pure.
 *
 * Gradients below 6e-8 are zero in fp16, so the loss is multiplied before the backward and the gradients are
 * divided before the optimizer. The dynamic scale rides below the factor at which they overflow, step by step
 * as DeepSpeed's DynamicLossScaler does (deepspeed/runtime/fp16/loss_scaler.py, 0.19). */
#ifndef MUSTER_RUNTIME_TRAIN_LOSS_SCALE_H
#define MUSTER_RUNTIME_TRAIN_LOSS_SCALE_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/include/muster_error.h"

struct loss_scale_options {
    double fixed;     /* above 0: this, always */
    double initial;   /* 65536 by default: 2^16 */
    double minimum;   /* an overflow there ends the run; above 0 */
    int64_t window;   /* clean steps before it is doubled, at least 1 */
    int hysteresis;   /* overflows that are borne before it is halved, at least 1; 1: none */
    bool consecutive; /* each clean step refills them; else each doubling does */
};

/* In a checkpoint: all of it. */
struct loss_scale {
    double scale;
    int64_t step, last_overflow; /* steps so far, skipped ones too; of the last that overflowed, -1: none */
    int left;                    /* overflows until it is halved */
};

/* DeepSpeed's: dynamic from 2^16, window 1000, hysteresis 2, at least 1. */
struct loss_scale_options loss_scale_defaults(void);
void loss_scale_begin(const struct loss_scale_options *options, struct loss_scale *state);
/* After a step; overflow: a gradient was not finite on any rank, so the step was skipped. -1
 * (MUSTER_E_STATE): it overflowed at the minimum; a fixed scale never fails. */
int loss_scale_step(const struct loss_scale_options *options, bool overflow, struct loss_scale *state,
                    struct muster_error *err);

#endif
