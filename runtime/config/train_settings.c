/* train_settings.c - see train_settings.h. */
#include "runtime/config/train_settings.h"

#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "runtime/config/train_config_check.h"

/* Keys of section training that are the program's alone. */
static const char *const of_program[] = {"training.epochs",
                                         "training.tokens",
                                         "training.stages",
                                         "training.output",
                                         "training.output_format",
                                         "training.checkpoint_every",
                                         "training.checkpoint_share",
                                         "training.checkpoint_epochs",
                                         "training.check_replicas_every",
                                         "training.on_replica_difference",
                                         "training.ema_export",
                                         "training.evaluate_every",
                                         "training.evaluate_share",
                                         "training.evaluate_epochs",
                                         "training.evaluate_samples",
                                         "training.evaluate_at_start",
                                         "training.evaluate_at_end",
                                         "training.export_best",
                                         "training.ema_evaluate",
                                         "training.strict_batch",
                                         "model.path"};

static int refuse_key(const char *key, size_t length, struct muster_error *err)
{
    scope_free char *name = mem_strndup(key, length);
    if (!name)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a setting");
    const char *nearest = knob_nearest(train_config_table(), name);
    return error_set(err, MUSTER_E_INVALID, "unknown setting '%s'%s%s%s", name,
                     nearest ? "; did you mean '" : "", nearest ? nearest : "", nearest ? "'?" : "");
}

static bool is_of_program(const struct knob *knob)
{
    for (size_t i = 0; i < sizeof of_program / sizeof *of_program; i++)
        if (!strcmp(knob->name, of_program[i]))
            return true;
    return false;
}

/* Models take section lora too, and trainers section mesh. */
static bool is_of_section(const struct knob *knob, const char *section)
{
    return !strcmp(knob->section, section) || (!strcmp(section, "model") && !strcmp(knob->section, "lora")) ||
           (!strcmp(section, "training") && !strcmp(knob->section, "mesh"));
}

static int take_text(const char *text, const char *section, struct train_config *config,
                     struct muster_error *err)
{
    const char *equals = strchr(text, '=');
    if (!equals)
        return error_set(err, MUSTER_E_INVALID, "setting '%s': write key=value, e.g. training.steps=100",
                         text);
    const struct knob *knob = knob_find(train_config_table(), text, (size_t)(equals - text), false, NULL);
    if (!knob)
        return refuse_key(text, (size_t)(equals - text), err);
    if (!is_of_section(knob, section) || is_of_program(knob))
        return error_set(err, MUSTER_E_INVALID, "setting '%s' has no effect here: %s", knob->name,
                         !strcmp(knob->section, "model") || !strcmp(knob->section, "lora")
                             ? "models take it (muster_model_open)"
                         : !is_of_program(knob) && is_of_section(knob, "training")
                             ? "trainers take it (muster_trainer_open)"
                             : "it is of the program muster-train");
    return knob_set(train_config_table(), config, config->sources, knob, equals + 1, KNOB_FROM_FLAG,
                    knob->name, err);
}

/* The default of a micro-batch gives way to a smaller batch: rows beyond it would always be empty. */
static void fit_micro_batch(struct train_config *config)
{
    const struct knob_table *table = train_config_table();
    const struct knob *knob =
        knob_find(table, "training.micro_batch", strlen("training.micro_batch"), false, NULL);
    if (config->sources[knob - table->knobs] == KNOB_FROM_DEFAULT &&
        config->micro_batch > config->global_batch)
        config->micro_batch = config->global_batch;
}

/* first: a text before the others; NULL: none. */
static int read_texts(const char *first, const char *const *texts, const char *section,
                      struct train_config *config, struct muster_error *err)
{
    struct train_config fresh = {0};
    int result = knob_defaults(train_config_table(), &fresh, err);
    if (!result && first)
        result = take_text(first, section, &fresh, err);
    for (size_t i = 0; !result && texts && texts[i]; i++)
        result = take_text(texts[i], section, &fresh, err);
    if (!result)
        fit_micro_batch(&fresh);
    if (!result)
        result =
            train_config_check("", &fresh, !strcmp(section, "model") ? TRAIN_MODEL : TRAIN_TRAINING, err);
    if (result < 0)
        train_config_free(&fresh);
    else
        *config = fresh;
    return result;
}

int train_settings_read(const char *const *texts, const char *section, struct train_config *config,
                        struct muster_error *err)
{
    return read_texts(NULL, texts, section, config, err);
}

int train_settings_model(const char *architecture, const char *const *texts, struct train_config *config,
                         struct muster_error *err)
{
    scope_free char *first = mem_printf("model.architecture=%s", architecture ? architecture : "");
    if (!first)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a setting");
    if (read_texts(first, texts, "model", config, err) < 0)
        return -1;
    if (!config->positions)
        config->positions = TRAIN_POSITIONS;
    if (!strcmp(train_config_architecture(config), architecture))
        return 0;
    train_config_free(config);
    return error_set(err, MUSTER_E_INVALID, "setting model.architecture differs from '%s', the model's own",
                     architecture);
}

/* Keys of section model that a folder's model takes. */
static const char *const of_files[] = {"model.page", "model.num_classes", "model.labels"};
enum { OF_FILES = sizeof of_files / sizeof *of_files };

static bool is_of_files(const char *name, size_t length)
{
    for (int i = 0; i < OF_FILES; i++)
        if (strlen(of_files[i]) == length && !strncmp(name, of_files[i], length))
            return true;
    return false;
}

const char *train_settings_other(const char *const *texts)
{
    for (size_t i = 0; texts && texts[i]; i++)
        if (strncmp(texts[i], "lora.", 5) != 0 && !is_of_files(texts[i], strcspn(texts[i], "=")))
            return texts[i];
    return NULL;
}

/* ---- texts ---- */

/* A list of texts that grows; the last one is followed by NULL. */
struct texts {
    char **items;
    size_t count;
};

static int settings_add(struct texts *texts, const struct knob *knob, const char *value)
{
    char **items = mem_realloc(texts->items, texts->count + 2, sizeof *items);
    if (!items)
        return -1;
    texts->items = items;
    items[texts->count + 1] = NULL;
    items[texts->count] = mem_printf("%s=%s", knob->name, value);
    return items[texts->count++] ? 0 : -1;
}

static int add_knob(struct texts *texts, const struct knob *knob, const struct train_config *config)
{
    if (knob->type == KNOB_LIST) {
        char *const *list = *(char **const *)((const char *)config + knob->offset);
        for (; list && *list; list++)
            if (settings_add(texts, knob, *list) < 0)
                return -1;
        return 0;
    }
    scope_buffer value = {0};
    if (knob->type == KNOB_DOUBLE) /* with every digit */
        return buffer_printf(&value, "%.17g", *(const double *)((const char *)config + knob->offset)) < 0
                   ? -1
                   : settings_add(texts, knob, value.data);
    if (knob_format(knob, config, &value) < 0)
        return -1;
    return settings_add(texts, knob, value.data ? value.data : "");
}

char **train_settings_texts(const struct train_config *config, const char *section)
{
    return train_settings_joined(config, NULL, section);
}

char **train_settings_joined(const struct train_config *config, const char *first, const char *second)
{
    const struct knob_table *table = train_config_table();
    struct texts texts = {.items = mem_calloc(1, sizeof(char *))};
    int result = texts.items ? 0 : -1;
    for (size_t i = 0; !result && i < table->count; i++) {
        const struct knob *knob = &table->knobs[i];
        const bool among = !strcmp(knob->section, second) || (first && !strcmp(knob->section, first)) ||
                           (!strcmp(second, "training") && is_of_section(knob, second));
        if (among && config->sources[i] != KNOB_FROM_DEFAULT && !is_of_program(knob))
            result = add_knob(&texts, knob, config);
    }
    if (!result)
        return texts.items;
    train_settings_free(texts.items);
    return NULL;
}

char **train_settings_of_files(const struct train_config *config)
{
    const struct knob_table *table = train_config_table();
    struct texts texts = {.items = mem_calloc(1, sizeof(char *))};
    int result = texts.items ? 0 : -1;
    for (size_t i = 0; !result && i < table->count; i++)
        if (is_of_files(table->knobs[i].name, strlen(table->knobs[i].name)) &&
            config->sources[i] != KNOB_FROM_DEFAULT)
            result = add_knob(&texts, &table->knobs[i], config);
    if (!result)
        return texts.items;
    train_settings_free(texts.items);
    return NULL;
}

void train_settings_free(char **texts)
{
    for (size_t i = 0; texts && texts[i]; i++)
        mem_free(texts[i]);
    mem_free(texts);
}
