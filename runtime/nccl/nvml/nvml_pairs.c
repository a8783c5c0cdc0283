/* nvml_pairs.c - the queries about two GPUs: distance, number of NVLinks, and access to each other's
 * memory. */
#include <string.h>

#include "runtime/nccl/nvml/nvml_describe_internal.h"

/* The remote ends of each GPU's NVLinks. */
struct ends {
    int to[DESCRIPTION_GPUS_LIMIT][DESCRIPTION_GPUS_LIMIT]; /* at the other GPU */
    int to_switch[DESCRIPTION_GPUS_LIMIT];
};

static int find_gpu(const struct nvml_report *report, const char *pci)
{
    for (int i = 0; i < report->gpu_count; i++)
        if (*pci && !strcmp(report->gpus[i].pci, pci))
            return i;
    return -1;
}

/* NVML gives a switch's address, or a meaningless address, for a link to a switch: the type identifies it. */
static void follow_link(const struct nvml_library *nvml, nvmlDevice_t device, int gpu, unsigned link,
                        const struct nvml_report *report, struct ends *ends)
{
    enum { SWITCH = 2 };
    nvmlPciInfo_t remote = {0};
    char pci[DESCRIPTION_NAME];
    unsigned type = 0;
    if (NVML_ASK(nvml, link_remote_type, device, link, &type) == NVML_SUCCESS && type == SWITCH) {
        ends->to_switch[gpu]++;
        return;
    }
    if (NVML_ASK(nvml, link_remote, device, link, &remote) != NVML_SUCCESS)
        return;
    remote.busId[sizeof remote.busId - 1] = 0;
    nvml_spell_bus(remote.busId, pci, sizeof pci);
    int other = find_gpu(report, pci);
    if (other >= 0)
        ends->to[gpu][other]++;
}

static void follow_links(const struct nvml_library *nvml, nvmlDevice_t device, int gpu,
                         struct nvml_report *report, struct ends *ends)
{
    nvml_doing(report, "GPU %d: the remote ends of its NVLinks", gpu);
    for (unsigned link = 0; report->gpus[gpu].nvlinks_up > 0 && link < NVML_LINKS; link++) {
        unsigned active = 0;
        int code = NVML_ASK(nvml, link_state, device, link, &active);
        if (code == NVML_ERROR_GPU_IS_LOST)
            return;
        if (code == NVML_SUCCESS && active)
            follow_link(nvml, device, gpu, link, report, ends);
    }
}

static enum description_distance distance_of(unsigned ancestor)
{
    static const enum description_distance distances[] = {DESCRIPTION_PIX, /* two GPUs on one board */
                                                          DESCRIPTION_PIX,  DESCRIPTION_PXB, DESCRIPTION_PHB,
                                                          DESCRIPTION_NODE, DESCRIPTION_SYS};
    unsigned step = ancestor / 10; /* NVML counts 0, 10, 20, ... 50 */
    return step < sizeof distances / sizeof *distances ? distances[step] : DESCRIPTION_DISTANCE_UNKNOWN;
}

static enum description_flag p2p(const struct nvml_library *nvml, nvmlDevice_t a, nvmlDevice_t b,
                                 unsigned access)
{
    enum { FINE = 0 };
    unsigned status = 0;
    if (NVML_ASK(nvml, p2p_status, a, b, access, &status) != NVML_SUCCESS)
        return DESCRIPTION_UNKNOWN;
    return status == FINE ? DESCRIPTION_YES : DESCRIPTION_NO;
}

/* Through a switch a pair has as many links as the GPU with fewer links to it. */
static int links_between(const struct ends *ends, int a, int b)
{
    int direct = ends->to[a][b] > ends->to[b][a] ? ends->to[a][b] : ends->to[b][a];
    int switched = ends->to_switch[a] < ends->to_switch[b] ? ends->to_switch[a] : ends->to_switch[b];
    return direct + switched;
}

static void ask_pair(const struct nvml_library *nvml, const nvmlDevice_t *devices, int a, int b,
                     const struct ends *ends, struct nvml_report *report)
{
    enum { READ = 0, WRITE = 1 };
    struct description_link *link = &report->links[report->link_count];
    unsigned ancestor = 0;
    nvml_doing(report, "GPU %d and GPU %d: their distance and direct access", a, b);
    description_link_init(link);
    link->a = a;
    link->b = b;
    if (NVML_ASK(nvml, common_ancestor, devices[a], devices[b], &ancestor) == NVML_SUCCESS)
        link->distance = distance_of(ancestor);
    link->nvlinks = links_between(ends, a, b);
    if (link->nvlinks > 0)
        link->distance = DESCRIPTION_NVLINK;
    link->p2p_read = p2p(nvml, devices[a], devices[b], READ);
    link->p2p_write = p2p(nvml, devices[a], devices[b], WRITE);
    report->link_count++;
}

void nvml_ask_pairs(const struct nvml_library *nvml, nvmlDevice_t devices[DESCRIPTION_GPUS_LIMIT],
                    struct nvml_report *report)
{
    struct ends ends = {0};
    for (int a = 0; a < report->gpu_count; a++)
        if (devices[a])
            follow_links(nvml, devices[a], a, report, &ends);
    for (int a = 0; a < report->gpu_count; a++)
        for (int b = a + 1; b < report->gpu_count; b++)
            if (devices[a] && devices[b] && !report->gpus[a].lost && !report->gpus[b].lost)
                ask_pair(nvml, devices, a, b, &ends, report);
}
