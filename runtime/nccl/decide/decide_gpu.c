/* decide_gpu.c - rules about resources shared by the GPUs of one node: /dev/shm, P2P, the vendor's
 * topology file. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/nccl/decide/decide_internal.h"

static const int64_t mib = 1 << 20;

/* Devices that ranks can use: GPUs, or the instances of a divided GPU. */
static int devices(const struct decider *d)
{
    int count = 0;
    for (int i = 0; i < d->machine->gpu_count; i++)
        count += d->machine->gpus[i].mig == DESCRIPTION_YES && d->machine->gpus[i].mig_devices > 0
                     ? d->machine->gpus[i].mig_devices
                     : 1;
    return count;
}

static int workers(const struct decider *d)
{
    int gpus = d->machine->gpu_count ? devices(d) : d->machine->device_files;
    return d->machine->local_workers > 0 && d->machine->local_workers < gpus ? d->machine->local_workers
                                                                             : gpus;
}

static bool p2p_everywhere(const struct decider *d)
{
    for (int i = 0; i < d->machine->gpu_link_count; i++)
        if (d->machine->gpu_links[i].p2p_read == DESCRIPTION_NO ||
            d->machine->gpu_links[i].p2p_write == DESCRIPTION_NO)
            return false;
    return d->machine->gpu_link_count > 0;
}

static bool has_nvlink(const struct decider *d)
{
    for (int i = 0; i < d->machine->gpu_count; i++)
        if (d->machine->gpus[i].nvlinks_up > 0)
            return true;
    return false;
}

/* Without P2P all traffic between two GPUs of a node passes through /dev/shm, of which a container has 64
 * MB. */
static void shared_memory(struct decider *d)
{
    const int64_t size = d->machine->shm_bytes;
    const int count = workers(d);
    if (count < 2 || size < 0)
        return;
    if (size < 64 * mib * count)
        decide_warn(d, "/dev/shm", "",
                    "%lld MiB for %d workers: NCCL needs 64 MiB each and DataLoader workers more; mount an "
                    "emptyDir of medium Memory (docker: --shm-size=1g)",
                    (long long)(size / mib), count);
    else if (size < 1024 * mib && d->machine->gpu_link_count > 0 && !p2p_everywhere(d))
        decide_warn(d, "/dev/shm", "",
                    "%lld MiB, and the GPUs here have no direct access to each other, so all their traffic "
                    "passes through it: give it 1 GiB",
                    (long long)(size / mib));
}

static void shared_memory_off(struct decider *d)
{
    const char *value = decide_user(d, "NCCL_SHM_DISABLE");
    if (decide_has_gpus(d) && decide_user_is_one(d, "NCCL_SHM_DISABLE"))
        decide_warn(d, "NCCL_SHM_DISABLE", value,
                    "GPUs of one node then communicate over the network; enlarge /dev/shm instead");
}

static void p2p_off(struct decider *d)
{
    const char *value = decide_user(d, "NCCL_P2P_DISABLE");
    if (!decide_user_is_one(d, "NCCL_P2P_DISABLE") || d->machine->gpu_count < 2)
        return;
    if (has_nvlink(d))
        decide_warn(
            d, "NCCL_P2P_DISABLE", value,
            "NVLink is up between these GPUs but unused with this setting, ten times slower: unset it");
    else if (p2p_everywhere(d))
        decide_warn(d, "NCCL_P2P_DISABLE", value,
                    "the driver reports direct access between these GPUs: unset it unless copies hang");
}

/* ACS redirects PCIe traffic between two GPUs up to the root: slow, or a hang, although P2P is reported as
 * working. */
static void access_control(struct decider *d)
{
    for (int i = 0; i < d->machine->gpu_link_count; i++) {
        const struct description_link *link = &d->machine->gpu_links[i];
        if (link->acs != DESCRIPTION_YES || link->distance == DESCRIPTION_NVLINK ||
            link->p2p_read == DESCRIPTION_NO)
            continue;
        decide_warn(d, "acs", "",
                    "a PCIe switch between GPU %d and %d has ACS on, so direct copies are slow or hang: "
                    "switch ACS off in the firmware (virtual machines need it on)",
                    link->a, link->b);
        return;
    }
}

/* Clouds that hide the PCI tree from the guest ship it as files, one for each machine type; an image may
 * have several, and a wrong one is worse than none. */
static void topology_file(struct decider *d)
{
    static const struct {
        const char *type, *gpu;
    } types[] = {{"ndv4", "A100"}, {"ndv5", "H100"}, {"ndv5", "H200"}};
    const char *gpu = d->machine->gpu_count > 0 ? d->machine->gpus[0].name : "";
    char path[DESCRIPTION_TEXT];
    for (const char *at = d->machine->topology_file; *at;) {
        size_t length = strcspn(at, ":");
        (void)snprintf(path, sizeof path, "%.*s", (int)length, at);
        for (size_t i = 0; i < sizeof types / sizeof *types; i++)
            if (strstr(path, types[i].type) && strstr(gpu, types[i].gpu)) {
                decide_set(d, "NCCL_TOPO_FILE", path, "%s hides the PCI tree; this file describes it",
                           *d->machine->vendor ? d->machine->vendor : "this machine");
                return;
            }
        at += length + (at[length] == ':');
    }
}

/* 2.24 to 2.26.4 use NUMA system calls that containers refuse, and do not fall back. */
static void host_memory(struct decider *d)
{
    if (decide_has_gpus(d) && d->version >= 22400 && d->version < 22605 && d->machine->container &&
        d->machine->sys_nice == DESCRIPTION_NO)
        decide_set(d, "NCCL_CUMEM_HOST_ENABLE", "0",
                   "NCCL %s fails in containers without the capability SYS_NICE; 2.26.5 falls back by itself",
                   d->machine->nccl);
}

static void thread_stack(struct decider *d)
{
    if (decide_has_gpus(d) && d->machine->stack_bytes == -1 && d->version > 0 && d->version < 22800)
        decide_warn(d, "stack", "",
                    "the stack is unlimited, and NCCL %s then creates threads with 2 MB stacks that crash: "
                    "ulimit -s 8192",
                    d->machine->nccl);
}

static void more_workers_than_gpus(struct decider *d)
{
    const int count = devices(d);
    if (d->machine->gpus_wanted > count && count > 0)
        decide_warn(
            d, "gpus", "",
            "%lld workers need a GPU each but %d %s available: NCCL does not allow two ranks on one GPU",
            (long long)d->machine->gpus_wanted, count, count == 1 ? "is" : "are");
}

/* NVSwitch of Hopper and later can reduce inside the switch (NVLS). */
static void switch_sums_off(struct decider *d)
{
    const char *value = decide_user(d, "NCCL_NVLS_ENABLE");
    bool switched = d->machine->gpu_count >= 4 && d->machine->gpus[0].compute_major >= 9 &&
                    d->machine->gpus[0].nvlinks_up >= 16;
    if (value && switched && strtoll(value, NULL, 0) == 0)
        decide_warn(d, "NCCL_NVLS_ENABLE", value,
                    "reductions in NVSwitch are off, so large all-reduces are a fifth to a third slower: "
                    "unset it unless NVLS fails to set up");
}

static void hidden_tree(struct decider *d)
{
    if (decide_has_gpus(d) && !d->machine->sys_mounted)
        decide_warn(d, "/sys", "",
                    "it is not mounted in this container, so NCCL cannot see which GPUs and NICs are near "
                    "each other: mount it read-only");
}

static void multi_instance(struct decider *d)
{
    for (int i = 0; i < d->machine->gpu_count && decide_many_nodes(d) + workers(d) > 1; i++)
        if (d->machine->gpus[i].mig == DESCRIPTION_YES) {
            decide_warn(d, "mig", "",
                        "GPU %d is divided (MIG): its instances have no P2P and no NVLink, so NCCL uses "
                        "shared memory or the network",
                        i);
            return;
        }
}

static void driver_is_silent(struct decider *d)
{
    if (d->machine->nvml == DESCRIPTION_UNKNOWN && *d->machine->nvml_error)
        decide_warn(d, "nvml", "", "%.180s; see muster doctor", d->machine->nvml_error);
}

const struct decide_rule decide_rules_gpu[] = {
    {"driver", driver_is_silent},
    {"shared-memory", shared_memory},
    {"shared-memory-off", shared_memory_off},
    {"p2p-off", p2p_off},
    {"access-control", access_control},
    {"topology-file", topology_file},
    {"host-memory", host_memory},
    {"stack", thread_stack},
    {"gpu-count", more_workers_than_gpus},
    {"switch-sums", switch_sums_off},
    {"sys", hidden_tree},
    {"multi-instance", multi_instance},
    {0},
};
