/* arguments.c - the reader of the Hugging Face Trainer's arguments, also under the names of training scripts,
 * in a file and on the command line. See formats.h. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/text.h"
#include "trainer/formats/arguments_internal.h"
#include "trainer/formats/formats_internal.h"
#include "trainer/formats/rows.h"
#include "trainer/formats/scalar.h"

static const struct key_choice optimizers[] = {{"adamw", "AdamW"},
                                               {"adamw_torch", "AdamW"},
                                               {"adamw_torch_fused", "AdamW"},
                                               {"adamw_hf", "AdamW"},
                                               {"fusedadam", "AdamW"},
                                               {"adam", "Adam"},
                                               {"sgd", "SGD"},
                                               {NULL, NULL}};
static const struct key_choice schedules[] = {{"linear", "linear"},
                                              {"cosine", "cosine"},
                                              {"cosine_with_min_lr", "cosine"},
                                              {"CosineAnnealingLR", "cosine"},
                                              {"constant", "constant"},
                                              {"constant_with_warmup", "constant"},
                                              {"warmup_stable_decay", "wsd"},
                                              {"wsd", "wsd"},
                                              {"WarmupLR", "WarmupLR"},
                                              {"WarmupDecayLR", "WarmupDecayLR"},
                                              {"WarmupCosineLR", "WarmupCosineLR"},
                                              {"OneCycle", "OneCycle"},
                                              {NULL, NULL}};
static const struct key_choice trainer_schedules[] = {{"linear", "hf_linear"},
                                                      {"cosine", "hf_cosine"},
                                                      {"cosine_with_restarts", "hf_cosine_with_restarts"},
                                                      {"polynomial", "hf_polynomial"},
                                                      {"constant", "constant"},
                                                      {"constant_with_warmup", "hf_constant_with_warmup"},
                                                      {"inverse_sqrt", "hf_inverse_sqrt"},
                                                      {"reduce_lr_on_plateau", "ReduceLROnPlateau"},
                                                      {"cosine_with_min_lr", "hf_cosine"},
                                                      {"warmup_stable_decay", "hf_warmup_stable_decay"},
                                                      {"WarmupLR", "WarmupLR"},
                                                      {"WarmupDecayLR", "WarmupDecayLR"},
                                                      {"WarmupCosineLR", "WarmupCosineLR"},
                                                      {"OneCycle", "OneCycle"},
                                                      {NULL, NULL}};
static const struct key_choice shapes[] = {
    {"linear", "linear"}, {"cosine", "cosine"}, {"1-sqrt", "1-sqrt"}, {NULL, NULL}};
static const struct key_choice bf16[] = {{"false", NULL}, {"true", "bf16"}, {NULL, NULL}};
static const struct key_choice fp16[] = {{"false", NULL}, {"true", "fp16"}, {NULL, NULL}};
static const struct key_choice amp[] = {{"false", NULL}, {"true", "fp16"}, {NULL, NULL}};
static const struct key_choice precisions[] = {
    {"no", "fp32"},      {"fp32", "fp32"}, {"float32", "fp32"}, {"32", "fp32"},       {"fp16", "fp16"},
    {"float16", "fp16"}, {"16", "fp16"},   {"bf16", "bf16"},    {"bfloat16", "bf16"}, {NULL, NULL}};
static const struct key_choice tf32[] = {{"false", "fp32"}, {"true", "tf32"}, {NULL, NULL}};
static const struct key_choice no_cuda[] = {{"false", NULL}, {"true", "cpu"}, {NULL, NULL}};
static const struct key_choice devices[] = {{"auto", "auto"}, {"cpu", "cpu"},     {"cuda", "cuda"},
                                            {"gpu", "cuda"},  {"cuda:0", "cuda"}, {NULL, NULL}};
static const struct key_choice recomputes[] = {{"false", NULL}, {"true", "all"}, {NULL, NULL}};
static const struct key_choice strategies[] = {{"0", "NO_SHARD"},
                                               {"1", "SHARD_OPTIM"},
                                               {"2", "SHARD_GRAD_OP"},
                                               {"3", "FULL_SHARD"},
                                               {"ddp", "NO_SHARD"},
                                               {"no_shard", "NO_SHARD"},
                                               {"fsdp", "FULL_SHARD"},
                                               {"full_shard", "FULL_SHARD"},
                                               {"shard_optim", "SHARD_OPTIM"},
                                               {"shard_grad_op", "SHARD_GRAD_OP"},
                                               {"hybrid_shard", "HYBRID_SHARD"},
                                               {"zero1", "SHARD_OPTIM"},
                                               {"zero2", "SHARD_GRAD_OP"},
                                               {"zero3", "FULL_SHARD"},
                                               {NULL, NULL}};
/* accelerate's numbers are the values of FSDP's enum */
static const struct key_choice fsdp_strategies[] = {{"full_shard", "FULL_SHARD"},
                                                    {"shard_grad_op", "SHARD_GRAD_OP"},
                                                    {"no_shard", "NO_SHARD"},
                                                    {"hybrid_shard", "HYBRID_SHARD"},
                                                    {"1", "FULL_SHARD"},
                                                    {"2", "SHARD_GRAD_OP"},
                                                    {"3", "NO_SHARD"},
                                                    {"4", "HYBRID_SHARD"},
                                                    {NULL, NULL}};
static const struct key_choice chat_targets[] = {{"true", "assistant"}, {"false", "all"}, {NULL, NULL}};
static const struct key_choice packings[] = {{"false", "documents"}, {"true", "packed"}, {NULL, NULL}};
static const struct key_choice four_bits[] = {{"false", NULL}, {"true", "nf4"}, {NULL, NULL}};
static const struct key_choice eight_bits[] = {{"false", NULL}, {"true", "int8"}, {NULL, NULL}};
static const struct key_choice architectures[] = {{"gpt2", "gpt2"}, {"llama", "llama"}, {NULL, NULL}};
static const struct key_choice tokenizers[] = {{"bytes", "bytes"}, {"byte", "bytes"}, {NULL, NULL}};

/* ---- rules ---- */

static int take_accumulation(struct key_walk *walk, const char *shown, const struct tree_entry *entry)
{
    walk->assign->wants_batch = true;
    return key_keep(walk, ASSIGN_ACCUMULATION, entry->value, shown, 1, 1e9);
}

static int take_chunks(struct key_walk *walk, const char *shown, const struct tree_entry *entry)
{
    walk->assign->wants_batch = true;
    return key_keep(walk, ASSIGN_CHUNKS, entry->value, shown, 1, 1 << 16);
}

static int take_betas(struct key_walk *walk, const char *shown, const struct tree_entry *entry)
{
    return key_betas(walk, shown, entry->value);
}

static int take_epochs(struct key_walk *walk, const char *shown, const struct tree_entry *entry)
{
    return key_epochs(walk, shown, entry->value);
}

/* Steps of -1, or 0 in some scripts, mean that the epochs count. */
static int take_steps(struct key_walk *walk, const char *shown, const struct tree_entry *entry)
{
    double steps;
    if (key_of_trainer(walk, entry->value) || assign_overridden(walk->assign, "training.steps"))
        return 0;
    if (key_number(walk, entry->value, shown, -1, 1e9, &steps) < 0)
        return -1;
    if (steps <= 0)
        return 0;
    return key_assign(walk, "training.steps", entry->value->text, entry->value, shown) < 0
               ? -1
               : assign_reset(walk->assign, "training.epochs");
}

static int take_min_rate(struct key_walk *walk, const char *shown, const struct tree_entry *entry)
{
    return key_keep(walk, ASSIGN_MIN_RATIO, entry->value, shown, 0, 1);
}

/* Two schedules have no warm-up in transformers, with any other settings. */
static bool has_no_warmup(const struct key_walk *walk)
{
    const char *type = tree_text(tree_get(walk->root, "lr_scheduler_type"));
    return type && (!strcasecmp(type, "constant") || !strcasecmp(type, "reduce_lr_on_plateau"));
}

static int take_warmup_ratio(struct key_walk *walk, const char *shown, const struct tree_entry *entry)
{
    double ratio;
    if (key_of_trainer(walk, entry->value))
        return 0;
    if (key_number(walk, entry->value, shown, 0, 1, &ratio) < 0)
        return -1;
    if (has_no_warmup(walk))
        return ratio > 0 ? key_ignore(walk, shown) : 0;
    return ratio > 0 ? key_keep(walk, ASSIGN_WARMUP_RATIO, entry->value, shown, 0, 1) : 0; /* steps count */
}

/* A number below 1 is a ratio, as in transformers 5. */
static int take_warmup(struct key_walk *walk, const char *shown, const struct tree_entry *entry)
{
    double steps;
    if (key_of_trainer(walk, entry->value))
        return 0;
    if (key_number(walk, entry->value, shown, 0, 1e9, &steps) < 0)
        return -1;
    if (has_no_warmup(walk))
        return steps > 0 ? key_ignore(walk, shown) : 0;
    if (steps > 0 && steps < 1)
        return key_keep(walk, ASSIGN_WARMUP_RATIO, entry->value, shown, 0, 1);
    return key_assign(walk, "training.warmup_steps", entry->value->text, entry->value, shown);
}

/* "type" and "name" of a block choose; its other keys are read as keys of the file. */
static int take_choice_block(struct key_walk *walk, const char *shown, const struct tree_node *node,
                             const struct key_row *row)
{
    static const char *const choosing[] = {"type", "name"};
    char below[KEY_PLACE], shown_type[KEY_PLACE];
    (void)snprintf(below, sizeof below, "%s.", shown); /* a key of ours */
    for (size_t i = 0; i < node->count; i++) {
        const struct tree_entry *entry = &node->entries[i];
        int result;
        if (!strcmp(entry->key, choosing[0]) || !strcmp(entry->key, choosing[1])) {
            (void)snprintf(shown_type, sizeof shown_type, "%s%s", below, entry->key);
            result = key_choose(walk, row, entry->value, shown_type);
        } else {
            result = key_walk_entry(walk, "", below, entry);
        }
        if (result < 0)
            return -1;
    }
    return 0;
}

static int take_scheduler(struct key_walk *walk, const char *shown, const struct tree_entry *entry)
{
    static const struct key_row row =
        CHOICE_WHY("", "training.schedule", schedules, "training.schedule has all schedules");
    if (entry->value->kind == TREE_MAP)
        return take_choice_block(walk, shown, entry->value, &row);
    return key_choose(walk, &row, entry->value, shown);
}

/* The Trainer's own names; its defaults are weak, and come before those in arguments_defaults. */
static int take_trainer_schedule(struct key_walk *walk, const char *shown, const struct tree_entry *entry)
{
    static const struct key_row row =
        CHOICE_WHY("", "training.schedule", trainer_schedules, "training.schedule has all schedules");
    const char *text = entry->value->text;
    const struct tree_node *kwargs = tree_get(walk->root, "lr_scheduler_kwargs");
    char where[KEY_PLACE];
    if (entry->value->kind == TREE_MAP)
        return take_scheduler(walk, shown, entry);
    if (text && !strcmp(text, "cosine_with_min_lr") && !walk->is_option && !tree_get(kwargs, "min_lr") &&
        !tree_get(kwargs, "min_lr_rate"))
        return error_set(walk->assign->err, MUSTER_E_INVALID,
                         "%s: cosine_with_min_lr needs lr_scheduler_kwargs with min_lr or min_lr_rate",
                         key_where(walk, entry->value, shown, where));
    if (text && !strcmp(text, "polynomial") &&
        assign_weakly(walk->assign, ASSIGN_TRAINER, "training.min_learning_rate", "1e-7", PLACE_TRAINER) < 0)
        return -1;
    return key_choose(walk, &row, entry->value, shown);
}

static int take_optimizer(struct key_walk *walk, const char *shown, const struct tree_entry *entry)
{
    static const struct key_row row = CHOICE("", "training.optimizer", optimizers);
    if (entry->value->kind == TREE_MAP)
        return take_choice_block(walk, shown, entry->value, &row);
    return key_choose(walk, &row, entry->value, shown);
}

/* The value is a file, the settings themselves, or DeepSpeed's own switch, true or false. */
static int take_deepspeed(struct key_walk *walk, const char *shown, const struct tree_entry *entry)
{
    const struct tree_node *value = entry->value;
    char where[KEY_PLACE];
    if (value->kind == TREE_BOOL)
        return 0;
    if (value->kind == TREE_TEXT)
        return *value->text ? walk->open(walk, value->text, value) : 0;
    if (value->kind != TREE_MAP)
        return error_set(walk->assign->err, MUSTER_E_INVALID, "%s: %s found where a file is expected",
                         key_where(walk, value, shown, where), tree_kind_name(value->kind));
    const struct key_table *before = walk->table;
    const int result = deepspeed_read(walk, value);
    walk->table = before;
    return result;
}

/* Takes a word of "full_shard auto_wrap", or of a list. */
static int take_fsdp_word(struct key_walk *walk, const char *shown, const struct tree_node *node,
                          const char *word)
{
    static const struct key_row row =
        CHOICE_WHY("", "training.strategy", fsdp_strategies, "auto_wrap and true are taken, too");
    struct tree_node one = *node;
    one.kind = TREE_TEXT;
    one.text = word;
    if (!*word || !strcmp(word, "auto_wrap") || !strcmp(word, "false"))
        return 0;
    if (!strcmp(word, "true"))
        one.text = "full_shard";
    return key_choose(walk, &row, &one, shown);
}

static int take_fsdp(struct key_walk *walk, const char *shown, const struct tree_entry *entry)
{
    const struct tree_node *value = entry->value;
    if (value->kind == TREE_LIST) {
        for (size_t i = 0; i < value->count; i++)
            if (take_fsdp_word(walk, shown, value->items[i],
                               value->items[i]->text ? value->items[i]->text : "") < 0)
                return -1;
        return 0;
    }
    const char *text = value->kind == TREE_BOOL ? (value->boolean ? "true" : "false") : value->text;
    scope_free char *words = mem_strdup(text ? text : "");
    char *rest = NULL;
    if (!words)
        return assign_no_memory(walk->assign);
    for (char *word = strtok_r(words, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
        if (take_fsdp_word(walk, shown, value, word) < 0)
            return -1;
    return 0;
}

static int take_ranks(struct key_walk *walk, const char *shown, const struct tree_entry *entry)
{
    char place[KEY_PLACE];
    double ranks;
    if (key_of_trainer(walk, entry->value))
        return 0;
    if (key_number(walk, entry->value, shown, 1, 1 << 20, &ranks) < 0)
        return -1;
    if ((int)ranks == walk->assign->world_size)
        return 0;
    return assign_note(walk->assign, "%s %d: the launcher starts the ranks, and these are %d",
                       key_origin(walk, entry->value, shown, place), (int)ranks, walk->assign->world_size);
}

/* ---- the file, and options ---- */

static const struct key_row rows[] = {
#include "trainer/formats/arguments_keys.inc"
};
const struct key_table arguments_keys = {"Hugging Face's Trainer and training scripts", rows,
                                         sizeof rows / sizeof *rows};

/* Whether a file has names that the Trainer alone uses; then the Trainer's defaults apply. */
static bool is_trainer(const struct tree_node *root)
{
    static const char *const names[] = {"per_device_train_batch_size",
                                        "num_train_epochs",
                                        "lr_scheduler_type",
                                        "logging_strategy",
                                        "save_strategy",
                                        "eval_strategy",
                                        "evaluation_strategy",
                                        "logging_steps",
                                        "save_total_limit"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (tree_entry(root, names[i]))
            return true;
    return false;
}

bool arguments_recognise(const struct tree_node *root)
{
    for (size_t i = 0; i < root->count; i++)
        if (key_find(&arguments_keys, root->entries[i].key) || root->entries[i].value->text)
            return true;
    return false;
}

/* null means something for one key of the Trainer: max_grad_norm, no clipping. */
static int unclip(struct key_walk *walk, const struct tree_node *root)
{
    const struct tree_entry *clip = tree_entry(root, "max_grad_norm");
    char place[KEY_PLACE];
    if (!clip || clip->value->kind != TREE_NULL)
        return 0;
    return assign_weakly(walk->assign, ASSIGN_VALUE, "training.clip_norm", "0",
                         key_origin(walk, clip->value, "max_grad_norm", place));
}

int arguments_read(struct key_walk *walk, const struct tree_node *root)
{
    walk->table = &arguments_keys;
    if (is_trainer(root))
        walk->assign->trainer = true;
    return unclip(walk, root) < 0 || arguments_evaluate_as_logged(walk, root) < 0
               ? -1
               : key_walk_map(walk, "", "", root);
}

const char *arguments_inner(const char *name)
{
    static const char section[] = "parallelism.";
    return strncmp(name, section, sizeof section - 1) ? name : name + sizeof section - 1;
}

int arguments_option(struct key_walk *walk, const char *name, const char *value)
{
    struct tree_node node = {.kind = value ? TREE_TEXT : TREE_BOOL, .text = value ? value : "true"};
    scope_free char *key = mem_strdup(name);
    if (!key)
        return assign_no_memory(walk->assign);
    for (char *c = key; *c; c++)
        *c = *c == '-' ? '_' : *c;
    if (!value) {
        node.kind = TREE_BOOL;
        node.boolean = true;
    } else if (scalar_is_null(value) && *value != '~') {
        node.kind = TREE_NULL;
    } else if (text_bool(value, &node.boolean) && strlen(value) > 1) { /* 1 may be a number, t a name */
        node.kind = TREE_BOOL;
    }
    const struct tree_entry entry = {.key = arguments_inner(key), .value = &node};
    walk->table = &arguments_keys;
    return key_walk_entry(walk, "", "", &entry);
}

int arguments_defaults(struct assign *assign)
{
    static const struct assign_pair defaults[] = {
        {"training.schedule", "hf_linear"},  {"training.learning_rate", "5e-5"},
        {"training.min_learning_rate", "0"}, {"training.warmup_steps", "0"},
        {"training.weight_decay", "0"},      {"training.decay", "matrices"},
        {"training.beta1", "0.9"},           {"training.beta2", "0.999"},
        {"training.epsilon", "1e-8"},        {"training.clip_norm", "1"}};
    return assign_weak_list(assign, ASSIGN_TRAINER, defaults, sizeof defaults / sizeof *defaults,
                            PLACE_TRAINER);
}
