/* config_environment.c - what the environment says about settings: PET_ and MUSTER_ variables (pure); see
 * config_internal.h. */
#include "launcher/config_internal.h"

#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/text.h"
#include "proto/env_names.h"

static const char *get_text(const struct config_environment *environment, const char *name)
{
    const char *text = environment->get(environment->context, name);
    return text && *text ? text : NULL; /* operators export empty variables for what was not given */
}

int config_read_environment(struct run_config *config, const struct config_environment *environment,
                            struct muster_error *err)
{
    const struct knob_table *table = config_table();
    scope_buffer line = {0};
    for (size_t i = 0; i < table->count; i++) {
        const struct knob *knob = &table->knobs[i];
        const char *text = knob->env && !knob->refused ? get_text(environment, knob->env) : NULL;
        if (!text || config->sources[i] == KNOB_FROM_FLAG)
            continue;
        if (knob_set(table, config, config->sources, knob, text, KNOB_FROM_ENVIRONMENT, knob->env, err) < 0)
            return -1;
        buffer_printf(&line, " %s=%s", knob->env, text);
    }
    const char *grace = get_text(environment, "TORCH_ELASTIC_SHUTDOWN_TIMEOUT");
    if (grace && config_source(config, "shutdown-timeout") == KNOB_FROM_DEFAULT &&
        knob_set(table, config, config->sources, config_row("shutdown-timeout"), grace, KNOB_FROM_RULE,
                 "TORCH_ELASTIC_SHUTDOWN_TIMEOUT", err) < 0)
        return -1;
    const char *prefix = get_text(environment, ENV_LINE_PREFIX);
    config->line_prefix = mem_strdup(prefix ? prefix : "[${role_name}${local_rank}]:");
    if (line.failed || !config->line_prefix)
        return error_set(err, MUSTER_E_NOMEM, "no memory");
    if (!line.length)
        return 0;
    scope_free char *text = mem_printf("from the environment:%s", line.data);
    return text ? config_note(config, text, err) : error_set(err, MUSTER_E_NOMEM, "no memory");
}

/* Whether a refused row's variable asks for what is done anyway: switched off, or its default. */
static bool asks_nothing(const struct knob *knob, const char *text)
{
    bool on;
    return (knob->type == KNOB_BOOL && text_bool(text, &on) && !on) ||
           (knob->initial && !strcmp(knob->initial, text));
}

/* Whether the job would come out differently if the refused setting were honoured. */
static bool changes_the_job(const struct run_config *config, const struct knob *knob)
{
    static const char *const inner[] = {"monitor-interval", "start-method"}; /* how torchrun's agent works */
    for (size_t i = 0; i < sizeof inner / sizeof *inner; i++)
        if (!strcmp(knob->name, inner[i]))
            return false;
    return strncmp(knob->name, "rdzv-", 5) || config->max_nodes > 1;
}

/* A refused setting in the environment, where operators and images put it for all jobs, is an error only
 * where it would change what the job does; else it is said that it is left aside. */
int config_refuse_environment(struct run_config *config, const struct config_environment *environment,
                              struct muster_error *err)
{
    const struct knob_table *table = config_table();
    for (size_t i = 0; i < table->count; i++) {
        const struct knob *knob = &table->knobs[i];
        const char *text = knob->env && knob->refused ? get_text(environment, knob->env) : NULL;
        if (!text || asks_nothing(knob, text))
            continue;
        if (changes_the_job(config, knob))
            return error_set(err, MUSTER_E_UNSUPPORTED, "%s=%s: %s", knob->env, text, knob->refused);
        scope_free char *line = mem_printf("%s=%s is left aside: %s", knob->env, text, knob->refused);
        if (!line)
            return error_set(err, MUSTER_E_NOMEM, "no memory");
        if (config_note(config, line, err) < 0)
            return -1;
    }
    return 0;
}
