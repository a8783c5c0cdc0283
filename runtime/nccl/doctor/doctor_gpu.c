/* doctor_gpu.c - checks of GPUs and their driver. */
#include <string.h>

#include "proto/visible_devices.h"
#include "proto/xid.h"
#include "runtime/nccl/doctor/doctor_internal.h"

enum { DEVICES_LIMIT = 512 };

enum { HOT_C = 90, RETIRED_PAGES_LIMIT = 60, XID_RECENT_S = 24 * 3600, HIDDEN_MEMORY_LIMIT = 1 << 30 };

/* NVML's clocks-throttle bits that mean a fault of the machine, not load. */
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
    else if (m->device_files == 0 && !wants_gpus(e) && m->pci_gpus > 0 && !m->container)
        doctor_add(e, DOCTOR_WARNING, "install the driver, or load it: modprobe nvidia",
                   "%d NVIDIA GPUs on the PCI bus, but no driver", m->pci_gpus);
    else if (m->device_files == 0 && !wants_gpus(e) && m->nvml != DESCRIPTION_UNKNOWN)
        doctor_add(e, DOCTOR_SKIPPED, "", "no GPU here, none requested");
    else if (m->nvml == DESCRIPTION_UNKNOWN)
        doctor_add(e, *m->nvml_error ? DOCTOR_UNFIT : DOCTOR_SKIPPED,
                   *m->nvml_error
                       ? "a driver that does not respond needs a reboot of its node: see dmesg for NVRM"
                       : "",
                   "%s", *m->nvml_error ? m->nvml_error : "NVML was not queried");
    else
        doctor_add(e, wants_gpus(e) ? DOCTOR_UNFIT : DOCTOR_WARNING,
                   "install the driver, or in a pod request nvidia.com/gpu and use the NVIDIA runtime class",
                   "%s; %d GPUs in /dev", *m->nvml_error ? m->nvml_error : "NVML is not available",
                   m->device_files);
}

/* The devices that CUDA offers to programs: a divided GPU as its MIG instances, whose UUIDs a description
 * lacks.
 */
static int list_devices(const struct description *m, struct visible_device *devices)
{
    int count = 0, whole = m->gpu_count ? m->gpu_count : m->device_files;
    bool nvml_lists = m->nvml == DESCRIPTION_YES;
    for (int i = 0; i < (nvml_lists ? m->gpu_count : whole) && count < DEVICES_LIMIT; i++) {
        const struct description_gpu *gpu = nvml_lists ? &m->gpus[i] : NULL;
        bool divided = gpu && gpu->mig == DESCRIPTION_YES;
        devices[count++] = (struct visible_device){
            .gpu = i, .divided = divided, .uuid = gpu && *gpu->uuid ? gpu->uuid : NULL};
        for (int k = 0; divided && k < gpu->mig_devices && count < DEVICES_LIMIT; k++)
            devices[count++] = (struct visible_device){.gpu = i, .mig = true};
    }
    return count;
}

static void gpu_count(struct examination *e)
{
    const struct description *m = e->machine;
    const long long wanted = m->gpus_wanted;
    struct visible_device devices[DEVICES_LIMIT];
    int chosen[DEVICES_LIMIT], count = list_devices(m, devices);
    bool narrowed = strcmp(m->visible_devices, "-") != 0;
    int all = visible_devices_choose(devices, count, NULL, chosen);
    int seen = visible_devices_choose(devices, count, narrowed ? m->visible_devices : NULL, chosen);
    if (!wants_gpus(e))
        doctor_add(e, seen ? DOCTOR_FINE : DOCTOR_SKIPPED, "", "%d GPUs, no number requested", seen);
    else if (seen < wanted && all >= wanted)
        doctor_add(e, DOCTOR_UNFIT, "unset CUDA_VISIBLE_DEVICES, or list as many GPUs as the job needs",
                   "%d GPUs, %lld requested: CUDA_VISIBLE_DEVICES=%.60s hides the others", seen, wanted,
                   m->visible_devices);
    else if (seen < wanted)
        doctor_add(e, DOCTOR_UNFIT,
                   "a GPU fell off the bus, or the pod requests fewer: compare nvidia-smi -L with the node's "
                   "capacity",
                   "%d GPUs, %lld requested", seen, wanted);
    else
        doctor_add(e, DOCTOR_FINE, "", "%d GPUs, %lld requested", seen, wanted);
}

static void gpu_lost(struct examination *e)
{
    for (int i = 0; i < e->machine->gpu_count; i++) {
        const struct description_gpu *gpu = &e->machine->gpus[i];
        if (gpu->lost)
            doctor_add(e, DOCTOR_UNFIT,
                       "reset the GPU (nvidia-smi -r) or reboot the node; twice in a row: replace it",
                       "GPU %d (%s) fell off the bus", gpu->index, *gpu->pci ? gpu->pci : "address unknown");
        else if (*gpu->error)
            doctor_add(e, DOCTOR_WARNING, "see nvidia-smi -q and the kernel log", "GPU %d (%s): %s",
                       gpu->index, *gpu->pci ? gpu->pci : "address unknown", gpu->error);
    }
    if (e->machine->nvml == DESCRIPTION_YES && !e->machine->container && /* a container may see only some */
        e->machine->pci_gpus > e->machine->gpu_count)
        doctor_add(e, DOCTOR_WARNING,
                   "see dmesg for NVRM: the driver could not start them, or they are passed through to "
                   "virtual machines",
                   "%d GPUs on the PCI bus, the driver has %d", e->machine->pci_gpus, e->machine->gpu_count);
}

/* Older errors were handled by retiring memory; those since the last reset may continue. */
static void ecc(struct examination *e)
{
    int clean = 0;
    long long before = 0;
    for (int i = 0; i < e->machine->gpu_count; i++) {
        const struct description_gpu *gpu = &e->machine->gpus[i];
        if (gpu->ecc_uncorrected_now > 0) {
            doctor_add(e, DOCTOR_WARNING,
                       "reset the GPU (nvidia-smi -r); if the count grows, take the node out",
                       "GPU %d (%s): %lld uncorrectable memory errors since its last reset", gpu->index,
                       gpu->pci, (long long)gpu->ecc_uncorrected_now);
            continue;
        }
        clean += gpu->ecc_uncorrected >= 0 || gpu->ecc_uncorrected_now == 0;
        before += gpu->ecc_uncorrected > 0 ? gpu->ecc_uncorrected : 0;
    }
    if (clean && before)
        doctor_add(e, DOCTOR_FINE, "", "no uncorrectable memory error since the last reset, %lld before it",
                   before);
    else if (clean)
        doctor_add(e, DOCTOR_FINE, "", "no uncorrectable memory error");
}

static void row_remaps(struct examination *e)
{
    for (int i = 0; i < e->machine->gpu_count; i++) {
        const struct description_gpu *gpu = &e->machine->gpus[i];
        if (gpu->remap_failed == DESCRIPTION_YES)
            doctor_add(e, DOCTOR_UNFIT, "no spare memory rows left: replace the GPU",
                       "GPU %d (%s): a row remap failed", gpu->index, gpu->pci);
        else if (gpu->remap_pending == DESCRIPTION_YES)
            doctor_add(e, DOCTOR_WARNING, "reset the GPU before the next job: nvidia-smi -r",
                       "GPU %d (%s): a row remap is pending until a reset", gpu->index, gpu->pci);
        else if (gpu->retired_pages > RETIRED_PAGES_LIMIT)
            doctor_add(e, DOCTOR_WARNING, "NVIDIA replaces a GPU beyond 60",
                       "GPU %d (%s): %lld retired pages", gpu->index, gpu->pci,
                       (long long)gpu->retired_pages);
    }
}

static void recovery_action(struct examination *e)
{
    for (int i = 0; i < e->machine->gpu_count; i++) {
        const struct description_gpu *gpu = &e->machine->gpus[i];
        if (*gpu->recovery_action && strcmp(gpu->recovery_action, "none"))
            doctor_add(e, DOCTOR_UNFIT, "do it before the next job", "GPU %d (%s): the driver requests: %s",
                       gpu->index, gpu->pci, gpu->recovery_action);
    }
}

/* A report's address has no function ("0000:3b:00"). */
static bool xid_is_ours(const struct description *m, const struct description_xid *xid)
{
    for (int i = 0; i < m->gpu_count; i++)
        if (*xid->pci && !strncmp(m->gpus[i].pci, xid->pci, strlen(xid->pci)))
            return true;
    return false;
}

static bool is_recent(const struct description_xid *xid)
{
    return xid->age_s <= XID_RECENT_S; /* unknown ages count */
}

/* Some errors of a GPU affect only the program that hit them, a reset leaves the log as it was, and a
 * driver that is new enough reports itself whether any action is left. */
static enum doctor_status after_xid(const struct description_gpu *gpu, int number,
                                    const struct xid_meaning *meaning)
{
    enum { CONTAINED_MEMORY_ERROR = 94 };
    if (meaning->kind == XID_FOLLOWER)
        return DOCTOR_FINE;
    if (meaning->kind == XID_PROGRAM || meaning->number != number || number == CONTAINED_MEMORY_ERROR ||
        !strcmp(gpu->recovery_action, "none"))
        return DOCTOR_WARNING;
    return DOCTOR_UNFIT;
}

/* The last report of the worst kind about each GPU of ours makes a row. */
static void xids_of(struct examination *e, const struct description_gpu *gpu)
{
    const struct description_xid *worst = NULL;
    int count = 0;
    for (int i = 0; i < e->machine->xid_count; i++) {
        const struct description_xid *xid = &e->machine->xids[i];
        if (!is_recent(xid) || !*xid->pci || strncmp(gpu->pci, xid->pci, strlen(xid->pci)) != 0)
            continue;
        count++;
        if (!worst || xid_meaning(xid->xid)->kind >= xid_meaning(worst->xid)->kind)
            worst = xid;
    }
    if (!worst)
        return;
    const struct xid_meaning *meaning = xid_meaning(worst->xid);
    enum doctor_status status = after_xid(gpu, worst->xid, meaning);
    doctor_add(e, status, status == DOCTOR_FINE ? "" : meaning->advice,
               "GPU %d (%s): %d report%s of the driver in the last day, Xid %d: %s", gpu->index, gpu->pci,
               count, count == 1 ? "" : "s", worst->xid, meaning->what);
}

static void xids(struct examination *e)
{
    int others = 0;
    const char *where = "";
    for (int i = 0; i < e->machine->gpu_count; i++)
        xids_of(e, &e->machine->gpus[i]);
    for (int i = 0; i < e->machine->xid_count; i++)
        if (is_recent(&e->machine->xids[i]) && !xid_is_ours(e->machine, &e->machine->xids[i])) {
            others++;
            where = e->machine->xids[i].pci;
        }
    if (others) /* a container's neighbours; or a lost GPU, which the count of GPUs shows */
        doctor_add(e, DOCTOR_SKIPPED, "", "%d Xid report%s in the last day about GPUs that are not here (%s)",
                   others, others == 1 ? "" : "s", where);
    if (e->machine->kernel_log_lost)
        doctor_add(e, DOCTOR_SKIPPED, "",
                   "the kernel wrote over records of its log before they were read: a report may be missing");
}

/* How many links of this GPU should be up: as many as the best GPU of the same name here has, since cards
 * without bridges and pairs with few report links that are not connected. */
static int links_expected(const struct description *m, const struct description_gpu *gpu)
{
    int most = 0;
    for (int i = 0; i < m->gpu_count; i++)
        if (!strcmp(m->gpus[i].name, gpu->name) && m->gpus[i].nvlinks_up > most)
            most = m->gpus[i].nvlinks_up;
    return most;
}

static void nvlink(struct examination *e)
{
    int whole = 0, partly = 0, without = 0;
    for (int i = 0; i < e->machine->gpu_count; i++) {
        const struct description_gpu *gpu = &e->machine->gpus[i];
        int expected = links_expected(e->machine, gpu);
        if (gpu->nvlinks <= 0 || gpu->nvlinks_up < 0)
            continue;
        if (gpu->nvlinks_up < expected)
            doctor_add(e, DOCTOR_UNFIT,
                       "reset the GPUs; if it stays, a cable, a bridge or the baseboard is broken",
                       "GPU %d (%s): %d of %d NVLinks are up, its neighbours have %d", gpu->index, gpu->pci,
                       gpu->nvlinks_up, gpu->nvlinks, expected);
        else if (gpu->nvlinks_up == gpu->nvlinks)
            whole++;
        else if (gpu->nvlinks_up > 0)
            partly++;
        else
            without++;
    }
    if (whole)
        doctor_add(e, DOCTOR_FINE, "", "all NVLinks of %d GPU%s are up", whole, whole == 1 ? "" : "s");
    if (partly)
        doctor_add(e, DOCTOR_WARNING,
                   "right for cards with a bridge; on a baseboard with NVSwitch reset the GPUs",
                   "%d GPU%s: the same number of NVLinks is up on all", partly, partly == 1 ? "" : "s");
    if (without)
        doctor_add(e, DOCTOR_SKIPPED, "", "%d GPU%s with NVLink, but no link is connected", without,
                   without == 1 ? "" : "s");
}

/* NVSwitch: CUDA does not start before the GPUs are registered with the fabric manager. */
static void fabric(struct examination *e)
{
    int completed = 0;
    for (int i = 0; i < e->machine->gpu_count; i++) {
        const struct description_gpu *gpu = &e->machine->gpus[i];
        if (!strcmp(gpu->fabric_state, "completed"))
            completed++;
        else if (*gpu->fabric_state)
            doctor_add(e, DOCTOR_UNFIT,
                       "systemctl status nvidia-fabricmanager (of the driver's version); it is on the host, "
                       "not in a pod",
                       "GPU %d (%s): NVLink fabric %s, so CUDA does not start", gpu->index, gpu->pci,
                       gpu->fabric_state);
    }
    if (completed)
        doctor_add(e, DOCTOR_FINE, "", "%d GPU%s registered in the NVLink fabric", completed,
                   completed == 1 ? " is" : "s are");
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
        doctor_add(e, DOCTOR_FINE, "", "%d GPUs have full PCIe width", whole);
}

static void throttle(struct examination *e)
{
    for (int i = 0; i < e->machine->gpu_count; i++) {
        const struct description_gpu *gpu = &e->machine->gpus[i];
        uint64_t bits = gpu->throttle_reasons;
        if (bits & (THROTTLE_HW_SLOWDOWN | THROTTLE_HW_THERMAL | THROTTLE_POWER_BRAKE))
            doctor_add(e, DOCTOR_WARNING, "fans, air flow and power supply of this node",
                       "GPU %d (%s) is throttled by the hardware:%s%s%s", gpu->index, gpu->pci,
                       bits & THROTTLE_HW_THERMAL ? " heat" : "",
                       bits & THROTTLE_POWER_BRAKE ? " power brake" : "",
                       bits & THROTTLE_HW_SLOWDOWN ? " slowdown" : "");
        else if (gpu->temperature_c >= HOT_C)
            doctor_add(e, DOCTOR_WARNING, "fans and air flow of this node", "GPU %d (%s) has %d degrees",
                       gpu->index, gpu->pci, gpu->temperature_c);
    }
}

/* Memory in use by no visible process: NVML shows a container only its own processes. */
static void hidden_memory(struct examination *e, const struct description_gpu *gpu)
{
    for (int i = 0; i < e->machine->gpu_process_count; i++)
        if (e->machine->gpu_processes[i].gpu == gpu->index)
            return;
    if (gpu->memory_used_bytes > HIDDEN_MEMORY_LIMIT)
        doctor_add(e, DOCTOR_WARNING,
                   "another container uses this GPU, or a process died without freeing its memory: see "
                   "nvidia-smi on the host",
                   "GPU %d (%s): %lld MiB are in use by no visible process", gpu->index, gpu->pci,
                   (long long)(gpu->memory_used_bytes >> 20));
}

static void leftovers(struct examination *e)
{
    bool known = false;
    int before = e->report->count;
    for (int i = 0; i < e->machine->gpu_process_count; i++) {
        const struct description_process *process = &e->machine->gpu_processes[i];
        if (!process->ours)
            doctor_add(e, DOCTOR_WARNING,
                       "end it, or this job runs out of GPU memory: it belongs to a dead job, or to another "
                       "job on the same GPU",
                       "process %d (%s) uses %lld MiB of GPU %d", process->pid,
                       *process->name ? process->name : "not readable in this container",
                       (long long)(process->memory_bytes > 0 ? process->memory_bytes >> 20 : 0),
                       process->gpu);
    }
    for (int i = 0; i < e->machine->gpu_count; i++) {
        known |= e->machine->gpus[i].processes >= 0;
        hidden_memory(e, &e->machine->gpus[i]);
    }
    if (known && e->report->count == before)
        doctor_add(e, DOCTOR_FINE, "", "no other process computes on the GPUs");
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
    {"fabric", fabric},
    {"pcie", pcie},
    {"throttle", throttle},
    {"gpu-processes", leftovers},
    {0},
};
