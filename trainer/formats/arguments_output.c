/* arguments_output.c - rules of the Trainer's arguments about checkpoints, output, evaluation, logging and
 * adapters. See arguments_internal.h. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "trainer/formats/arguments_internal.h"
#include "trainer/formats/rows.h"
#include "trainer/formats/scalar.h"

/* The folder gets checkpoints, and at the end the model, as a folder of Hugging Face. */
int arguments_output_dir(struct key_walk *walk, const char *shown, const struct tree_entry *entry)
{
    char place[KEY_PLACE];
    const char *folder = entry->value->text;
    if (!folder || !*folder || key_of_trainer(walk, entry->value))
        return 0;
    scope_free char *model = mem_printf("%s%smodel", folder, folder[strlen(folder) - 1] == '/' ? "" : "/");
    key_origin(walk, entry->value, shown, place);
    if (!model)
        return assign_no_memory(walk->assign);
    if (key_assign(walk, "training.checkpoint_dir", folder, entry->value, shown) < 0 ||
        assign_weakly(walk->assign, ASSIGN_VALUE, "training.output", model, place) < 0)
        return -1;
    return assign_weakly(walk->assign, ASSIGN_VALUE, "training.output_format", "hf", place);
}

/* transformers' default folder, if none is named. */
static int want_checkpoints(struct key_walk *walk)
{
    return assign_weakly(walk->assign, ASSIGN_TRAINER, "training.checkpoint_dir", "trainer_output",
                         PLACE_TRAINER);
}

/* Takes "no", "steps" or "epoch". off: the setting's value for "no". */
static int take_strategy(struct key_walk *walk, const char *shown, const struct tree_entry *entry,
                         const char *setting, const char *off, enum assign_number_kind kind)
{
    static const struct key_choice choices[] = {{"no", NULL}, {"steps", NULL}, {"epoch", NULL}, {NULL, NULL}};
    const struct key_row row = CHOICE_WHY("", setting, choices, "give steps");
    const char *text = entry->value->text;
    char place[KEY_PLACE];
    if (key_choose(walk, &row, entry->value, shown) < 0)
        return -1;
    key_origin(walk, entry->value, shown, place);
    if (text && !strcasecmp(text, "no"))
        return assign_weakly(walk->assign, ASSIGN_VALUE, setting, off, place);
    return text && !strcasecmp(text, "epoch") ? assign_keep(walk->assign, kind, ASSIGN_EACH_EPOCH, place) : 0;
}

/* Whether the strategy is not "steps", so that a number of steps has no effect. */
static bool strategy_is_other(const struct key_walk *walk, const char *name, const char *old)
{
    const char *text = old ? tree_text(tree_get(walk->root, old)) : NULL;
    const struct tree_node *node = tree_get(walk->root, name);
    text = text ? text : node ? node->text : NULL;
    return text && (!strcasecmp(text, "no") || !strcasecmp(text, "epoch"));
}

/* A number below 1 is a share of all steps. */
static int take_every(struct key_walk *walk, const char *shown, const struct tree_node *node,
                      const char *setting, enum assign_number_kind kind)
{
    double steps;
    if (key_number(walk, node, shown, 0, 1e9, &steps) < 0)
        return -1;
    return steps > 0 && steps < 1 ? key_keep(walk, kind, node, shown, 0, 1)
                                  : key_assign(walk, setting, node->text, node, shown);
}

int arguments_save_strategy(struct key_walk *walk, const char *shown, const struct tree_entry *entry)
{
    const char *text = entry->value->text;
    if (take_strategy(walk, shown, entry, "training.checkpoint_every", "0", ASSIGN_CHECKPOINT_SHARE) < 0)
        return -1;
    return text && !strcasecmp(text, "no") ? 0 : want_checkpoints(walk);
}

int arguments_save_steps(struct key_walk *walk, const char *shown, const struct tree_entry *entry)
{
    if (key_of_trainer(walk, entry->value))
        return 0;
    if (strategy_is_other(walk, "save_strategy", NULL))
        return key_ignore(walk, shown);
    return want_checkpoints(walk) < 0
               ? -1
               : take_every(walk, shown, entry->value, "training.checkpoint_every", ASSIGN_CHECKPOINT_SHARE);
}

int arguments_save_limit(struct key_walk *walk, const char *shown, const struct tree_entry *entry)
{
    const char *text = entry->value->text;
    if (key_of_trainer(walk, entry->value))
        return 0;
    return want_checkpoints(walk) < 0
               ? -1
               : key_assign(walk, "training.checkpoint_keep", text ? text : "", entry->value, shown);
}

/* ---- evaluation ---- */

int arguments_eval_strategy(struct key_walk *walk, const char *shown, const struct tree_entry *entry)
{
    return take_strategy(walk, shown, entry, "training.evaluate_every", "0", ASSIGN_EVALUATE_SHARE);
}

int arguments_eval_steps(struct key_walk *walk, const char *shown, const struct tree_entry *entry)
{
    if (key_of_trainer(walk, entry->value))
        return 0;
    if (strategy_is_other(walk, "eval_strategy", "evaluation_strategy"))
        return key_ignore(walk, shown);
    return take_every(walk, shown, entry->value, "training.evaluate_every", ASSIGN_EVALUATE_SHARE);
}

/* For evaluations by steps without a number the Trainer takes logging_steps, or 500. */
int arguments_evaluate_as_logged(struct key_walk *walk, const struct tree_node *root)
{
    const struct tree_node *old = tree_get(root, "evaluation_strategy"),
                           *now = tree_get(root, "eval_strategy");
    const struct tree_node *strategy = old ? old : now, *logged = tree_get(root, "logging_steps");
    double steps;
    if (!strategy || !strategy->text || strcasecmp(strategy->text, "steps") != 0 ||
        tree_get(root, "eval_steps"))
        return 0;
    if (!logged || !scalar_number(logged, &steps))
        return assign_weakly(walk->assign, ASSIGN_VALUE, "training.evaluate_every", "500", PLACE_TRAINER);
    return take_every(walk, "logging_steps", logged, "training.evaluate_every", ASSIGN_EVALUATE_SHARE);
}

int arguments_logging_strategy(struct key_walk *walk, const char *shown, const struct tree_entry *entry)
{
    return take_strategy(walk, shown, entry, "logging.interval", "1000000000", ASSIGN_INTERVAL_SHARE);
}

int arguments_logging_steps(struct key_walk *walk, const char *shown, const struct tree_entry *entry)
{
    if (key_of_trainer(walk, entry->value))
        return 0;
    if (strategy_is_other(walk, "logging_strategy", NULL))
        return key_ignore(walk, shown);
    return take_every(walk, shown, entry->value, "logging.interval", ASSIGN_INTERVAL_SHARE);
}

/* data_seed must be the seed: the order of samples has no seed of its own. */
int arguments_data_seed(struct key_walk *walk, const char *shown, const struct tree_entry *entry)
{
    const struct tree_node *seed = tree_get(walk->root, "seed");
    char where[KEY_PLACE];
    double one = 42, other;
    if (key_number(walk, entry->value, shown, 0, 9e15, &other) < 0)
        return -1;
    if ((!seed || scalar_number(seed, &one)) && one == other)
        return 0;
    return error_set(
        walk->assign->err, MUSTER_E_UNSUPPORTED,
        "%s: %.0f is not the seed, %.0f, and one seed gives parameters and samples: leave it out",
        key_where(walk, entry->value, shown, where), other, one);
}

/* The best checkpoint is kept, and exported at the end. */
int arguments_load_best(struct key_walk *walk, const char *shown, const struct tree_entry *entry)
{
    if (key_of_trainer(walk, entry->value) || (entry->value->kind == TREE_BOOL && !entry->value->boolean))
        return 0;
    const char *text = entry->value->kind == TREE_BOOL ? "true" : entry->value->text;
    return want_checkpoints(walk) < 0 ||
                   key_assign(walk, "training.keep_best", text ? text : "", entry->value, shown) < 0 ||
                   key_assign(walk, "training.export_best", text ? text : "", entry->value, shown) < 0
               ? -1
               : 0;
}

/* true: from the newest checkpoint, the default of a run. */
int arguments_resume(struct key_walk *walk, const char *shown, const struct tree_entry *entry)
{
    const struct tree_node *value = entry->value;
    char place[KEY_PLACE];
    if (value->kind == TREE_BOOL)
        return value->boolean ? 0
                              : assign_weakly(walk->assign, ASSIGN_VALUE, "training.resume", "none",
                                              key_origin(walk, value, shown, place));
    return key_assign(walk, "training.resume", value->text ? value->text : "", value, shown);
}

/* Event files go to the log's folder. Tracking services get nothing. */
static int take_report_word(struct key_walk *walk, const char *shown, const struct tree_node *node)
{
    const char *folder = tree_text(tree_get(walk->root, "output_dir")), *word = node->text ? node->text : "";
    char place[KEY_PLACE];
    if (!*word || !strcmp(word, "none"))
        return 0;
    if (!strcmp(word, "wandb") || !strcmp(word, "mlflow")) {
        key_origin(walk, node, shown, place);
        return *word == 'w' ? assign_weakly(walk->assign, ASSIGN_VALUE, "logging.wandb", "offline", place)
                            : assign_weakly(walk->assign, ASSIGN_VALUE, "logging.mlflow", "auto", place);
    }
    if (strcmp(word, "tensorboard") != 0 && strcmp(word, "all") != 0)
        return key_ignore(walk, shown);
    scope_free char *runs = mem_printf("%s%sruns", folder ? folder : "", folder ? "/" : "");
    key_origin(walk, node, shown, place);
    return runs ? assign_weakly(walk->assign, ASSIGN_VALUE, "logging.dir", runs, place)
                : assign_no_memory(walk->assign);
}

int arguments_report_to(struct key_walk *walk, const char *shown, const struct tree_entry *entry)
{
    const struct tree_node *value = entry->value;
    if (value->kind != TREE_LIST)
        return take_report_word(walk, shown, value);
    for (size_t i = 0; i < value->count; i++)
        if (take_report_word(walk, shown, value->items[i]) < 0)
            return -1;
    return 0;
}

/* ---- adapters, as TRL's scripts name them ---- */

int arguments_peft(struct key_walk *walk, const char *shown, const struct tree_entry *entry)
{
    static const struct assign_pair usual[] = {
        {"lora.rank", "16"}, {"lora.alpha", "32"}, {"lora.dropout", "0.05"}};
    char where[KEY_PLACE], value[KEY_PLACE];
    if (entry->value->kind != TREE_BOOL)
        return error_set(walk->assign->err, MUSTER_E_INVALID, "%s: %s is neither true nor false",
                         key_where(walk, entry->value, shown, where), key_value(entry->value, value));
    walk->assign->adapts = entry->value->boolean;
    return entry->value->boolean ? assign_weak_list(walk->assign, ASSIGN_PROGRAM, usual, 3, "TRL's default")
                                 : 0;
}

int arguments_lora(struct key_walk *walk, const char *shown, const struct tree_entry *entry)
{
    static const char *const settings[][2] = {{"lora_r", "lora.rank"},
                                              {"lora_alpha", "lora.alpha"},
                                              {"lora_dropout", "lora.dropout"},
                                              {"lora_target_modules", "lora.target"}};
    const struct tree_node *use = tree_get(walk->root, "use_peft"), *value = entry->value;
    size_t i = 0;
    if (!walk->is_option && (!use || use->kind != TREE_BOOL || !use->boolean))
        return key_ignore(walk, shown);
    while (strcmp(settings[i][0], entry->key) != 0)
        i++;
    if (value->kind != TREE_LIST)
        return key_assign(walk, settings[i][1], value->text ? value->text : "", value, shown);
    for (size_t n = 0; n < value->count; n++)
        if (key_assign(walk, settings[i][1], value->items[n]->text ? value->items[n]->text : "",
                       value->items[n], shown) < 0)
            return -1;
    return 0;
}

int arguments_validation_percentage(struct key_walk *walk, const char *shown, const struct tree_entry *entry)
{
    double percent;
    char share[32];
    if (key_number(walk, entry->value, shown, 0, 99, &percent) < 0)
        return -1;
    (void)snprintf(share, sizeof share, "%.15g", percent / 100); /* fits */
    return key_assign(walk, "data.validation_share", share, entry->value, shown);
}
