/* accelerate_apply.c - see accelerate_config.h. */
#include "launcher/accelerate/accelerate_config.h"

#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "launcher/config/config.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "proto/tree/tree.h"

enum { DEFAULT_PORT = 29500 }; /* default of main_process_port */

struct source {
    const char *(*get)(void *context, const char *name);
    void *context;
    const struct accelerate_config *file;
};

static int apply_no_memory(struct muster_error *err)
{
    return error_set(err, MUSTER_E_NOMEM, "no memory");
}

/* "fsdp.yaml:12"; NULL without memory */
static char *place_of(const struct run_config *config, int line)
{
    return line ? mem_printf("%s:%d", config->accelerate_config, line) : mem_strdup("accelerate's default");
}

/* --- settings --- */

static int apply_settings(struct run_config *config, const struct accelerate_config *file,
                          struct muster_error *err)
{
    for (int i = 0; i < file->setting_count; i++) {
        const struct accelerate_setting *setting = &file->settings[i];
        scope_free char *place = place_of(config, setting->line);
        if (!strcmp(setting->flag, "hostfile") && config->hosts)
            continue; /* the flag of the same meaning */
        if (!place)
            return apply_no_memory(err);
        if (config_set_from_file(config, setting->flag, setting->value, place, err) < 0)
            return -1;
    }
    return 0;
}

/* Nodes that are ranked where they meet do that at node 0's address, of a flag or of the file. */
static int apply_endpoint(struct run_config *config, const struct accelerate_config *file,
                          struct muster_error *err)
{
    const struct accelerate_setting *backend = accelerate_setting(file, "rdzv-backend");
    if (!backend || !config_is_free(config, "rdzv-backend") || strcmp(config->rdzv_backend, "c10d") != 0 ||
        !accelerate_setting(file, "master-addr"))
        return 0;
    const char *host = config->master_addr;
    const bool bare = strchr(host, ':') && *host != '[';
    scope_free char *place = place_of(config, backend->line);
    scope_free char *endpoint =
        mem_printf("%s%s%s:%lld", bare ? "[" : "", host, bare ? "]" : "",
                   (long long)(config->master_port ? config->master_port : DEFAULT_PORT));
    if (!place || !endpoint)
        return apply_no_memory(err);
    return config_set_from_file(config, "rdzv-endpoint", endpoint, place, err);
}

static int apply_processes(struct run_config *config, const struct accelerate_config *file,
                           struct muster_error *err)
{
    if (!file->processes && !config_is_free(config, "nproc-per-node"))
        return 0;
    if (!file->processes)
        return error_set(err, MUSTER_E_INVALID,
                         "%s: num_processes is not given: write the number of all processes there, or give "
                         "--nproc-per-node",
                         config->accelerate_config);
    scope_free char *place = place_of(config, file->processes_line);
    return place ? config_set_all_workers(config, file->processes, place, err) : apply_no_memory(err);
}

/* --- variables --- */

/* Every folder of the environment's list, then ours, once: the agents of --hosts do this again. */
static char *extend_path(const char *present, const char *folder)
{
    const size_t length = present ? strlen(present) : 0, tail = strlen(folder);
    if (length && length >= tail && !strcmp(present + length - tail, folder) &&
        (length == tail || present[length - tail - 1] == ':'))
        return mem_strdup(present);
    return present && *present ? mem_printf("%s:%s", present, folder) : mem_strdup(folder);
}

static int apply_variable(struct run_config *config, const struct accelerate_variable *variable,
                          const struct source *source, struct buffer *stays, struct muster_error *err)
{
    const char *present = source->get(source->context, variable->name);
    const bool kept = present && !variable->path && strcmp(present, variable->value) != 0;
    scope_free char *place = place_of(config, variable->line);
    scope_free char *value =
        variable->path ? extend_path(present, variable->value) : mem_strdup(kept ? present : variable->value);
    if (!place || !value)
        return apply_no_memory(err);
    if (kept && variable->line)
        buffer_printf(stays, "%s%s=%s (%s: %s)", stays->length ? ", " : "", variable->name, present, place,
                      variable->value);
    return config_add_variable(config, variable->name, value, place, kept, err);
}

static int apply_variables(struct run_config *config, const struct source *source, struct muster_error *err)
{
    scope_buffer stays = {0};
    for (int i = 0; i < source->file->variable_count; i++)
        if (apply_variable(config, &source->file->variables[i], source, &stays, err) < 0)
            return -1;
    if (stays.failed)
        return apply_no_memory(err);
    return stays.length ? config_note(config, err, "the environment's value stays: %s", stays.data) : 0;
}

int accelerate_apply(struct run_config *config, const struct accelerate_config *file,
                     const char *(*get)(void *context, const char *name), void *context,
                     struct muster_error *err)
{
    const struct source source = {get, context, file};
    if (apply_settings(config, file, err) < 0 || apply_endpoint(config, file, err) < 0 ||
        apply_processes(config, file, err) < 0 || apply_variables(config, &source, err) < 0)
        return -1;
    for (const char *line = file->warnings.data; line && *line; line = strchr(line, '\n') + 1)
        if (config_warn(config, err, "%.*s", (int)strcspn(line, "\n"), line) < 0)
            return -1;
    if (file->aside.length &&
        config_note(config, err, "%s: no effect here: %s", config->accelerate_config, file->aside.data) < 0)
        return -1;
    return config_note(config, err, "%s: %d variables for the workers; muster env shows them",
                       config->accelerate_config, file->variable_count);
}

int accelerate_load(struct run_config *config, const char *(*get)(void *context, const char *name),
                    void *context, struct muster_error *err)
{
    char directory[PATH_MAX];
    struct accelerate_config file;
    scope_buffer text = {0};
    if (!config->accelerate_config || !*config->accelerate_config)
        return 0;
    if (!getcwd(directory, sizeof directory))
        return error_errno(err, "cannot read the working directory");
    if (io_read_file(config->accelerate_config, TREE_BYTES_LIMIT, &text, err) < 0)
        return error_wrap(err, "--accelerate-config");
    if (accelerate_read(config->accelerate_config, text.data ? text.data : "", text.length, directory, &file,
                        err) < 0)
        return -1;
    int result = accelerate_apply(config, &file, get, context, err);
    accelerate_free(&file);
    return result;
}
