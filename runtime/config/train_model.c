/* train_model.c - see train_model.h. */
#include "runtime/config/train_model.h"

#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "runtime/files/adapter_json.h"

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
                                             .classes = train_config_classes(c)}};
    if (c->architecture == TRAIN_ARCHITECTURE_RESNET)
        return (struct architecture){.kind = ARCHITECTURE_RESNET,
                                     .resnet = {.channels = (int)c->input_channels,
                                                .height = (int)c->input_size,
                                                .width = (int)c->input_size,
                                                .classes = train_config_classes(c),
                                                .stages = (int)c->resnet_stages,
                                                .blocks = (int)c->blocks,
                                                .filters = (int)c->filters}};
    if (c->architecture == TRAIN_ARCHITECTURE_TEXT_CLASSIFIER)
        return (struct architecture){.kind = ARCHITECTURE_TEXT_CLASSIFIER,
                                     .text_classifier = {.vocabulary = (int)c->vocabulary,
                                                         .channels = (int)c->channels,
                                                         .hidden = (int)c->hidden,
                                                         .classes = train_config_classes(c),
                                                         .max_positions = positions,
                                                         .dropout = c->dropout}};
    if (c->architecture == TRAIN_ARCHITECTURE_TEXT_ENCODER)
        return (struct architecture){.kind = ARCHITECTURE_TEXT_ENCODER,
                                     .text_encoder = {.vocabulary = (int)c->vocabulary,
                                                      .layers = (int)c->layers,
                                                      .channels = (int)c->channels,
                                                      .heads = (int)c->heads,
                                                      .hidden = (int)c->hidden,
                                                      .classes = train_config_classes(c),
                                                      .max_positions = positions,
                                                      .dropout = c->dropout}};
    const bool llama = c->architecture == TRAIN_ARCHITECTURE_LLAMA;
    struct architecture architecture = {.kind = llama ? ARCHITECTURE_LLAMA : ARCHITECTURE_GPT2};
    if (llama)
        architecture.llama = llama_of(c, positions);
    else
        architecture.gpt2 = gpt2_of(c, positions);
    return architecture;
}

static int adapters_of_path(const struct train_config *c, struct lora *lora, struct muster_error *err)
{
    scope_free char *path = adapter_json_path(c->lora_path);
    if (!path)
        return error_set(err, MUSTER_E_NOMEM, "no memory to read %s", c->lora_path);
    return adapter_json_read(path, lora, err) < 0 ? error_wrap(err, "lora.path") : 0;
}

static bool is_given(const struct train_config *c, const char *key)
{
    const struct knob_table *table = train_config_table();
    for (size_t i = 0; i < table->count; i++)
        if (!strcmp(table->knobs[i].name, key))
            return c->sources[i] != KNOB_FROM_DEFAULT;
    return false;
}

static void take_base(const struct train_config *c, struct lora *lora)
{
    lora->base = (enum stored)c->lora_base;
    lora->tables = c->lora_base_tables;
}

int train_adapters(const struct train_config *c, struct architecture *architecture, struct muster_error *err)
{
    struct lora *lora = &architecture->lora;
    *lora = (struct lora){0};
    if (!train_config_adapts(c))
        return 0;
    if (c->lora_path && *c->lora_path) {
        if (adapters_of_path(c, lora, err) < 0)
            return -1;
        if (is_given(c, "lora.dropout"))
            lora->dropout = c->lora_dropout;
        take_base(c, lora);
        return 0;
    }
    *lora = (struct lora){.rank = (int)c->lora_rank, .alpha = c->lora_alpha, .dropout = c->lora_dropout};
    take_base(c, lora);
    for (char **target = c->lora_target; target && *target; target++)
        if (lora_add_target(lora, *target, err) < 0)
            return -1;
    return lora->target_count ? 0 : architecture_targets(architecture, lora, err);
}
