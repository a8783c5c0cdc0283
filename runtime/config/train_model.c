/* train_model.c - see train_model.h. */
#include "runtime/config/train_model.h"

static struct gpt2_config gpt2_of(const struct train_config *c, int positions)
{
    return (struct gpt2_config){.layers = (int)c->layers,
                                .channels = (int)c->channels,
                                .heads = (int)c->heads,
                                .vocab = (int)c->vocabulary,
                                .max_positions = positions};
}

static struct llama_config llama_of(const struct train_config *c, int positions)
{
    return (struct llama_config){
        .layers = (int)c->layers,
        .channels = (int)c->channels,
        .heads = (int)c->heads,
        .kv_heads = (int)c->kv_heads,
        .head_size = (int)c->head_size,
        .hidden = (int)c->hidden,
        .vocab = (int)c->vocabulary,
        .max_positions = positions,
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
}

struct architecture train_architecture(const struct train_config *c)
{
    const int positions = (int)(c->positions ? c->positions : c->sequence_length);
    if (c->architecture == TRAIN_ARCHITECTURE_SIMPLE_CNN)
        return (struct architecture){.kind = ARCHITECTURE_SIMPLE_CNN,
                                     .cnn = {.channels = (int)c->input_channels,
                                             .height = (int)c->input_size,
                                             .width = (int)c->input_size,
                                             .classes = (int)c->num_classes}};
    const bool llama = c->architecture == TRAIN_ARCHITECTURE_LLAMA;
    struct architecture architecture = {.kind = llama ? ARCHITECTURE_LLAMA : ARCHITECTURE_GPT2};
    if (llama)
        architecture.llama = llama_of(c, positions);
    else
        architecture.gpt2 = gpt2_of(c, positions);
    return architecture;
}
