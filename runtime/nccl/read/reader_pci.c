/* reader_pci.c - GPUs on the PCI bus, read without their driver: address, NUMA node, CPUs, link width; the
 * distances of GPUs and RDMA ports, and access control on the bridges between them.
 *
 * /sys shows a container every GPU of its machine, including those not assigned to it. The driver's own
 * list, /proc/driver/nvidia/gpus, has the assigned ones; its files are not read, because a hung driver
 * blocks the reader, but the names of its directories are. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "runtime/nccl/describe/description_table.h"
#include "runtime/nccl/describe/pci.h"
#include "runtime/nccl/read/reader_internal.h"

/* --- GPUs --- */

static bool is_gpu(struct reader *r, const char *address)
{
    enum { NVIDIA = 0x10de, VGA = 0x0300, CONTROLLER_3D = 0x0302 };
    if (reader_number(r, 0, "/sys/bus/pci/devices/%s/vendor", address) != NVIDIA)
        return false;
    int64_t class_ = reader_number(r, 0, "/sys/bus/pci/devices/%s/class", address) >> 8;
    return class_ == VGA || class_ == CONTROLLER_3D;
}

static void count_gpu(struct reader *r, const char *name, void *context)
{
    (void)context;
    if (is_gpu(r, name))
        r->out->pci_gpus++;
}

static void add_gpu(struct reader *r, const char *name)
{
    char line[DESCRIPTION_NAME];
    if (r->out->gpu_count >= DESCRIPTION_GPUS_LIMIT) {
        r->out->omitted++;
        return;
    }
    struct description_gpu *gpu = reader_grow(r, &r->out->gpus, &r->out->gpu_count, sizeof *gpu);
    if (!gpu)
        return;
    description_gpu_init(gpu);
    gpu->index = r->out->gpu_count - 1;
    READER_SET(gpu->pci, name);
    gpu->numa_node = (int)reader_number(r, -1, "/sys/bus/pci/devices/%s/numa_node", name);
    (void)reader_line(r, gpu->cpus, sizeof gpu->cpus, "/sys/bus/pci/devices/%s/local_cpulist", name);
    gpu->pcie_width = (int)reader_number(r, 0, "/sys/bus/pci/devices/%s/current_link_width", name);
    gpu->pcie_width_max = (int)reader_number(r, 0, "/sys/bus/pci/devices/%s/max_link_width", name);
    if (gpu->pcie_width > 32 || gpu->pcie_width_max > 32) /* 63 or 255: a virtual device without a PCI link */
        gpu->pcie_width = gpu->pcie_width_max = 0;
    /* the kernel writes "16.0 GT/s PCIe", or "Unknown" */
    if (reader_line(r, line, sizeof line, "/sys/bus/pci/devices/%s/current_link_speed", name))
        gpu->pcie_generation = pci_generation(strtod(line, NULL));
    if (reader_line(r, line, sizeof line, "/sys/bus/pci/devices/%s/max_link_speed", name))
        gpu->pcie_generation_max = pci_generation(strtod(line, NULL));
}

static void add_listed(struct reader *r, const char *name, void *context)
{
    (void)context;
    char lower[DESCRIPTION_NAME];
    reader_set(lower, sizeof lower, name);
    for (char *at = lower; *at; at++)
        if (*at >= 'A' && *at <= 'F')
            *at = (char)(*at | 32);
    add_gpu(r, lower);
}

static void add_any(struct reader *r, const char *name, void *context)
{
    (void)context;
    if (is_gpu(r, name))
        add_gpu(r, name);
}

static int by_address(const void *a, const void *b)
{
    return strcmp(((const struct description_gpu *)a)->pci, ((const struct description_gpu *)b)->pci);
}

static void list_gpus(struct reader *r)
{
    struct description *out = r->out;
    bool listed = reader_exists(r, "/proc/driver/nvidia/gpus");
    if (listed)
        reader_each(r, "/proc/driver/nvidia/gpus", add_listed, NULL);
    else
        reader_each(r, "/sys/bus/pci/devices", add_any, NULL);
    if (!listed && out->gpu_count != out->device_files) { /* some are not ours, and their owner is unknown */
        mem_free(out->gpus);
        out->gpus = NULL;
        out->gpu_count = 0;
    }
    if (out->gpu_count)
        qsort(out->gpus, (size_t)out->gpu_count, sizeof *out->gpus, by_address);
    for (int i = 0; i < out->gpu_count; i++)
        out->gpus[i].index = i;
}

void reader_gpus(struct reader *r)
{
    if (r->options->thorough && reader_exists(r, "/sys/bus/pci/devices")) {
        r->out->pci_gpus = 0;
        reader_each(r, "/sys/bus/pci/devices", count_gpu, NULL);
    }
    if (r->out->device_files > 0)
        list_gpus(r);
}

/* --- distances --- */

enum { BRIDGES_KEPT = 128, CONFIGURATION = 4096 };

struct survey {
    struct reader r;
    struct pci_path gpus[DESCRIPTION_GPUS_LIMIT];
    int gpu_count;
    struct {
        char name[PCI_NAME];
        enum description_flag redirects;
    } bridges[BRIDGES_KEPT]; /* pairs share most of theirs */
    int bridge_count;
    enum description_flag redirects; /* answer for the current pair */
};

static enum description_flag read_bridge(const struct reader *r, const char *name)
{
    char path[READER_PATH];
    uint8_t configuration[CONFIGURATION];
    if (!reader_path(r, path, "/sys/bus/pci/devices/%s/config", name))
        return DESCRIPTION_UNKNOWN;
    scope_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? -1 : read(fd, configuration, sizeof configuration);
    return length > 0 ? pci_acs_redirects(configuration, (size_t)length) : DESCRIPTION_UNKNOWN;
}

static enum description_flag ask_bridge(struct survey *survey, const char *name)
{
    for (int i = 0; i < survey->bridge_count; i++)
        if (!strcmp(survey->bridges[i].name, name))
            return survey->bridges[i].redirects;
    enum description_flag answer = read_bridge(&survey->r, name);
    if (survey->bridge_count < BRIDGES_KEPT) {
        reader_set(survey->bridges[survey->bridge_count].name, PCI_NAME, name);
        survey->bridges[survey->bridge_count++].redirects = answer;
    }
    return answer;
}

/* A single bridge that redirects is enough. A bridge that cannot be read leaves the answer unknown. */
static void add_bridge(const char *name, void *context)
{
    struct survey *survey = context;
    enum description_flag answer = ask_bridge(survey, name);
    if (answer == DESCRIPTION_YES || (answer == DESCRIPTION_UNKNOWN && survey->redirects == DESCRIPTION_NO))
        survey->redirects = answer;
}

static void read_path(const struct reader *r, const char *address, struct pci_path *out)
{
    char path[READER_PATH], target[READER_PATH];
    *out = (struct pci_path){0};
    if (!*address || !reader_path(r, path, "/sys/bus/pci/devices/%s", address))
        return;
    ssize_t length = readlink(path, target, sizeof target - 1);
    if (length <= 0)
        return;
    target[length] = 0;
    pci_path_parse(target, out);
}

/* Access control matters only if traffic could turn round below the host bridge. */
static void measure(struct survey *survey, const struct pci_path *a, const struct pci_path *b, int numa_a,
                    int numa_b, struct description_link *link)
{
    if (link->distance == DESCRIPTION_DISTANCE_UNKNOWN)
        link->distance = pci_distance(a, b, numa_a, numa_b, survey->r.out->numa_nodes);
    if (link->distance != DESCRIPTION_PIX && link->distance != DESCRIPTION_PXB)
        return;
    survey->redirects = DESCRIPTION_NO;
    pci_between(a, b, add_bridge, survey);
    link->acs = survey->redirects;
}

static const struct description_link *find_link(const struct description_link *links, int count, int a, int b)
{
    for (int i = 0; i < count; i++)
        if (links[i].a == a && links[i].b == b)
            return &links[i];
    return NULL;
}

/* A new list of pairs; known values of a pair are kept. */
struct pairs {
    struct description_link **links; /* the description's list */
    int *count;
    struct description_link *items; /* NULL without memory */
    int used;
};

static struct pairs begin_pairs(struct description_link **links, int *count, int limit)
{
    return (struct pairs){links, count, mem_calloc(limit > 0 ? (size_t)limit : 1, sizeof **links), 0};
}

static struct description_link *next_pair(struct pairs *pairs, int a, int b)
{
    const struct description_link *known = find_link(*pairs->links, *pairs->count, a, b);
    struct description_link *link = &pairs->items[pairs->used++];
    description_link_init(link);
    if (known)
        *link = *known;
    link->a = a;
    link->b = b;
    return link;
}

static void end_pairs(struct pairs *pairs)
{
    mem_free(*pairs->links);
    *pairs->links = pairs->items;
    *pairs->count = pairs->used;
}

static bool measure_gpus(struct survey *survey)
{
    struct description *d = survey->r.out;
    const int gpus = survey->gpu_count;
    struct pairs pairs = begin_pairs(&d->gpu_links, &d->gpu_link_count, gpus * (gpus - 1) / 2);
    if (!pairs.items)
        return false;
    for (int a = 0; a < gpus; a++)
        for (int b = a + 1; b < gpus; b++)
            measure(survey, &survey->gpus[a], &survey->gpus[b], d->gpus[a].numa_node, d->gpus[b].numa_node,
                    next_pair(&pairs, a, b));
    end_pairs(&pairs);
    return true;
}

static void measure_card(struct survey *survey, struct pairs *pairs, const char *pci, int numa_node, int b)
{
    struct pci_path card;
    read_path(&survey->r, pci, &card);
    for (int a = 0; a < survey->gpu_count; a++)
        measure(survey, &survey->gpus[a], &card, survey->r.out->gpus[a].numa_node, numa_node,
                next_pair(pairs, a, b));
}

static bool measure_rdma(struct survey *survey)
{
    struct description *d = survey->r.out;
    struct pairs pairs = begin_pairs(&d->nic_links, &d->nic_link_count, survey->gpu_count * d->rdma_count);
    if (!pairs.items)
        return false;
    for (int i = 0; i < d->rdma_count; i++)
        measure_card(survey, &pairs, d->rdma[i].pci, d->rdma[i].numa_node, i);
    end_pairs(&pairs);
    return true;
}

static bool measure_interfaces(struct survey *survey)
{
    struct description *d = survey->r.out;
    struct pairs pairs =
        begin_pairs(&d->interface_links, &d->interface_link_count, survey->gpu_count * d->interface_count);
    if (!pairs.items)
        return false;
    for (int i = 0; i < d->interface_count; i++)
        if (*d->interfaces[i].pci)
            measure_card(survey, &pairs, d->interfaces[i].pci, d->interfaces[i].numa_node, i);
    end_pairs(&pairs);
    return true;
}

int reader_distances(const char *root, struct description *description, struct muster_error *err)
{
    if (description->gpu_count == 0)
        return 0;
    const struct reader_options options = {.root = root};
    scope_free struct survey *survey = mem_calloc(1, sizeof *survey);
    if (!survey)
        return error_set(err, MUSTER_E_NOMEM, "no memory to describe this machine");
    survey->r = (struct reader){.options = &options, .out = description};
    for (int i = 0; i < description->gpu_count && i < DESCRIPTION_GPUS_LIMIT; i++, survey->gpu_count++)
        read_path(&survey->r, description->gpus[i].pci, &survey->gpus[i]);
    return measure_gpus(survey) && measure_rdma(survey) && measure_interfaces(survey)
               ? 0
               : error_set(err, MUSTER_E_NOMEM, "no memory to describe this machine");
}
