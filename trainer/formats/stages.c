/* stages.c - see stages.h. */
#include "trainer/formats/stages.h"

#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "runtime/config/train_config_check.h"
#include "runtime/config/train_effects.h"
#include "trainer/formats/meant.h"
#include "trainer/formats/scalar.h"

enum { WHERE_SIZE = 64 };

static const char stages_key[] = "training.stages";

/* Settings of the whole training: files, ranks, the tokenizer. */
static const char *const of_training[] = {"training.stages",
                                          "training.strict_batch",
                                          "training.device",
                                          "training.comm",
                                          "training.timeout",
                                          "training.output",
                                          "training.output_format",
                                          "training.output_dtype",
                                          "training.output_shard_size",
                                          "training.export_best",
                                          "training.ema_export",
                                          "training.checkpoint_dir",
                                          "training.checkpoint_local_dir",
                                          "training.checkpoint_local_keep",
                                          "training.checkpoint_command",
                                          "training.checkpoint_command_timeout",
                                          "training.resume",
                                          "training.resume_damaged",
                                          "training.resume_numerics",
                                          "data.tokenizer"};
/* Ways to give a length. */
static const char *const lengths[] = {"training.steps", "training.tokens", "training.epochs"};
enum { STEPS, TOKENS, EPOCHS, LENGTHS };

/* The state while a stage is read. */
struct stage_reader {
    const char *file; /* name in errors; NULL: use where */
    const char *where;
    struct train_config *config; /* gets the values */
    char **name;                 /* gets the name; may be NULL */
    bool given[TRAIN_CONFIG_KEYS];
    struct muster_error *err;
};

static const struct knob *row_of(const char *key)
{
    return knob_find(train_config_table(), key, strlen(key), false, NULL);
}

static size_t index_of(const struct knob *knob)
{
    return (size_t)(knob - train_config_table()->knobs);
}

int stages_count(const struct train_config *config)
{
    int count = 0;
    while (config->stages && config->stages[count])
        count++;
    return count;
}

/* ---- a mapping ---- */

/* "run.yaml:3:7", or "training.stages[1]" for a stage kept as text. */
static const char *stage_place(const struct stage_reader *r, int line, int column, char out[KEY_PLACE])
{
    if (r->file)
        (void)snprintf(out, KEY_PLACE, "%s:%d:%d", r->file, line, column); /* a long name is cut */
    else
        (void)snprintf(out, KEY_PLACE, "%s", r->where); /* fits */
    return out;
}

static const struct knob *find_key(const struct stage_reader *r, const struct tree_entry *entry,
                                   const char *name)
{
    char place[KEY_PLACE], text[MEANT_SIZE];
    const struct knob *knob = row_of(name);
    const char *nearest = knob ? NULL : setting_meant(name, text);
    stage_place(r, entry->line, entry->column, place);
    if (!knob && nearest)
        (void)error_set(r->err, MUSTER_E_INVALID, "%s: unknown key '%s' of a stage; did you mean '%s'?",
                        place, name, nearest);
    else if (!knob)
        (void)error_set(r->err, MUSTER_E_INVALID,
                        "%s: unknown key '%s' of a stage: it has keys of training, name, and data", place,
                        name);
    for (size_t i = 0; knob && i < sizeof of_training / sizeof *of_training; i++)
        if (!strcmp(knob->name, of_training[i])) {
            (void)error_set(r->err, MUSTER_E_INVALID,
                            "%s: %s is a setting of the whole training: it belongs next to training.stages, "
                            "not in a stage",
                            place, name);
            return NULL;
        }
    return knob;
}

static int take_value(struct stage_reader *r, const struct knob *knob, const struct tree_node *value)
{
    char place[KEY_PLACE], number[SCALAR_SIZE];
    stage_place(r, value->line, value->column, place);
    scope_free char *where = mem_printf("%s: %s", place, knob->name);
    if (!where)
        return error_set(r->err, MUSTER_E_NOMEM, "no memory to read a stage");
    const char *text = scalar_text(value, knob, number, where, r->err);
    if (!text)
        return -1;
    scope_free char *whole = assign_whole_number(knob, text);
    return knob_set(train_config_table(), r->config, r->config->sources, knob, whole ? whole : text,
                    KNOB_FROM_FILE, where, r->err);
}

static int take_key(struct stage_reader *r, const char *section, const struct tree_entry *entry)
{
    scope_free char *name = mem_printf("%s.%s", section, entry->key);
    if (!name)
        return error_set(r->err, MUSTER_E_NOMEM, "no memory to read a stage");
    const struct knob *knob = find_key(r, entry, name);
    if (!knob)
        return -1;
    if (entry->value->kind == TREE_NULL) /* not set */
        return 0;
    r->given[index_of(knob)] = true;
    const bool list = knob->type == KNOB_LIST;
    if (list && train_config_reset(r->config, knob, r->err) < 0) /* it replaces the training's list */
        return -1;
    if (!list || entry->value->kind != TREE_LIST)
        return take_value(r, knob, entry->value);
    r->config->sources[index_of(knob)] = KNOB_FROM_FILE;
    for (size_t i = 0; i < entry->value->count; i++)
        if (take_value(r, knob, entry->value->items[i]) < 0)
            return -1;
    return 0;
}

static int take_data(struct stage_reader *r, const struct tree_entry *entry)
{
    char place[KEY_PLACE];
    const struct tree_node *map = entry->value;
    if (map->kind != TREE_MAP)
        return error_set(r->err, MUSTER_E_INVALID, "%s: %s found where keys of section 'data' are expected",
                         stage_place(r, map->line, map->column, place), tree_kind_name(map->kind));
    for (size_t i = 0; i < map->count; i++)
        if (take_key(r, "data", &map->entries[i]) < 0)
            return -1;
    return 0;
}

static int take_name(struct stage_reader *r, const struct tree_entry *entry)
{
    char place[KEY_PLACE];
    if (!entry->value->text || !*entry->value->text)
        return error_set(r->err, MUSTER_E_INVALID, "%s: the name of a stage is a text",
                         stage_place(r, entry->value->line, entry->value->column, place));
    if (!r->name)
        return 0;
    mem_free(*r->name);
    *r->name = mem_strdup(entry->value->text);
    return *r->name ? 0 : error_set(r->err, MUSTER_E_NOMEM, "no memory to read a stage");
}

static int take_stage(struct stage_reader *r, const struct tree_node *map)
{
    char place[KEY_PLACE];
    if (map->kind != TREE_MAP)
        return error_set(r->err, MUSTER_E_INVALID,
                         "%s: %s found where a stage is expected: a mapping, {steps: 100, learning_rate: "
                         "0.001}",
                         stage_place(r, map->line, map->column, place), tree_kind_name(map->kind));
    for (size_t i = 0; i < map->count; i++) {
        const struct tree_entry *entry = &map->entries[i];
        const bool own = !strcmp(entry->key, "name") || !strcmp(entry->key, "data");
        if (own && entry->value->kind == TREE_NULL) /* not set */
            continue;
        const int result = !strcmp(entry->key, "name")   ? take_name(r, entry)
                           : !strcmp(entry->key, "data") ? take_data(r, entry)
                                                         : take_key(r, "training", entry);
        if (result < 0)
            return -1;
    }
    return 0;
}

/* ---- from a file into the configuration ---- */

/* Checks a stage; errors have its place in the file. */
static int check_node(const struct key_walk *walk, const struct tree_node *node)
{
    struct train_config scratch = {0};
    struct stage_reader reader = {.file = walk->file, .config = &scratch, .err = walk->assign->err};
    int result = knob_defaults(train_config_table(), &scratch, walk->assign->err);
    if (!result)
        result = take_stage(&reader, node);
    train_config_free(&scratch);
    return result;
}

static int read_one(struct key_walk *walk, const struct tree_node *node)
{
    char where[KEY_PLACE], place[KEY_PLACE];
    scope_buffer text = {0};
    const bool kept = node->kind == TREE_TEXT; /* a text of JSON, as --print-config writes it */
    if (!kept && check_node(walk, node) < 0)
        return -1;
    if ((kept ? buffer_text(&text, node->text) : tree_write_json(node, &text)) < 0)
        return assign_no_memory(walk->assign);
    return assign_set(walk->assign, stages_key, text.data ? text.data : "", KNOB_FROM_FILE,
                      key_where(walk, node, stages_key, where),
                      key_place(walk, node->line, node->column, place));
}

int stages_read(struct key_walk *walk, const struct tree_node *list)
{
    char where[KEY_PLACE];
    if (list->kind == TREE_NULL)
        return 0;
    if (list->kind != TREE_LIST)
        return error_set(walk->assign->err, MUSTER_E_INVALID,
                         "%s: %s found where a list of stages is expected",
                         key_place(walk, list->line, list->column, where), tree_kind_name(list->kind));
    if (list->count > STAGES_LIMIT)
        return error_set(walk->assign->err, MUSTER_E_LIMIT, "%s: %zu stages; at most %d",
                         key_place(walk, list->line, list->column, where), list->count, STAGES_LIMIT);
    if (train_config_reset(walk->assign->config, row_of(stages_key), walk->assign->err) < 0)
        return -1; /* the list replaces the list of an earlier file */
    for (size_t i = 0; i < list->count; i++)
        if (read_one(walk, list->items[i]) < 0)
            return -1;
    return 0;
}

/* ---- the settings of a stage ---- */

static int apply_text(struct stage_reader *r, const char *text)
{
    struct tree tree;
    if (tree_parse(r->where, text, strlen(text), &tree, r->err) < 0)
        return -1;
    const int result = tree.document_count == 1
                           ? take_stage(r, tree.documents[0])
                           : error_set(r->err, MUSTER_E_INVALID, "%s: it is no mapping", r->where);
    tree_free(&tree);
    return result;
}

/* A length of the stage replaces the training's, in any unit; tokens become steps of the stage's batch. */
static int settle_length(struct stage_reader *r)
{
    bool any = false;
    for (int i = 0; i < LENGTHS; i++)
        any |= r->given[index_of(row_of(lengths[i]))];
    for (int i = 0; any && i < LENGTHS; i++)
        if (!r->given[index_of(row_of(lengths[i]))] &&
            train_config_reset(r->config, row_of(lengths[i]), r->err) < 0)
            return -1;
    if (r->config->tokens > 0 && !r->given[index_of(row_of(lengths[STEPS]))])
        train_config_set_steps(r->config, train_config_token_steps(r->config));
    return 0;
}

/* Drops settings next to the list that have no effect in this stage, until none is left: a setting may have
 * had an effect only because of a dropped setting. */
static int drop_idle(struct stage_reader *r)
{
    const struct knob_table *table = train_config_table();
    for (bool again = true; again;) {
        again = false;
        for (size_t i = 0; i < table->count; i++) {
            if (r->given[i] || r->config->sources[i] == KNOB_FROM_DEFAULT ||
                train_config_is_used(r->config, &table->knobs[i]))
                continue;
            again = true;
            if (train_config_reset(r->config, &table->knobs[i], r->err) < 0)
                return -1;
        }
    }
    return 0;
}

int stages_leave_idle(struct train_config *config, struct muster_error *err)
{
    struct stage_reader reader = {.where = stages_key, .config = config, .err = err};
    return config->stages ? drop_idle(&reader) : 0;
}

int stages_settings(const struct train_config *config, int number, struct train_config *out, char **name,
                    struct muster_error *err)
{
    char where[WHERE_SIZE];
    struct stage_reader reader = {.where = where, .config = out, .name = name, .err = err};
    if (name)
        *name = NULL;
    (void)snprintf(where, sizeof where, "%s[%d]", stages_key, number); /* fits */
    if (train_config_copy(config, out, err) < 0)
        return -1;
    if (!apply_text(&reader, config->stages[number]) && !settle_length(&reader) && !drop_idle(&reader))
        return 0;
    train_config_free(out);
    if (name) {
        mem_free(*name);
        *name = NULL;
    }
    return -1;
}

int64_t stages_positions(const struct train_config *config, struct muster_error *err)
{
    int64_t most = stages_count(config) ? 0 : config->sequence_length;
    for (int i = 0; i < stages_count(config); i++) {
        struct train_config stage;
        if (stages_settings(config, i, &stage, NULL, err) < 0)
            return -1;
        most = stage.sequence_length > most ? stage.sequence_length : most;
        train_config_free(&stage);
    }
    return most;
}

/* ---- checks ---- */

static int check_stage(const char *name, const struct train_config *c, struct muster_error *err)
{
    if (train_config_check(name, c, TRAIN_ALL, err) < 0)
        return -1;
    if (c->positions && train_config_gives_sizes(c) && !train_config_reads_pictures(c) &&
        c->sequence_length > c->positions)
        return error_set(err, MUSTER_E_INVALID,
                         "%straining.sequence_length %lld is above model.positions %lld", name,
                         (long long)c->sequence_length, (long long)c->positions);
    return 0;
}

/* Finds a setting next to the list that has no effect in any stage. */
static int check_used(const char *name, const struct train_config *config, const bool *used,
                      struct muster_error *err)
{
    const struct knob_table *table = train_config_table();
    for (size_t i = 0; i < table->count; i++)
        if (config->sources[i] != KNOB_FROM_DEFAULT && !used[i] &&
            !train_config_is_used(config, &table->knobs[i]))
            return error_set(err, MUSTER_E_INVALID, "%s%s has no effect in any of the %d stages; remove it",
                             name, table->knobs[i].name, stages_count(config));
    return 0;
}

int stages_check(const char *name, const struct train_config *config, struct muster_error *err)
{
    bool used[TRAIN_CONFIG_KEYS] = {false};
    if (stages_count(config) > STAGES_LIMIT)
        return error_set(err, MUSTER_E_LIMIT, "%s%s: %d stages; at most %d", name, stages_key,
                         stages_count(config), STAGES_LIMIT);
    if (!config->checkpoint_dir || !*config->checkpoint_dir)
        return error_set(err, MUSTER_E_INVALID,
                         "%s%s needs training.checkpoint_dir: a stage begins from the checkpoint at the end "
                         "of the stage before",
                         name, stages_key);
    for (int i = 0; i < stages_count(config); i++) {
        struct train_config stage;
        scope_free char *prefix = mem_printf("%s%s[%d]: ", name, stages_key, i);
        if (!prefix)
            return error_set(err, MUSTER_E_NOMEM, "no memory to check the stages");
        if (stages_settings(config, i, &stage, NULL, err) < 0)
            return *name ? error_wrap(err, "%.*s", (int)strlen(name) - 2, name) : -1;
        for (size_t row = 0; row < train_config_table()->count; row++)
            used[row] |= stage.sources[row] != KNOB_FROM_DEFAULT;
        const int result = check_stage(prefix, &stage, err);
        train_config_free(&stage);
        if (result < 0)
            return -1;
    }
    return check_used(name, config, used, err);
}
