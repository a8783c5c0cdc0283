/* doctor_gpu.c - examinations of GPUs and their driver. */
#include <string.h>

#include "runtime/nccl/doctor_internal.h"

enum { HOT_C = 90, RETIRED_PAGES_LIMIT = 60, XID_RECENT_S = 24 * 3600 };

/* NVML's clocks-throttle bits that mean a fault of the machine and not mere load. */
enum { THROTTLE_HW_SLOWDOWN = 0x8, THROTTLE_HW_THERMAL = 0x40, THROTTLE_POWER_BRAKE = 0x80 };

static bool wants_gpus(const struct examination *e)
{
    return e->machine->gpus_wanted > 0;
}

static void driver_answers(struct examination *e)
{
    const struct description *m = e->machine;
    if (m->nvml == DESCRIPTION_YES)
        doctor_add(e, DOCTOR_FINE, "", "driver %s, CUDA up to %s", *m->driver ? m->driver : "unknown",
                   *m->cuda_driver ? m->cuda_driver : "unknown");
    else if (m->device_files == 0 && !wants_gpus(e))
        doctor_add(e, DOCTOR_SKIPPED, "", "no GPU on this machine, none asked for");
    else if (m->nvml == DESCRIPTION_UNKNOWN)
        doctor_add(e, m->device_files ? DOCTOR_UNFIT : DOCTOR_SKIPPED,
                   m->device_files
                       ? "a driver that does not answer needs its node rebooted: see dmesg for NVRM"
                       : "",
                   "NVML: %s", *m->nvml_error ? m->nvml_error : "was not asked");
    else
        doctor_add(e, wants_gpus(e) ? DOCTOR_UNFIT : DOCTOR_WARNING,
                   "install the driver, or in a pod request nvidia.com/gpu and use the NVIDIA runtime class",
                   "NVML: %s, /dev/nvidia* has %d", *m->nvml_error ? m->nvml_error : "is not there",
                   m->device_files);
}

static void gpu_count(struct examination *e)
{
    const struct description *m = e->machine;
    int seen = m->nvml == DESCRIPTION_YES ? m->gpu_count : m->device_files;
    if (!wants_gpus(e))
        doctor_add(e, seen ? DOCTOR_FINE : DOCTOR_SKIPPED, "", "%d GPUs, no number asked for", seen);
    else if (seen < m->gpus_wanted)
        doctor_add(e, DOCTOR_UNFIT,
                   "a GPU fell off the bus, or the pod asks for fewer: compare nvidia-smi -L with the node's "
                   "capacity",
                   "%d GPUs, %lld asked for", seen, (long long)m->gpus_wanted);
    else
        doctor_add(e, DOCTOR_FINE, "", "%d GPUs, %lld asked for", seen, (long long)m->gpus_wanted);
}

static void gpu_lost(struct examination *e)
{
    for (int i = 0; i < e->machine->gpu_count; i++) {
        const struct description_gpu *gpu = &e->machine->gpus[i];
        if (gpu->lost)
            doctor_add(e, DOCTOR_UNFIT,
                       "reset the GPU (nvidia-smi -r) or reboot the node; twice in a row: replace it",
                       "GPU %d (%s) fell off the bus", gpu->index, gpu->pci);
        else if (*gpu->error)
            doctor_add(e, DOCTOR_WARNING, "see nvidia-smi -q and the kernel log", "GPU %d (%s): %s",
                       gpu->index, gpu->pci, gpu->error);
    }
}

static void ecc(struct examination *e)
{
    bool known = false, bad = false;
    for (int i = 0; i < e->machine->gpu_count; i++) {
        const struct description_gpu *gpu = &e->machine->gpus[i];
        known |= gpu->ecc_uncorrected >= 0;
        if (gpu->ecc_uncorrected > 0) {
            bad = true;
            doctor_add(e, DOCTOR_WARNING, "look at nvidia-smi -q -d ECC; the count grows: take the node out",
                       "GPU %d (%s) has had %lld uncorrectable memory errors", gpu->index, gpu->pci,
                       (long long)gpu->ecc_uncorrected);
        }
    }
    if (known && !bad)
        doctor_add(e, DOCTOR_FINE, "", "no uncorrectable memory error");
}

static void row_remaps(struct examination *e)
{
    for (int i = 0; i < e->machine->gpu_count; i++) {
        const struct description_gpu *gpu = &e->machine->gpus[i];
        if (gpu->remap_failed == DESCRIPTION_YES)
            doctor_add(e, DOCTOR_UNFIT, "the memory has no spare rows left: replace the GPU",
                       "GPU %d (%s): a row remap failed", gpu->index, gpu->pci);
        else if (gpu->remap_pending == DESCRIPTION_YES)
            doctor_add(e, DOCTOR_WARNING, "reset the GPU before the next job: nvidia-smi -r",
                       "GPU %d (%s): a row remap waits for a reset", gpu->index, gpu->pci);
        else if (gpu->retired_pages > RETIRED_PAGES_LIMIT)
            doctor_add(e, DOCTOR_WARNING, "NVIDIA's limit for a replacement is 60",
                       "GPU %d (%s): %lld retired pages", gpu->index, gpu->pci,
                       (long long)gpu->retired_pages);
    }
}

static void recovery_action(struct examination *e)
{
    for (int i = 0; i < e->machine->gpu_count; i++) {
        const struct description_gpu *gpu = &e->machine->gpus[i];
        if (*gpu->recovery_action && strcmp(gpu->recovery_action, "none"))
            doctor_add(e, DOCTOR_UNFIT, "do it before the next job", "GPU %d (%s): the driver asks for: %s",
                       gpu->index, gpu->pci, gpu->recovery_action);
    }
}

/* Xids after which a GPU is not to be used before a reset or a reboot. */
static bool is_fatal_xid(int xid)
{
    static const int fatal[] = {48, 62, 64, 74, 79, 95, 109, 119, 120, 136, 140, 143};
    for (size_t i = 0; i < sizeof fatal / sizeof *fatal; i++)
        if (fatal[i] == xid)
            return true;
    return false;
}

static void xids(struct examination *e)
{
    const struct description_xid *worst = NULL;
    int recent = 0;
    for (int i = 0; i < e->machine->xid_count; i++) {
        const struct description_xid *xid = &e->machine->xids[i];
        if (xid->age_s > XID_RECENT_S)
            continue;
        recent++;
        if (!worst || (is_fatal_xid(xid->xid) && !is_fatal_xid(worst->xid)))
            worst = xid;
    }
    if (!worst)
        return;
    doctor_add(e, is_fatal_xid(worst->xid) ? DOCTOR_UNFIT : DOCTOR_WARNING,
               is_fatal_xid(worst->xid) ? "reset the GPU or reboot the node before the next job"
                                        : "an application's error, or the first sign of a sick GPU: watch it",
               "%d Xid%s in the last day, Xid %d at %s: %s", recent, recent == 1 ? "" : "s", worst->xid,
               worst->pci, worst->text);
}

static void nvlink(struct examination *e)
{
    int whole = 0;
    for (int i = 0; i < e->machine->gpu_count; i++) {
        const struct description_gpu *gpu = &e->machine->gpus[i];
        if (gpu->nvlinks <= 0 || gpu->nvlinks_up < 0)
            continue;
        if (gpu->nvlinks_up < gpu->nvlinks)
            doctor_add(
                e, DOCTOR_UNFIT, "reset the GPUs; if it stays, a cable, a bridge or the baseboard is broken",
                "GPU %d (%s): %d of %d NVLinks are up", gpu->index, gpu->pci, gpu->nvlinks_up, gpu->nvlinks);
        else
            whole++;
    }
    if (whole)
        doctor_add(e, DOCTOR_FINE, "", "all NVLinks of %d GPUs are up", whole);
}

static void fabric_manager(struct examination *e)
{
    const struct description *m = e->machine;
    if (m->gpu_count < 8 || m->gpus[0].nvlinks <= 0 || m->fabric_manager == DESCRIPTION_UNKNOWN)
        return;
    if (m->fabric_manager == DESCRIPTION_NO &&
        !m->container) /* a container does not see the host's services */
        doctor_add(e, DOCTOR_UNFIT, "systemctl start nvidia-fabricmanager (of the driver's version)",
                   "NVSwitch without a running fabric manager: CUDA does not start");
}

static void pcie(struct examination *e)
{
    int whole = 0;
    for (int i = 0; i < e->machine->gpu_count; i++) {
        const struct description_gpu *gpu = &e->machine->gpus[i];
        if (gpu->pcie_width <= 0 || gpu->pcie_width_max <= 0)
            continue;
        if (gpu->pcie_width < gpu->pcie_width_max)
            doctor_add(e, DOCTOR_WARNING, "reseat the card; in a virtual machine ask the provider",
                       "GPU %d (%s): PCIe x%d of x%d", gpu->index, gpu->pci, gpu->pcie_width,
                       gpu->pcie_width_max);
        else
            whole++;
    }
    if (whole)
        doctor_add(e, DOCTOR_FINE, "", "%d GPUs have their whole PCIe width", whole);
}

static void throttle(struct examination *e)
{
    for (int i = 0; i < e->machine->gpu_count; i++) {
        const struct description_gpu *gpu = &e->machine->gpus[i];
        uint64_t bits = gpu->throttle_reasons;
        if (bits & (THROTTLE_HW_SLOWDOWN | THROTTLE_HW_THERMAL | THROTTLE_POWER_BRAKE))
            doctor_add(e, DOCTOR_WARNING, "fans, air flow and power supply of this node",
                       "GPU %d (%s) is slowed down by the hardware:%s%s%s", gpu->index, gpu->pci,
                       bits & THROTTLE_HW_THERMAL ? " heat" : "",
                       bits & THROTTLE_POWER_BRAKE ? " power brake" : "",
                       bits & THROTTLE_HW_SLOWDOWN ? " slowdown" : "");
        else if (gpu->temperature_c >= HOT_C)
            doctor_add(e, DOCTOR_WARNING, "fans and air flow of this node", "GPU %d (%s) has %d degrees",
                       gpu->index, gpu->pci, gpu->temperature_c);
    }
}

static void leftovers(struct examination *e)
{
    for (int i = 0; i < e->machine->gpu_process_count; i++) {
        const struct description_process *process = &e->machine->gpu_processes[i];
        if (!process->ours)
            doctor_add(e, DOCTOR_WARNING,
                       "end it, or this job runs out of GPU memory: a dead job's process, or another job on "
                       "the same GPU",
                       "process %d (%s) uses %lld MiB of GPU %d", process->pid,
                       *process->name ? process->name : "not in this container",
                       (long long)(process->memory_bytes > 0 ? process->memory_bytes >> 20 : 0),
                       process->gpu);
    }
}

const struct doctor_check doctor_gpu_checks[] = {
    {"driver", driver_answers},
    {"gpu-count", gpu_count},
    {"gpu-lost", gpu_lost},
    {"ecc", ecc},
    {"row-remap", row_remaps},
    {"recovery-action", recovery_action},
    {"xid", xids},
    {"nvlink", nvlink},
    {"fabric-manager", fabric_manager},
    {"pcie", pcie},
    {"throttle", throttle},
    {"gpu-processes", leftovers},
    {0},
};
