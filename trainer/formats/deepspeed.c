/* deepspeed.c - the reader of DeepSpeed's ds_config.json. See formats.h. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/text.h"
#include "trainer/formats/formats_internal.h"
#include "trainer/formats/rows.h"

#define PLACE_DEFAULT "DeepSpeed's default"
#define DEFAULTS(assign, list)                                                                               \
    assign_weak_list(assign, ASSIGN_PROGRAM, list, sizeof(list) / sizeof *(list), PLACE_DEFAULT)

static const struct key_choice dtypes[] = {
    {"fp32", "fp32"}, {"fp16", "fp16"}, {"bf16", "bf16"}, {NULL, NULL}};
static const struct key_choice stages[] = {
    {"0", "NO_SHARD"}, {"1", "SHARD_OPTIM"}, {"2", "SHARD_GRAD_OP"}, {"3", "FULL_SHARD"}, {NULL, NULL}};
static const struct key_choice overlaps[] = {{"true", NULL}, {"false", "0"}, {NULL, NULL}};
static const struct key_choice optimizer_devices[] = {{"none", NULL}, {"cpu", "host"}, {NULL, NULL}};
static const struct key_choice offloads[] = {{"false", NULL}, {"true", "host"}, {NULL, NULL}};
static const struct key_choice fp16[] = {{"false", NULL}, {"true", "fp16"}, {NULL, NULL}};
static const struct key_choice wandb_modes[] = {{"false", "off"}, {"true", "offline"}, {NULL, NULL}};
static const struct key_choice bf16[] = {{"false", NULL}, {"true", "bf16"}, {NULL, NULL}};

/* ---- rules of single keys ---- */

static int take_accumulation(struct key_walk *walk, const char *shown, const struct tree_entry *entry)
{
    walk->assign->wants_batch = true;
    return key_keep(walk, ASSIGN_ACCUMULATION, entry->value, shown, 1, 1e9);
}

/* "inf", as accelerate writes it, means never. */
static int take_interval(struct key_walk *walk, const char *shown, const struct tree_entry *entry)
{
    const char *text = entry->value->text;
    const bool never = text && (!strcmp(text, "inf") || !strcmp(text, "Infinity"));
    if (key_of_trainer(walk, entry->value))
        return 0;
    return key_assign(walk, "logging.interval", never ? "1000000000" : text ? text : "", entry->value, shown);
}

/* true in old files: stage 1. */
static int take_zero(struct key_walk *walk, const char *shown, const struct tree_entry *entry)
{
    char where[KEY_PLACE], value[KEY_PLACE];
    if (entry->value->kind == TREE_MAP)
        return key_walk_map(walk, "zero_optimization.", "zero_optimization.", entry->value);
    if (entry->value->kind == TREE_BOOL)
        return key_assign(walk, "training.strategy", entry->value->boolean ? "SHARD_OPTIM" : "NO_SHARD",
                          entry->value, shown);
    return error_set(walk->assign->err, MUSTER_E_INVALID, "%s: %s found where a mapping is expected",
                     key_where(walk, entry->value, shown, where), key_value(entry->value, value));
}

/* 0 turns prefetching off. Any other number of elements has no effect: groups are prefetched whole. */
static int take_prefetch(struct key_walk *walk, const char *shown, const struct tree_entry *entry)
{
    double elements;
    if (key_is_automatic(entry->value))
        return 0;
    if (key_number(walk, entry->value, shown, 0, 9e15, &elements) < 0)
        return -1;
    if (elements == 0)
        return key_assign(walk, "training.prefetch", "0", entry->value, shown);
    return key_ignore(walk, shown);
}

static int take_persistence(struct key_walk *walk, const char *shown, const struct tree_entry *entry)
{
    char place[KEY_PLACE];
    if (key_is_automatic(entry->value))
        return assign_keep(walk->assign, ASSIGN_WHOLE_ELEMENTS, -1,
                           key_origin(walk, entry->value, shown, place));
    return key_keep(walk, ASSIGN_WHOLE_ELEMENTS, entry->value, shown, 0, 1e14);
}

static int take_mics(struct key_walk *walk, const char *shown, const struct tree_entry *entry)
{
    double ranks;
    if (key_number(walk, entry->value, shown, -1, 1 << 20, &ranks) < 0)
        return -1;
    return ranks <= 0 ? 0 : key_keep(walk, ASSIGN_SHARD_RANKS, entry->value, shown, 1, 1 << 20);
}

static int take_adam_w_mode(struct key_walk *walk, const char *shown, const struct tree_entry *entry)
{
    const bool decoupled = entry->value->kind != TREE_BOOL || entry->value->boolean;
    return decoupled ? 0 : key_assign(walk, "training.optimizer", "Adam", entry->value, shown);
}

static int take_betas(struct key_walk *walk, const char *shown, const struct tree_entry *entry)
{
    return key_betas(walk, shown, entry->value);
}

static int take_total(struct key_walk *walk, const char *shown, const struct tree_entry *entry)
{
    return key_keep(walk, ASSIGN_SCHEDULE_STEPS, entry->value, shown, 1, 1e9);
}

static int take_min_ratio(struct key_walk *walk, const char *shown, const struct tree_entry *entry)
{
    return key_keep(walk, ASSIGN_WARMUP_MIN_RATIO, entry->value, shown, 0, 1);
}

static int take_cos_ratio(struct key_walk *walk, const char *shown, const struct tree_entry *entry)
{
    return key_keep(walk, ASSIGN_MIN_RATIO, entry->value, shown, 0, 1);
}

/* take_scheduler has read this key before the others of its block. */
static int take_cycle_momentum(struct key_walk *walk, const char *shown, const struct tree_entry *entry)
{
    (void)walk;
    (void)shown;
    (void)entry;
    return 0;
}

/* Event files go to the log's folder. */
static int take_tensorboard(struct key_walk *walk, const char *shown, const struct tree_entry *entry)
{
    const struct tree_node *block = entry->value, *enabled = tree_get(block, "enabled");
    const char *path = tree_text(tree_get(block, "output_path")),
               *job = tree_text(tree_get(block, "job_name"));
    const bool idle = walk->idle;
    walk->idle = true; /* only finds keys that do not exist */
    const int known = key_walk_map(walk, "tensorboard.", "tensorboard.", block);
    walk->idle = idle;
    if (known < 0 || !enabled || enabled->kind != TREE_BOOL || !enabled->boolean)
        return known;
    scope_free char *folder =
        mem_printf("%s/%s", path && *path ? path : "runs", job ? job : "DeepSpeedJobName");
    return folder ? key_assign(walk, "logging.dir", folder, enabled, shown) : assign_no_memory(walk->assign);
}

/* ---- optimizer and scheduler: their parameters depend on the type ---- */

static const struct key_row param_rows[] = {
#include "trainer/formats/deepspeed_params.inc"
};
static const struct key_table params = {"DeepSpeed", param_rows, sizeof param_rows / sizeof *param_rows};

struct type_row {
    const char *type, *setting; /* setting NULL: not supported, see why */
    const char *why;
};
static const struct type_row optimizer_types[] = {
    {"AdamW", "AdamW", NULL},
    {"Adam", "AdamW", NULL}, /* decouples weight decay unless adam_w_mode is false */
    {"SGD", "SGD", NULL},
    {"OneBitAdam", NULL, "its updates are not compressed here; use AdamW"},
    {"ZeroOneAdam", NULL, "its updates are not compressed here; use AdamW"},
    {"OneBitLamb", NULL, "its updates are not compressed here; use AdamW"},
    {"Lamb", NULL, "use AdamW with a warm-up"},
    {"Lion", NULL, "use AdamW"},
    {"Muon", NULL, "use AdamW"},
    {"Adagrad", NULL, "use AdamW"},
    {"MuAdam", NULL, "use AdamW"},
    {"MuAdamW", NULL, "use AdamW"},
    {"MuSGD", NULL, "use SGD"},
};
static const struct type_row scheduler_types[] = {
    {"WarmupLR", "WarmupLR", NULL},
    {"WarmupDecayLR", "WarmupDecayLR", NULL},
    {"WarmupCosineLR", "WarmupCosineLR", NULL},
    {"OneCycle", "OneCycle", NULL},
    {"LRRangeTest", NULL, "it looks for a rate, it does not train; use WarmupLR"},
};

static const struct type_row *type_of(struct key_walk *walk, const struct type_row *rows, size_t count,
                                      const struct tree_node *type, const char *shown)
{
    const char *names[16], *nearest;
    char where[KEY_PLACE], value[KEY_PLACE];
    for (size_t i = 0; i < count; i++) {
        names[i] = rows[i].type;
        if (!strcasecmp(rows[i].type, type->text ? type->text : "") && rows[i].setting)
            return &rows[i];
        if (!strcasecmp(rows[i].type, type->text ? type->text : "")) {
            (void)error_set(walk->assign->err, MUSTER_E_UNSUPPORTED, "%s: '%s' is not supported: %s",
                            key_where(walk, type, shown, where), rows[i].type, rows[i].why);
            return NULL;
        }
    }
    nearest = type->text ? text_nearest(type->text, names, count) : NULL;
    (void)error_set(walk->assign->err, MUSTER_E_INVALID, "%s: %s is not known%s%s%s",
                    key_where(walk, type, shown, where), key_value(type, value),
                    nearest ? "; did you mean '" : "", nearest ? nearest : "", nearest ? "'?" : "");
    return NULL;
}

static int expect_block(struct key_walk *walk, const struct tree_node *block, const char *shown)
{
    char where[KEY_PLACE], value[KEY_PLACE];
    if (block->kind != TREE_MAP)
        return error_set(walk->assign->err, MUSTER_E_INVALID, "%s: %s found where a mapping is expected",
                         key_where(walk, block, shown, where), key_value(block, value));
    for (size_t i = 0; i < block->count; i++) {
        static const char *const known[] = {"type", "params", "legacy_fusion"};
        const struct tree_entry *entry = &block->entries[i];
        bool found = *entry->key == '_';
        for (int k = 0; k < 3; k++)
            found = found || !strcmp(entry->key, known[k]);
        const char *nearest = found ? NULL : text_nearest(entry->key, known, 2);
        if (!found)
            return error_set(walk->assign->err, MUSTER_E_INVALID, "%s: unknown key '%s.%.100s'%s%s%s",
                             key_place(walk, entry->line, entry->column, where), shown, entry->key,
                             nearest ? "; did you mean '" : "", nearest ? nearest : "", nearest ? "'?" : "");
    }
    return 0;
}

static int walk_params(struct key_walk *walk, const char *type, const char *shown,
                       const struct tree_node *map)
{
    char path[64], where[KEY_PLACE], value[KEY_PLACE];
    const struct key_table *before = walk->table;
    if (!map)
        return 0;
    if (map->kind != TREE_MAP)
        return error_set(walk->assign->err, MUSTER_E_INVALID, "%s: %s found where a mapping is expected",
                         key_where(walk, map, shown, where), key_value(map, value));
    (void)snprintf(path, sizeof path, "%s.", type); /* types are short */
    walk->table = &params;
    const int result = key_walk_map(walk, path, shown, map);
    walk->table = before;
    return result;
}

static int take_optimizer(struct key_walk *walk, const char *shown, const struct tree_entry *entry)
{
    static const struct assign_pair defaults[] = {
        {"training.learning_rate", "0.001"}, {"training.beta1", "0.9"},      {"training.beta2", "0.999"},
        {"training.epsilon", "1e-8"},        {"training.weight_decay", "0"}, {"training.decay", "all"}};
    const struct tree_node *type = tree_get(entry->value, "type");
    char where[KEY_PLACE];
    if (expect_block(walk, entry->value, shown) < 0)
        return -1;
    if (!type)
        return error_set(walk->assign->err, MUSTER_E_INVALID, "%s.type is missing: AdamW, Adam or SGD",
                         key_where(walk, entry->value, shown, where));
    const struct type_row *row = type_of(
        walk, optimizer_types, sizeof optimizer_types / sizeof *optimizer_types, type, "optimizer.type");
    if (!row || key_assign(walk, "training.optimizer", row->setting, type, "optimizer.type") < 0 ||
        walk_params(walk, row->type, "optimizer.params.", tree_get(entry->value, "params")) < 0)
        return -1;
    return DEFAULTS(walk->assign, defaults);
}

static int take_scheduler(struct key_walk *walk, const char *shown, const struct tree_entry *entry)
{
    static const struct assign_pair defaults[] = {{"training.warmup_steps", "1000"},
                                                  {"training.warmup_type", "log"},
                                                  {"training.warmup_min_learning_rate", "0"}};
    static const struct assign_pair cycle[] = {{"training.warmup_steps", "2000"}};
    static const struct assign_pair still[] = {{"training.cycle_min_momentum", "0"},
                                               {"training.cycle_max_momentum", "0"}};
    const struct tree_node *type = tree_get(entry->value, "type"), *map = tree_get(entry->value, "params");
    const struct tree_node *momentum = tree_get(map, "cycle_momentum");
    char where[KEY_PLACE];
    if (expect_block(walk, entry->value, shown) < 0)
        return -1;
    if (!type)
        return error_set(walk->assign->err, MUSTER_E_INVALID,
                         "%s.type is missing: WarmupLR, WarmupDecayLR, WarmupCosineLR or OneCycle",
                         key_where(walk, entry->value, shown, where));
    const struct type_row *row = type_of(
        walk, scheduler_types, sizeof scheduler_types / sizeof *scheduler_types, type, "scheduler.type");
    if (!row || key_assign(walk, "training.schedule", row->setting, type, "scheduler.type") < 0)
        return -1;
    if (!strcmp(row->setting, "WarmupCosineLR") &&
        assign_keep(walk->assign, ASSIGN_MIN_RATIO, 1e-4, PLACE_DEFAULT) < 0)
        return -1;
    if (walk_params(walk, row->type, "scheduler.params.", map) < 0)
        return -1;
    if (momentum && momentum->kind == TREE_BOOL && !momentum->boolean &&
        assign_weak_list(walk->assign, ASSIGN_VALUE, still, 2, "cycle_momentum: false") < 0)
        return -1;
    return !strcmp(row->setting, "OneCycle") ? DEFAULTS(walk->assign, cycle)
                                             : DEFAULTS(walk->assign, defaults);
}

/* ---- the file ---- */

static const struct key_row rows[] = {
#include "trainer/formats/deepspeed_keys.inc"
};
const struct key_table deepspeed_keys = {"DeepSpeed", rows, sizeof rows / sizeof *rows};
const struct key_table *const deepspeed_params = &params;

int deepspeed_read(struct key_walk *walk, const struct tree_node *root)
{
    static const struct assign_pair defaults[] = {{"training.clip_norm", "1"},
                                                  {"training.strategy", "NO_SHARD"}};
    static const struct assign_pair constant[] = {{"training.schedule", "constant"},
                                                  {"training.warmup_steps", "0"}};
    /* Read after the optimizer, whose rate it may replace. */
    const struct tree_entry *scheduler = tree_entry(root, "scheduler");
    walk->table = &deepspeed_keys;
    walk->assign->wants_batch = true; /* a file without sizes is an error, as for DeepSpeed */
    for (size_t i = 0; i < root->count; i++)
        if (&root->entries[i] != scheduler && key_walk_entry(walk, "", "", &root->entries[i]) < 0)
            return -1;
    if (scheduler && key_walk_entry(walk, "", "", scheduler) < 0)
        return -1;
    if (!scheduler && tree_get(root, "optimizer") && DEFAULTS(walk->assign, constant) < 0)
        return -1;
    return DEFAULTS(walk->assign, defaults);
}

bool deepspeed_recognise(const struct tree_node *root)
{
    static const char *const names[] = {"train_batch_size", "train_micro_batch_size_per_gpu",
                                        "zero_optimization"};
    static const char *const blocks[] = {"fp16", "bf16", "bfloat16"};
    for (int i = 0; i < 3; i++) {
        const struct tree_node *block = tree_get(root, blocks[i]);
        if (tree_entry(root, names[i]) || (block && block->kind == TREE_MAP))
            return true;
    }
    const struct tree_node *optimizer = tree_get(root, "optimizer");
    return tree_get(optimizer, "params") != NULL;
}
