/* train_model.c - see train_model.h. */
#include "runtime/config/train_model.h"

#include "runtime/model/gpt2.h"
#include "runtime/model/llama.h"

static struct model *gpt2_of(const struct train_config *c, struct muster_error *err)
{
    const struct gpt2_config gpt2 = {.layers = (int)c->layers,
                                     .channels = (int)c->channels,
                                     .heads = (int)c->heads,
                                     .vocab = (int)c->vocabulary,
                                     .max_positions = (int)c->sequence_length};
    return gpt2_create(&gpt2, err);
}

static struct model *llama_of(const struct train_config *c, struct muster_error *err)
{
    const struct llama_config llama = {
        .layers = (int)c->layers,
        .channels = (int)c->channels,
        .heads = (int)c->heads,
        .kv_heads = (int)c->kv_heads,
        .head_size = (int)c->head_size,
        .hidden = (int)c->hidden,
        .vocab = (int)c->vocabulary,
        .max_positions = (int)c->sequence_length,
        .tied = c->tied,
        .attention_bias = c->attention_bias,
        .epsilon = c->norm_epsilon,
        .rotary = {.theta = c->rope_theta,
                   .kind = (enum rotary_kind)c->rope_scaling,
                   .factor = c->rope_factor,
                   .low = c->rope_low_frequency,
                   .high = c->rope_high_frequency,
                   .original = (int)c->rope_original_positions},
    };
    return llama_create(&llama, err);
}

struct model *train_model_create(const struct train_config *c, struct muster_error *err)
{
    return c->architecture == TRAIN_ARCHITECTURE_LLAMA ? llama_of(c, err) : gpt2_of(c, err);
}
