/* nvml_merge.c - merges NVML's report into a description. */
#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "runtime/nccl/nvml/nvml_describe.h"

/* Validates counts and terminates texts of a report that may have been cut off in the middle of a write. */
static int bounded(int count, int limit)
{
    return count < 0 ? 0 : count < limit ? count : limit;
}

#define END_TEXT(text) ((text)[sizeof(text) - 1] = 0)

static const struct description_gpu *find_on_bus(const struct description *d, const char *pci)
{
    for (int i = 0; i < d->gpu_count; i++)
        if (*pci && !strcmp(d->gpus[i].pci, pci))
            return &d->gpus[i];
    return NULL;
}

/* NVML does not report NUMA nodes; it may not report the PCIe link. */
static void keep_what_the_bus_told(const struct description_gpu *bus, struct description_gpu *gpu)
{
    gpu->numa_node = bus->numa_node;
    memcpy(gpu->cpus, bus->cpus, sizeof gpu->cpus);
    if (gpu->pcie_width == 0 || gpu->pcie_width_max == 0) {
        gpu->pcie_width = bus->pcie_width;
        gpu->pcie_width_max = bus->pcie_width_max;
    }
    if (gpu->pcie_generation == 0 || gpu->pcie_generation_max == 0) {
        gpu->pcie_generation = bus->pcie_generation;
        gpu->pcie_generation_max = bus->pcie_generation_max;
    }
}

static int take_gpus(const struct nvml_report *report, struct description *d)
{
    int count = bounded(report->gpu_count, DESCRIPTION_GPUS_LIMIT);
    if (count == 0)
        return 0;
    struct description_gpu *gpus = mem_calloc((size_t)count, sizeof *gpus);
    if (!gpus)
        return -1;
    for (int i = 0; i < count; i++) {
        struct description_gpu *gpu = &gpus[i];
        *gpu = report->gpus[i];
        END_TEXT(gpu->uuid);
        END_TEXT(gpu->name);
        END_TEXT(gpu->pci);
        END_TEXT(gpu->recovery_action);
        END_TEXT(gpu->fabric_state);
        END_TEXT(gpu->fabric_cluster);
        END_TEXT(gpu->error);
        const struct description_gpu *bus = find_on_bus(d, gpu->pci);
        if (bus)
            keep_what_the_bus_told(bus, gpu);
    }
    mem_free(d->gpus);
    mem_free(d->gpu_links);
    mem_free(d->nic_links);
    mem_free(d->interface_links);
    d->gpus = gpus;
    d->gpu_count = count;
    d->gpu_links = d->nic_links = d->interface_links = NULL; /* GPU numbers may have changed */
    d->gpu_link_count = d->nic_link_count = d->interface_link_count = 0;
    return 0;
}

static int take_links(const struct nvml_report *report, struct description *d)
{
    int count = bounded(report->link_count, NVML_REPORT_PAIRS);
    struct description_link *links = count ? mem_calloc((size_t)count, sizeof *links) : NULL;
    if (count && !links)
        return -1;
    for (int i = 0; i < count; i++)
        links[i] = report->links[i];
    mem_free(d->gpu_links);
    d->gpu_links = links;
    d->gpu_link_count = count;
    return 0;
}

static int take_processes(const struct nvml_report *report, struct description *d)
{
    int count = bounded(report->process_count, NVML_REPORT_PROCESSES);
    struct description_process *processes = count ? mem_calloc((size_t)count, sizeof *processes) : NULL;
    if (count && !processes)
        return -1;
    for (int i = 0; i < count; i++) {
        processes[i] = report->processes[i];
        END_TEXT(processes[i].name);
    }
    mem_free(d->gpu_processes);
    d->gpu_processes = processes;
    d->gpu_process_count = count;
    return 0;
}

/* GPUs in an NVLink fabric report whether a fabric manager is there. */
static void take_fabric(struct description *d)
{
    for (int i = 0; i < d->gpu_count; i++) {
        const char *state = d->gpus[i].fabric_state;
        if (!strcmp(state, "completed") && d->fabric_manager == DESCRIPTION_UNKNOWN)
            d->fabric_manager = DESCRIPTION_YES;
        else if (*state && strcmp(state, "completed") != 0)
            d->fabric_manager = DESCRIPTION_NO;
    }
}

static void take_failure(const struct nvml_report *report, const struct muster_error *failure,
                         struct description *d)
{
    bool cut_off = failure->code == MUSTER_E_TIMEOUT || (report->started && !report->finished);
    d->nvml = cut_off ? DESCRIPTION_UNKNOWN : DESCRIPTION_NO;
    if (cut_off)
        (void)snprintf(d->nvml_error, sizeof d->nvml_error, "%.150s; the query was: %.80s", failure->text,
                       report->doing);
    else
        (void)snprintf(d->nvml_error, sizeof d->nvml_error, "%.*s", (int)sizeof d->nvml_error - 1,
                       failure->text);
}

int nvml_merge(const struct nvml_report *report, const struct muster_error *failure,
               struct description *description, struct muster_error *err)
{
    struct description *d = description;
    d->nvml = DESCRIPTION_YES;
    if (failure)
        take_failure(report, failure, d);
    if (!report->started)
        return 0;
    if (take_gpus(report, d) < 0 || take_links(report, d) < 0 || take_processes(report, d) < 0)
        return error_set(err, MUSTER_E_NOMEM, "no memory to describe this machine");
    take_fabric(d);
    if (*report->driver)
        (void)snprintf(d->driver, sizeof d->driver, "%.*s", (int)sizeof d->driver - 1, report->driver);
    (void)snprintf(d->cuda_driver, sizeof d->cuda_driver, "%.*s", (int)sizeof d->cuda_driver - 1,
                   report->cuda_driver);
    d->omitted += bounded(report->omitted, INT16_MAX);
    return 0;
}
