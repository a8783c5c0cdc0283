/* lr.h - the learning rate, and the cycled momentum, as pure functions of the step. */
#ifndef MUSTER_RUNTIME_TRAIN_LR_H
#define MUSTER_RUNTIME_TRAIN_LR_H

#include <stdint.h>

#include "proto/include/muster_error.h"

/* symbol, name in a configuration, meaning. The schedules cosine, linear, constant, wsd and ReduceLROnPlateau
 * warm up by (step + 1) / warmup_steps, so that step warmup_steps - 1 is the first at the peak. They stay at
 * the minimum once they have reached it. They are PyTorch's SequentialLR of LinearLR and ConstantLR, LinearLR
 * or CosineAnnealingLR, and ReduceLROnPlateau. The other names with capitals are DeepSpeed's classes
 * (deepspeed/runtime/lr_schedules.py, 0.19). Their first update has the schedule's start value, and update k
 * (from 0) has DeepSpeed's iteration k - 1. Names with hf_ are the Hugging Face Trainer's schedules. Their
 * warm-up has step / warmup_steps, from 0 on. */
#define LR_KINDS(X)                                                                                          \
    X(LR_COSINE, "cosine", "a half cosine from the peak to the minimum")                                     \
    X(LR_LINEAR, "linear", "a line from the peak to the minimum")                                            \
    X(LR_CONSTANT, "constant", "the peak")                                                                   \
    X(LR_WSD, "wsd", "the peak, and at the end 1 - sqrt(x) from it to the minimum")                          \
    X(LR_WARMUP, "WarmupLR", "the peak")                                                                     \
    X(LR_WARMUP_DECAY, "WarmupDecayLR", "a line from the peak to 0 in the last step")                        \
    X(LR_WARMUP_COSINE, "WarmupCosineLR", "a half cosine from the peak to the minimum")                      \
    X(LR_ONE_CYCLE, "OneCycle", "up in warmup_steps, down in decay_steps, the momentum the other way")       \
    X(LR_PLATEAU, "ReduceLROnPlateau", "the peak, which plateau.h lowers after evaluations")                 \
    X(LR_HF_LINEAR, "hf_linear", "a line from the peak to 0")                                                \
    X(LR_HF_COSINE, "hf_cosine", "a half cosine to the minimum, or so many cycles")                          \
    X(LR_HF_RESTARTS, "hf_cosine_with_restarts", "so many half cosines to 0")                                \
    X(LR_HF_POLYNOMIAL, "hf_polynomial", "a power of a line to the minimum")                                 \
    X(LR_HF_CONSTANT, "hf_constant_with_warmup", "the peak")                                                 \
    X(LR_HF_INVERSE_SQRT, "hf_inverse_sqrt", "the peak / sqrt(steps / timescale)")                           \
    X(LR_HF_STABLE, "hf_warmup_stable_decay", "the peak, and in the last decay_steps to the minimum")

enum lr_kind {
#define LR_KIND_ENUM(symbol, name, meaning) symbol,
    LR_KINDS(LR_KIND_ENUM)
#undef LR_KIND_ENUM
        LR_KIND_COUNT
};

enum lr_warmup { LR_WARMUP_LOG, LR_WARMUP_LINEAR }; /* for WarmupLR, WarmupDecayLR and WarmupCosineLR */

enum lr_shape {
    LR_SHAPE_LINEAR,
    LR_SHAPE_COSINE,
    LR_SHAPE_SQRT
}; /* shapes for hf_warmup_stable_decay: x, cosine, sqrt */

struct lr_schedule {
    enum lr_kind kind;
    double peak, minimum;
    int64_t warmup_steps; /* steps of the warm-up; OneCycle: of the rise */
    int64_t total_steps;
    /* Steps of the decay. cosine, linear: from the peak to the minimum, 0: to the last step. wsd: at the end,
     * 0: a fifth of all steps. OneCycle: of the fall, 0: warmup_steps. */
    int64_t decay_steps;
    /* DeepSpeed's classes: shape of the warm-up, and its first rate */
    enum lr_warmup warmup;
    double warmup_minimum;
    /* OneCycle: after the cycle the rate is minimum / (1 + decay_rate * steps / decay_interval); both 0:
     * minimum */
    double decay_rate;
    int64_t decay_interval;
    /* OneCycle: the momentum falls from high to low while the rate rises; both 0: the momentum is not cycled
     */
    double momentum_low, momentum_high;
    /* The Trainer's: cycles of a cosine, power of the polynomial, steps of the inverse root (0: warmup_steps,
     * or 10,000), steps at the peak (0: all steps besides warm-up and decay). */
    double cycles, power;
    int64_t timescale, stable_steps;
    enum lr_shape warmup_shape, decay_shape;
    double momentum_rate; /* after the cycle: high * (1 + momentum_rate * steps / decay_interval) */
};

/* Checks that the members fit each other; errors name the member, its value and the limit. */
int lr_check(const struct lr_schedule *schedule, struct muster_error *err);

/* The rate of the update number `step`, counted from 0 (a negative one is taken as 0). DeepSpeed's schedules
 * do not count skipped updates, nor do PyTorch's if a GradScaler skips them. The caller must not count them
 * either. */
double lr_at(const struct lr_schedule *schedule, int64_t step);
/* Adam's beta1 or SGD's momentum of that update: `usual` unless it is cycled. */
double lr_momentum_at(const struct lr_schedule *schedule, int64_t step, double usual);

#endif
