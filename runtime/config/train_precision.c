/* train_precision.c - the keys of dtypes, the loss scale and gradients that are not finite. */
#include <math.h>
#include <string.h>

#include "proto/base/error.h"
#include "runtime/config/train_config_check.h"

static bool has_fp16(const struct train_config *c)
{
    return train_config_dtype(c) == DTYPE_F16 || train_config_reduce_dtype(c) == DTYPE_F16;
}

/* Keys for fp16 only; all but the first belong to a dynamic scale. */
static const char *const keys[] = {
    "training.loss_scale", "training.initial_scale_power",    "training.loss_scale_window",
    "training.hysteresis", "training.consecutive_hysteresis", "training.min_loss_scale"};

bool train_precision_has_effect(const struct train_config *config, const char *key)
{
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!strcmp(keys[i], key))
            return has_fp16(config) && (i == 0 || !(config->loss_scale > 0));
    return true;
}

int train_precision_check(const char *name, const struct train_config *c, struct muster_error *err)
{
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (train_config_source(c, keys[i]) == KNOB_FROM_DEFAULT)
            continue;
        if (!has_fp16(c))
            return error_set(err, MUSTER_E_INVALID,
                             "%s%s has no effect without fp16; remove it or set training.dtype or "
                             "training.reduce_dtype to fp16",
                             name, keys[i]);
        if (i > 0 && c->loss_scale > 0)
            return error_set(err, MUSTER_E_INVALID,
                             "%s%s has no effect with training.loss_scale: %g, which is fixed; remove one "
                             "of the two",
                             name, keys[i], c->loss_scale);
    }
    if (c->matmul_precision == TRAIN_MATMUL_BF16 && c->products == TRAIN_PRODUCTS_OPENBLAS)
        return error_set(err, MUSTER_E_INVALID,
                         "%straining.matmul_precision: bf16 needs oneDNN, and training.products is openblas, "
                         "which multiplies in fp32 alone; remove one of the two",
                         name);
    if (c->on_nonfinite == TRAIN_NONFINITE_ROLL_BACK && !(c->checkpoint_dir && *c->checkpoint_dir))
        return error_set(err, MUSTER_E_INVALID,
                         "%straining.on_nonfinite: roll_back needs checkpoints to go back to: set "
                         "training.checkpoint_dir, or use skip",
                         name);
    if (has_fp16(c) && !(c->loss_scale > 0) && c->min_loss_scale > ldexp(1, (int)c->initial_scale_power))
        return error_set(err, MUSTER_E_INVALID,
                         "%straining.min_loss_scale %g is above 2 to training.initial_scale_power (%lld)",
                         name, c->min_loss_scale, (long long)c->initial_scale_power);
    return 0;
}

enum dtype train_config_dtype(const struct train_config *config)
{
    static const enum dtype values[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16}; /* as dtypes */
    return values[config->dtype];
}

/* auto is fp32 on every device. bf16 is faster and smaller on a CPU with AVX512-BF16 (two threads, GPT-2
 * 124M: 0.8 to 0.9 of the time with products of bf16, 0.8 of the storage; one thread, pictures: 0.7 to 0.9),
 * but it stays a choice of the user. It rounds activations, which products of bf16 do not: 1.4 times
 * autocast's distance from float64 after 300 steps, with fp32 values 0.7. And it is a matter of the plan,
 * which is the same on all ranks and known without their processors: others would take plain loops. */
enum dtype train_config_values(const struct train_config *config)
{
    return config->values == TRAIN_VALUES_DTYPE ? train_config_dtype(config) : DTYPE_F32;
}

enum dtype train_config_reduce_dtype(const struct train_config *config)
{
    static const enum dtype values[] = {DTYPE_F32, DTYPE_BF16,
                                        DTYPE_F16}; /* reduce_dtypes from its second on */
    return config->reduce_dtype == 0 ? train_config_dtype(config) : values[config->reduce_dtype - 1];
}

struct loss_scale_options train_config_loss_scale(const struct train_config *config)
{
    return (struct loss_scale_options){.fixed = config->loss_scale,
                                       .initial = ldexp(1, (int)config->initial_scale_power),
                                       .minimum = config->min_loss_scale,
                                       .window = config->loss_scale_window,
                                       .hysteresis = (int)config->hysteresis,
                                       .consecutive = config->consecutive_hysteresis};
}

bool train_config_checks(const struct train_config *config)
{
    return config->on_nonfinite != TRAIN_NONFINITE_STOP || has_fp16(config);
}
