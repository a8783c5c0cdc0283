/* accelerate_config.c - see accelerate_config.h: one step for each part of the file. */
#include "launcher/accelerate/accelerate_config.h"

#include <string.h>

#include "launcher/accelerate/accelerate_keys.h"
#include "launcher/accelerate/accelerate_reader.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"

/* --- which file this is --- */

static int check_environment(const struct accelerate_reader *r)
{
    const struct tree_node *node = tree_get(r->root, "compute_environment");
    const char *text = tree_text(node);
    if (!node || (text && !strcmp(text, "LOCAL_MACHINE")))
        return 0;
    if (text && !strcmp(text, "AMAZON_SAGEMAKER"))
        return error_set(
            r->err, MUSTER_E_UNSUPPORTED,
            "%s:%d: compute_environment AMAZON_SAGEMAKER is a job at Amazon, started by Amazon's "
            "Python SDK; use accelerate launch for it",
            r->file, node->line);
    return error_set(r->err, MUSTER_E_INVALID,
                     "%s:%d: compute_environment: '%s' is not LOCAL_MACHINE or AMAZON_SAGEMAKER", r->file,
                     node->line, node->text ? ACCELERATE_SHOWN(node->text) : tree_kind_name(node->kind));
}

static int check_keys(const struct accelerate_reader *r)
{
    for (size_t i = 0; i < r->root->count; i++) {
        const struct tree_entry *entry = &r->root->entries[i];
        const char *hint = accelerate_nearest(entry->key);
        if (!accelerate_known(entry->key))
            return error_set(r->err, MUSTER_E_INVALID,
                             "%s:%d: '%s' is not a key of accelerate's configuration; %s%s%s", r->file,
                             entry->line, ACCELERATE_SHOWN(entry->key), hint ? "did you mean " : "remove it",
                             hint ? hint : "", hint ? "?" : "");
    }
    return 0;
}

/* An unquoted NO is a boolean in YAML. */
static int read_type(struct accelerate_reader *r)
{
    const struct tree_node *node = tree_get(r->root, "distributed_type");
    if (!node)
        return error_set(r->err, MUSTER_E_INVALID,
                         "%s: distributed_type is missing (NO, MULTI_CPU, MULTI_GPU, FSDP, DEEPSPEED, ...)",
                         r->file);
    if (!accelerate_is_value(node))
        return accelerate_not_one_value(r, "distributed_type", node);
    const char *name = node->kind == TREE_BOOL && !node->boolean ? "NO" : node->text;
    const char *hint = accelerate_nearest_type(name);
    r->type = accelerate_type(name);
    if (!r->type)
        return error_set(r->err, MUSTER_E_INVALID, "%s:%d: distributed_type: '%s' is unknown; %s%s%s",
                         r->file, node->line, ACCELERATE_SHOWN(name),
                         hint ? "did you mean " : "accelerate's are NO, MULTI_GPU, ...", hint ? hint : "",
                         hint ? "?" : "");
    if (r->type->launcher == ACCELERATE_REFUSED)
        return error_set(r->err, MUSTER_E_UNSUPPORTED,
                         "%s:%d: distributed_type %s is started by torch_xla from inside of Python; use "
                         "accelerate launch for it",
                         r->file, node->line, name);
    return 0;
}

/* --- the world --- */

/* The number of all processes; one file of several machines has the same on each. */
static int read_processes(struct accelerate_reader *r)
{
    int64_t count = -1;
    int line;
    const bool alone = !strcmp(r->type->name, "NO");
    if (accelerate_read_int(r, "num_processes", &count, &line) < 0)
        return -1;
    if (count == 0 || count < -1 || count > INT32_MAX)
        return error_set(r->err, MUSTER_E_INVALID, "%s:%d: num_processes: '%lld' is outside 1 to %d", r->file,
                         line, (long long)count, INT32_MAX);
    if (alone && count > 1) {
        buffer_printf(
            &r->out->warnings,
            "%s:%d: num_processes %lld has no effect: distributed_type NO starts one process; write "
            "MULTI_CPU or MULTI_GPU, or give --nproc-per-node\n",
            r->file, line, (long long)count);
        count = 1;
    }
    r->out->processes = count > 0 ? count : alone ? 1 : 0;
    r->out->processes_line = line;
    return 0;
}

static int read_world(struct accelerate_reader *r)
{
    static const char *const settings[][2] = {{"num_machines", "nnodes"},
                                              {"machine_rank", "node-rank"},
                                              {"main_process_ip", "master-addr"},
                                              {"main_process_port", "master-port"},
                                              {"rdzv_backend", "rdzv-backend"}};
    bool same = false; /* in both cases node 0 is reached by its address and port */
    int line;
    if (read_processes(r) < 0 || accelerate_read_int(r, "num_machines", &r->machines, &line) < 0 ||
        accelerate_read_bool(r, "same_network", &same, &line) < 0)
        return -1;
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        if (accelerate_read_setting(r, settings[i][0], settings[i][1]) < 0)
            return -1;
    return 0;
}

/* --- variables of all kinds of jobs --- */

/* "mixed_precision: no" without quotes is a boolean in YAML; "fp16: true" is how older versions wrote it. */
static int read_precision(struct accelerate_reader *r)
{
    static const char *const known[] = {"no", "fp16", "bf16", "fp8"};
    const struct tree_node *node = tree_get(r->root, "mixed_precision");
    bool old = false;
    int line;
    if (accelerate_read_bool(r, "fp16", &old, &line) < 0)
        return -1;
    if (node && !accelerate_is_value(node))
        return accelerate_not_one_value(r, "mixed_precision", node);
    const bool off = node ? node->kind == TREE_BOOL && !node->boolean : !old;
    scope_free char *text =
        off ? mem_strdup("no") : (node ? accelerate_print(node, ACCELERATE_LOWER) : mem_strdup("fp16"));
    if (!text)
        return accelerate_no_memory(r);
    r->precision_given = node || old;
    if (node)
        line = node->line;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(text, known[i]) != 0)
            continue;
        r->precision = known[i];
        return accelerate_add_variable(r, "ACCELERATE_MIXED_PRECISION", known[i],
                                       r->precision_given ? line : 0);
    }
    return error_set(r->err, MUSTER_E_INVALID, "%s:%d: mixed_precision: '%s' is not no, fp16, bf16 or fp8",
                     r->file, line, ACCELERATE_SHOWN(text));
}

static int read_devices(struct accelerate_reader *r)
{
    const struct tree_node *node = tree_get(r->root, "gpu_ids");
    if (!node || accelerate_is_empty(node))
        return 0;
    if (!accelerate_is_value(node))
        return accelerate_not_one_value(r, "gpu_ids", node);
    return !strcmp(node->text, "all") ? 0
                                      : accelerate_add_variable(r, r->type->devices, node->text, node->line);
}

static int read_flags(struct accelerate_reader *r)
{
    bool debug = false, affinity = false;
    int debug_line, affinity_line;
    if (accelerate_read_bool(r, "debug", &debug, &debug_line) < 0 ||
        accelerate_read_bool(r, "enable_cpu_affinity", &affinity, &affinity_line) < 0 ||
        (debug && accelerate_add_variable(r, "ACCELERATE_DEBUG_MODE", "true", debug_line) < 0))
        return -1;
    return affinity ? accelerate_add_variable(r, "ACCELERATE_CPU_AFFINITY", "1", affinity_line) : 0;
}

/* Workers without GPUs; with them torch finds the devices itself. */
static int read_use_cpu(struct accelerate_reader *r)
{
    bool cpu = false;
    int line;
    if (accelerate_read_bool(r, "use_cpu", &cpu, &line) < 0)
        return -1;
    if (r->type->launcher != ACCELERATE_SIMPLE)
        return cpu ? accelerate_set_aside(r, "use_cpu", "MULTI_CPU and NO only") : 0;
    if (accelerate_add_variable(r, "ACCELERATE_USE_CPU", cpu ? "True" : "False", line) < 0)
        return -1;
    return !cpu ? 0
                : (accelerate_add_variable(r, "KMP_AFFINITY", "granularity=fine,compact,1,0", line) < 0
                       ? -1
                       : accelerate_add_variable(r, "KMP_BLOCKTIME", "1", line));
}

static int note_unused(struct accelerate_reader *r)
{
    for (size_t i = 0; i < r->root->count; i++) {
        const struct tree_entry *entry = &r->root->entries[i];
        const struct accelerate_unused *row = accelerate_unused(entry->key);
        const char *text = tree_text(entry->value);
        if (!row || accelerate_is_empty(entry->value) ||
            (row->resting && text && !strcmp(text, row->resting)))
            continue;
        if (accelerate_set_aside(r, row->name, row->why) < 0)
            return -1;
    }
    return 0;
}

/* The backend of torch.compile as older versions wrote it, without a dynamo_config. */
static int read_old_dynamo(struct accelerate_reader *r)
{
    const struct tree_node *node = tree_get(r->root, "dynamo_backend");
    if (!node)
        return 0;
    if (!accelerate_is_value(node))
        return accelerate_not_one_value(r, "dynamo_backend", node);
    if (r->type->launcher == ACCELERATE_DEEPSPEED)
        return accelerate_set_aside(r, "dynamo_backend", "not with DeepSpeed");
    if (node->kind == TREE_BOOL && !node->boolean)
        return accelerate_add_variable(r, "ACCELERATE_DYNAMO_BACKEND", "NO", node->line);
    return accelerate_take_variable(r, "ACCELERATE_DYNAMO_BACKEND", accelerate_print(node, ACCELERATE_UPPER),
                                    node->line);
}

static int read_own(struct accelerate_reader *r)
{
    const struct tree_node *node = tree_get(r->root, "distributed_type");
    return r->type->own ? accelerate_add_variable(r, r->type->own, r->type->value, node->line) : 0;
}

static int read_root(struct accelerate_reader *r)
{
    if (r->root->kind != TREE_MAP)
        return error_set(r->err, MUSTER_E_INVALID, "%s:%d: %s where accelerate's keys are expected", r->file,
                         r->root->line, tree_kind_name(r->root->kind));
    static int (*const steps[])(struct accelerate_reader *) = {
        read_type,  read_world,   read_precision,           read_own,        read_devices,
        read_flags, read_use_cpu, accelerate_read_sections, read_old_dynamo, note_unused};
    if (check_environment(r) < 0 || check_keys(r) < 0)
        return -1;
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        if (steps[i](r) < 0)
            return -1;
    return 0;
}

int accelerate_read(const char *name, const char *text, size_t length, const char *directory,
                    struct accelerate_config *out, struct muster_error *err)
{
    struct tree tree;
    *out = (struct accelerate_config){0};
    if (tree_parse_last(name, text, length, &tree, &out->warnings, err) < 0) {
        accelerate_free(out);
        return -1;
    }
    struct accelerate_reader reader = {.file = name, .directory = directory, .out = out, .err = err};
    int result;
    if (tree.document_count != 1) {
        result = error_set(err, MUSTER_E_INVALID, "%s: %zu documents where one is expected", name,
                           tree.document_count);
    } else {
        reader.root = tree.documents[0];
        result = read_root(&reader);
    }
    tree_free(&tree);
    if (result < 0)
        accelerate_free(out);
    return result;
}

const struct accelerate_setting *accelerate_setting(const struct accelerate_config *config, const char *flag)
{
    for (int i = 0; i < config->setting_count; i++)
        if (!strcmp(config->settings[i].flag, flag))
            return &config->settings[i];
    return NULL;
}

void accelerate_free(struct accelerate_config *config)
{
    if (!config)
        return;
    for (int i = 0; i < config->setting_count; i++)
        mem_free(config->settings[i].value);
    for (int i = 0; i < config->variable_count; i++)
        mem_free(config->variables[i].value);
    buffer_free(&config->aside);
    buffer_free(&config->warnings);
    *config = (struct accelerate_config){0};
}
