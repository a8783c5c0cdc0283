/* model.c - the reader of a model's config.json without parameters, which are drawn. See formats.h. (A folder
 * with parameters is model.path.) */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "proto/base/error.h"
#include "proto/base/text.h"
#include "trainer/formats/formats_internal.h"
#include "trainer/formats/rows.h"

static const struct key_choice ropes[] = {
    {"default", NULL}, {"linear", "linear"}, {"llama3", "llama3"}, {NULL, NULL}};
static const struct key_choice recomputes[] = {{"false", NULL}, {"true", "all"}, {NULL, NULL}};
static const struct key_choice architectures[] = {{"gpt2", "gpt2"},
                                                  {"GPT2LMHeadModel", "gpt2"},
                                                  {"llama", "llama"},
                                                  {"LlamaForCausalLM", "llama"},
                                                  {NULL, NULL}};
static const struct key_row architecture_row =
    CHOICE_WHY("", "model.architecture", architectures,
               "for your own model of one of these shapes, choose by --set model.architecture=llama");

static int take_type(struct key_walk *walk, const char *shown, const struct tree_entry *entry)
{
    return key_choose(walk, &architecture_row, entry->value, shown);
}

static int take_architectures(struct key_walk *walk, const char *shown, const struct tree_entry *entry)
{
    if (entry->value->kind != TREE_LIST || !entry->value->count || tree_get(walk->root, "model_type"))
        return 0; /* model_type counts */
    return key_choose(walk, &architecture_row, entry->value->items[0], shown);
}

static bool is_gpt2(const struct key_walk *walk)
{
    return !strcmp(train_config_architecture(walk->assign->config), "gpt2");
}

static double number_of(const struct tree_node *root, const char *const *keys)
{
    double value = 0;
    for (; *keys; keys++) {
        const struct tree_node *node = tree_get(root, *keys);
        if (node && node->text && text_double(node->text, &value))
            return value;
    }
    return 0;
}

static int refuse_gpt2(struct key_walk *walk, const char *shown, const struct tree_node *node,
                       const char *has)
{
    char where[KEY_PLACE], value[KEY_PLACE];
    return error_set(walk->assign->err, MUSTER_E_UNSUPPORTED,
                     "%s: %s is not supported: gpt2 has %s; llama takes others (model.architecture)",
                     key_where(walk, node, shown, where), key_value(node, value), has);
}

static int take_weakly(struct key_walk *walk, const char *shown, const struct tree_node *node,
                       const char *setting)
{
    const struct key_row row = WEAK("", setting);
    return key_choose(walk, &row, node, shown);
}

/* gpt2 has one key and one value for each head; see model_read for the order of the keys. */
static int take_kv_heads(struct key_walk *walk, const char *shown, const struct tree_entry *entry)
{
    static const char *const heads[] = {"num_attention_heads", "n_head", "num_heads", "n_heads", NULL};
    double given;
    if (key_number(walk, entry->value, shown, 1, 1024, &given) < 0)
        return -1;
    if (is_gpt2(walk) && given != number_of(walk->root, heads))
        return refuse_gpt2(walk, shown, entry->value, "as many of them as heads");
    return take_weakly(walk, shown, entry->value, "model.kv_heads");
}

static int take_hidden(struct key_walk *walk, const char *shown, const struct tree_entry *entry)
{
    static const char *const width[] = {"hidden_size", "n_embd", "d_model", NULL};
    double given;
    if (key_number(walk, entry->value, shown, 1, 1 << 20, &given) < 0)
        return -1;
    if (is_gpt2(walk) && given != 4 * number_of(walk->root, width))
        return refuse_gpt2(walk, shown, entry->value, "4 x its width");
    return take_weakly(walk, shown, entry->value, "model.hidden");
}

static int take_tied(struct key_walk *walk, const char *shown, const struct tree_entry *entry)
{
    if (is_gpt2(walk) && entry->value->kind == TREE_BOOL && !entry->value->boolean)
        return refuse_gpt2(walk, shown, entry->value, "one table for tokens in and out");
    return take_weakly(walk, shown, entry->value, "model.tied");
}

static const struct key_row rows[] = {
#include "trainer/formats/model_keys.inc"
};
const struct key_table model_keys = {"a model's config.json", rows, sizeof rows / sizeof *rows};

bool model_recognise(const struct tree_node *root)
{
    static const char *const names[] = {
        "vocab_size",          "n_embd",     "hidden_size",    "n_layer",
        "num_hidden_layers",   "n_head",     "model_type",     "architectures",
        "num_attention_heads", "num_layers", "input_channels", "num_classes"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (tree_entry(root, names[i]))
            return true;
    return false;
}

/* Without a name, the names of the sizes give the architecture. */
static int choose_architecture(struct key_walk *walk, const struct tree_node *root)
{
    static const char *const naming[] = {"model_type", "architectures", "type", "name", "architecture"};
    for (int i = 0; i < 5; i++)
        if (tree_get(root, naming[i]))
            return key_walk_entry(walk, "", "", tree_entry(root, naming[i]));
    if (assign_source(walk->assign, "model.architecture") != KNOB_FROM_DEFAULT ||
        assign_overridden(walk->assign, "model.architecture"))
        return 0;
    const char *kind = tree_get(root, "n_embd") ? "gpt2" : "llama";
    if (assign_rule(walk->assign, "model.architecture", kind, walk->file) < 0)
        return -1;
    return assign_note(walk->assign,
                       "%s: the file does not name its model (model_type): %s, as its keys are named",
                       walk->file, kind);
}

int model_read(struct key_walk *walk, const struct tree_node *root)
{
    static const struct assign_pair defaults[] = {{"model.norm_epsilon", "1e-6"}};
    walk->table = &model_keys;
    /* --set comes before the rules that depend on the architecture */
    if (assign_overridden(walk->assign, "model.architecture") &&
        assign_override(walk->assign, "model.architecture") < 0)
        return -1;
    if (choose_architecture(walk, root) < 0 || key_walk_map(walk, "", "", root) < 0)
        return -1;
    return assign_weak_list(walk->assign, ASSIGN_PROGRAM, defaults, 1, "transformers' default");
}
