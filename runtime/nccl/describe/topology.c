/* topology.c - see topology.h. */
#include "runtime/nccl/describe/topology.h"

#include <stdio.h>
#include <string.h>

enum { CELL = 8 };

static const char *const meanings[] = {
    [DESCRIPTION_SELF] = "itself",
    [DESCRIPTION_NVLINK] = "bonded NVLinks, with their number",
    [DESCRIPTION_PIX] = "at most one PCIe bridge",
    [DESCRIPTION_PXB] = "several PCIe bridges, without the host bridge",
    [DESCRIPTION_PHB] = "a PCIe host bridge (a CPU)",
    [DESCRIPTION_NODE] = "several host bridges of one NUMA node",
    [DESCRIPTION_SYS] = "the link between sockets",
    [DESCRIPTION_DISTANCE_UNKNOWN] = "not readable here",
};

static const struct description_link *pair(const struct description *d, int a, int b)
{
    for (int i = 0; i < d->gpu_link_count; i++)
        if ((d->gpu_links[i].a == a && d->gpu_links[i].b == b) ||
            (d->gpu_links[i].a == b && d->gpu_links[i].b == a))
            return &d->gpu_links[i];
    return NULL;
}

/* A column after the GPUs: an RDMA port, or an interface that does not belong to an RDMA port. */
struct nic {
    bool rdma;
    int index;
};

enum { NICS_SHOWN = 64 };

static bool is_of_rdma(const struct description *d, const char *interface)
{
    for (int i = 0; i < d->rdma_count; i++)
        if (!strcmp(d->rdma[i].interface, interface))
            return true;
    return false;
}

static int list_nics(const struct description *d, struct nic nics[NICS_SHOWN])
{
    int count = 0;
    for (int i = 0; i < d->rdma_count && count < NICS_SHOWN; i++)
        nics[count++] = (struct nic){true, i};
    for (int i = 0; i < d->interface_count && count < NICS_SHOWN; i++)
        if (*d->interfaces[i].pci && !is_of_rdma(d, d->interfaces[i].name))
            nics[count++] = (struct nic){false, i};
    return count;
}

static const struct description_link *to_nic(const struct description *d, int gpu, struct nic nic)
{
    const struct description_link *links = nic.rdma ? d->nic_links : d->interface_links;
    int count = nic.rdma ? d->nic_link_count : d->interface_link_count;
    for (int i = 0; i < count; i++)
        if (links[i].a == gpu && links[i].b == nic.index)
            return &links[i];
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

static void head(int gpus, int nics, struct buffer *out)
{
    buffer_printf(out, "%*s", CELL, "");
    for (int i = 0; i < gpus; i++)
        buffer_printf(out, "GPU%-*d", CELL - 3, i);
    for (int i = 0; i < nics; i++)
        buffer_printf(out, "NIC%-*d", CELL - 3, i);
    buffer_text(out, "NUMA  CPUs\n");
}

static void gpu_row(const struct description *d, int row, const struct nic *nics, int nic_count,
                    struct buffer *out, unsigned *seen)
{
    static const struct description_link self = {.distance = DESCRIPTION_SELF};
    const struct description_gpu *gpu = &d->gpus[row];
    char numa[16] = "?";
    buffer_printf(out, "GPU%-*d", CELL - 3, row);
    for (int i = 0; i < d->gpu_count; i++)
        cell(out, i == row ? &self : pair(d, row, i), seen);
    for (int i = 0; i < nic_count; i++)
        cell(out, to_nic(d, row, nics[i]), seen);
    if (gpu->numa_node >= 0)
        (void)snprintf(numa, sizeof numa, "%d", gpu->numa_node);
    buffer_printf(out, "%-6s%s\n", numa, *gpu->cpus ? gpu->cpus : "?");
}

static void numa_node(int node, struct buffer *out)
{
    if (node >= 0)
        buffer_printf(out, ", NUMA node %d", node);
}

static void nic_name(const struct description *d, int number, struct nic nic, struct buffer *out)
{
    const struct description_rdma *port = nic.rdma ? &d->rdma[nic.index] : NULL;
    const struct description_interface *interface = nic.rdma ? NULL : &d->interfaces[nic.index];
    buffer_printf(out, "  NIC%-3d %s  ", number, port ? port->pci : interface->pci);
    if (port)
        buffer_printf(out, "%s port %d, %s, %.0f Gbit/s%s%s", port->device, port->port,
                      port->ethernet ? "RoCE" : "InfiniBand", port->rate_gbit, *port->interface ? ", " : "",
                      port->interface);
    else
        buffer_text(out, interface->name);
    if (interface && interface->speed_mbit > 0)
        buffer_printf(out, ", %.3g Gbit/s", (double)interface->speed_mbit / 1000);
    numa_node(port ? port->numa_node : interface->numa_node, out);
    buffer_text(out, "\n");
}

static void names(const struct description *d, const struct nic *nics, int nic_count, struct buffer *out)
{
    buffer_text(out, "\n");
    for (int i = 0; i < d->gpu_count; i++)
        buffer_printf(out, "  GPU%-3d %s  %s\n", i, d->gpus[i].pci,
                      *d->gpus[i].name ? d->gpus[i].name : "(name unknown: the driver was not queried)");
    for (int i = 0; i < nic_count; i++)
        nic_name(d, i, nics[i], out);
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

/* The nearest of the RDMA ports, which carry the traffic if there are any, else of the interfaces; -1 if
 * no distance is known. */
static int nearest(const struct description *d, int gpu, const struct nic *nics, int nic_count,
                   enum description_distance *distance)
{
    int best = -1;
    for (int i = 0; i < nic_count; i++) {
        const struct description_link *link = to_nic(d, gpu, nics[i]);
        if (nics[i].rdma != (d->rdma_count > 0) || !link || link->distance == DESCRIPTION_DISTANCE_UNKNOWN ||
            (best >= 0 && link->distance >= *distance))
            continue;
        best = i;
        *distance = link->distance;
    }
    return best;
}

static void warnings(const struct description *d, const struct nic *nics, int nic_count, struct buffer *out)
{
    for (int i = 0; i < d->gpu_count; i++) {
        enum description_distance distance = DESCRIPTION_DISTANCE_UNKNOWN;
        int nic = nearest(d, i, nics, nic_count, &distance);
        if (nic >= 0 && distance == DESCRIPTION_SYS)
            buffer_printf(
                out,
                "warning: GPU%d has no NIC on its own socket; the nearest, NIC%d, is across the link "
                "between sockets\n",
                i, nic);
    }
    for (int i = 0; i < d->gpu_link_count; i++)
        if (d->gpu_links[i].acs == DESCRIPTION_YES && d->gpu_links[i].distance != DESCRIPTION_NVLINK)
            buffer_printf(
                out,
                "warning: ACS is on between GPU%d and GPU%d: direct copies are redirected through the CPU\n",
                d->gpu_links[i].a, d->gpu_links[i].b);
}

int topology_print(const struct description *description, struct buffer *out)
{
    struct nic nics[NICS_SHOWN];
    unsigned seen = 0;
    if (description->gpu_count == 0) {
        buffer_printf(out, "no GPU%s%s\n", *description->nvml_error ? ": " : "", description->nvml_error);
        return out->failed ? -1 : 0;
    }
    int nic_count = list_nics(description, nics);
    head(description->gpu_count, nic_count, out);
    for (int i = 0; i < description->gpu_count; i++)
        gpu_row(description, i, nics, nic_count, out, &seen);
    names(description, nics, nic_count, out);
    legend(seen, out);
    warnings(description, nics, nic_count, out);
    return out->failed ? -1 : 0;
}
