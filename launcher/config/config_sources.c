/* config_sources.c - where settings come from (pure): the command line of `muster run` up to the program, the
 * environment's PET_ and MUSTER_ variables, rules, and a configuration file; see config_internal.h. */
#include "launcher/config/config_internal.h"

#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/knob_args.h"
#include "proto/base/text.h"
#include "proto/env_names.h"

/* --- rows --- */

const struct knob *config_row(const char *name)
{
    return knob_find(config_table(), name, strlen(name), false, NULL);
}

enum knob_source config_source(const struct run_config *config, const char *name)
{
    return config->sources[config_row(name) - config_table()->knobs];
}

bool config_is_said(const struct run_config *config, const char *name)
{
    enum knob_source source = config_source(config, name);
    return source == KNOB_FROM_FLAG || source == KNOB_FROM_ENVIRONMENT;
}

const char *config_origin(const struct run_config *config, const struct knob *knob,
                          char scratch[CONFIG_SETTING_SIZE])
{
    size_t row = (size_t)(knob - config_table()->knobs);
    switch ((enum knob_source)config->sources[row]) {
    case KNOB_FROM_ENVIRONMENT:
        return knob->env;
    case KNOB_FROM_FLAG:
        (void)snprintf(scratch, CONFIG_SETTING_SIZE, "--%s", knob->name);
        return scratch;
    case KNOB_FROM_RULE:
    case KNOB_FROM_FILE:
        return config->reasons[row];
    default:
        return "default";
    }
}

const char *config_setting(const struct run_config *config, const char *name,
                           char scratch[CONFIG_SETTING_SIZE])
{
    if (config_source(config, name) != KNOB_FROM_DEFAULT)
        return config_origin(config, config_row(name), scratch);
    (void)snprintf(scratch, CONFIG_SETTING_SIZE, "--%s", name);
    return scratch;
}

int config_set(struct run_config *config, const char *name, const char *text, const char *reason,
               struct muster_error *err)
{
    const struct knob *knob = config_row(name);
    if (knob_set(config_table(), config, config->sources, knob, text, KNOB_FROM_RULE, reason, err) < 0)
        return -1;
    config->reasons[knob - config_table()->knobs] = reason;
    return 0;
}

/* --- the command line and variables --- */

int config_parse_flags(struct command_line *line, struct run_config *config, struct muster_error *err)
{
    return knob_parse_flags(config_table(), config, config->sources, line->argc, line->argv, &line->at,
                            &config->help, err);
}

static const char shutdown_timeout_name[] = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT";

const char *config_get(const struct config_environment *environment, const char *name)
{
    const char *text = environment->get(environment->context, name);
    return text && *text ? text : NULL;
}

/* The value of a row's variable. An empty variable counts as not set, except PET_STANDALONE: the
 * PyTorchJob operator writes it empty for true. */
static const char *said_by(const struct config_environment *environment, const struct knob *knob)
{
    if (!knob->env || knob->refused)
        return NULL;
    const char *text = environment->get(environment->context, knob->env);
    return text && !*text ? (!strcmp(knob->name, "standalone") ? "1" : NULL) : text;
}

int config_read_environment(struct run_config *config, const struct config_environment *environment,
                            struct muster_error *err)
{
    const struct knob_table *table = config_table();
    for (size_t i = 0; i < table->count; i++) {
        const struct knob *knob = &table->knobs[i];
        const char *text = said_by(environment, knob);
        if (text && config->sources[i] != KNOB_FROM_FLAG &&
            knob_set(table, config, config->sources, knob, text, KNOB_FROM_ENVIRONMENT, knob->env, err) < 0)
            return -1;
    }
    const char *grace = config_get(environment, shutdown_timeout_name);
    if (grace && config_source(config, "shutdown-timeout") == KNOB_FROM_DEFAULT &&
        config_set(config, "shutdown-timeout", grace, shutdown_timeout_name, err) < 0)
        return -1;
    const char *prefix = config_get(environment, ENV_LINE_PREFIX);
    if (prefix && config_source(config, "log-line-prefix-template") == KNOB_FROM_DEFAULT)
        return config_set(config, "log-line-prefix-template", prefix, ENV_LINE_PREFIX, err);
    return 0;
}

static bool is_off(const char *text)
{
    bool on;
    return text_bool(text, &on) && !on;
}

int config_refuse_environment(const struct config_environment *environment, struct muster_error *err)
{
    const struct knob_table *table = config_table();
    for (size_t i = 0; i < table->count; i++) {
        const struct knob *knob = &table->knobs[i];
        const char *text = knob->env && knob->refused ? config_get(environment, knob->env) : NULL;
        if (text && !is_off(text))
            return error_set(err, MUSTER_E_UNSUPPORTED, "%s=%s: %s", knob->env, text, knob->refused);
    }
    return 0;
}

/* --- a file (config.h) --- */

static int file_no_memory(struct muster_error *err)
{
    return error_set(err, MUSTER_E_NOMEM, "no memory");
}

/* A copy of place that lives as long as config; NULL without memory. */
static const char *keep_place(struct run_config *config, const char *place)
{
    return text_list_take(&config->places, mem_strdup(place)) < 0
               ? NULL
               : config->places.items[config->places.count - 1];
}

bool config_is_free(const struct run_config *config, const char *name)
{
    enum knob_source source = config_source(config, name);
    return source == KNOB_FROM_DEFAULT || source == KNOB_FROM_FILE;
}

int config_set_from_file(struct run_config *config, const char *name, const char *text, const char *place,
                         struct muster_error *err)
{
    const struct knob *knob = config_row(name);
    if (!config_is_free(config, name))
        return 0;
    const char *kept = keep_place(config, place);
    if (!kept)
        return file_no_memory(err);
    if (knob_set(config_table(), config, config->sources, knob, text, KNOB_FROM_FILE, kept, err) < 0)
        return -1;
    config->reasons[knob - config_table()->knobs] = kept;
    return 0;
}

int config_set_all_workers(struct run_config *config, int64_t workers, const char *place,
                           struct muster_error *err)
{
    config->all_workers_place = keep_place(config, place);
    if (!config->all_workers_place)
        return file_no_memory(err);
    config->all_workers = workers;
    return 0;
}

int config_add_variable(struct run_config *config, const char *name, const char *value, const char *place,
                        bool kept, struct muster_error *err)
{
    struct config_variable *longer =
        mem_realloc(config->variables, config->variable_count + 1, sizeof *config->variables);
    if (!longer)
        return file_no_memory(err);
    config->variables = longer;
    const struct config_variable added = {name, mem_strdup(value), keep_place(config, place), kept};
    if (!added.value || !added.place) {
        mem_free(added.value);
        return file_no_memory(err);
    }
    config->variables[config->variable_count++] = added;
    return 0;
}

void config_free_file(struct run_config *config)
{
    for (size_t i = 0; i < config->variable_count; i++)
        mem_free(config->variables[i].value);
    mem_free(config->variables);
    config->variables = NULL;
    config->variable_count = 0;
    text_list_free(&config->places);
}
