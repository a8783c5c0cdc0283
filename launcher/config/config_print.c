/* config_print.c - the texts of a configuration (pure): `muster env`, and the lines
 * printed when a run starts: notes, warnings, and all settings that did not come from flags in one
 * (config_internal.h). */
#include "launcher/config/config.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "launcher/config/config_internal.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "runtime/nccl/decide/decide.h"

enum { NAME_WIDTH = 26, VALUE_WIDTH = 28, SOURCE_SIZE = CONFIG_SETTING_SIZE, COLUMNS = 120 };

/* Values computed from the settings and the machine. */
struct fact {
    const char *name;
    long long number;
    const char *text; /* NULL: the number */
};

enum { FACTS = 8 };

static void find_facts(const struct run_config *config, const struct machine *machine,
                       struct fact facts[FACTS])
{
    const struct fact found[FACTS] = {{"host_name", 0, machine->host_name},
                                      {"min_nodes", config->min_nodes, NULL},
                                      {"max_nodes", config->max_nodes, NULL},
                                      {"workers", config->nproc_per_node, NULL},
                                      {"cores", machine->cores, NULL},
                                      {"gpus", machine->gpus, NULL},
                                      {"mig_instances", machine->mig, NULL},
                                      {"python", 0, config->interpreter ? config->interpreter : "python3"}};
    memcpy(facts, found, sizeof found);
}

static const struct knob *setting_at(size_t i)
{
    const struct knob *knob = &config_table()->knobs[i];
    return knob->refused || !strcmp(knob->name, "help") ? NULL : knob;
}

/* Where the workers' value of a variable comes from, which a file has as well. */
static const char *variable_origin(const struct config_variable *variable)
{
    return variable->kept ? "the environment" : variable->place;
}

/* --- for people --- */

static void print_row(const char *name, const char *value, const char *from, struct buffer *out)
{
    buffer_printf(out, "%-*s %-*s %s\n", NAME_WIDTH, name, VALUE_WIDTH, value, from);
}

static void print_text(const struct run_config *config, const struct fact *facts,
                       const struct decision_list *nccl, struct buffer *out)
{
    print_row("setting", "value", "from", out);
    for (size_t i = 0; i < config_table()->count; i++) {
        const struct knob *knob = setting_at(i);
        char scratch[SOURCE_SIZE];
        scope_buffer value = {0};
        if (!knob)
            continue;
        if (knob_format(knob, config, &value) < 0)
            out->failed = true;
        print_row(knob->name, value.length ? value.data : "-", config_origin(config, knob, scratch), out);
    }
    buffer_text(out, "\n");
    for (int i = 0; i < FACTS; i++) {
        char number[32];
        (void)snprintf(number, sizeof number, "%lld", facts[i].number);
        buffer_printf(out, "%-*s %s\n", NAME_WIDTH, facts[i].name, facts[i].text ? facts[i].text : number);
    }
    if (config->variable_count) {
        buffer_text(out, "\n");
        print_row("variable", "value", "from", out);
    }
    for (size_t i = 0; i < config->variable_count; i++)
        print_row(config->variables[i].name, config->variables[i].value,
                  variable_origin(&config->variables[i]), out);
    buffer_text(out, nccl->count ? "\n" : "");
    (void)decision_print(nccl, COLUMNS, out);
}

/* --- for programs --- */

static void print_setting(const struct run_config *config, const struct knob *knob, struct buffer *out)
{
    char scratch[SOURCE_SIZE];
    buffer_text(out, "{\"name\": ");
    buffer_json_string(out, knob->name);
    buffer_text(out, ", \"variable\": ");
    buffer_json_string(out, knob->env);
    buffer_text(out, ", \"value\": ");
    (void)knob_format_json(knob, config, out);
    buffer_text(out, ", \"source\": ");
    buffer_json_string(out, knob_source_name(config->sources[knob - config_table()->knobs]));
    buffer_text(out, ", \"from\": ");
    buffer_json_string(out, config_origin(config, knob, scratch));
    buffer_text(out, "}");
}

static void print_variables(const struct run_config *config, struct buffer *out)
{
    buffer_text(out, ",\n \"variables\": [");
    for (size_t i = 0; i < config->variable_count; i++) {
        buffer_printf(out, "%s\n  {\"name\": ", i ? "," : "");
        buffer_json_string(out, config->variables[i].name);
        buffer_text(out, ", \"value\": ");
        buffer_json_string(out, config->variables[i].value);
        buffer_text(out, ", \"from\": ");
        buffer_json_string(out, variable_origin(&config->variables[i]));
        buffer_text(out, "}");
    }
    buffer_text(out, "]");
}

/* "name": [the lines] */
static void print_lines(const char *name, const char *lines, struct buffer *out)
{
    const char *comma = "";
    buffer_printf(out, ",\n \"%s\": [", name);
    for (const char *at = lines ? lines : ""; *at; comma = ", ") {
        size_t length = strcspn(at, "\n");
        scope_free char *line = mem_strndup(at, length);
        if (!line)
            out->failed = true;
        buffer_text(out, comma);
        buffer_json_string(out, line);
        at += length + (at[length] == '\n');
    }
    buffer_text(out, "]");
}

static void print_json(const struct run_config *config, const struct fact *facts,
                       const struct decision_list *nccl, struct buffer *out)
{
    const char *comma = "";
    buffer_text(out, "{\"settings\": [");
    for (size_t i = 0; i < config_table()->count; i++) {
        const struct knob *knob = setting_at(i);
        if (!knob)
            continue;
        buffer_printf(out, "%s\n  ", comma);
        print_setting(config, knob, out);
        comma = ",";
    }
    buffer_text(out, "],\n \"node\": {");
    for (int i = 0; i < FACTS; i++) {
        buffer_printf(out, "%s\"%s\": ", i ? ", " : "", facts[i].name);
        if (facts[i].text)
            buffer_json_string(out, facts[i].text);
        else
            buffer_printf(out, "%lld", facts[i].number);
    }
    buffer_text(out, "}");
    print_variables(config, out);
    print_lines("notes", config->notes, out);
    print_lines("warnings", config->warnings, out);
    buffer_text(out, ",\n \"nccl\": ");
    (void)decision_json(nccl, out);
    buffer_text(out, "}\n");
}

int config_print(const struct run_config *config, const struct machine *machine,
                 const struct decision_list *nccl, struct buffer *out)
{
    static const struct decision_list none = {0};
    struct fact facts[FACTS];
    find_facts(config, machine, facts);
    (config->output == OUTPUT_JSON ? print_json : print_text)(config, facts, nccl ? nccl : &none, out);
    return out->failed ? -1 : 0;
}

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

/* "from fsdp.yaml: --nnodes=2 ...": every row that a file has set. */
static void list_file(const struct run_config *config, struct buffer *line)
{
    const struct knob_table *table = config_table();
    bool any = false;
    for (size_t i = 0; i < table->count; i++) {
        if (config->sources[i] != KNOB_FROM_FILE)
            continue;
        if (!any)
            buffer_printf(line, "%sfrom %s:", line->length ? "; " : "", config->accelerate_config);
        any = true;
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
    list_file(config, &line);
    if (line.failed)
        return error_set(err, MUSTER_E_NOMEM, "no memory");
    return line.length ? config_note(config, err, "%s", line.data) : 0;
}
