/* config_sources.c - where settings come from (pure): the command line of `muster run` up to the program,
 * then the environment's PET_ and MUSTER_ variables; see config_internal.h. */
#include "launcher/config/config_internal.h"

#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/knob_args.h"
#include "proto/base/text.h"
#include "proto/env_names.h"

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
