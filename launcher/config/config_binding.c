/* config_binding.c - see config_binding.h. */
#include "launcher/config/config_binding.h"

#include <sched.h>

#include "launcher/config/config_internal.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"

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
