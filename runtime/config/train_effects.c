/* train_effects.c - see train_effects.h. */
#include "runtime/config/train_effects.h"

#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "runtime/config/train_config_check.h"
#include "runtime/device/device_module.h"
#include "runtime/files/files.h"

enum { TEXT_SIZE = 160 };

#define ONLY(value)      (1u << (value))
#define DEEPSPEED_WARMUP (ONLY(LR_WARMUP) | ONLY(LR_WARMUP_DECAY) | ONLY(LR_WARMUP_COSINE))
#define DECAY            (ONLY(LR_COSINE) | ONLY(LR_LINEAR) | ONLY(LR_WSD) | ONLY(LR_ONE_CYCLE))
#define STABLE           ONLY(LR_HF_STABLE)
/* WarmupDecayLR, hf_linear and others end at 0 */
#define MINIMUM    (DECAY | ONLY(LR_WARMUP_COSINE) | ONLY(LR_HF_COSINE) | ONLY(LR_HF_POLYNOMIAL) | STABLE)
#define CYCLES     (ONLY(LR_HF_COSINE) | ONLY(LR_HF_RESTARTS) | STABLE)
#define LENGTH     (DECAY | ONLY(LR_WARMUP_DECAY) | ONLY(LR_WARMUP_COSINE) | ONLY(LR_HF_STABLE))
#define CYCLE      ONLY(LR_ONE_CYCLE)
#define PLATEAU    ONLY(LR_PLATEAU)
#define ADAM       (ONLY(OPTIMIZER_ADAMW) | ONLY(OPTIMIZER_ADAM))
#define LLAMA      ONLY(TRAIN_ARCHITECTURE_LLAMA)
#define RESNET     ONLY(TRAIN_ARCHITECTURE_RESNET)
#define PICTURES   (ONLY(TRAIN_ARCHITECTURE_SIMPLE_CNN) | RESNET)
#define LANGUAGE   (ONLY(TRAIN_ARCHITECTURE_GPT2) | LLAMA | ONLY(TRAIN_ARCHITECTURE_AUTO))
#define ENCODER    ONLY(TRAIN_ARCHITECTURE_TEXT_ENCODER)
#define OWN_LABELS (ONLY(TRAIN_ARCHITECTURE_TEXT_CLASSIFIER) | ENCODER)
#define FOLDER     ONLY(TRAIN_ARCHITECTURE_ENCODER)
#define LABELS     (OWN_LABELS | FOLDER)
#define UNKNOWN    ONLY(TRAIN_ARCHITECTURE_AUTO)
#define TEXT       (LANGUAGE | LABELS)
#define NOT_EMPTY  1 /* a text */
#define SIZES      2 /* a path to files that do not give the sizes of their model */
#define COMPRESSED (~ONLY(COMPRESSION_NONE))
#define SHARDED    (~ONLY(STRATEGY_NO_SHARD))
#define SCALED     (ONLY(ROTARY_LINEAR) | ONLY(ROTARY_LLAMA3))

/* Keys that have an effect only with these values of another key. */
static const struct effect {
    const char *key, *other;
    unsigned values; /* bits of the other one's choices; 0 where it is a number: all but 0; NOT_EMPTY or SIZES
                        where it is a text */
} effects[] = {
    {"training.min_learning_rate", "training.schedule", MINIMUM | PLATEAU},
    {"training.warmup_type", "training.schedule", DEEPSPEED_WARMUP},
    {"training.warmup_min_learning_rate", "training.schedule", DEEPSPEED_WARMUP},
    {"training.decay_steps", "training.schedule", LENGTH},
    {"training.cycle_min_momentum", "training.schedule", CYCLE},
    {"training.cycle_max_momentum", "training.schedule", CYCLE},
    {"training.cycle_decay_rate", "training.schedule", CYCLE},
    {"training.cycle_momentum_rate", "training.schedule", CYCLE},
    {"training.cycle_decay_interval", "training.schedule", CYCLE},
    {"training.schedule_cycles", "training.schedule", CYCLES},
    {"training.schedule_power", "training.schedule", ONLY(LR_HF_POLYNOMIAL)},
    {"training.schedule_timescale", "training.schedule", ONLY(LR_HF_INVERSE_SQRT)},
    {"training.stable_steps", "training.schedule", STABLE},
    {"training.warmup_shape", "training.schedule", STABLE},
    {"training.decay_shape", "training.schedule", STABLE},
    {"training.plateau_mode", "training.schedule", PLATEAU},
    {"training.plateau_factor", "training.schedule", PLATEAU},
    {"training.plateau_patience", "training.schedule", PLATEAU},
    {"training.plateau_threshold", "training.schedule", PLATEAU},
    {"training.plateau_threshold_mode", "training.schedule", PLATEAU},
    {"training.plateau_cooldown", "training.schedule", PLATEAU},
    {"training.plateau_eps", "training.schedule", PLATEAU},
    {"training.cycle_min_momentum", "training.optimizer", ADAM}, /* it is beta1 that is cycled */
    {"training.cycle_max_momentum", "training.optimizer", ADAM},
    {"training.cycle_momentum_rate", "training.optimizer", ADAM},
    {"training.beta1", "training.optimizer", ADAM},
    {"training.beta2", "training.optimizer", ADAM},
    {"training.epsilon", "training.optimizer", ADAM},
    {"training.momentum", "training.optimizer", ONLY(OPTIMIZER_SGD)},
    {"training.dampening", "training.optimizer", ONLY(OPTIMIZER_SGD)},
    {"training.dampening", "training.momentum", 0},
    {"training.nesterov", "training.optimizer", ONLY(OPTIMIZER_SGD)},
    {"training.cuda_graphs", "training.device", (uint32_t)~ONLY(DEVICE_CPU)},
    {"training.output_format", "training.output", NOT_EMPTY},
    {"training.checkpoint_every", "training.checkpoint_dir", NOT_EMPTY},
    {"training.checkpoint_share", "training.checkpoint_dir", NOT_EMPTY},
    {"training.checkpoint_share", "training.epochs", 0},
    {"training.checkpoint_epochs", "training.checkpoint_dir", NOT_EMPTY},
    {"training.evaluate_share", "training.epochs", 0},
    {"logging.interval_share", "training.epochs", 0},
    {"training.checkpoint_keep", "training.checkpoint_dir", NOT_EMPTY},
    {"training.checkpoint_keep_every", "training.checkpoint_dir", NOT_EMPTY},
    {"training.checkpoint_local_dir", "training.checkpoint_dir", NOT_EMPTY},
    {"training.checkpoint_local_keep", "training.checkpoint_local_dir", NOT_EMPTY},
    {"training.checkpoint_command", "training.checkpoint_dir", NOT_EMPTY},
    {"training.checkpoint_command_timeout", "training.checkpoint_command", NOT_EMPTY},
    {"training.resume", "training.checkpoint_dir", NOT_EMPTY},
    {"training.resume_numerics", "training.checkpoint_dir", NOT_EMPTY},
    {"training.resume_data", "training.checkpoint_dir", NOT_EMPTY},
    {"training.resume_damaged", "training.checkpoint_dir", NOT_EMPTY},
    {"data.validation_split", "data.validation_share", 0},
    {"training.ema_evaluate", "training.ema_decay", 0},
    {"training.ema_export", "training.ema_decay", 0},
    {"training.keep_best", "training.checkpoint_dir", NOT_EMPTY},
    {"training.export_best", "training.keep_best", 0},
    {"training.export_best", "training.output", NOT_EMPTY},
    {"training.early_stop_min_gain", "training.early_stop_patience", 0},
    {"training.early_stop_metric", "training.early_stop_patience", 0},
    {"model.layers", "model.path", SIZES},
    {"model.channels", "model.path", SIZES},
    {"model.heads", "model.path", SIZES},
    {"model.vocabulary", "model.path", SIZES},
    {"model.positions", "model.path", SIZES},
    {"model.kv_heads", "model.path", SIZES},
    {"model.head_size", "model.path", SIZES},
    {"model.hidden", "model.path", SIZES},
    {"model.tied", "model.path", SIZES},
    {"model.attention_bias", "model.path", SIZES},
    {"model.norm_epsilon", "model.path", SIZES},
    {"model.rope_theta", "model.path", SIZES},
    {"model.rope_scaling", "model.path", SIZES},
    {"model.rope_factor", "model.path", SIZES},
    {"model.rope_low_frequency", "model.path", SIZES},
    {"model.rope_high_frequency", "model.path", SIZES},
    {"model.rope_original_positions", "model.path", SIZES},
    {"lora.alpha", "lora.rank", 0},
    {"lora.target", "lora.rank", 0},
    {"lora.rank", "model.architecture", LANGUAGE | FOLDER},
    {"lora.path", "model.architecture", LANGUAGE | FOLDER},
    {"lora.base_tables", "lora.base", ONLY(STORED_NF4) | ONLY(STORED_INT8)},
    {"logging.tensorboard", "logging.dir", NOT_EMPTY},
    {"training.on_replica_difference", "training.check_replicas_every", 0},
    {"logging.trace", "logging.dir", NOT_EMPTY},
    {"training.compression_ratio", "training.compression", ONLY(COMPRESSION_TOPK)},
    {"training.compression_rank", "training.compression", ONLY(COMPRESSION_POWERSGD)},
    {"training.compression_least", "training.compression", COMPRESSED},
    {"training.compression_start", "training.compression", COMPRESSED},
    {"training.compression_feedback", "training.compression", COMPRESSED},
    {"training.recompute_every", "training.recompute", ONLY(RECOMPUTE_EVERY)},
    {"training.keep_whole_below", "training.strategy", SHARDED},
    {"model.kv_heads", "model.architecture", LLAMA},
    {"model.head_size", "model.architecture", LLAMA},
    {"model.hidden", "model.architecture", LLAMA | OWN_LABELS},
    {"model.tied", "model.architecture", LLAMA},
    {"model.attention_bias", "model.architecture", LLAMA},
    {"model.norm_epsilon", "model.architecture", LLAMA},
    {"model.rope_theta", "model.architecture", LLAMA},
    {"model.rope_scaling", "model.architecture", LLAMA},
    {"model.rope_factor", "model.architecture", LLAMA},
    {"model.rope_low_frequency", "model.architecture", LLAMA},
    {"model.rope_high_frequency", "model.architecture", LLAMA},
    {"model.rope_original_positions", "model.architecture", LLAMA},
    {"model.input_channels", "model.architecture", PICTURES},
    {"model.input_size", "model.architecture", PICTURES},
    {"model.num_classes", "model.architecture", PICTURES | LABELS | UNKNOWN},
    {"model.labels", "model.architecture", FOLDER | UNKNOWN},
    {"model.dropout", "model.architecture", OWN_LABELS},
    {"model.stages", "model.architecture", RESNET},
    {"model.blocks", "model.architecture", RESNET},
    {"model.filters", "model.architecture", RESNET},
    {"data.dataset", "model.architecture", PICTURES},
    {"data.resize", "model.architecture", PICTURES},
    {"data.crop_area", "model.architecture", PICTURES},
    {"data.crop_padding", "model.architecture", PICTURES},
    {"data.flip", "model.architecture", PICTURES},
    {"data.mean", "model.architecture", PICTURES},
    {"data.std", "model.architecture", PICTURES},
    {"data.info_dir", "model.architecture", PICTURES | LABELS},
    {"model.layers", "model.architecture", LANGUAGE | ENCODER},
    {"model.channels", "model.architecture", TEXT},
    {"model.heads", "model.architecture", LANGUAGE | ENCODER},
    {"model.vocabulary", "model.architecture", TEXT},
    {"model.positions", "model.architecture", TEXT},
    {"data.sources", "model.architecture", LANGUAGE},
    {"training.tokens", "model.architecture", LANGUAGE},
    {"data.tokenizer", "model.architecture", TEXT},
    {"data.text_key", "model.architecture", TEXT},
    {"data.label_key", "model.architecture", LABELS},
    {"data.chat_template", "model.architecture", LANGUAGE},
    {"data.chat_template_kwargs", "model.architecture", LANGUAGE},
    {"data.chat_targets", "model.architecture", LANGUAGE},
    {"data.chat_date", "model.architecture", LANGUAGE},
    {"data.length_buckets", "model.architecture", LABELS},
    {"data.document_end", "model.architecture", LANGUAGE},
    {"data.packing", "model.architecture", LANGUAGE},
    {"data.cache_dir", "model.architecture", TEXT},
    {"data.validation_split", "model.architecture", LANGUAGE},
    {"model.rope_factor", "model.rope_scaling", SCALED},
    {"model.rope_low_frequency", "model.rope_scaling", ONLY(ROTARY_LLAMA3)},
    {"model.rope_high_frequency", "model.rope_scaling", ONLY(ROTARY_LLAMA3)},
    {"model.rope_original_positions", "model.rope_scaling", ONLY(ROTARY_LLAMA3)},
};

/* Not of the public API: it names the format when it exports, and its callers evaluate when they like. */
static const struct effect of_program[] = {
    {"training.output_shard_size", "training.output_format", ONLY(FILES_HF)},
    {"training.keep_best", "training.evaluate_every", 0},
    {"training.early_stop_patience", "training.evaluate_every", 0},
    {"training.stage_moments", "training.stages", 0},
};

static const struct knob *row_of(const char *key)
{
    return knob_find(train_config_table(), key, strlen(key), false, NULL);
}

bool train_config_is_parameters(const char *path)
{
    static const char *const endings[] = {".safetensors", ".pth", ".pt"};
    const size_t length = path ? strlen(path) : 0;
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        const size_t end = strlen(endings[i]);
        if (length > end && !strcmp(path + length - end, endings[i]))
            return true;
    }
    return false;
}

bool train_config_gives_sizes(const struct train_config *config)
{
    const char *path = config->model_path;
    return !path || !*path || train_config_is_parameters(path);
}

bool train_config_evaluates_in_parts(const struct train_config *config)
{
    return config->evaluate_share > 0 || config->evaluate_epochs;
}

static bool helps(const struct knob *other, const struct train_config *c, unsigned values)
{
    const void *at = (const char *)c + other->offset;
    if (other->type == KNOB_TEXT) {
        const char *text = *(char *const *)at;
        const bool empty = !text || !*text;
        return values == NOT_EMPTY ? !empty : empty || train_config_is_parameters(text);
    }
    if (other->type == KNOB_BOOL)
        return *(const bool *)at;
    if (other->type == KNOB_LIST)
        return *(char **const *)at != NULL;
    if (other->type == KNOB_INT)
        return *(const int64_t *)at != 0 || (at == &c->evaluate_every && train_config_evaluates_in_parts(c));
    return other->type == KNOB_CHOICE ? values >> *(const int *)at & 1 : *(const double *)at != 0;
}

/* "cosine, linear or wsd": the choices in `values`, or "more than 0". */
static const char *name_values(const struct knob *other, unsigned values, char out[TEXT_SIZE])
{
    if (other->type == KNOB_TEXT)
        return values == NOT_EMPTY ? "a path" : "a .safetensors or .pth file, which does not give its sizes";
    if (other->type == KNOB_BOOL)
        return "true";
    if (other->type == KNOB_LIST)
        return "a list";
    if (other->type != KNOB_CHOICE)
        return "more than 0";
    *out = '\0';
    unsigned left = 0; /* remaining `values`, which may be all but some */
    for (unsigned i = 0; other->choices[i]; i++)
        left |= values & 1u << i;
    for (unsigned i = 0; left; i++) {
        if (!(left >> i & 1))
            continue;
        left &= ~(1u << i);
        const char *before = !*out ? "" : left ? ", " : " or ";
        size_t length = strlen(out);
        (void)snprintf(out + length, TEXT_SIZE - length, "%s%s", before, other->choices[i]); /* they fit */
    }
    return out;
}

static int check_effect(const char *name, const struct train_config *c, const struct effect *effect,
                        struct muster_error *err)
{
    const struct knob *other = row_of(effect->other);
    scope_buffer value = {0};
    char values[TEXT_SIZE];
    if (train_config_source(c, effect->key) == KNOB_FROM_DEFAULT || helps(other, c, effect->values))
        return 0;
    if (knob_format(other, c, &value) < 0)
        return error_set(err, MUSTER_E_NOMEM, "%sno memory", name);
    return error_set(err, MUSTER_E_INVALID, "%s%s has no effect with %s: %s; remove it or set %s to %s", name,
                     effect->key, effect->other, value.data, effect->other,
                     name_values(other, effect->values, values));
}

static bool all_help(const struct effect *rows, size_t count, const struct train_config *c, const char *key)
{
    for (size_t i = 0; i < count; i++)
        if (!strcmp(rows[i].key, key) && !helps(row_of(rows[i].other), c, rows[i].values))
            return false;
    return true;
}

bool train_config_has_effect(const struct train_config *config, const struct knob *knob)
{
    return all_help(effects, sizeof effects / sizeof *effects, config, knob->name) &&
           train_precision_has_effect(config, knob->name);
}

bool train_config_is_used(const struct train_config *config, const struct knob *knob)
{
    return all_help(of_program, sizeof of_program / sizeof *of_program, config, knob->name) &&
           train_config_has_effect(config, knob);
}

int train_effects_check(const char *name, const struct train_config *config, bool program,
                        struct muster_error *err)
{
    const struct effect *rows = program ? of_program : effects;
    const size_t count = program ? sizeof of_program / sizeof *of_program : sizeof effects / sizeof *effects;
    for (size_t i = 0; i < count; i++)
        if (check_effect(name, config, &rows[i], err) < 0)
            return -1;
    return 0;
}
