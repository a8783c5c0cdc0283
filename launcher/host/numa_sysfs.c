/* numa_sysfs.c - see numa.h: the topology of /sys. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "launcher/host/numa.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "proto/base/text.h"

enum { TEXT_LIMIT = 65536, PATH_SIZE = 512, CACHES_LIMIT = 16 };

/* The file named by format under sys, without its newline. */
static int read_text(struct buffer *text, struct muster_error *err, const char *sys, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
static int read_text(struct buffer *text, struct muster_error *err, const char *sys, const char *format, ...)
{
    char path[PATH_SIZE], name[PATH_SIZE];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(name, sizeof name, format, arguments); /* our own names, short */
    va_end(arguments);
    if ((size_t)snprintf(path, sizeof path, "%s/%s", sys, name) >= sizeof path)
        return error_set(err, MUSTER_E_LIMIT, "the path %.100s... is too long", sys);
    buffer_clear(text);
    if (io_read_file(path, TEXT_LIMIT, text, err) < 0)
        return -1;
    while (text->length && text->data[text->length - 1] == '\n')
        text->data[--text->length] = 0;
    return buffer_text(text, "") < 0 ? error_set(err, MUSTER_E_NOMEM, "no memory") : 0;
}

static int read_mask(struct numa_mask *mask, struct muster_error *err, const char *sys, const char *format,
                     int number)
{
    scope_buffer text = {0};
    char name[PATH_SIZE];
    (void)snprintf(name, sizeof name, format, number);
    if (read_text(&text, err, sys, "%s", name) < 0)
        return -1;
    if (!numa_mask_parse(text.data ? text.data : "", mask))
        return error_set(err, MUSTER_E_PROTOCOL, "%s/%s: '%.100s' is no list of CPUs", sys, name, text.data);
    return 0;
}

/* A number that may be missing (a kernel or a virtual machine that does not report it). */
static int64_t read_number(const char *sys, const char *format, int cpu, int index, int64_t otherwise)
{
    scope_buffer text = {0};
    char name[PATH_SIZE];
    int64_t number;
    (void)snprintf(name, sizeof name, format, cpu, index);
    return read_text(&text, NULL, sys, "%s", name) == 0 && text.data && text_int64(text.data, &number)
               ? number
               : otherwise;
}

static int lowest(const struct numa_mask *mask, int otherwise)
{
    for (int cpu = 0; cpu < NUMA_CPUS_LIMIT; cpu++)
        if (numa_mask_has(mask, cpu))
            return cpu;
    return otherwise;
}

/* The lowest CPU under the same cache of the highest level; the CPU itself if caches are not described. */
static int read_cache(const char *sys, int cpu)
{
    int64_t highest = 0;
    int group = cpu;
    for (int index = 0; index < CACHES_LIMIT; index++) {
        scope_buffer type = {0};
        char name[PATH_SIZE];
        struct numa_mask shared;
        int64_t level = read_number(sys, "devices/system/cpu/cpu%d/cache/index%d/level", cpu, index, 0);
        if (level <= highest)
            continue;
        if (read_text(&type, NULL, sys, "devices/system/cpu/cpu%d/cache/index%d/type", cpu, index) < 0 ||
            !type.data || !strcmp(type.data, "Instruction"))
            continue;
        (void)snprintf(name, sizeof name, "devices/system/cpu/cpu%d/cache/index%%d/shared_cpu_list", cpu);
        if (read_mask(&shared, NULL, sys, name, index) < 0)
            continue;
        highest = level;
        group = lowest(&shared, cpu);
    }
    return group;
}

/* The nodes' CPUs; one node with all allowed CPUs if the kernel has no NUMA. */
static int read_nodes(const char *sys, const struct numa_mask *allowed, struct numa_topology *topology,
                      struct muster_error *err)
{
    struct numa_mask nodes;
    if (read_mask(&nodes, NULL, sys, "devices/system/node/online", 0) < 0) {
        for (int cpu = 0; cpu < topology->cpu_count; cpu++)
            topology->cpus[cpu].node = numa_mask_has(allowed, cpu) ? 0 : -1;
        return 0;
    }
    for (int node = 0; node < NUMA_CPUS_LIMIT; node++) {
        struct numa_mask members;
        if (!numa_mask_has(&nodes, node))
            continue;
        if (read_mask(&members, err, sys, "devices/system/node/node%d/cpulist", node) < 0)
            return -1;
        for (int cpu = 0; cpu < topology->cpu_count; cpu++)
            if (numa_mask_has(&members, cpu))
                topology->cpus[cpu].node = node;
    }
    return 0;
}

int numa_read(const char *sys, const struct numa_mask *allowed, struct numa_topology *topology,
              struct muster_error *err)
{
    *topology = (struct numa_topology){.cpu_count = NUMA_CPUS_LIMIT, .allowed = *allowed};
    topology->cpus = mem_calloc(NUMA_CPUS_LIMIT, sizeof *topology->cpus);
    if (!topology->cpus)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the machine's CPUs");
    for (int cpu = 0; cpu < NUMA_CPUS_LIMIT; cpu++)
        topology->cpus[cpu].node = -1;
    if (read_nodes(sys, allowed, topology, err) < 0) {
        numa_free(topology);
        return -1;
    }
    while (topology->cpu_count > 1 && topology->cpus[topology->cpu_count - 1].node < 0)
        topology->cpu_count--;
    for (int cpu = 0; cpu < topology->cpu_count; cpu++)
        if (topology->cpus[cpu].node >= 0) {
            struct numa_mask siblings;
            topology->cpus[cpu].package =
                (int)read_number(sys, "devices/system/cpu/cpu%d/topology/physical_package_id", cpu, 0, 0);
            topology->cpus[cpu].core = cpu;
            if (read_mask(&siblings, NULL, sys, "devices/system/cpu/cpu%d/topology/thread_siblings_list",
                          cpu) == 0)
                topology->cpus[cpu].core = lowest(&siblings, cpu);
            topology->cpus[cpu].cache = read_cache(sys, cpu);
        }
    return 0;
}

int numa_gpu_node(const char *sys, const char *bus, struct muster_error *err)
{
    scope_buffer text = {0};
    int64_t node;
    if (read_text(&text, err, sys, "bus/pci/devices/%s/numa_node", bus) < 0)
        return error_wrap(err, "the NUMA node of the GPU at %s", bus);
    if (!text_int64(text.data ? text.data : "", &node) || node >= NUMA_CPUS_LIMIT)
        return error_set(err, MUSTER_E_PROTOCOL, "the NUMA node of the GPU at %s: '%.50s' is no number", bus,
                         text.data);
    return node < 0 ? 0 : (int)node;
}
