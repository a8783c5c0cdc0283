/* train_config_table.c - the settings of muster-train: one row a key, by subject in rows_*.inc. See
 * train_config.h. */
#include "runtime/config/train_config.h"

#include <math.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "proto/base/text_list.h"
#include "runtime/cuda/devices/devices.h"
#include "runtime/device/device_module.h"
#include "runtime/files/files.h"
#include "runtime/model/lora.h"
#include "runtime/plan/plan.h"
#include "runtime/train/evaluation.h"

#define PLAN_STRATEGY_NAME(symbol, name) name,
static const char *const strategies[] = {PLAN_STRATEGIES(PLAN_STRATEGY_NAME) NULL};
#undef PLAN_STRATEGY_NAME
static const char *const optimizers[] = {
#define OPTIMIZER_NAME(symbol, name) name,
    OPTIMIZERS(OPTIMIZER_NAME)
#undef OPTIMIZER_NAME
        NULL};
static const char *const decays[] = {
#define DECAY_NAME(symbol, name) name,
    PARAM_DECAYS(DECAY_NAME)
#undef DECAY_NAME
        NULL};
static const char *const schedules[] = {
#define LR_KIND_NAME(symbol, name, meaning) name,
    LR_KINDS(LR_KIND_NAME)
#undef LR_KIND_NAME
        NULL};
static const char *const plateau_modes[] = {"min", "max", NULL};          /* enum plateau_mode */
static const char *const plateau_thresholds[] = {"rel", "abs", NULL};     /* enum plateau_threshold */
static const char *const warmups[] = {"log", "linear", NULL};             /* enum lr_warmup */
static const char *const shapes[] = {"linear", "cosine", "1-sqrt", NULL}; /* enum lr_shape */
static const char *const dtypes[] = {"fp32", "bf16", "fp16", NULL};
static const char *const reduce_dtypes[] = {"dtype", "fp32", "bf16", "fp16", NULL};
static const char *const value_types[] = {"auto", "fp32", "dtype", NULL};              /* TRAIN_VALUES_... */
static const char *const matmul_precisions[] = {"auto", "fp32", "tf32", "bf16", NULL}; /* TRAIN_MATMUL_... */
static const char *const products[] = {"auto", "openblas", "onednn", NULL};          /* TRAIN_PRODUCTS_... */
static const char *const attentions[] = {"auto", "own", "cudnn", NULL};              /* TRAIN_ATTENTION_... */
static const char *const nonfinite_policies[] = {"skip", "stop", "roll_back", NULL}; /* TRAIN_NONFINITE_... */
static const char *const architectures[] = {
    "gpt2", "llama", "simple_cnn", "resnet", "text_classifier", "text_encoder", "encoder", "auto", NULL};
static const char *const output_formats[] = {
#define FILES_FORMAT_NAME(symbol, name) name,
    FILES_FORMATS(FILES_FORMAT_NAME)
#undef FILES_FORMAT_NAME
        NULL};
static const char *const replica_policies[] = {"stop", "warn", NULL};      /* TRAIN_REPLICAS_... */
static const char *const numerics_policies[] = {"warn", "refuse", NULL};   /* TRAIN_NUMERICS_... */
static const char *const validation_splits[] = {"end", "documents", NULL}; /* DATA_SPLIT_... */
static const char *const data_policies[] = {"refuse", "warn", NULL};       /* TRAIN_DATA_... */
static const char *const damaged_policies[] = {"refuse", "anew", NULL};    /* TRAIN_DAMAGED_... */
static const char *const stage_moments[] = {"reset", "keep", NULL};        /* TRAIN_MOMENTS_... */
static const char *const output_dtypes[] = {"auto", "fp32", "bf16", NULL};
static const char *const spares[] = {"auto", "true", "false", NULL}; /* TRAIN_SPARE_... */
static const char *const embedding_gradients[] = {
#define EMBEDDING_TEXT(symbol, name) name,
    EMBEDDING_GRADIENTS(EMBEDDING_TEXT)
#undef EMBEDDING_TEXT
        NULL};
static const char *const compressions[] = {
#define COMPRESSION_TEXT(symbol, name) name,
    COMPRESSIONS(COMPRESSION_TEXT)
#undef COMPRESSION_TEXT
        NULL};
static const char *const recomputes[] = {
#define RECOMPUTE_NAME(symbol, name) name,
    RECOMPUTES(RECOMPUTE_NAME)
#undef RECOMPUTE_NAME
        NULL};
static const char *const evaluation_metrics[] = {
#define EVALUATION_METRIC_NAME(symbol, name) name,
    EVALUATION_METRICS(EVALUATION_METRIC_NAME)
#undef EVALUATION_METRIC_NAME
        NULL};
static const char *const optimizer_memories[] = {"device", "host", NULL};
static const char *const devices[] = {
#define DEVICE_CHOICE_NAME(symbol, name) name,
    DEVICE_CHOICES(DEVICE_CHOICE_NAME)
#undef DEVICE_CHOICE_NAME
#define CUDA_DEVICE_NAME(symbol, name) name,
        CUDA_DEVICES(CUDA_DEVICE_NAME)
#undef CUDA_DEVICE_NAME
            NULL};
static const char *const comms[] = {"auto", "host", "nccl", NULL};             /* TRAIN_COMM_... */
static const char *const rope_scalings[] = {"none", "linear", "llama3", NULL}; /* enum rotary_kind */
/* enum picture_kind of trainer/pictures */
static const char *const datasets[] = {"auto",    "cifar10",  "mnist", "fashion_mnist",
                                       "folders", "cifar100", NULL};
static const char *const stored_kinds[] = {
#define STORED_KIND_NAME(symbol, name, elements, bytes) name,
    STORED_KINDS(STORED_KIND_NAME)
#undef STORED_KIND_NAME
        NULL};
static const char *const chat_targets[] = {"assistant", "all", NULL};
static const char *const packings[] = {"auto", "stream", "documents", "packed", NULL}; /* enum data_packing */

#define AT(member) KNOB_OFFSET(train_config, member)
static const struct knob rows[] = {
/* In the order of --help. */
/* clang-format off */
#include "runtime/config/rows_training.inc"
#include "runtime/config/rows_mesh.inc"
#include "runtime/config/rows_optimizer.inc"
#include "runtime/config/rows_precision.inc"
#include "runtime/config/rows_output.inc"
#include "runtime/config/rows_checkpoint.inc"
#include "runtime/config/rows_evaluation.inc"
#include "runtime/config/rows_model.inc"
#include "runtime/config/rows_lora.inc"
#include "runtime/config/rows_data.inc"
#include "runtime/config/rows_logging.inc"
    /* clang-format on */
};
_Static_assert(sizeof rows / sizeof *rows <= TRAIN_CONFIG_KEYS, "sources of the reader");
static const struct knob_table table = {rows, sizeof rows / sizeof *rows};

const struct knob_table *train_config_table(void)
{
    return &table;
}

enum knob_source train_config_source(const struct train_config *config, const char *key)
{
    return (enum knob_source)config->sources[knob_find(&table, key, strlen(key), false, NULL) - rows];
}

static void set_by_rule(struct train_config *config, size_t offset, int64_t value)
{
    *(int64_t *)((char *)config + offset) = value;
    for (size_t i = 0; i < table.count; i++)
        if (rows[i].offset == offset)
            config->sources[i] = KNOB_FROM_RULE;
}

void train_config_set_steps(struct train_config *config, int64_t steps)
{
    const struct {
        double share;
        size_t offset;
    } shares[] = {{config->evaluate_share, AT(evaluate_every)},
                  {config->checkpoint_share, AT(checkpoint_every)},
                  {config->interval_share, AT(interval)}};
    set_by_rule(config, AT(steps), steps);
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++)
        if (shares[i].share > 0) /* rounded up, but for what 1 / 3 lacks */
            set_by_rule(config, shares[i].offset,
                        (int64_t)fmax(1, ceil(shares[i].share * (double)steps - 1e-6)));
}

int64_t train_config_token_steps(const struct train_config *config)
{
    const double of_step = (double)config->global_batch * (double)config->sequence_length;
    return (int64_t)ceil((double)config->tokens / of_step);
}

void train_config_set_epoch(struct train_config *config, int64_t samples)
{
    const struct {
        bool wanted;
        size_t offset;
    } epochs[] = {{config->evaluate_epochs, AT(evaluate_every)},
                  {config->checkpoint_epochs, AT(checkpoint_every)},
                  {config->interval_epochs, AT(interval)}};
    const int64_t steps = (samples + config->global_batch - 1) / config->global_batch;
    for (size_t i = 0; i < sizeof epochs / sizeof *epochs; i++)
        if (epochs[i].wanted)
            set_by_rule(config, epochs[i].offset, steps > 0 ? steps : 1);
}

static void *value_at(const struct train_config *config, const struct knob *knob)
{
    return (char *)config + knob->offset;
}

static int copy_list(char *const *from, char ***to)
{
    struct text_list copy = {0};
    for (; from && *from; from++)
        if (text_list_take(&copy, mem_strdup(*from)) < 0) {
            text_list_free(&copy);
            return -1;
        }
    *to = copy.items;
    return 0;
}

static int copy_value(const struct train_config *config, struct train_config *copy, const struct knob *knob)
{
    if (knob->type == KNOB_LIST)
        return copy_list(*(char **const *)value_at(config, knob), value_at(copy, knob));
    const char *text = knob->type == KNOB_TEXT ? *(char *const *)value_at(config, knob) : NULL;
    if (!text)
        return 0;
    char **to = value_at(copy, knob);
    *to = mem_strdup(text);
    return *to ? 0 : -1;
}

int train_config_copy(const struct train_config *config, struct train_config *copy, struct muster_error *err)
{
    *copy = *config;
    for (size_t i = 0; i < table.count; i++)
        if (rows[i].type == KNOB_LIST)
            *(char ***)value_at(copy, &rows[i]) = NULL;
        else if (rows[i].type == KNOB_TEXT)
            *(char **)value_at(copy, &rows[i]) = NULL;
    for (size_t i = 0; i < table.count; i++)
        if (copy_value(config, copy, &rows[i]) < 0) {
            train_config_free(copy);
            return error_set(err, MUSTER_E_NOMEM, "no memory for settings");
        }
    return 0;
}

int train_config_reset(struct train_config *config, const struct knob *knob, struct muster_error *err)
{
    if (knob->type == KNOB_LIST) { /* none has a default */
        char ***list = value_at(config, knob);
        text_list_free_items(*list);
        *list = NULL;
    }
    config->sources[knob - rows] = KNOB_FROM_DEFAULT;
    return knob->initial && knob->type != KNOB_LIST
               ? knob_set(&table, config, config->sources, knob, knob->initial, KNOB_FROM_DEFAULT, knob->name,
                          err)
               : 0;
}

const char *train_config_output_format(const struct train_config *config)
{
    return output_formats[config->output_format];
}

const char *train_config_architecture(const struct train_config *config)
{
    return architectures[config->architecture == TRAIN_ARCHITECTURE_AUTO ? TRAIN_ARCHITECTURE_GPT2
                                                                         : config->architecture];
}

bool train_config_reads_pictures(const struct train_config *config)
{
    return config->architecture == TRAIN_ARCHITECTURE_SIMPLE_CNN ||
           config->architecture == TRAIN_ARCHITECTURE_RESNET;
}

bool train_config_reads_labels(const struct train_config *config)
{
    return config->architecture == TRAIN_ARCHITECTURE_TEXT_CLASSIFIER ||
           config->architecture == TRAIN_ARCHITECTURE_TEXT_ENCODER ||
           config->architecture == TRAIN_ARCHITECTURE_ENCODER;
}

int train_config_classes(const struct train_config *config)
{
    if (config->num_classes)
        return (int)config->num_classes;
    return train_config_reads_pictures(config) ? 10 : 2;
}

const char *train_config_strategy(const struct train_config *config)
{
    return strategies[config->strategy];
}

void train_config_free(struct train_config *config)
{
    if (config)
        knob_free(&table, config);
}
