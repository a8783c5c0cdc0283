/* topology.c - see topology.h. */
#include "runtime/nccl/topology.h"

#include <stdio.h>
#include <string.h>

enum { CELL = 8 };

static const char *const meanings[] = {
    [DESCRIPTION_SELF] = "itself",
    [DESCRIPTION_NVLINK] = "bonded NVLinks, as many as the number says",
    [DESCRIPTION_PIX] = "at most one PCIe bridge",
    [DESCRIPTION_PXB] = "several PCIe bridges, without the host bridge",
    [DESCRIPTION_PHB] = "a PCIe host bridge (a CPU)",
    [DESCRIPTION_NODE] = "several host bridges of one NUMA node",
    [DESCRIPTION_SYS] = "the link between sockets",
    [DESCRIPTION_DISTANCE_UNKNOWN] = "cannot be read here",
};

static const struct description_link *pair(const struct description *d, int a, int b)
{
    for (int i = 0; i < d->gpu_link_count; i++)
        if ((d->gpu_links[i].a == a && d->gpu_links[i].b == b) ||
            (d->gpu_links[i].a == b && d->gpu_links[i].b == a))
            return &d->gpu_links[i];
    return NULL;
}

static const struct description_link *to_nic(const struct description *d, int gpu, int nic)
{
    for (int i = 0; i < d->nic_link_count; i++)
        if (d->nic_links[i].a == gpu && d->nic_links[i].b == nic)
            return &d->nic_links[i];
    return NULL;
}

static void cell(struct buffer *out, const struct description_link *link, unsigned *seen)
{
    char text[CELL + 4];
    enum description_distance distance = link ? link->distance : DESCRIPTION_DISTANCE_UNKNOWN;
    *seen |= 1u << distance;
    if (distance == DESCRIPTION_NVLINK)
        (void)snprintf(text, sizeof text, "NV%d", link->nvlinks);
    else
        (void)snprintf(text, sizeof text, "%s", description_distance_name(distance));
    buffer_printf(out, "%-*s", CELL, text);
}

static void head(const struct description *d, struct buffer *out)
{
    buffer_printf(out, "%*s", CELL, "");
    for (int i = 0; i < d->gpu_count; i++)
        buffer_printf(out, "GPU%-*d", CELL - 3, i);
    for (int i = 0; i < d->rdma_count; i++)
        buffer_printf(out, "NIC%-*d", CELL - 3, i);
    buffer_text(out, "NUMA  CPUs\n");
}

static void gpu_row(const struct description *d, int row, struct buffer *out, unsigned *seen)
{
    static const struct description_link self = {.distance = DESCRIPTION_SELF};
    const struct description_gpu *gpu = &d->gpus[row];
    buffer_printf(out, "GPU%-*d", CELL - 3, row);
    for (int i = 0; i < d->gpu_count; i++)
        cell(out, i == row ? &self : pair(d, row, i), seen);
    for (int i = 0; i < d->rdma_count; i++)
        cell(out, to_nic(d, row, i), seen);
    if (gpu->numa_node >= 0)
        buffer_printf(out, "%-6d%s\n", gpu->numa_node, gpu->cpus);
    else
        buffer_printf(out, "%-6s%s\n", "?", gpu->cpus);
}

static void names(const struct description *d, struct buffer *out)
{
    buffer_text(out, "\n");
    for (int i = 0; i < d->gpu_count; i++)
        buffer_printf(out, "  GPU%-3d %s  %s\n", i, d->gpus[i].pci, d->gpus[i].name);
    for (int i = 0; i < d->rdma_count; i++)
        buffer_printf(out, "  NIC%-3d %s  %s port %d, %s, %.0f Gbit/s, NUMA node %d%s%s\n", i, d->rdma[i].pci,
                      d->rdma[i].device, d->rdma[i].port, d->rdma[i].ethernet ? "RoCE" : "InfiniBand",
                      d->rdma[i].rate_gbit, d->rdma[i].numa_node, *d->rdma[i].interface ? ", " : "",
                      d->rdma[i].interface);
}

static void legend(unsigned seen, struct buffer *out)
{
    buffer_text(out, "\nnearest first:\n");
    for (int i = 0; i <= DESCRIPTION_DISTANCE_UNKNOWN; i++)
        if (seen & 1u << i)
            buffer_printf(out, "  %-5s %s\n",
                          i == DESCRIPTION_NVLINK ? "NV<n>"
                                                  : description_distance_name((enum description_distance)i),
                          meanings[i]);
}

/* The nearest NIC of a GPU; -1 where no distance is known. */
static int nearest(const struct description *d, int gpu, enum description_distance *distance)
{
    int best = -1;
    for (int i = 0; i < d->rdma_count; i++) {
        const struct description_link *link = to_nic(d, gpu, i);
        if (!link || link->distance == DESCRIPTION_DISTANCE_UNKNOWN ||
            (best >= 0 && link->distance >= *distance))
            continue;
        best = i;
        *distance = link->distance;
    }
    return best;
}

static void warnings(const struct description *d, struct buffer *out)
{
    for (int i = 0; i < d->gpu_count; i++) {
        enum description_distance distance = DESCRIPTION_DISTANCE_UNKNOWN;
        int nic = nearest(d, i, &distance);
        if (nic >= 0 && distance == DESCRIPTION_SYS)
            buffer_printf(out,
                          "warning: GPU%d has no NIC on its own socket; the nearest, %s, is across the link "
                          "between sockets\n",
                          i, d->rdma[nic].device);
    }
    for (int i = 0; i < d->gpu_link_count; i++)
        if (d->gpu_links[i].acs == DESCRIPTION_YES && d->gpu_links[i].distance != DESCRIPTION_NVLINK)
            buffer_printf(
                out, "warning: ACS is on between GPU%d and GPU%d: direct copies go up to the CPU and back\n",
                d->gpu_links[i].a, d->gpu_links[i].b);
}

int topology_print(const struct description *description, struct buffer *out)
{
    unsigned seen = 0;
    if (description->gpu_count == 0) {
        buffer_printf(out, "no GPU%s%s\n", *description->nvml_error ? ": " : "", description->nvml_error);
        return out->failed ? -1 : 0;
    }
    head(description, out);
    for (int i = 0; i < description->gpu_count; i++)
        gpu_row(description, i, out, &seen);
    names(description, out);
    legend(seen, out);
    warnings(description, out);
    return out->failed ? -1 : 0;
}
