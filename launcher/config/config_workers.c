/* config_workers.c - the settings of this node's workers: their number (pure), and the CPUs of each with
 * --numa-binding, which reads the machine; see config_internal.h. */
#include "launcher/config/config_internal.h"

#include <limits.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/output/log_filter.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/text.h"
#include "proto/visible_devices.h"

static const char *const nproc_words[] = {"cpu", "gpu", "auto"};

int config_parse_nproc(const struct run_config *config, int *out, struct muster_error *err)
{
    const char *where = CONFIG_SETTING(config, "nproc-per-node"), *text = config->nproc;
    int64_t number;
    *out = 0;
    text_trim(config->nproc);
    for (size_t i = 0; i < sizeof nproc_words / sizeof *nproc_words; i++)
        if (!strcmp(text, nproc_words[i]))
            return 0;
    if (!strcmp(text, "xpu"))
        return error_set(err, MUSTER_E_UNSUPPORTED,
                         "%s: xpu devices are not counted; give the number of workers", where);
    if (!text_int64(text, &number))
        return error_set(err, MUSTER_E_INVALID, "%s: '%s' is not a number of workers, cpu, gpu or auto",
                         where, text);
    if (number < 1 || number > CONFIG_WORKERS_LIMIT)
        return error_set(err, MUSTER_E_INVALID, "%s: '%s' is outside 1 to %d workers", where, text,
                         CONFIG_WORKERS_LIMIT);
    *out = (int)number;
    return 0;
}

/* More workers than GPUs: most likely a mistake, for which CUDA's error names no cause. */
static bool shares_gpus(const struct run_config *config, const struct machine *machine)
{
    return machine->gpus > 0 && config->nproc_per_node > machine->gpus;
}

/* One worker but several GPUs, if the number was not typed: operators leave the variable out, or give
 * 1. */
static bool leaves_gpus(const struct run_config *config, const struct machine *machine)
{
    const enum knob_source source = config_source(config, "nproc-per-node");
    return machine->gpus > 1 && config->nproc_per_node == 1 && source != KNOB_FROM_FLAG &&
           source != KNOB_FROM_FILE;
}

bool config_wants_gpus(const struct run_config *config, const struct machine *machine)
{
    bool counts = config->nproc_per_node == 0 && strcmp(config->nproc, "cpu");
    bool divided = config->all_workers > 1 && machine->gpus > 0; /* their number here is not known yet */
    return counts || divided || config->numa_binding != NUMA_UNBOUND || shares_gpus(config, machine) ||
           leaves_gpus(config, machine);
}

static int warn_of_gpus(struct run_config *config, const struct machine *machine, struct muster_error *err)
{
    const char *where = CONFIG_SETTING(config, "nproc-per-node");
    if (shares_gpus(config, machine) &&
        config_warn(config, err,
                    "%s: %d workers, but %d GPU%s visible here: some share one, which NCCL does not allow",
                    where, config->nproc_per_node, machine->gpus, machine->gpus == 1 ? " is" : "s are") < 0)
        return -1;
    if (leaves_gpus(config, machine) &&
        config_warn(
            config, err,
            "%d GPUs are visible here, but one worker is started; --nproc-per-node=gpu starts one for each",
            machine->gpus) < 0)
        return -1;
    if (machine->mig > 0 && config->nproc_per_node > 1 && !config->virtual_local_rank &&
        config_warn(config, err,
                    "%d of the visible GPUs are MIG instances, and a process sees only one: list their UUIDs "
                    "in CUDA_VISIBLE_DEVICES and give --virtual-local-rank, so that each worker has its own",
                    machine->mig) < 0)
        return -1;
    return *machine->gpus_unknown
               ? config_warn(config, err, "%s; GPUs were counted in /dev", machine->gpus_unknown)
               : 0;
}

/* Every worker needs an entry of its own in the list, if there is one. */
static int check_virtual(const struct run_config *config, const char *visible, struct muster_error *err)
{
    int entries = visible ? visible_devices_count(visible) : 0;
    if (config->virtual_local_rank && visible && entries < config->nproc_per_node)
        return error_set(
            err, MUSTER_E_INVALID, "%s: %d workers, but CUDA_VISIBLE_DEVICES='%.100s' has %d entries",
            CONFIG_SETTING(config, "virtual-local-rank"), config->nproc_per_node, visible, entries);
    return 0;
}

/* The largest local rank that a list (0,2) or a map (0:1,2:3) names, or -1. */
static int last_rank_of(const char *text)
{
    long last = -1;
    for (const char *at = text; at && *at; at = strchr(at, ','), at = at ? at + 1 : NULL) {
        const long rank = strtol(at, NULL, 10); /* the syntax was checked; overflow gives LONG_MAX */
        last = rank > last ? rank : last;
    }
    return last > INT_MAX ? INT_MAX : (int)last;
}

/* Ranks that no worker of this node has: their settings change nothing, and a filter may hide everybody. */
static int warn_of_missing_ranks(struct run_config *config, struct muster_error *err)
{
    const struct {
        const char *name, *text;
    } rows[] = {{"redirects", strchr(config->redirects, ':') ? config->redirects : NULL},
                {"tee", strchr(config->tee, ':') ? config->tee : NULL},
                {"local-ranks-filter", config->local_ranks_filter}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const int last = last_rank_of(rows[i].text), workers = config->nproc_per_node;
        if (last >= workers &&
            config_warn(config, err, "%s: '%s' names local rank %d, and this node's last one is %d",
                        CONFIG_SETTING(config, rows[i].name), rows[i].text, last, workers - 1) < 0)
            return -1;
    }
    bool shown = false;
    for (int i = 0; i < config->nproc_per_node; i++)
        shown |= log_filter_shows(config->local_ranks_filter, i) > 0;
    return shown ? 0
                 : config_warn(config, err, "%s: '%s' shows the output of no worker",
                               CONFIG_SETTING(config, "local-ranks-filter"), config->local_ranks_filter);
}

/* Settings of torchrun's agent without use here are accepted, with one note. */
static int note_what_changes_nothing(struct run_config *config, struct muster_error *err)
{
    static const struct {
        const char *name, *why;
    } rows[] = {{"monitor-interval", "the end of a worker is detected at once, without polling"},
                {"start-method", "workers are programs of their own, not started by Python"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (config_is_said(config, rows[i].name) &&
            config_note(config, err, "%s has no effect: %s", CONFIG_SETTING(config, rows[i].name),
                        rows[i].why) < 0)
            return -1;
    return 0;
}

int config_check_command(const struct run_config *config, struct muster_error *err)
{
    bool launch = config->command == COMMAND_LAUNCH;
    if (config->output == OUTPUT_MARKDOWN)
        return error_set(err, MUSTER_E_INVALID,
                         "--output=markdown is a format of --help: put --help after it");
    if (config->module && config->no_python)
        return error_set(err, MUSTER_E_INVALID, "%s and %s exclude each other",
                         CONFIG_SETTING(config, "module"), CONFIG_SETTING(config, "no-python"));
    if (config->use_env && config->command == COMMAND_RUN)
        return error_set(
            err, MUSTER_E_INVALID,
            "--use-env is a flag of muster launch; muster run never adds --local-rank, leave it out");
    if (launch && config->no_python && !config->use_env)
        return error_set(
            err, MUSTER_E_INVALID,
            "%s needs --use-env: without it --local-rank is added to the program's arguments, which only "
            "a Python script expects",
            CONFIG_SETTING(config, "no-python"));
    return 0;
}

/* nproc_per_node from a file's number for all nodes, unless a flag or variable gives it. */
static int divide_workers(struct run_config *config, struct muster_error *err)
{
    int64_t workers = config->all_workers;
    if (!workers || !config_is_free(config, "nproc-per-node"))
        return 0;
    if (workers % config->max_nodes)
        return error_set(err, MUSTER_E_INVALID,
                         "%s: %lld processes cannot be divided equally among %d nodes; change either "
                         "number, or give --nproc-per-node",
                         config->all_workers_place, (long long)workers, config->max_nodes);
    scope_free char *text = mem_printf("%lld", (long long)(workers / config->max_nodes));
    if (!text)
        return error_set(err, MUSTER_E_NOMEM, "no memory");
    return config_set_from_file(config, "nproc-per-node", text, config->all_workers_place, err) < 0
               ? -1
               : config_parse_nproc(config, &config->nproc_per_node, err);
}

int config_resolve_workers(struct run_config *config, const struct config_environment *environment,
                           const struct machine *machine, struct muster_error *err)
{
    if (divide_workers(config, err) < 0)
        return -1;
    if (config->nproc_per_node == 0 && !strcmp(config->nproc, "gpu") && machine->gpus < 1)
        return error_set(err, MUSTER_E_INVALID,
                         "%s: gpu, but no NVIDIA GPU is visible here%s%s; give a number, cpu or auto",
                         CONFIG_SETTING(config, "nproc-per-node"), *machine->gpus_unknown ? ": " : "",
                         machine->gpus_unknown);
    if (config->nproc_per_node == 0)
        config->nproc_per_node =
            strcmp(config->nproc, "cpu") && machine->gpus > 0 ? machine->gpus : machine->cores;
    const char *visible = environment->get(environment->context, "CUDA_VISIBLE_DEVICES");
    return check_virtual(config, visible, err) < 0 || warn_of_gpus(config, machine, err) < 0 ||
                   warn_of_missing_ranks(config, err) < 0 || note_what_changes_nothing(config, err) < 0
               ? -1
               : 0;
}

/* --- --numa-binding --- */

/* The NUMA node of every visible GPU. */
static int nodes_of_gpus(const struct run_config *config, const struct machine *machine, const char *sys,
                         int *nodes, struct muster_error *err)
{
    if (config->nproc_per_node > machine->gpus)
        return error_set(err, MUSTER_E_INVALID, "%d workers, but %d GPUs to bind them by",
                         config->nproc_per_node, machine->gpus);
    if (!machine->gpus_named)
        return error_set(err, MUSTER_E_UNSUPPORTED, "NVML did not report the GPUs' NUMA nodes%s%s",
                         *machine->gpus_unknown ? ": " : "", machine->gpus_unknown);
    for (int i = 0; i < machine->gpus; i++)
        if ((nodes[i] = numa_gpu_node(sys, machine->gpu_bus[i], err)) < 0)
            return -1;
    return 0;
}

static int nodes_in_turn(struct run_config *config, const struct numa_topology *topology, int *nodes,
                         struct muster_error *err)
{
    scope_free int *usable = mem_calloc(NUMA_CPUS_LIMIT, sizeof *usable);
    int count = usable ? numa_usable_nodes(topology, usable, NUMA_CPUS_LIMIT) : 0;
    if (!usable)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the NUMA nodes");
    if (!count)
        return error_set(err, MUSTER_E_INVALID, "no NUMA node has a CPU that this process may run on");
    for (int i = 0; i < config->nproc_per_node; i++)
        nodes[i] = usable[i % count];
    return config_note(config, err, "no GPU is visible: the workers are bound to %d NUMA node%s in turn",
                       count, count == 1 ? "" : "s");
}

static int bind_all(struct run_config *config, const struct machine *machine, const char *sys,
                    const struct numa_topology *topology, struct muster_error *err)
{
    int slots = machine->gpus > 0 ? machine->gpus : config->nproc_per_node;
    scope_free int *nodes = mem_calloc((size_t)slots, sizeof *nodes);
    config->cpus = mem_calloc((size_t)config->nproc_per_node, sizeof *config->cpus); /* config_free's */
    if (!nodes || !config->cpus)
        return error_set(err, MUSTER_E_NOMEM, "no memory for %d workers' CPUs", config->nproc_per_node);
    if ((machine->gpus > 0 ? nodes_of_gpus(config, machine, sys, nodes, err)
                           : nodes_in_turn(config, topology, nodes, err)) < 0)
        return -1;
    for (int i = 0; i < config->nproc_per_node; i++)
        if (numa_bind(topology, (enum numa_binding)config->numa_binding, nodes, slots, i, &config->cpus[i],
                      err) < 0)
            return error_wrap(err, "local rank %d", i);
    return 0;
}

int config_binding_resolve(struct run_config *config, const struct machine *machine, const char *sys,
                           struct muster_error *err)
{
    struct numa_mask allowed = {0};
    struct numa_topology topology;
    if (config->numa_binding == NUMA_UNBOUND)
        return 0;
    if (sched_getaffinity(0, sizeof allowed.bits, (cpu_set_t *)allowed.bits) < 0)
        return error_errno(err, "--numa-binding: cannot read the CPUs that this process may run on");
    int result = numa_read(sys, &allowed, &topology, err);
    if (result == 0) {
        result = bind_all(config, machine, sys, &topology, err);
        numa_free(&topology);
    }
    return result < 0 ? error_wrap(err, "%s", CONFIG_SETTING(config, "numa-binding")) : 0;
}
