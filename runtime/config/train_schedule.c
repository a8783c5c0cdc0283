/* train_schedule.c - the learning rate and the end of training that settings ask for. See train_config.h. */
#include <math.h>

#include "runtime/config/train_config.h"

struct evaluation_rule train_config_evaluation(const struct train_config *config)
{
    return (struct evaluation_rule){.metric = (enum evaluation_metric)config->early_stop_metric,
                                    .min_gain = config->early_stop_min_gain,
                                    .patience = config->early_stop_patience};
}

/* The rate falls to 0 unless a minimum was given, as torch's. */
struct plateau_rule train_config_plateau(const struct train_config *config)
{
    const struct train_config *c = config;
    const bool given = train_config_source(c, "training.min_learning_rate") != KNOB_FROM_DEFAULT;
    return (struct plateau_rule){.mode = (enum plateau_mode)c->plateau_mode,
                                 .threshold_mode = (enum plateau_threshold)c->plateau_threshold_mode,
                                 .threshold = c->plateau_threshold,
                                 .factor = c->plateau_factor,
                                 .patience = c->plateau_patience,
                                 .cooldown = c->plateau_cooldown,
                                 .minimum = given ? c->min_learning_rate : 0,
                                 .least_fall = c->plateau_eps};
}

/* The default, where it is above the peak that was given, is a tenth of that. */
static double minimum_rate(const struct train_config *c)
{
    const bool given = train_config_source(c, "training.min_learning_rate") != KNOB_FROM_DEFAULT;
    return !given && c->min_learning_rate > c->learning_rate ? c->learning_rate / 10 : c->min_learning_rate;
}

static int64_t warmup_steps(const struct train_config *c)
{
    return c->warmup_share > 0 ? (int64_t)ceil(c->warmup_share * (double)c->steps) : c->warmup_steps;
}

/* Where none are given: half of one to the minimum, one fall to 0. */
static double schedule_cycles(const struct train_config *c)
{
    return c->schedule_cycles > 0 ? c->schedule_cycles : c->schedule == LR_HF_RESTARTS ? 1 : 0.5;
}

struct lr_schedule train_config_schedule(const struct train_config *config)
{
    const struct train_config *c = config;
    /* DeepSpeed's classes count from the first step to the minimum */
    const bool of_deepspeed = c->schedule == LR_WARMUP_DECAY || c->schedule == LR_WARMUP_COSINE;
    const int64_t total = of_deepspeed && c->decay_steps ? warmup_steps(c) + c->decay_steps : c->steps;
    return (struct lr_schedule){.kind = (enum lr_kind)c->schedule,
                                .peak = c->learning_rate,
                                .minimum = minimum_rate(c),
                                .warmup_steps = warmup_steps(c),
                                .total_steps = total,
                                .decay_steps = c->decay_steps,
                                .warmup = (enum lr_warmup)c->warmup,
                                .warmup_minimum = c->warmup_min_learning_rate,
                                .decay_rate = c->cycle_decay_rate,
                                .decay_interval = c->cycle_decay_interval,
                                .cycles = schedule_cycles(c),
                                .power = c->schedule_power,
                                .timescale = c->schedule_timescale,
                                .stable_steps = c->stable_steps,
                                .warmup_shape = (enum lr_shape)c->warmup_shape,
                                .decay_shape = (enum lr_shape)c->decay_shape,
                                .momentum_low = c->cycle_min_momentum,
                                .momentum_high = c->cycle_max_momentum,
                                .momentum_rate = c->cycle_momentum_rate};
}
