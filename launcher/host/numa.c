/* numa.c - see numa.h: masks and the rules. */
#include "launcher/host/numa.h"

#include <stdlib.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"

/* --- masks --- */

int numa_mask_count(const struct numa_mask *mask)
{
    int count = 0;
    for (size_t i = 0; i < sizeof mask->bits / sizeof *mask->bits; i++)
        count += __builtin_popcountll(mask->bits[i]);
    return count;
}

static bool read_cpu(const char **at, int *cpu)
{
    if (**at < '0' || **at > '9')
        return false;
    for (*cpu = 0; **at >= '0' && **at <= '9'; (*at)++)
        if ((*cpu = *cpu * 10 + (**at - '0')) >= NUMA_CPUS_LIMIT)
            return false;
    return true;
}

bool numa_mask_parse(const char *text, struct numa_mask *mask)
{
    *mask = (struct numa_mask){0};
    for (const char *at = text; *at && *at != '\n';) {
        int first, last;
        if (!read_cpu(&at, &first))
            return false;
        last = first;
        if (*at == '-' && (at++, !read_cpu(&at, &last) || last < first))
            return false;
        for (int cpu = first; cpu <= last; cpu++)
            numa_mask_add(mask, cpu);
        if (*at == ',' && at[1] >= '0' && at[1] <= '9')
            at++;
        else if (*at && *at != '\n')
            return false;
    }
    return true;
}

void numa_mask_print(const struct numa_mask *mask, struct buffer *out)
{
    const char *comma = "";
    for (int cpu = 0; cpu < NUMA_CPUS_LIMIT; cpu++) {
        if (!numa_mask_has(mask, cpu))
            continue;
        int first = cpu;
        while (cpu + 1 < NUMA_CPUS_LIMIT && numa_mask_has(mask, cpu + 1))
            cpu++;
        if (cpu == first)
            buffer_printf(out, "%s%d", comma, cpu);
        else
            buffer_printf(out, "%s%d-%d", comma, first, cpu);
        comma = ",";
    }
}

/* --- groups: allowed CPUs of one node that have the same core or cache --- */

struct worker_group {
    int name;  /* the core's or cache's lowest CPU */
    int first; /* the lowest allowed CPU in it */
    int size;
};

struct groups {
    struct worker_group *items;
    int count;
};

static bool is_usable(const struct numa_topology *t, int cpu)
{
    return t->cpus[cpu].node >= 0 && numa_mask_has(&t->allowed, cpu);
}

static int group_of(const struct numa_topology *t, int cpu, enum numa_binding binding)
{
    return binding == NUMA_EXCLUSIVE ? t->cpus[cpu].core : t->cpus[cpu].cache;
}

/* In the order of their lowest allowed CPU. */
static int find_groups(const struct numa_topology *t, int node, enum numa_binding binding,
                       struct groups *groups, struct muster_error *err)
{
    groups->count = 0;
    groups->items = mem_calloc((size_t)t->cpu_count, sizeof *groups->items);
    if (!groups->items)
        return error_set(err, MUSTER_E_NOMEM, "no memory for %d CPUs", t->cpu_count);
    for (int cpu = 0; cpu < t->cpu_count; cpu++) {
        if (!is_usable(t, cpu) || t->cpus[cpu].node != node)
            continue;
        int name = group_of(t, cpu, binding), at = 0;
        while (at < groups->count && groups->items[at].name != name)
            at++;
        if (at == groups->count)
            groups->items[groups->count++] = (struct worker_group){name, cpu, 0};
        groups->items[at].size++;
    }
    return 0;
}

static void add_group(const struct numa_topology *t, int node, enum numa_binding binding, int name,
                      struct numa_mask *mask)
{
    for (int cpu = 0; cpu < t->cpu_count; cpu++)
        if (is_usable(t, cpu) && t->cpus[cpu].node == node && group_of(t, cpu, binding) == name)
            numa_mask_add(mask, cpu);
}

static int larger_first(const void *left, const void *right)
{
    const struct worker_group *a = left, *b = right;
    return a->size != b->size ? b->size - a->size : a->first - b->first;
}

/* --- the rules --- */

/* How many workers' slots have this node, and how many of them are before this one. */
static int count_slots(const int *nodes, int slots, int slot, int *before)
{
    int all = 0;
    *before = 0;
    for (int i = 0; i < slots; i++) {
        all += nodes[i] == nodes[slot];
        *before += nodes[i] == nodes[slot] && i < slot;
    }
    return all;
}

static int package_of(const struct numa_topology *t, int node)
{
    for (int cpu = 0; cpu < t->cpu_count; cpu++)
        if (t->cpus[cpu].node == node)
            return t->cpus[cpu].package;
    return -1;
}

static void bind_whole(const struct numa_topology *t, bool socket, int node, struct numa_mask *mask)
{
    int package = package_of(t, node);
    for (int cpu = 0; cpu < t->cpu_count; cpu++)
        if (is_usable(t, cpu) && (socket ? t->cpus[cpu].package == package : t->cpus[cpu].node == node))
            numa_mask_add(mask, cpu);
}

static int bind_cores(const struct numa_topology *t, const int *nodes, int slots, int slot,
                      struct numa_mask *mask, struct muster_error *err)
{
    scope_free struct worker_group *items = NULL;
    struct groups cores;
    int before, sharing = count_slots(nodes, slots, slot, &before), node = nodes[slot];
    int result = find_groups(t, node, NUMA_EXCLUSIVE, &cores, err);
    items = cores.items;
    if (result < 0)
        return -1;
    if (cores.count < sharing)
        return error_set(
            err, MUSTER_E_INVALID,
            "exclusive: NUMA node %d has %d physical cores that may be used, fewer than the %d workers or "
            "GPUs there; use node",
            node, cores.count, sharing);
    int each = cores.count / sharing, over = cores.count % sharing;
    int first = before * each + (before < over ? before : over), count = each + (before < over);
    for (int i = first; i < first + count; i++)
        add_group(t, node, NUMA_EXCLUSIVE, items[i].name, mask);
    return 0;
}

static int bind_complex(const struct numa_topology *t, const int *nodes, int slots, int slot,
                        struct numa_mask *mask, struct muster_error *err)
{
    scope_free struct worker_group *items = NULL;
    struct groups complexes;
    int before, node = nodes[slot];
    (void)count_slots(nodes, slots, slot, &before);
    int result = find_groups(t, node, NUMA_CORE_COMPLEX, &complexes, err);
    items = complexes.items;
    if (result < 0)
        return -1;
    if (!complexes.count)
        return 0;
    qsort(items, (size_t)complexes.count, sizeof *items, larger_first);
    add_group(t, node, NUMA_CORE_COMPLEX, items[before % complexes.count].name, mask);
    return 0;
}

int numa_bind(const struct numa_topology *topology, enum numa_binding binding, const int *nodes, int slots,
              int slot, struct numa_mask *mask, struct muster_error *err)
{
    int result = 0;
    *mask = (struct numa_mask){0};
    switch (binding) {
    case NUMA_EXCLUSIVE:
        result = bind_cores(topology, nodes, slots, slot, mask, err);
        break;
    case NUMA_CORE_COMPLEX:
        result = bind_complex(topology, nodes, slots, slot, mask, err);
        break;
    default:
        bind_whole(topology, binding == NUMA_SOCKET, nodes[slot], mask);
    }
    if (result == 0 && numa_mask_count(mask) == 0)
        return error_set(
            err, MUSTER_E_INVALID,
            "NUMA node %d has no CPU that this process may run on (taskset or the cgroup's cpuset)",
            nodes[slot]);
    return result;
}

int numa_usable_nodes(const struct numa_topology *topology, int *nodes, int limit)
{
    int count = 0;
    for (int node = 0;; node++) {
        bool usable = false, later = false;
        for (int cpu = 0; cpu < topology->cpu_count; cpu++) {
            usable |= is_usable(topology, cpu) && topology->cpus[cpu].node == node;
            later |= topology->cpus[cpu].node > node;
        }
        if (usable && count < limit)
            nodes[count] = node;
        count += usable;
        if (!later)
            return count;
    }
}

void numa_free(struct numa_topology *topology)
{
    if (!topology)
        return;
    mem_free(topology->cpus);
    topology->cpus = NULL;
    topology->cpu_count = 0;
}
