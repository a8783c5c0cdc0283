/* nvml_describe.c - the queries about each GPU; those about pairs are in nvml_pairs.c. */
#include "runtime/nccl/nvml/nvml_describe.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "proto/base/mem.h"
#include "runtime/nccl/nvml/nvml_describe_internal.h"

void nvml_doing(struct nvml_report *report, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(report->doing, sizeof report->doing, format, arguments);
    va_end(arguments);
}

/* --- one query, one function; each returns NVML's code --- */

struct asking {
    const struct nvml_library *nvml;
    nvmlDevice_t device;
    struct description_gpu *gpu;
    struct nvml_report *report;
    bool processes_visible;
};

static enum description_flag flag(unsigned value)
{
    return value ? DESCRIPTION_YES : DESCRIPTION_NO;
}

static int ask_name(const struct asking *a)
{
    return NVML_ASK(a->nvml, name, a->device, a->gpu->name, sizeof a->gpu->name);
}

static int ask_capability(const struct asking *a)
{
    return NVML_ASK(a->nvml, capability, a->device, &a->gpu->compute_major, &a->gpu->compute_minor);
}

/* The older function counts the driver's own memory as used. */
static int ask_memory(const struct asking *a)
{
    nvmlMemory_v2_t memory = {.version = NVML_MEMORY_V2};
    nvmlMemory_t older = {0};
    int code = NVML_ASK(a->nvml, memory_v2, a->device, &memory);
    if (code == NVML_ERROR_FUNCTION_NOT_FOUND) {
        code = NVML_ASK(a->nvml, memory, a->device, &older);
        memory.total = older.total;
        memory.used = older.used;
    }
    if (code == NVML_SUCCESS) {
        a->gpu->memory_bytes = (int64_t)memory.total;
        a->gpu->memory_used_bytes = (int64_t)memory.used;
    }
    return code;
}

/* The instances of a GPU; none where the driver or the GPU knows no MIG. Their numbers have gaps. */
static int ask_instances(const struct asking *a)
{
    unsigned limit = 0;
    if (!a->nvml->mig_handle || NVML_ASK(a->nvml, mig_limit, a->device, &limit) != NVML_SUCCESS)
        return NVML_SUCCESS;
    for (unsigned i = 0; i < limit; i++) {
        nvmlDevice_t instance;
        int code = a->nvml->mig_handle(a->device, i, &instance);
        if (code == NVML_ERROR_NOT_FOUND || code == NVML_ERROR_NOT_SUPPORTED)
            continue;
        if (code != NVML_SUCCESS)
            return code;
        a->gpu->mig_devices++;
        if (a->report->instance_count == NVML_REPORT_INSTANCES) {
            a->report->omitted++;
            continue;
        }
        struct nvml_instance *entry = &a->report->instances[a->report->instance_count];
        entry->gpu = a->gpu->index;
        if ((code = a->nvml->uuid(instance, entry->uuid, sizeof entry->uuid)) != NVML_SUCCESS)
            return code;
        a->report->instance_count++;
    }
    return NVML_SUCCESS;
}

static int ask_mig(const struct asking *a)
{
    unsigned now = 0, next = 0;
    int code = NVML_ASK(a->nvml, mig_mode, a->device, &now, &next);
    if (code == NVML_SUCCESS)
        a->gpu->mig = flag(now);
    return code;
}

static int ask_ecc_mode(const struct asking *a)
{
    unsigned now = 0, next = 0;
    int code = NVML_ASK(a->nvml, ecc_mode, a->device, &now, &next);
    if (code == NVML_SUCCESS)
        a->gpu->ecc = flag(now);
    return code;
}

static int ask_ecc_errors(const struct asking *a)
{
    enum { CORRECTED = 0, UNCORRECTED = 1, SINCE_RESET = 0, EVER = 1 };
    const struct {
        unsigned kind, span;
        int64_t *out;
    } counts[] = {{CORRECTED, EVER, &a->gpu->ecc_corrected},
                  {UNCORRECTED, EVER, &a->gpu->ecc_uncorrected},
                  {UNCORRECTED, SINCE_RESET, &a->gpu->ecc_uncorrected_now}};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        unsigned long long count = 0;
        int code = NVML_ASK(a->nvml, ecc_errors, a->device, counts[i].kind, counts[i].span, &count);
        if (code != NVML_SUCCESS)
            return code;
        *counts[i].out = (int64_t)count;
    }
    return NVML_SUCCESS;
}

/* Before Ampere, memory retires pages; a call with room for none returns their number. */
static int ask_retired_pages(const struct asking *a)
{
    enum { CAUSES = 2 }; /* several single-bit errors, one double-bit error */
    int64_t sum = 0;
    for (unsigned cause = 0; cause < CAUSES; cause++) {
        unsigned count = 0;
        int code = NVML_ASK(a->nvml, retired_pages, a->device, cause, &count, NULL);
        if (code != NVML_SUCCESS && code != NVML_ERROR_INSUFFICIENT_SIZE)
            return code;
        sum += count;
    }
    a->gpu->retired_pages = sum;
    unsigned pending = 0;
    int code = NVML_ASK(a->nvml, retired_pending, a->device, &pending);
    if (code == NVML_SUCCESS)
        a->gpu->remap_pending = flag(pending);
    return code;
}

static int ask_remapped_rows(const struct asking *a)
{
    unsigned corrected = 0, uncorrected = 0, pending = 0, failed = 0;
    int code = NVML_ASK(a->nvml, remapped_rows, a->device, &corrected, &uncorrected, &pending, &failed);
    if (code == NVML_SUCCESS) {
        a->gpu->remap_pending = flag(pending);
        a->gpu->remap_failed = flag(failed);
    }
    return code;
}

static int ask_recovery_action(const struct asking *a)
{
    static const char *const actions[] = {"none",
                                          "reset",
                                          "reboot",
                                          "drain P2P",
                                          "drain and reset",
                                          "recover the IMEX domain",
                                          "reset the bus",
                                          "reboot the system"};
    nvmlFieldValue_t value = {.fieldId = NVML_FIELD_RECOVERY_ACTION};
    int code = NVML_ASK(a->nvml, field_values, a->device, 1, &value);
    if (code != NVML_SUCCESS || value.nvmlReturn != NVML_SUCCESS)
        return code != NVML_SUCCESS ? code : value.nvmlReturn;
    if (value.value.uiVal < sizeof actions / sizeof *actions)
        (void)snprintf(a->gpu->recovery_action, sizeof a->gpu->recovery_action, "%s",
                       actions[value.value.uiVal]);
    else
        (void)snprintf(a->gpu->recovery_action, sizeof a->gpu->recovery_action, "action %u of a newer driver",
                       value.value.uiVal);
    return NVML_SUCCESS;
}

/* A link that the GPU lacks is an invalid argument or not supported. */
static int ask_nvlinks(const struct asking *a)
{
    int links = 0, up = 0;
    for (unsigned link = 0; link < NVML_LINKS; link++) {
        unsigned active = 0;
        int code = NVML_ASK(a->nvml, link_state, a->device, link, &active);
        if (code == NVML_ERROR_GPU_IS_LOST || code == NVML_ERROR_FUNCTION_NOT_FOUND)
            return code;
        links += code == NVML_SUCCESS;
        up += code == NVML_SUCCESS && active;
    }
    a->gpu->nvlinks = links;
    a->gpu->nvlinks_up = up;
    return NVML_SUCCESS;
}

static int ask_pcie(const struct asking *a)
{
    struct description_gpu *gpu = a->gpu;
    const struct {
        int (*call)(nvmlDevice_t, unsigned *);
        int *out;
    } questions[] = {{a->nvml->pcie_generation, &gpu->pcie_generation},
                     {a->nvml->pcie_generation_max, &gpu->pcie_generation_max},
                     {a->nvml->pcie_width, &gpu->pcie_width},
                     {a->nvml->pcie_width_max, &gpu->pcie_width_max}};
    int worst = NVML_SUCCESS; /* virtual GPUs report some of the four */
    for (size_t i = 0; i < sizeof questions / sizeof *questions && worst != NVML_ERROR_GPU_IS_LOST; i++) {
        unsigned value = 0;
        int code = questions[i].call ? questions[i].call(a->device, &value) : NVML_ERROR_FUNCTION_NOT_FOUND;
        if (code == NVML_SUCCESS)
            *questions[i].out = (int)value;
        else if (code != NVML_ERROR_NOT_SUPPORTED)
            worst = code;
    }
    return worst;
}

static int ask_temperature(const struct asking *a)
{
    enum { OF_THE_GPU = 0 };
    unsigned degrees = 0;
    int code = NVML_ASK(a->nvml, temperature, a->device, OF_THE_GPU, &degrees);
    if (code == NVML_SUCCESS)
        a->gpu->temperature_c = (int)degrees;
    return code;
}

static int ask_throttle(const struct asking *a)
{
    unsigned long long reasons = 0;
    int code = NVML_ASK(a->nvml, throttle_reasons, a->device, &reasons);
    if (code == NVML_SUCCESS)
        a->gpu->throttle_reasons = reasons;
    return code;
}

static int ask_fabric(const struct asking *a)
{
    enum { NOT_STARTED = 1, IN_PROGRESS = 2, COMPLETED = 3 };
    nvmlGpuFabricInfo_t info = {0};
    static const unsigned char none[sizeof info.clusterUuid];
    int code = NVML_ASK(a->nvml, fabric_info, a->device, &info);
    if (code != NVML_SUCCESS)
        return code;
    const char *state = info.state == NOT_STARTED   ? "not started"
                        : info.state == IN_PROGRESS ? "in progress"
                        : info.state != COMPLETED   ? ""
                        : info.status               ? "failed"
                                                    : "completed";
    (void)snprintf(a->gpu->fabric_state, sizeof a->gpu->fabric_state, "%s", state);
    if (strcmp(state, "completed") != 0 || !memcmp(none, info.clusterUuid, sizeof none))
        return NVML_SUCCESS;
    for (size_t i = 0; i < sizeof info.clusterUuid; i++)
        (void)snprintf(a->gpu->fabric_cluster + 2 * i, 3, "%02x", info.clusterUuid[i]);
    a->gpu->fabric_clique = (int)info.cliqueId;
    return NVML_SUCCESS;
}

/* --- processes --- */

static void name_process(struct description_process *process)
{
    scope_buffer name = {0};
    scope_free char *path = mem_printf("/proc/%d/comm", process->pid);
    if (!path || io_read_file(path, sizeof process->name - 1, &name, NULL) < 0 || !name.data)
        return;
    (void)snprintf(process->name, sizeof process->name, "%.*s", (int)strcspn(name.data, "\n"), name.data);
}

static int ask_processes(const struct asking *a)
{
    nvmlProcessInfo_t found[NVML_PROCESSES];
    unsigned count = NVML_PROCESSES;
    int code = NVML_ASK(a->nvml, processes, a->device, &count, found);
    if (code == NVML_ERROR_FUNCTION_NOT_FOUND)
        code = NVML_ASK(a->nvml, processes_v2, a->device, &count, found);
    if (code == NVML_ERROR_INSUFFICIENT_SIZE) /* more than fit: then only their number matters */
        a->gpu->processes = (int)count;
    if (code != NVML_SUCCESS)
        return code == NVML_ERROR_INSUFFICIENT_SIZE ? NVML_SUCCESS : code;
    a->gpu->processes = (int)count;
    for (unsigned i = 0; i < count && i < NVML_PROCESSES; i++) {
        if (a->report->process_count == NVML_REPORT_PROCESSES) {
            a->report->omitted++;
            continue;
        }
        struct description_process *process = &a->report->processes[a->report->process_count];
        description_process_init(process);
        process->pid = (int)found[i].pid;
        process->gpu = a->gpu->index;
        if (found[i].usedGpuMemory != ~0ULL) /* NVML's "not available" */
            process->memory_bytes = (int64_t)found[i].usedGpuMemory;
        if (a->processes_visible)
            name_process(process);
        a->report->process_count++;
    }
    return NVML_SUCCESS;
}

/* --- all of them --- */

static const struct {
    const char *what;
    int (*ask)(const struct asking *a);
} questions[] = {
    {"its name", ask_name},
    {"its compute capability", ask_capability},
    {"its memory", ask_memory},
    {"its MIG mode", ask_mig},
    {"its MIG instances", ask_instances},
    {"its ECC mode", ask_ecc_mode},
    {"its ECC errors", ask_ecc_errors},
    {"its retired pages", ask_retired_pages},
    {"its remapped rows", ask_remapped_rows},
    {"its recovery action", ask_recovery_action},
    {"its NVLinks", ask_nvlinks},
    {"its PCIe link", ask_pcie},
    {"its temperature", ask_temperature},
    {"its clocks", ask_throttle},
    {"its fabric", ask_fabric},
    {"its processes", ask_processes},
};

bool nvml_note(const struct nvml_library *nvml, struct description_gpu *gpu, const char *what, int code)
{
    char words[128];
    switch (code) {
    case NVML_SUCCESS:
    case NVML_ERROR_NOT_SUPPORTED:
    case NVML_ERROR_NO_PERMISSION:
    case NVML_ERROR_NOT_FOUND:
    case NVML_ERROR_FUNCTION_NOT_FOUND:
        return true;
    case NVML_ERROR_GPU_IS_LOST:
        gpu->lost = true;
        return false;
    default:
        if (!*gpu->error) /* the first is nearest to the cause */
            (void)snprintf(gpu->error, sizeof gpu->error, "NVML, %s: %s", what,
                           nvml_words(nvml, code, words, sizeof words));
        return true;
    }
}

static int ask_identity(const struct asking *a)
{
    nvmlPciInfo_t pci = {0};
    int code = a->nvml->pci(a->device, &pci);
    pci.busId[sizeof pci.busId - 1] = 0;
    nvml_spell_bus(pci.busId, a->gpu->pci, sizeof a->gpu->pci);
    if (!nvml_note(a->nvml, a->gpu, "its address", code))
        return -1;
    code = a->nvml->uuid(a->device, a->gpu->uuid, sizeof a->gpu->uuid);
    return nvml_note(a->nvml, a->gpu, "its UUID", code) ? 0 : -1;
}

static void ask_gpu(const struct asking *a)
{
    if (ask_identity(a) < 0)
        return;
    for (size_t i = 0; i < sizeof questions / sizeof *questions; i++) {
        nvml_doing(a->report, "GPU %d: %s", a->gpu->index, questions[i].what);
        if (!nvml_note(a->nvml, a->gpu, questions[i].what, questions[i].ask(a)))
            return;
    }
}

static void ask_versions(const struct nvml_library *nvml, struct nvml_report *report)
{
    int cuda = 0;
    nvml_doing(report, "the driver's version");
    (void)NVML_ASK(nvml, driver_version, report->driver, sizeof report->driver); /* "" stays */
    if (NVML_ASK(nvml, cuda_version, &cuda) == NVML_SUCCESS)
        (void)snprintf(report->cuda_driver, sizeof report->cuda_driver, "%d.%d", cuda / 1000,
                       cuda % 1000 / 10);
}

static int ask_all(const struct nvml_library *nvml, bool processes_visible, struct nvml_report *report,
                   struct muster_error *err)
{
    nvmlDevice_t devices[DESCRIPTION_GPUS_LIMIT] = {0};
    char words[128];
    unsigned count = 0;
    ask_versions(nvml, report);
    nvml_doing(report, "the number of GPUs");
    int code = nvml->count(&count);
    if (code != NVML_SUCCESS)
        return error_set(err, MUSTER_E_IO, "NVML: the number of GPUs: %s",
                         nvml_words(nvml, code, words, sizeof words));
    report->started = true;
    if (count > DESCRIPTION_GPUS_LIMIT)
        report->omitted = (int)count - DESCRIPTION_GPUS_LIMIT;
    for (unsigned i = 0; i < count && i < DESCRIPTION_GPUS_LIMIT; i++) {
        struct asking a = {nvml, NULL, &report->gpus[i], report, processes_visible};
        nvml_doing(report, "GPU %u", i);
        description_gpu_init(a.gpu);
        a.gpu->index = (int)i;
        report->gpu_count = (int)i + 1;
        code = nvml->handle(i, &a.device);
        if (!nvml_note(nvml, a.gpu, "it", code))
            continue;
        if (code != NVML_SUCCESS) { /* no error code is harmless for a GPU whose handle cannot be opened */
            (void)snprintf(a.gpu->error, sizeof a.gpu->error, "NVML cannot reach it: %s",
                           nvml_words(nvml, code, words, sizeof words));
            continue;
        }
        ask_gpu(&a);
        devices[i] = a.device;
    }
    nvml_ask_pairs(nvml, devices, report);
    return 0;
}

int nvml_describe(const char *library, bool processes_visible, struct nvml_report *report,
                  struct muster_error *err)
{
    struct nvml_library nvml;
    nvml_doing(report, "to start");
    if (nvml_open(library, &nvml, err) < 0)
        return -1;
    int result = ask_all(&nvml, processes_visible, report, err);
    nvml_doing(report, "to stop");
    nvml_close(&nvml);
    report->finished = result == 0;
    return result;
}
