/* keys.c - see keys.h. */
#include "trainer/formats/keys.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/text.h"
#include "trainer/formats/scalar.h"

enum { NAMES_LIMIT = 512 };

/* Whether a name is in capitals ("BATCH_SIZE"), as scripts name their constants. */
static bool is_constant(const char *path)
{
    bool capital = false;
    for (const char *c = path; *c; c++) {
        if (*c >= 'a' && *c <= 'z')
            return false;
        capital = capital || (*c >= 'A' && *c <= 'Z');
    }
    return capital;
}

const struct key_row *key_find(const struct key_table *table, const char *path)
{
    const bool constant = is_constant(path);
    for (size_t i = 0; i < table->count; i++)
        if (!(constant ? strcasecmp : strcmp)(table->rows[i].path, path))
            return &table->rows[i];
    return NULL;
}

/* ---- places and values in messages ---- */

const char *key_place(const struct key_walk *walk, int line, int column, char out[KEY_PLACE])
{
    if (walk->is_option || !line)
        (void)snprintf(out, KEY_PLACE, "%s", walk->file); /* a path that does not fit is cut */
    else
        (void)snprintf(out, KEY_PLACE, "%s:%d:%d", walk->file, line, column);
    return out;
}

static const char *join_place(const struct key_walk *walk, const struct tree_node *node, const char *between,
                              const char *shown, char out[KEY_PLACE])
{
    char place[KEY_PLACE];
    key_place(walk, node->line, node->column, place);
    if (walk->is_option || snprintf(out, KEY_PLACE, "%s%s%s", place, between, shown) >= KEY_PLACE)
        memcpy(out, place, sizeof place);
    return out;
}

const char *key_where(const struct key_walk *walk, const struct tree_node *node, const char *shown,
                      char out[KEY_PLACE])
{
    return join_place(walk, node, ": ", shown, out);
}

const char *key_origin(const struct key_walk *walk, const struct tree_node *node, const char *shown,
                       char out[KEY_PLACE])
{
    return join_place(walk, node, " ", shown, out);
}

const char *key_value(const struct tree_node *node, char out[KEY_PLACE])
{
    if (node->text)
        (void)snprintf(out, KEY_PLACE, "'%.100s'", node->text);
    else
        (void)snprintf(out, KEY_PLACE, "%s", tree_kind_name(node->kind));
    return out;
}

bool key_is_automatic(const struct tree_node *node)
{
    return node->kind == TREE_TEXT && !strcmp(node->text, "auto");
}

bool key_of_trainer(struct key_walk *walk, const struct tree_node *node)
{
    if (!key_is_automatic(node))
        return false;
    walk->assign->trainer = true;
    return true;
}

int key_number(struct key_walk *walk, const struct tree_node *node, const char *shown, double low,
               double high, double *out)
{
    char where[KEY_PLACE], value[KEY_PLACE];
    if (!scalar_number(node, out))
        return error_set(walk->assign->err, MUSTER_E_INVALID, "%s: %s is not a number",
                         key_where(walk, node, shown, where), key_value(node, value));
    if (*out >= low && *out <= high)
        return 0;
    return error_set(walk->assign->err, MUSTER_E_INVALID, "%s: %s is outside %.15g to %.15g",
                     key_where(walk, node, shown, where), key_value(node, value), low, high);
}

int key_keep(struct key_walk *walk, enum assign_number_kind kind, const struct tree_node *node,
             const char *shown, double low, double high)
{
    char place[KEY_PLACE];
    double value;
    if (key_of_trainer(walk, node))
        return 0;
    if (key_number(walk, node, shown, low, high, &value) < 0)
        return -1;
    return assign_keep(walk->assign, kind, value, key_origin(walk, node, shown, place));
}

int key_assign(struct key_walk *walk, const char *setting, const char *text, const struct tree_node *node,
               const char *shown)
{
    char where[KEY_PLACE], place[KEY_PLACE];
    char number[SCALAR_SIZE];
    const struct knob *knob = knob_find(train_config_table(), setting, strlen(setting), false, NULL);
    if (assign_overridden(walk->assign, setting))
        return 0;
    key_where(walk, node, shown, where);
    key_origin(walk, node, shown, place);
    if (knob && text == node->text && !(text = scalar_text(node, knob, number, where, walk->assign->err)))
        return -1;
    return assign_set(walk->assign, setting, text, walk->is_option ? KNOB_FROM_FLAG : KNOB_FROM_FILE, where,
                      place);
}

/* ---- the kinds of rows ---- */

static bool has_rows_below(const struct key_table *table, const char *path)
{
    for (size_t i = 0; i < table->count; i++)
        if (!strncmp(table->rows[i].path, path, strlen(path)))
            return true;
    return false;
}

int key_ignore(struct key_walk *walk, const char *shown)
{
    struct buffer *out = walk->ignored;
    return buffer_printf(out, "%s%s", out->length ? ", " : "", shown) < 0 ? assign_no_memory(walk->assign)
                                                                          : 0;
}

int key_betas(struct key_walk *walk, const char *shown, const struct tree_node *node)
{
    static const char *const settings[] = {"training.beta1", "training.beta2"};
    char where[KEY_PLACE], value[KEY_PLACE];
    if (key_of_trainer(walk, node))
        return 0;
    if (node->kind != TREE_LIST || node->count != 2)
        return error_set(walk->assign->err, MUSTER_E_INVALID, "%s: %s found where two numbers are expected",
                         key_where(walk, node, shown, where), key_value(node, value));
    for (int i = 0; i < 2; i++)
        if (key_assign(walk, settings[i], node->items[i]->text ? node->items[i]->text : "", node->items[i],
                       shown) < 0)
            return -1;
    return 0;
}

int key_epochs(struct key_walk *walk, const char *shown, const struct tree_node *node)
{
    if (key_of_trainer(walk, node) || assign_overridden(walk->assign, "training.steps"))
        return 0;
    if (assign_source(walk->assign, "training.steps") != KNOB_FROM_DEFAULT) /* steps count, not epochs */
        return key_ignore(walk, shown);
    return key_assign(walk, "training.epochs", node->text ? node->text : "", node, shown);
}

static int refuse_choice(struct key_walk *walk, const struct key_row *row, const struct tree_node *node,
                         const char *shown)
{
    char where[KEY_PLACE], value[KEY_PLACE], works[512] = "";
    for (const struct key_choice *choice = row->choices; choice->from; choice++)
        (void)text_append(works, sizeof works, "%s%s", *works ? ", " : "", choice->from); /* may be cut */
    return error_set(walk->assign->err, MUSTER_E_UNSUPPORTED, "%s: %s is not supported; supported: %s%s%s",
                     key_where(walk, node, shown, where), key_value(node, value), works, row->why ? "; " : "",
                     row->why ? row->why : "");
}

/* The choice with that text, or the end of the list. */
static const struct key_choice *find_choice(const struct key_choice *choice, const char *text)
{
    while (choice->from && strcasecmp(choice->from, text) != 0)
        choice++;
    return choice;
}

int key_choose(struct key_walk *walk, const struct key_row *row, const struct tree_node *node,
               const char *shown)
{
    char where[KEY_PLACE], place[KEY_PLACE];
    const char *text = node->text;
    if (key_of_trainer(walk, node) || assign_overridden(walk->assign, row->setting))
        return 0;
    if (!text)
        return error_set(walk->assign->err, MUSTER_E_INVALID, "%s: %s found where a single value is expected",
                         key_where(walk, node, shown, where), tree_kind_name(node->kind));
    if (row->choices) {
        const struct key_choice *choice = find_choice(row->choices, text);
        if (!choice->from && node->kind == TREE_BOOL) /* yes, on: YAML's other words for true */
            choice = find_choice(row->choices, node->boolean ? "true" : "false");
        if (!choice->from)
            return refuse_choice(walk, row, node, shown);
        if (!choice->to)
            return 0;
        text = choice->to;
    }
    if (!strcmp(row->setting, "training.global_batch") || !strcmp(row->setting, "training.micro_batch"))
        walk->assign->wants_batch = true;
    if (walk->weak || row->kind == KEY_WEAK) {
        char number[SCALAR_SIZE];
        const struct knob *knob =
            knob_find(train_config_table(), row->setting, strlen(row->setting), false, NULL);
        if (knob && text == node->text &&
            !(text = scalar_text(node, knob, number, key_where(walk, node, shown, where), walk->assign->err)))
            return -1;
        return assign_weakly(walk->assign, ASSIGN_VALUE, row->setting, text,
                             key_origin(walk, node, shown, place));
    }
    return key_assign(walk, row->setting, text, node, shown);
}

static bool same_value(const char *text, const char *word, size_t length)
{
    double a, b;
    char copy[64];
    if (length >= sizeof copy)
        return false;
    memcpy(copy, word, length);
    copy[length] = '\0';
    return !strcasecmp(text, copy) || (text_double(text, &a) && text_double(copy, &b) && a == b);
}

/* The place of text among the words of key_row.only. -1: not there; 0: before the semicolon; 1: after it. */
static int value_among(const char *words, const char *text)
{
    int after = 0;
    for (;;) {
        const size_t length = strcspn(words, "|;");
        if (same_value(text, words, length))
            return after;
        if (!words[length])
            return -1;
        after |= words[length] == ';';
        words += length + 1;
    }
}

static int take_only(struct key_walk *walk, const struct key_row *row, const struct tree_node *node,
                     const char *shown)
{
    char where[KEY_PLACE], value[KEY_PLACE];
    if (key_is_automatic(node) || (!node->text && !node->count))
        return 0;
    int found = node->text ? value_among(row->only, node->text) : -1;
    if (found < 0 && node->kind == TREE_BOOL)
        found = value_among(row->only, node->boolean ? "true" : "false");
    if (found >= 0)
        return found ? key_ignore(walk, shown) : 0;
    return error_set(walk->assign->err, MUSTER_E_UNSUPPORTED, "%s: %s is not supported: %s",
                     key_where(walk, node, shown, where), key_value(node, value), row->why);
}

static int expect_map(struct key_walk *walk, const struct tree_node *node, const char *shown)
{
    char where[KEY_PLACE], value[KEY_PLACE];
    if (node->kind == TREE_MAP)
        return 0;
    return error_set(walk->assign->err, MUSTER_E_INVALID, "%s: %s found where a mapping is expected",
                     key_where(walk, node, shown, where), key_value(node, value));
}

/* A block that is switched off is only searched for keys that do not exist. */
static int take_switched(struct key_walk *walk, const char *path, const char *shown,
                         const struct tree_node *node)
{
    const struct tree_node *enabled = tree_get(node, "enabled");
    const struct key_walk before = *walk;
    if (enabled && key_is_automatic(enabled))
        walk->weak = true;
    else if (!enabled || enabled->kind != TREE_BOOL || !enabled->boolean)
        walk->idle = !enabled || enabled->kind == TREE_BOOL;
    const int result = key_walk_map(walk, path, shown, node);
    walk->weak = before.weak;
    walk->idle = before.idle;
    return result;
}

static int take_row(struct key_walk *walk, const struct key_row *row, const char *path, const char *shown,
                    const struct tree_entry *entry);

/* Takes a mapping that an option has as text: --lr_scheduler_kwargs='{"num_cycles": 2}'. */
static int take_mapping_text(struct key_walk *walk, const struct key_row *row, const char *path,
                             const char *shown, const struct tree_entry *entry)
{
    struct tree tree;
    const char *text = entry->value->text;
    if (tree_parse(walk->file, text, strlen(text), &tree, walk->assign->err) < 0)
        return -1;
    const struct tree_entry parsed = {entry->key, entry->line, entry->column, tree.documents[0]};
    const int result = take_row(walk, row, path, shown, &parsed);
    tree_free(&tree);
    return result;
}

static int take_row(struct key_walk *walk, const struct key_row *row, const char *path, const char *shown,
                    const struct tree_entry *entry)
{
    const struct tree_node *node = entry->value;
    char below[KEY_PLACE] = "", shown_below[KEY_PLACE] = "";
    const bool inner = row->kind == KEY_BLOCK || row->kind == KEY_SWITCHED;
    (void)text_append(below, sizeof below, "%s.", path); /* paths of the table fit */
    (void)text_append(shown_below, sizeof shown_below, "%s.", shown);
    if (inner && walk->is_option && node->kind == TREE_TEXT && *node->text == '{')
        return take_mapping_text(walk, row, path, shown, entry);
    if (inner && expect_map(walk, node, shown) < 0)
        return -1;
    if (walk->idle && !inner && row->kind != KEY_IDLE)
        return 0;
    switch (row->kind) {
    case KEY_SETTING:
    case KEY_WEAK:
        return key_choose(walk, row, node, shown);
    case KEY_ONLY:
        return take_only(walk, row, node, shown);
    case KEY_BLOCK:
        return key_walk_map(walk, below, shown_below, node);
    case KEY_SWITCHED:
        return take_switched(walk, below, shown_below, node);
    case KEY_RULE:
        return row->rule(walk, shown, entry);
    case KEY_IDLE:
        break;
    }
    const bool asks = node->kind != TREE_BOOL || node->boolean;
    if (asks && !walk->idle && key_ignore(walk, shown) < 0)
        return -1;
    if (node->kind != TREE_MAP || !has_rows_below(walk->table, below))
        return 0;
    const bool idle = walk->idle;
    walk->idle = true; /* the block is listed as a whole */
    const int result = key_walk_map(walk, below, shown_below, node);
    walk->idle = idle;
    return result;
}

/* ---- walking ---- */

const char *key_nearest(const struct key_table *table, const char *path, const char *name)
{
    const char *names[NAMES_LIMIT];
    size_t count = 0;
    const size_t length = strlen(path);
    for (size_t i = 0; i < table->count && count < NAMES_LIMIT; i++) {
        const char *known = table->rows[i].path;
        if (!strncmp(known, path, length) && !strchr(known + length, '.'))
            names[count++] = known + length;
    }
    return text_nearest(name, names, count);
}

static int refuse_unknown(struct key_walk *walk, const char *path, const char *shown,
                          const struct tree_entry *entry)
{
    char place[KEY_PLACE];
    const char *nearest = key_nearest(walk->table, path, entry->key);
    return error_set(walk->assign->err, MUSTER_E_INVALID, "%s: unknown %s '%s%.100s'%s%s%s",
                     key_place(walk, entry->line, entry->column, place), walk->is_option ? "option" : "key",
                     shown, entry->key, nearest ? "; did you mean '" : "", nearest ? nearest : "",
                     nearest ? "'?" : "");
}

int key_walk_entry(struct key_walk *walk, const char *path, const char *shown, const struct tree_entry *entry)
{
    char full[KEY_PLACE], shown_full[KEY_PLACE];
    if (snprintf(full, sizeof full, "%s%s", path, entry->key) >= KEY_PLACE ||
        snprintf(shown_full, sizeof shown_full, "%s%s", shown, entry->key) >= KEY_PLACE)
        return refuse_unknown(walk, path, shown, entry);
    const struct key_row *row = key_find(walk->table, full);
    if (!row && *entry->key == '_') /* a remark */
        return 0;
    if (!row)
        return refuse_unknown(walk, path, shown, entry);
    return entry->value->kind == TREE_NULL ? 0 : take_row(walk, row, full, shown_full, entry);
}

int key_walk_map(struct key_walk *walk, const char *path, const char *shown, const struct tree_node *map)
{
    for (size_t i = 0; i < map->count; i++)
        if (key_walk_entry(walk, path, shown, &map->entries[i]) < 0)
            return -1;
    return 0;
}
