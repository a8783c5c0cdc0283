/* config_file.c - values that come from a configuration file (config.h): rows that neither a flag nor a
 * variable has set, variables for the workers, and a number of workers for all nodes together (pure). */
#include <string.h>

#include "launcher/config/config_internal.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"

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

int config_divide_workers(struct run_config *config, struct muster_error *err)
{
    int64_t workers = config->all_workers;
    if (!workers || !config_is_free(config, "nproc-per-node"))
        return 0;
    if (workers % config->max_nodes)
        return error_set(err, MUSTER_E_INVALID,
                         "%s: %lld processes cannot be divided equally among %d nodes; change one of the "
                         "numbers, or give --nproc-per-node",
                         config->all_workers_place, (long long)workers, config->max_nodes);
    scope_free char *text = mem_printf("%lld", (long long)(workers / config->max_nodes));
    if (!text)
        return file_no_memory(err);
    return config_set_from_file(config, "nproc-per-node", text, config->all_workers_place, err) < 0
               ? -1
               : config_parse_nproc(config, &config->nproc_per_node, err);
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
