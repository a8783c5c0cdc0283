/* loss_scale.h - the factor of the loss in fp16 training: a state machine of the overflows. Pure.
 *
 * Gradients below 6e-8 are zero in fp16. So the loss is multiplied before the backward pass, and the
 * gradients are divided before the optimizer. The dynamic scale stays below the factor at which gradients
 * overflow, step by step as in DeepSpeed's DynamicLossScaler (deepspeed/runtime/fp16/loss_scaler.py, 0.19).
 */
#ifndef MUSTER_RUNTIME_TRAIN_LOSS_SCALE_H
#define MUSTER_RUNTIME_TRAIN_LOSS_SCALE_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/include/muster_error.h"

struct loss_scale_options {
    double fixed;     /* above 0: the constant scale; 0: the scale is dynamic */
    double initial;   /* first scale; 65536 (2^16) by default */
    double minimum;   /* least scale, above 0; an overflow at it ends the run */
    int64_t window;   /* clean steps before the scale is doubled, at least 1 */
    int hysteresis;   /* the scale is halved at the overflow of this number, at least 1; 1: at each */
    bool consecutive; /* each clean step resets the count of overflows; else each doubling does */
};

/* Checkpoints hold all fields. */
struct loss_scale {
    double scale;
    int64_t step, last_overflow; /* steps so far, with skipped steps; last_overflow: step of the last
                                    overflow, -1: none */
    int left;                    /* overflows until the scale is halved */
};

/* DeepSpeed's: dynamic from 2^16, window 1000, hysteresis 2, at least 1. */
struct loss_scale_options loss_scale_defaults(void);
void loss_scale_begin(const struct loss_scale_options *options, struct loss_scale *state);
/* Updates the state after a step. overflow: a gradient was not finite on some rank, so the step was skipped.
 * -1 (MUSTER_E_STATE): an overflow at the minimum; a fixed scale never fails. */
int loss_scale_step(const struct loss_scale_options *options, bool overflow, struct loss_scale *state,
                    struct muster_error *err);

#endif
