/* train_config_check.c - see train_config_check.h; rules about several keys at once. */
#include "runtime/config/train_config_check.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
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

static const struct knob *row_of(const char *key)
{
    return knob_find(train_config_table(), key, strlen(key), false, NULL);
}

static bool text_helps(const char *text, unsigned values)
{
    static const char *const endings[] = {".safetensors", ".pth", ".pt"}; /* parameters alone */
    const size_t length = text ? strlen(text) : 0;
    if (values == NOT_EMPTY || !length)
        return (values == NOT_EMPTY) == (length > 0);
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        const size_t end = strlen(endings[i]);
        if (length > end && !strcmp(text + length - end, endings[i]))
            return true;
    }
    return false;
}

/* Evaluations whose steps follow when the data are counted. */
static bool evaluates_in_parts(const struct train_config *c)
{
    return c->evaluate_share > 0 || c->evaluate_epochs;
}

static bool helps(const struct knob *other, const struct train_config *c, unsigned values)
{
    const void *at = (const char *)c + other->offset;
    if (other->type == KNOB_TEXT)
        return text_helps(*(char *const *)at, values);
    if (other->type == KNOB_BOOL)
        return *(const bool *)at;
    if (other->type == KNOB_LIST)
        return *(char **const *)at != NULL;
    if (other->type == KNOB_INT)
        return *(const int64_t *)at != 0 || (at == &c->evaluate_every && evaluates_in_parts(c));
    return other->type == KNOB_CHOICE ? values >> *(const int *)at & 1 : *(const double *)at != 0;
}

/* A file of parameters has no state of the optimizer. */
static int check_resume(const char *name, const struct train_config *c, struct muster_error *err)
{
    if (!text_helps(c->resume, NOT_EMPTY) || !text_helps(c->resume, SIZES))
        return 0;
    return error_set(
        err, MUSTER_E_INVALID,
        "%straining.resume %s has parameters alone, and no step or optimizer to go on from: set "
        "model.path to it, which begins with them, or training.resume to a folder of checkpoints",
        name, c->resume);
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
    const struct knob *knob = row_of(effect->key), *other = row_of(effect->other);
    scope_buffer value = {0};
    char values[TEXT_SIZE];
    if (c->sources[knob - train_config_table()->knobs] == KNOB_FROM_DEFAULT ||
        helps(other, c, effect->values))
        return 0;
    if (knob_format(other, c, &value) < 0)
        return error_set(err, MUSTER_E_NOMEM, "%sno memory", name);
    return error_set(err, MUSTER_E_INVALID, "%s%s has no effect with %s: %s; remove it or set %s to %s", name,
                     effect->key, effect->other, value.data, effect->other,
                     name_values(other, effect->values, values));
}

bool train_config_has_effect(const struct train_config *config, const struct knob *knob)
{
    for (size_t i = 0; i < sizeof effects / sizeof *effects; i++)
        if (!strcmp(effects[i].key, knob->name) &&
            !helps(row_of(effects[i].other), config, effects[i].values))
            return false;
    return train_precision_has_effect(config, knob->name);
}

bool train_config_gives_sizes(const struct train_config *config)
{
    return text_helps(config->model_path, SIZES);
}

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
    const uint8_t source = c->sources[row_of("training.min_learning_rate") - train_config_table()->knobs];
    return (struct plateau_rule){.mode = (enum plateau_mode)c->plateau_mode,
                                 .threshold_mode = (enum plateau_threshold)c->plateau_threshold_mode,
                                 .threshold = c->plateau_threshold,
                                 .factor = c->plateau_factor,
                                 .patience = c->plateau_patience,
                                 .cooldown = c->plateau_cooldown,
                                 .minimum = source == KNOB_FROM_DEFAULT ? 0 : c->min_learning_rate,
                                 .least_fall = c->plateau_eps};
}

/* The default, where it is above the peak that was given, is a tenth of that. */
static double minimum_rate(const struct train_config *c)
{
    const uint8_t source = c->sources[row_of("training.min_learning_rate") - train_config_table()->knobs];
    return source == KNOB_FROM_DEFAULT && c->min_learning_rate > c->learning_rate ? c->learning_rate / 10
                                                                                  : c->min_learning_rate;
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

/* The length is given once. */
static int check_length(const char *name, const struct train_config *c, struct muster_error *err)
{
    const uint8_t steps = c->sources[row_of("training.steps") - train_config_table()->knobs];
    const bool given = steps != KNOB_FROM_DEFAULT && steps != KNOB_FROM_RULE;
    if (c->epochs > 0 && given)
        return error_set(err, MUSTER_E_INVALID,
                         "%straining.epochs %g and training.steps %lld are both set; name one", name,
                         c->epochs, (long long)c->steps);
    if (c->epochs > 0 && c->tokens > 0)
        return error_set(err, MUSTER_E_INVALID,
                         "%straining.epochs %g and training.tokens %lld are both set; name one", name,
                         c->epochs, (long long)c->tokens);
    if (c->tokens > 0 && train_config_token_steps(c) > 1000000000)
        return error_set(err, MUSTER_E_LIMIT, "%straining.tokens %lld are %lld steps; at most 1e9", name,
                         (long long)c->tokens, (long long)train_config_token_steps(c));
    if (c->tokens > 0 && given && c->steps != train_config_token_steps(c))
        return error_set(err, MUSTER_E_INVALID,
                         "%straining.tokens %lld are %lld steps, and training.steps is %lld; name one", name,
                         (long long)c->tokens, (long long)train_config_token_steps(c), (long long)c->steps);
    return 0;
}

static int check_training(const char *name, const struct train_config *c, struct muster_error *err)
{
    if (MINIMUM >> c->schedule & 1 && minimum_rate(c) > c->learning_rate)
        return error_set(err, MUSTER_E_INVALID,
                         "%straining.min_learning_rate %g is above training.learning_rate %g", name,
                         c->min_learning_rate, c->learning_rate);
    if (check_length(name, c, err) < 0 || check_resume(name, c, err) < 0)
        return -1;
    if (c->sync_errors && c->cuda_graphs)
        return error_set(err, MUSTER_E_INVALID,
                         "%straining.sync_errors names one operation, and training.cuda_graphs launches a "
                         "layer's as one: set either of them",
                         name);
    const struct lr_schedule schedule = train_config_schedule(c);
    const bool counted =
        !(c->epochs > 0) ||
        c->sources[row_of("training.steps") - train_config_table()->knobs] != KNOB_FROM_DEFAULT;
    if (counted && lr_check(&schedule, err) < 0) /* epochs become steps when the data are open */
        return error_wrap(err, "%straining.schedule", name);
    if (c->micro_batch > c->global_batch)
        return error_set(err, MUSTER_E_INVALID,
                         "%straining.micro_batch %lld is above training.global_batch %lld: %lld of its rows "
                         "would always be empty",
                         name, (long long)c->micro_batch, (long long)c->global_batch,
                         (long long)(c->micro_batch - c->global_batch));
    return 0;
}

bool train_config_adapts(const struct train_config *config)
{
    return config->lora_rank > 0 || text_helps(config->lora_path, NOT_EMPTY);
}

static int check_lora(const char *name, const struct train_config *c, struct muster_error *err)
{
    const struct knob *rank = row_of("lora.rank");
    const bool dropped =
        c->sources[row_of("lora.dropout") - train_config_table()->knobs] != KNOB_FROM_DEFAULT;
    if (c->lora_rank && text_helps(c->lora_path, NOT_EMPTY))
        return error_set(err, MUSTER_E_INVALID,
                         "%slora.rank %lld and lora.path %s are both set; the adapters there have their rank",
                         name, (long long)c->lora_rank, c->lora_path);
    const char *idle = c->lora_merge  ? "lora.merge"
                       : c->lora_base ? "lora.base"
                       : dropped      ? "lora.dropout"
                                      : NULL;
    if (!train_config_adapts(c) && idle)
        return error_set(err, MUSTER_E_INVALID, "%s%s has no effect without adapters: set %s or lora.path",
                         name, idle, rank->name);
    return 0;
}

/* The program's export: adapters alone, or the model with them, always by an explicit choice. */
static int check_adapted_output(const char *name, const struct train_config *c, struct muster_error *err)
{
    const bool writes = text_helps(c->output, NOT_EMPTY), peft = c->output_format == FILES_PEFT;
    if (!writes && !peft)
        return 0;
    if (!train_config_adapts(c) && peft)
        return error_set(
            err, MUSTER_E_INVALID,
            "%straining.output_format is peft, which is of adapters, and there are none: set lora.rank",
            name);
    if (train_config_adapts(c) && peft == c->lora_merge)
        return error_set(
            err, MUSTER_E_INVALID,
            "%straining.output_format %s and lora.merge %s: peft writes the adapters alone, and every "
            "other format the model with them, which lora.merge: true asks for",
            name, train_config_output_format(c), c->lora_merge ? "true" : "false");
    return 0;
}

static int check_encoder(const char *name, const struct train_config *c, struct muster_error *err)
{
    int64_t labels = 0;
    while (c->labels && c->labels[labels])
        labels++;
    if (c->architecture == TRAIN_ARCHITECTURE_ENCODER &&
        (!text_helps(c->model_path, NOT_EMPTY) || train_config_gives_sizes(c)))
        return error_set(err, MUSTER_E_INVALID,
                         "%smodel.architecture is encoder: name its folder with config.json as model.path",
                         name);
    if (labels == 1 || (labels && c->num_classes && labels != c->num_classes))
        return error_set(err, MUSTER_E_INVALID, "%smodel.labels has %lld names, and %s%lld", name,
                         (long long)labels, labels == 1 ? "there are at least " : "model.num_classes is ",
                         labels == 1 ? 2LL : (long long)c->num_classes);
    return 0;
}

static int check_model(const char *name, const struct train_config *c, struct muster_error *err)
{
    if (check_encoder(name, c, err) < 0)
        return -1;
    if (c->channels % c->heads && !c->head_size && c->architecture != TRAIN_ARCHITECTURE_TEXT_CLASSIFIER)
        return error_set(err, MUSTER_E_INVALID, "%smodel.channels %lld is not a multiple of model.heads %lld",
                         name, (long long)c->channels, (long long)c->heads);
    return 0;
}

static const char *text_of(const char *text)
{
    return text ? text : "";
}

/* Text becomes bytes, as far as is known without looking into model.path. */
static bool reads_bytes(const struct train_config *c)
{
    const char *tokenizer = text_of(c->tokenizer);
    return !strcmp(tokenizer, "bytes") || (!strcmp(tokenizer, "auto") && !*text_of(c->model_path));
}

static int check_held_out(const char *name, const struct train_config *c, struct muster_error *err)
{
    if (c->validation_share > 0 && *text_of(c->validation_path))
        return error_set(err, MUSTER_E_INVALID,
                         "%sdata.validation_share %g and data.validation_path %s are both set; name one",
                         name, c->validation_share, c->validation_path);
    return 0;
}

/* Checks for pictures, or labelled texts. */
static int check_classifier(const char *name, const struct train_config *c, struct muster_error *err)
{
    const bool pictures = train_config_reads_pictures(c);
    if (!*text_of(c->path))
        return error_set(err, MUSTER_E_INVALID, "%sdata.path is missing: name %s", name,
                         pictures ? "a folder with CIFAR-10's batches, IDX files or folders of PNG by class"
                                  : "a file of labelled texts (.csv, .tsv, .jsonl), or a folder of them by "
                                    "label");
    if (pictures && c->sequence_length != 1)
        return error_set(err, MUSTER_E_INVALID,
                         "%straining.sequence_length is %lld, and a picture is one position: leave it out",
                         name, (long long)c->sequence_length);
    if (c->num_classes == 1)
        return error_set(err, MUSTER_E_INVALID, "%smodel.num_classes is %lld; there are 2 at least", name,
                         (long long)c->num_classes);
    if (c->output_format == FILES_HF && *text_of(c->output) && c->architecture != TRAIN_ARCHITECTURE_ENCODER)
        return error_set(
            err, MUSTER_E_INVALID,
            "%straining.output_format hf is of language models and encoders; safetensors and pth are "
            "of other classifiers too",
            name);
    return check_held_out(name, c, err);
}

/* Not of the public API: it names the format when it exports, and its callers evaluate when they like. */
static const struct effect of_program[] = {
    {"training.output_shard_size", "training.output_format", ONLY(FILES_HF)},
    {"training.keep_best", "training.evaluate_every", 0},
    {"training.early_stop_patience", "training.evaluate_every", 0},
    {"training.stage_moments", "training.stages", 0},
};

bool train_config_is_used(const struct train_config *config, const struct knob *knob)
{
    for (size_t i = 0; i < sizeof of_program / sizeof *of_program; i++)
        if (!strcmp(of_program[i].key, knob->name) &&
            !helps(row_of(of_program[i].other), config, of_program[i].values))
            return false;
    return train_config_has_effect(config, knob);
}

static int check_data(const char *name, const struct train_config *c, struct muster_error *err)
{
    /* The config.json of a folder has the number of its labels. */
    if (c->architecture == TRAIN_ARCHITECTURE_AUTO && c->num_classes && train_config_gives_sizes(c))
        return error_set(err, MUSTER_E_INVALID,
                         "%smodel.num_classes has no effect with model.architecture: auto; remove it or set "
                         "model.architecture to a classifier",
                         name);
    for (size_t i = 0; i < sizeof of_program / sizeof *of_program; i++)
        if (check_effect(name, c, &of_program[i], err) < 0)
            return -1;
    if (check_adapted_output(name, c, err) < 0)
        return -1;
    if (c->schedule == LR_PLATEAU && !c->evaluate_every && !evaluates_in_parts(c))
        return error_set(err, MUSTER_E_INVALID,
                         "%straining.schedule ReduceLROnPlateau follows evaluations, and there are none: set "
                         "training.evaluate_every",
                         name);
    if (train_config_reads_pictures(c))
        return check_classifier(name, c, err);
    const bool sources = c->data_sources && c->data_sources[0], path = *text_of(c->path);
    if (reads_bytes(c) && c->vocabulary < 256)
        return error_set(err, MUSTER_E_INVALID,
                         "%smodel.vocabulary %lld is below 256, and data.tokenizer is bytes", name,
                         (long long)c->vocabulary);
    if (train_config_reads_labels(c))
        return check_classifier(name, c, err);
    if (!path && !sources)
        return error_set(err, MUSTER_E_INVALID, "%sdata.path is missing: name a text file or a folder", name);
    if (path && sources)
        return error_set(err, MUSTER_E_INVALID, "%sdata.path %s and data.sources are both set; name one",
                         name, c->path);
    return check_held_out(name, c, err);
}

int train_config_check(const char *name, const struct train_config *config, unsigned sections,
                       struct muster_error *err)
{
    for (size_t i = 0; i < sizeof effects / sizeof *effects; i++)
        if (check_effect(name, config, &effects[i], err) < 0)
            return -1;
    if ((sections & TRAIN_MODEL &&
         (check_model(name, config, err) < 0 || check_lora(name, config, err) < 0)) ||
        (sections & TRAIN_TRAINING &&
         (train_precision_check(name, config, err) < 0 || check_training(name, config, err) < 0)))
        return -1;
    const struct tracking_wishes tracking = train_config_tracking(config);
    if (sections & TRAIN_DATA && tracking_check(&tracking, err) < 0)
        return *name ? error_wrap(err, "%.*s", (int)strlen(name) - 2, name) : -1;
    int64_t first, count;
    if (sections & TRAIN_DATA && train_config_trace(config, &first, &count, err) < 0)
        return *name ? error_wrap(err, "%.*s", (int)strlen(name) - 2, name) : -1;
    /* A stage counts its own steps. */
    if (sections & TRAIN_DATA && !config->stages && config->steps > 0 && first > config->steps)
        return error_set(err, MUSTER_E_INVALID,
                         "%slogging.trace %s begins after the last step, training.steps %lld", name,
                         config->trace, (long long)config->steps);
    return sections & TRAIN_DATA ? check_data(name, config, err) : 0;
}

struct train_batch train_config_batch(const struct train_config *config, int rank, int ranks)
{
    /* Stages are the outermost side, see mesh.h. Too few ranks for them are refused by mesh_choose. */
    const int64_t stages = config->mesh_pipeline > 0 && config->mesh_pipeline < ranks ? config->mesh_pipeline
                           : config->mesh_pipeline > 0                                ? ranks
                                                                                      : 1;
    const int of_stage = ranks / (int)stages;
    return (struct train_batch){config->global_batch, config->micro_batch, rank % of_stage, of_stage};
}
