/* train_config.c - the table of training settings and the strict YAML reader. See train_config.h. */
#include "runtime/app/train_config.h"

#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "proto/tree/tree.h"
#include "runtime/plan/plan.h"

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
static const char *const warmups[] = {"log", "linear", NULL}; /* enum lr_warmup */
static const char *const architectures[] = {"gpt2", "llama", NULL};
static const char *const rope_scalings[] = {"none", "linear", "llama3", NULL}; /* enum rotary_kind */
static const char *const tokenizers[] = {"bytes", NULL};

#define AT(member) KNOB_OFFSET(train_config, member)
static const struct knob rows[] = {
    {.name = "training.steps",
     .type = KNOB_INT,
     .offset = AT(steps),
     .initial = "1000",
     .min = 1,
     .max = 1e9,
     .section = "training",
     .help = "optimizer steps"},
    {.name = "training.micro_batch",
     .type = KNOB_INT,
     .offset = AT(micro_batch),
     .initial = "4",
     .min = 1,
     .max = 65536,
     .section = "training",
     .help = "sequences of one forward pass on one rank"},
    {.name = "training.global_batch",
     .type = KNOB_INT,
     .offset = AT(global_batch),
     .initial = "8",
     .min = 1,
     .max = 1e9,
     .section = "training",
     .help = "sequences of one step over all ranks; a multiple of micro_batch x ranks"},
    {.name = "training.sequence_length",
     .type = KNOB_INT,
     .offset = AT(sequence_length),
     .initial = "128",
     .min = 1,
     .max = 65536,
     .section = "training",
     .help = "tokens of one sequence"},
    {.name = "training.strategy",
     .type = KNOB_CHOICE,
     .offset = AT(strategy),
     .initial = "FULL_SHARD",
     .choices = strategies,
     .section = "training",
     .help = "how parameters are spread over the ranks"},
    {.name = "training.replicas",
     .type = KNOB_INT,
     .offset = AT(replicas),
     .initial = "0",
     .min = 0,
     .max = 1 << 20,
     .section = "training",
     .help = "copies of the model under HYBRID_SHARD, a divisor of the ranks; 0: one a node"},
    {.name = "training.prefetch",
     .type = KNOB_INT,
     .offset = AT(prefetch),
     .initial = "2",
     .min = 0,
     .max = 16,
     .section = "training",
     .help = "gathers in flight ahead of compute; 0 switches overlap off"},
    {.name = "training.group_bytes",
     .type = KNOB_BYTES,
     .offset = AT(group_bytes),
     .initial = "0",
     .min = 0,
     .max = 1e15,
     .unit = "bytes",
     .section = "training",
     .help = "small units are merged up to this size; 0: an eighth of the model, 64K to 48M"},
    {.name = "training.learning_rate",
     .type = KNOB_DOUBLE,
     .offset = AT(learning_rate),
     .initial = "0.001",
     .min = 0,
     .max = 100,
     .section = "training",
     .help = "peak learning rate, after warm-up"},
    {.name = "training.min_learning_rate",
     .type = KNOB_DOUBLE,
     .offset = AT(min_learning_rate),
     .initial = "0.0001",
     .min = 0,
     .max = 100,
     .section = "training",
     .help = "where the schedule ends; OneCycle: where it begins and ends"},
    {.name = "training.schedule",
     .type = KNOB_CHOICE,
     .offset = AT(schedule),
     .initial = "cosine",
     .choices = schedules,
     .section = "training",
     .help = "how the learning rate moves after warm-up; the names in capitals are DeepSpeed's"},
    {.name = "training.warmup_steps",
     .type = KNOB_INT,
     .offset = AT(warmup_steps),
     .initial = "100",
     .min = 0,
     .max = 1e9,
     .section = "training",
     .help = "steps of warm-up; OneCycle: of the rise"},
    {.name = "training.warmup_type",
     .type = KNOB_CHOICE,
     .offset = AT(warmup),
     .initial = "log",
     .choices = warmups,
     .section = "training",
     .help = "warm-up of DeepSpeed's schedules; that of the others is linear"},
    {.name = "training.warmup_min_learning_rate",
     .type = KNOB_DOUBLE,
     .offset = AT(warmup_min_learning_rate),
     .initial = "0",
     .min = 0,
     .max = 100,
     .section = "training",
     .help = "where the warm-up of DeepSpeed's schedules begins"},
    {.name = "training.decay_steps",
     .type = KNOB_INT,
     .offset = AT(decay_steps),
     .initial = "0",
     .min = 0,
     .max = 1e9,
     .section = "training",
     .help = "cosine, linear: from peak to minimum, 0: to the last step; wsd: the last ones, 0: a fifth; "
             "OneCycle: of the fall, 0: as of the rise"},
    {.name = "training.cycle_min_momentum",
     .type = KNOB_DOUBLE,
     .offset = AT(cycle_min_momentum),
     .initial = "0.8",
     .min = 0,
     .max = 0.999999,
     .section = "training",
     .help = "OneCycle: beta1 at the peak; both 0: beta1 is not cycled"},
    {.name = "training.cycle_max_momentum",
     .type = KNOB_DOUBLE,
     .offset = AT(cycle_max_momentum),
     .initial = "0.9",
     .min = 0,
     .max = 0.999999,
     .section = "training",
     .help = "OneCycle: beta1 at both ends"},
    {.name = "training.cycle_decay_rate",
     .type = KNOB_DOUBLE,
     .offset = AT(cycle_decay_rate),
     .initial = "0",
     .min = 0,
     .max = 1e6,
     .section = "training",
     .help = "OneCycle: the rate behind the cycle is minimum / (1 + this x intervals)"},
    {.name = "training.cycle_momentum_rate",
     .type = KNOB_DOUBLE,
     .offset = AT(cycle_momentum_rate),
     .initial = "0",
     .min = 0,
     .max = 1e6,
     .section = "training",
     .help = "OneCycle: beta1 behind the cycle is cycle_max_momentum x (1 + this x intervals)"},
    {.name = "training.cycle_decay_interval",
     .type = KNOB_INT,
     .offset = AT(cycle_decay_interval),
     .initial = "0",
     .min = 0,
     .max = 1e9,
     .section = "training",
     .help = "OneCycle: steps of one such interval; 0: no decay"},
    {.name = "training.optimizer",
     .type = KNOB_CHOICE,
     .offset = AT(optimizer),
     .initial = "AdamW",
     .choices = optimizers,
     .section = "training",
     .help = "AdamW: decoupled decay; Adam, SGD: the decay is added to the gradient, as in PyTorch"},
    {.name = "training.momentum",
     .type = KNOB_DOUBLE,
     .offset = AT(momentum),
     .initial = "0",
     .min = 0,
     .max = 0.999999,
     .section = "training",
     .help = "SGD: the share of the last update that is kept; 0 keeps no state"},
    {.name = "training.dampening",
     .type = KNOB_DOUBLE,
     .offset = AT(dampening),
     .initial = "0",
     .min = 0,
     .max = 1,
     .section = "training",
     .help = "SGD: the share of the gradient that the momentum leaves out"},
    {.name = "training.nesterov",
     .type = KNOB_BOOL,
     .offset = AT(nesterov),
     .initial = "false",
     .section = "training",
     .help = "SGD: Nesterov's momentum"},
    {.name = "training.weight_decay",
     .type = KNOB_DOUBLE,
     .offset = AT(weight_decay),
     .initial = "0.1",
     .min = 0,
     .max = 100,
     .section = "training",
     .help = "weight decay"},
    {.name = "training.decay",
     .type = KNOB_CHOICE,
     .offset = AT(decay),
     .initial = "matrices",
     .choices = decays,
     .section = "training",
     .help = "which parameters decay: matrices, which leaves out biases and norms, or all"},
    {.name = "training.no_decay",
     .type = KNOB_LIST,
     .offset = AT(no_decay),
     .section = "training",
     .help = "patterns of names of further parameters that do not decay: ['*.wte.*']"},
    {.name = "training.frozen",
     .type = KNOB_LIST,
     .offset = AT(frozen),
     .section = "training",
     .help = "patterns of names of parameters that are not trained: ['wte.*', 'h.0.*']"},
    {.name = "training.beta1",
     .type = KNOB_DOUBLE,
     .offset = AT(beta1),
     .initial = "0.9",
     .min = 0,
     .max = 0.999999,
     .section = "training",
     .help = "AdamW's first decay rate"},
    {.name = "training.beta2",
     .type = KNOB_DOUBLE,
     .offset = AT(beta2),
     .initial = "0.95",
     .min = 0,
     .max = 0.999999,
     .section = "training",
     .help = "AdamW's second decay rate"},
    {.name = "training.epsilon",
     .type = KNOB_DOUBLE,
     .offset = AT(epsilon),
     .initial = "1e-8",
     .min = 1e-30,
     .max = 1,
     .section = "training",
     .help = "AdamW's epsilon"},
    {.name = "training.clip_norm",
     .type = KNOB_DOUBLE,
     .offset = AT(clip_norm),
     .initial = "1.0",
     .min = 0,
     .max = 1e9,
     .section = "training",
     .help = "global gradient norm is clipped to this; 0: not clipped"},
    {.name = "training.seed",
     .type = KNOB_INT,
     .offset = AT(seed),
     .initial = "42",
     .min = 0,
     .max = 9e15,
     .section = "training",
     .help = "of initialisation, sample order and sampling"},
    {.name = "training.threads",
     .type = KNOB_INT,
     .offset = AT(threads),
     .initial = "0",
     .min = 0,
     .max = 1024,
     .section = "training",
     .help = "compute threads of a rank; 0: OMP_NUM_THREADS, else cores / ranks of this node"},
    {.name = "training.memory_limit",
     .type = KNOB_BYTES,
     .offset = AT(memory_limit),
     .initial = "0",
     .min = 0,
     .max = 1e15,
     .unit = "bytes",
     .section = "training",
     .help = "a larger plan is refused; 0: the machine's free memory"},
    {.name = "training.timeout",
     .type = KNOB_DOUBLE,
     .offset = AT(timeout_s),
     .initial = "600",
     .min = 1,
     .max = 1e6,
     .unit = "s",
     .section = "training",
     .help = "time-out of a collective"},
    {.name = "training.output",
     .type = KNOB_TEXT,
     .offset = AT(output),
     .initial = "",
     .section = "training",
     .help = "safetensors file written at the end; empty: none"},
    {.name = "model.architecture",
     .type = KNOB_CHOICE,
     .offset = AT(architecture),
     .initial = "gpt2",
     .choices = architectures,
     .section = "model",
     .help = "architecture"},
    {.name = "model.layers",
     .type = KNOB_INT,
     .offset = AT(layers),
     .initial = "4",
     .min = 1,
     .max = 1024,
     .section = "model",
     .help = "transformer blocks"},
    {.name = "model.channels",
     .type = KNOB_INT,
     .offset = AT(channels),
     .initial = "128",
     .min = 1,
     .max = 65536,
     .section = "model",
     .help = "width, a multiple of heads"},
    {.name = "model.heads",
     .type = KNOB_INT,
     .offset = AT(heads),
     .initial = "4",
     .min = 1,
     .max = 1024,
     .section = "model",
     .help = "attention heads"},
    {.name = "model.vocabulary",
     .type = KNOB_INT,
     .offset = AT(vocabulary),
     .initial = "256",
     .min = 2,
     .max = 1 << 20,
     .section = "model",
     .help = "tokens; the bytes tokenizer needs 256"},
    {.name = "model.kv_heads",
     .type = KNOB_INT,
     .offset = AT(kv_heads),
     .initial = "0",
     .min = 0,
     .max = 1024,
     .section = "model",
     .help = "llama: heads of keys and values, a divisor of heads; 0: heads"},
    {.name = "model.head_size",
     .type = KNOB_INT,
     .offset = AT(head_size),
     .initial = "0",
     .min = 0,
     .max = 1024,
     .section = "model",
     .help = "llama: elements of a head; 0: channels / heads"},
    {.name = "model.hidden",
     .type = KNOB_INT,
     .offset = AT(hidden),
     .initial = "0",
     .min = 0,
     .max = 1 << 20,
     .section = "model",
     .help = "llama: width inside of the MLP; 0: 8/3 of channels, up to a multiple of 64"},
    {.name = "model.tied",
     .type = KNOB_BOOL,
     .offset = AT(tied),
     .initial = "false",
     .section = "model",
     .help = "llama: the output weight is the token embedding (always so in gpt2)"},
    {.name = "model.attention_bias",
     .type = KNOB_BOOL,
     .offset = AT(attention_bias),
     .initial = "false",
     .section = "model",
     .help = "llama: biases in the products of attention (always there in gpt2)"},
    {.name = "model.norm_epsilon",
     .type = KNOB_DOUBLE,
     .offset = AT(norm_epsilon),
     .initial = "1e-5",
     .min = 1e-30,
     .max = 1,
     .section = "model",
     .help = "llama: of RMSNorm (1e-5 in gpt2)"},
    {.name = "model.rope_theta",
     .type = KNOB_DOUBLE,
     .offset = AT(rope_theta),
     .initial = "10000",
     .min = 1,
     .max = 1e12,
     .section = "model",
     .help = "llama: base of the rotary frequencies"},
    {.name = "model.rope_scaling",
     .type = KNOB_CHOICE,
     .offset = AT(rope_scaling),
     .initial = "none",
     .choices = rope_scalings,
     .section = "model",
     .help = "llama: how rotary frequencies are scaled for longer texts"},
    {.name = "model.rope_factor",
     .type = KNOB_DOUBLE,
     .offset = AT(rope_factor),
     .initial = "8",
     .min = 1,
     .max = 1e6,
     .section = "model",
     .help = "llama: of rope_scaling linear and llama3"},
    {.name = "model.rope_low_frequency",
     .type = KNOB_DOUBLE,
     .offset = AT(rope_low_frequency),
     .initial = "1",
     .min = 1e-6,
     .max = 1e6,
     .section = "model",
     .help = "llama: low_freq_factor of rope_scaling llama3"},
    {.name = "model.rope_high_frequency",
     .type = KNOB_DOUBLE,
     .offset = AT(rope_high_frequency),
     .initial = "4",
     .min = 1e-6,
     .max = 1e6,
     .section = "model",
     .help = "llama: high_freq_factor of rope_scaling llama3"},
    {.name = "model.rope_original_positions",
     .type = KNOB_INT,
     .offset = AT(rope_original_positions),
     .initial = "8192",
     .min = 1,
     .max = 1 << 30,
     .section = "model",
     .help = "llama: original_max_position_embeddings of rope_scaling llama3"},
    {.name = "data.path",
     .type = KNOB_TEXT,
     .offset = AT(path),
     .initial = "",
     .section = "data",
     .help = "a text file, or a folder that is read with its sub-folders (links, .dat and binary files are "
             "skipped)"},
    {.name = "data.tokenizer",
     .type = KNOB_CHOICE,
     .offset = AT(tokenizer),
     .initial = "bytes",
     .choices = tokenizers,
     .section = "data",
     .help = "how text is split into tokens"},
    {.name = "logging.interval",
     .type = KNOB_INT,
     .offset = AT(interval),
     .initial = "1",
     .min = 1,
     .max = 1e9,
     .section = "logging",
     .help = "steps from one progress line to the next"},
    {.name = "logging.sample_length",
     .type = KNOB_INT,
     .offset = AT(sample_length),
     .initial = "300",
     .min = 0,
     .max = 1e6,
     .section = "logging",
     .help = "characters sampled from the model at the end"},
    {.name = "logging.sample_temperature",
     .type = KNOB_DOUBLE,
     .offset = AT(sample_temperature),
     .initial = "0.8",
     .min = 0,
     .max = 100,
     .section = "logging",
     .help = "0: the most likely character each time"},
    {.name = "logging.sample_prompt",
     .type = KNOB_TEXT,
     .offset = AT(sample_prompt),
     .initial = "\n",
     .section = "logging",
     .help = "text from which the sample continues"},
};
static const struct knob_table table = {rows, sizeof rows / sizeof *rows};

const struct knob_table *train_config_table(void)
{
    return &table;
}

const char *train_config_architecture(const struct train_config *config)
{
    return architectures[config->architecture];
}

void train_config_free(struct train_config *config)
{
    if (config)
        knob_free(&table, config);
}

struct reader {
    const char *name;
    struct train_config *config;
    uint8_t *sources; /* [table.count] */
    struct muster_error *err;
};

enum { PLACE_SIZE = 512 };

/* "file:line:column" */
static const char *place(const struct reader *r, int line, int column, char out[PLACE_SIZE])
{
    (void)snprintf(out, PLACE_SIZE, "%s:%d:%d", r->name, line, column);
    return out;
}

static bool is_section(const char *name)
{
    for (size_t i = 0; i < table.count; i++)
        if (!strcmp(rows[i].section, name))
            return true;
    return false;
}

static int unknown(const char *where, const char *name, bool section, struct muster_error *err)
{
    const char *nearest = NULL;
    if (!section)
        nearest = knob_nearest(&table, name);
    else
        for (size_t i = 0; i < table.count && !nearest; i++)
            if (!strncmp(rows[i].section, name, 3)) /* section names differ in their first three letters */
                nearest = rows[i].section;
    if (nearest)
        return error_set(err, MUSTER_E_INVALID, "%s: unknown %s '%s'; did you mean '%s'?", where,
                         section ? "section" : "key", name, nearest);
    return error_set(
        err, MUSTER_E_INVALID, "%s: unknown %s '%s'; %s", where, section ? "section" : "key", name,
        section ? "the sections are training, model, data, logging" : "muster-train --help lists every key");
}

static int take_scalar(struct reader *r, const struct knob *knob, const struct tree_node *value)
{
    char where[PLACE_SIZE];
    place(r, value->line, value->column, where);
    if (!value->text) /* a scalar of any kind keeps its text */
        return error_set(r->err, MUSTER_E_INVALID, "%s: %s found where a single value is expected", where,
                         tree_kind_name(value->kind));
    scope_free char *place_and_key = mem_printf("%s: %s", where, knob->name);
    if (!place_and_key)
        return error_set(r->err, MUSTER_E_NOMEM, "%s: no memory", r->name);
    return knob_set(&table, r->config, r->sources, knob, value->text, KNOB_FROM_FILE, place_and_key, r->err);
}

static int take_value(struct reader *r, const char *section, const struct tree_entry *entry)
{
    char where[PLACE_SIZE];
    scope_free char *full = mem_printf("%s.%s", section, entry->key);
    if (!full)
        return error_set(r->err, MUSTER_E_NOMEM, "%s: no memory", r->name);
    const struct knob *knob = knob_find(&table, full, strlen(full), false, NULL);
    if (!knob)
        return unknown(place(r, entry->line, entry->column, where), full, false, r->err);
    if (knob->type != KNOB_LIST || entry->value->kind != TREE_LIST)
        return take_scalar(r, knob, entry->value);
    for (size_t i = 0; i < entry->value->count; i++)
        if (take_scalar(r, knob, entry->value->items[i]) < 0)
            return -1;
    return 0;
}

static int take_section(struct reader *r, const struct tree_entry *entry)
{
    const struct tree_node *section = entry->value;
    char where[PLACE_SIZE];
    if (!is_section(entry->key))
        return unknown(place(r, entry->line, entry->column, where), entry->key, true, r->err);
    place(r, section->line, section->column, where);
    if (section->kind == TREE_NULL) /* a heading with nothing under it */
        return 0;
    if (section->kind == TREE_LIST)
        return error_set(r->err, MUSTER_E_INVALID, "%s: a list found where keys of section '%s' are expected",
                         where, entry->key);
    if (section->kind != TREE_MAP)
        return error_set(
            r->err, MUSTER_E_INVALID,
            "%s: section '%s' is a single value; its keys belong on lines of their own, indented", where,
            entry->key);
    for (size_t i = 0; i < section->count; i++)
        if (take_value(r, entry->key, &section->entries[i]) < 0)
            return -1;
    return 0;
}

static int take_tree(struct reader *r, const struct tree *tree)
{
    char where[PLACE_SIZE];
    const struct tree_node *root = tree->document_count ? tree->documents[0] : NULL;
    if (tree->document_count > 1)
        return error_set(
            r->err, MUSTER_E_INVALID, "%s: the configuration must be one document; this file has %zu",
            place(r, tree->documents[1]->line, tree->documents[1]->column, where), tree->document_count);
    if (root && root->kind != TREE_MAP)
        return error_set(r->err, MUSTER_E_INVALID,
                         "%s: the file is not a mapping with the sections training, model, data, logging",
                         place(r, root->line, root->column, where));
    for (size_t i = 0; root && i < root->count; i++)
        if (take_section(r, &root->entries[i]) < 0)
            return -1;
    return 0;
}

static int read_yaml(const char *name, const char *text, size_t length, struct train_config *config,
                     uint8_t *sources, struct muster_error *err)
{
    struct reader r = {.name = name, .config = config, .sources = sources, .err = err};
    struct tree tree;
    if (tree_parse(name, text, length, &tree, err) < 0)
        return -1;
    int result = take_tree(&r, &tree);
    tree_free(&tree);
    return result;
}

static int override(struct train_config *config, uint8_t *sources, const char *text, struct muster_error *err)
{
    const char *equals = strchr(text, '=');
    if (!equals)
        return error_set(err, MUSTER_E_INVALID, "--set %s: write key=value, e.g. --set training.steps=100",
                         text);
    const struct knob *knob = knob_find(&table, text, (size_t)(equals - text), false, NULL);
    scope_free char *key = mem_strndup(text, (size_t)(equals - text));
    if (!key)
        return error_set(err, MUSTER_E_NOMEM, "--set: no memory");
    if (!knob)
        return unknown("--set", key, false, err);
    scope_free char *where = mem_printf("--set %s", key);
    if (!where)
        return error_set(err, MUSTER_E_NOMEM, "--set: no memory");
    return knob_set(&table, config, sources, knob, equals + 1, KNOB_FROM_FLAG, where, err);
}

/* Keys that have an effect only beside another one. */
static int check_model_keys(const char *name, const struct train_config *c, const uint8_t *sources,
                            struct muster_error *err)
{
    enum { ANY_LLAMA, ANY_SCALING, LLAMA3 };
    static const struct {
        const char *key;
        int needs;
    } keys[] = {
        {"model.kv_heads", ANY_LLAMA},         {"model.head_size", ANY_LLAMA},
        {"model.hidden", ANY_LLAMA},           {"model.tied", ANY_LLAMA},
        {"model.attention_bias", ANY_LLAMA},   {"model.norm_epsilon", ANY_LLAMA},
        {"model.rope_theta", ANY_LLAMA},       {"model.rope_scaling", ANY_LLAMA},
        {"model.rope_factor", ANY_SCALING},    {"model.rope_low_frequency", LLAMA3},
        {"model.rope_high_frequency", LLAMA3}, {"model.rope_original_positions", LLAMA3},
    };
    bool llama = c->architecture == TRAIN_ARCHITECTURE_LLAMA;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const struct knob *knob = knob_find(&table, keys[i].key, strlen(keys[i].key), false, NULL);
        if (sources[knob - rows] == KNOB_FROM_DEFAULT)
            continue;
        if (!llama)
            return error_set(err, MUSTER_E_INVALID,
                             "%s: %s is a key of llama, but model.architecture is %s; remove it or set "
                             "model.architecture: llama",
                             name, keys[i].key, architectures[c->architecture]);
        if ((keys[i].needs == ANY_SCALING && c->rope_scaling == 0) ||
            (keys[i].needs == LLAMA3 && strcmp(rope_scalings[c->rope_scaling], "llama3") != 0))
            return error_set(err, MUSTER_E_INVALID,
                             "%s: %s has no effect with model.rope_scaling: %s; set it to %s", name,
                             keys[i].key, rope_scalings[c->rope_scaling],
                             keys[i].needs == LLAMA3 ? "llama3" : "linear or llama3");
    }
    return 0;
}

struct lr_schedule train_config_schedule(const struct train_config *config)
{
    const struct train_config *c = config;
    return (struct lr_schedule){.kind = (enum lr_kind)c->schedule,
                                .peak = c->learning_rate,
                                .minimum = c->min_learning_rate,
                                .warmup_steps = c->warmup_steps,
                                .total_steps = c->steps,
                                .decay_steps = c->decay_steps,
                                .warmup = (enum lr_warmup)c->warmup,
                                .warmup_minimum = c->warmup_min_learning_rate,
                                .decay_rate = c->cycle_decay_rate,
                                .decay_interval = c->cycle_decay_interval,
                                .momentum_low = c->cycle_min_momentum,
                                .momentum_high = c->cycle_max_momentum,
                                .momentum_rate = c->cycle_momentum_rate};
}

static int train_config_check(const char *name, const struct train_config *c, struct muster_error *err)
{
    if (c->channels % c->heads && !c->head_size)
        return error_set(err, MUSTER_E_INVALID,
                         "%s: model.channels %lld is not a multiple of model.heads %lld", name,
                         (long long)c->channels, (long long)c->heads);
    if (c->tokenizer == TRAIN_TOKENIZER_BYTES && c->vocabulary < 256)
        return error_set(err, MUSTER_E_INVALID,
                         "%s: model.vocabulary %lld is below 256, and data.tokenizer is bytes", name,
                         (long long)c->vocabulary);
    if (c->min_learning_rate > c->learning_rate)
        return error_set(err, MUSTER_E_INVALID,
                         "%s: training.min_learning_rate %g is above training.learning_rate %g", name,
                         c->min_learning_rate, c->learning_rate);
    const struct lr_schedule schedule = train_config_schedule(c);
    if (lr_check(&schedule, err) < 0)
        return error_wrap(err, "%s: training.schedule", name);
    if (c->global_batch % c->micro_batch)
        return error_set(err, MUSTER_E_INVALID,
                         "%s: training.global_batch %lld is not a multiple of training.micro_batch %lld",
                         name, (long long)c->global_batch, (long long)c->micro_batch);
    if (!c->path || !*c->path)
        return error_set(err, MUSTER_E_INVALID, "%s: data.path is missing: name a text file or a folder",
                         name);
    return 0;
}

int train_config_parse(const char *name, const char *text, size_t length, char *const *overrides,
                       int override_count, struct train_config *config, struct muster_error *err)
{
    struct train_config fresh = {0};
    uint8_t sources[sizeof rows / sizeof *rows] = {0};
    int result = knob_defaults(&table, &fresh, err);
    if (!result)
        result = read_yaml(name, text, length, &fresh, sources, err);
    for (int i = 0; !result && i < override_count; i++)
        result = override(&fresh, sources, overrides[i], err);
    if (!result)
        result = check_model_keys(name, &fresh, sources, err);
    if (!result)
        result = train_config_check(name, &fresh, err);
    if (result < 0)
        train_config_free(&fresh);
    else
        *config = fresh;
    return result;
}

int train_config_read(const char *path, char *const *overrides, int override_count,
                      struct train_config *config, struct muster_error *err)
{
    scope_buffer text = {0};
    if (io_read_file(path, TREE_BYTES_LIMIT, &text, err) < 0)
        return -1;
    return train_config_parse(path, text.data ? text.data : "", text.length, overrides, override_count,
                              config, err);
}

int train_config_accumulation(const struct train_config *config, int world_size, int *micro_batches,
                              struct muster_error *err)
{
    int64_t at_once = config->micro_batch * world_size;
    if (config->global_batch % at_once)
        return error_set(err, MUSTER_E_INVALID,
                         "training.global_batch %lld is not a multiple of training.micro_batch %lld x %d "
                         "ranks; use a multiple of %lld",
                         (long long)config->global_batch, (long long)config->micro_batch, world_size,
                         (long long)at_once);
    *micro_batches = (int)(config->global_batch / at_once);
    return 0;
}
