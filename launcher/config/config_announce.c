/* config_announce.c - lines printed about the configuration when a run starts: notes, warnings, and one
 * line with all settings that did not come from flags (pure); see config_internal.h. */
#include "launcher/config/config_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"

static int add_line(char **lines, const char *format, va_list arguments, struct muster_error *err)
{
    char text[1024]; /* cut: a console's line */
    (void)vsnprintf(text, sizeof text, format, arguments);
    char *longer = *lines ? mem_printf("%s\n%s", *lines, text) : mem_strdup(text);
    if (!longer)
        return error_set(err, MUSTER_E_NOMEM, "no memory");
    mem_free(*lines);
    *lines = longer;
    return 0;
}

int config_note(struct run_config *config, struct muster_error *err, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int result = add_line(&config->notes, format, arguments, err);
    va_end(arguments);
    return result;
}

int config_warn(struct run_config *config, struct muster_error *err, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int result = add_line(&config->warnings, format, arguments, err);
    va_end(arguments);
    return result;
}

/* Whether a rule's reason is announced at the start: not if its source is a flag or the default. */
static bool is_news(const char *reason)
{
    return reason && strncmp(reason, "--", 2) && strcmp(reason, config_reason_one_node);
}

/* " --name=value" of every row that this reason has set, and of none that was listed before. */
static void list_rule(const struct run_config *config, size_t first, struct buffer *line)
{
    const struct knob_table *table = config_table();
    const char *reason = config->reasons[first];
    for (size_t i = 0; i < first; i++)
        if (config->reasons[i] && !strcmp(config->reasons[i], reason))
            return;
    buffer_printf(line, "%sfrom %s:", line->length ? "; " : "", reason);
    for (size_t i = first; i < table->count; i++) {
        if (!config->reasons[i] || strcmp(config->reasons[i], reason))
            continue;
        buffer_printf(line, " --%s=", table->knobs[i].name);
        (void)knob_format(&table->knobs[i], config, line); /* the buffer remembers a failure */
    }
}

int config_announce(struct run_config *config, struct muster_error *err)
{
    const struct knob_table *table = config_table();
    scope_buffer line = {0};
    for (size_t i = 0; i < table->count; i++) {
        if (config->sources[i] != KNOB_FROM_ENVIRONMENT)
            continue;
        buffer_printf(&line, "%s %s=", line.length ? "" : "from the environment:", table->knobs[i].env);
        (void)knob_format(&table->knobs[i], config, &line);
    }
    for (size_t i = 0; i < table->count; i++)
        if (config->sources[i] == KNOB_FROM_RULE && is_news(config->reasons[i]))
            list_rule(config, i, &line);
    if (line.failed)
        return error_set(err, MUSTER_E_NOMEM, "no memory");
    return line.length ? config_note(config, err, "%s", line.data) : 0;
}
