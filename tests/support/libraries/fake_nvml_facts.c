/* fake_nvml_facts.c - see fake_nvml.h: the functions that a new driver has in addition to the oldest.
 *
 * Facts of a GPU: name (a _ is a blank), capability (90), memory and used (MiB), mig, ecc, corrected,
 * busy (percent), uncorrected, uncorrected_now, retired, pending, remap_failed, recovery, links, links_down
 * (the first of them), peer (the GPU that all links lead to) or switch, generation, generation_max, width,
 * width_max, temperature, throttle, fabric (state), fabric_status, process ("pid:MiB", several times). Facts
 * of a pair: ancestor, p2p. */
#include "tests/support/libraries/fake_nvml.h"

struct fake_memory {
    unsigned long long total, free, used;
};

struct fake_memory_2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};

struct fake_rates {
    unsigned gpu, memory;
};

struct fake_process {
    unsigned pid;
    unsigned long long memory;
    unsigned gpu_instance, compute_instance;
};

struct fake_field {
    unsigned id, scope;
    long long timestamp, latency;
    unsigned type;
    int code;
    union {
        unsigned number;
        double real;
    } value;
};

struct fake_fabric {
    unsigned char cluster[16];
    int status;
    unsigned clique;
    unsigned char state;
};

#define MIB(n) ((unsigned long long)(n) << 20)

EXPORT int nvmlSystemGetDriverVersion(char *out, unsigned size);
EXPORT int nvmlSystemGetCudaDriverVersion_v2(int *out);
EXPORT int nvmlDeviceGetName(struct fake_device *device, char *out, unsigned size);
EXPORT int nvmlDeviceGetCudaComputeCapability(struct fake_device *device, int *major, int *minor);
EXPORT int nvmlDeviceGetMemoryInfo_v2(struct fake_device *device, struct fake_memory_2 *out);
EXPORT int nvmlDeviceGetUtilizationRates(struct fake_device *device, struct fake_rates *out);
EXPORT int nvmlDeviceGetMigMode(struct fake_device *device, unsigned *now, unsigned *next);
EXPORT int nvmlDeviceGetEccMode(struct fake_device *device, unsigned *now, unsigned *next);
EXPORT int nvmlDeviceGetTotalEccErrors(struct fake_device *device, unsigned kind, unsigned span,
                                       unsigned long long *out);
EXPORT int nvmlDeviceGetRetiredPages(struct fake_device *device, unsigned cause, unsigned *count,
                                     unsigned long long *addresses);
EXPORT int nvmlDeviceGetRetiredPagesPendingStatus(struct fake_device *device, unsigned *out);
EXPORT int nvmlDeviceGetRemappedRows(struct fake_device *device, unsigned *corrected, unsigned *uncorrected,
                                     unsigned *pending, unsigned *failed);
EXPORT int nvmlDeviceGetFieldValues(struct fake_device *device, int count, struct fake_field *fields);
EXPORT int nvmlDeviceGetNvLinkState(struct fake_device *device, unsigned link, unsigned *out);
EXPORT int nvmlDeviceGetNvLinkRemotePciInfo_v2(struct fake_device *device, unsigned link,
                                               struct fake_pci *out);
EXPORT int nvmlDeviceGetNvLinkRemoteDeviceType(struct fake_device *device, unsigned link, unsigned *out);
EXPORT int nvmlDeviceGetCurrPcieLinkGeneration(struct fake_device *device, unsigned *out);
EXPORT int nvmlDeviceGetMaxPcieLinkGeneration(struct fake_device *device, unsigned *out);
EXPORT int nvmlDeviceGetCurrPcieLinkWidth(struct fake_device *device, unsigned *out);
EXPORT int nvmlDeviceGetMaxPcieLinkWidth(struct fake_device *device, unsigned *out);
EXPORT int nvmlDeviceGetTemperature(struct fake_device *device, unsigned sensor, unsigned *out);
EXPORT int nvmlDeviceGetCurrentClocksThrottleReasons(struct fake_device *device, unsigned long long *out);
EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(struct fake_device *device, unsigned *count,
                                                   struct fake_process *out);
EXPORT int nvmlDeviceGetP2PStatus(struct fake_device *a, struct fake_device *b, unsigned access,
                                  unsigned *out);
EXPORT int nvmlDeviceGetTopologyCommonAncestor(struct fake_device *a, struct fake_device *b, unsigned *out);
EXPORT int nvmlDeviceGetGpuFabricInfo(struct fake_device *device, struct fake_fabric *out);

/* A function whose answer is one number. */
static int give(const char *function, const struct fake_device *device, const char *fact, unsigned *out)
{
    long long value;
    int code = fake_enter(function, device);
    if (code == FAKE_SUCCESS && (code = fake_number(device, fact, &value)) == FAKE_SUCCESS)
        *out = (unsigned)value;
    return code;
}

int nvmlSystemGetDriverVersion(char *out, unsigned size)
{
    FAKE_ENTER(NULL);
    (void)snprintf(out, size, "580.82.07");
    return FAKE_SUCCESS;
}

int nvmlSystemGetCudaDriverVersion_v2(int *out)
{
    FAKE_ENTER(NULL);
    *out = 13000;
    return FAKE_SUCCESS;
}

int nvmlDeviceGetName(struct fake_device *device, char *out, unsigned size)
{
    FAKE_ENTER(device);
    const char *name = fake_fact(device, "name", 0);
    (void)snprintf(out, size, "%.*s", name ? (int)strcspn(name, " ") : 8, name ? name : "Fake GPU");
    for (char *at = out; *at; at++)
        *at = *at == '_' ? ' ' : *at;
    return FAKE_SUCCESS;
}

int nvmlDeviceGetCudaComputeCapability(struct fake_device *device, int *major, int *minor)
{
    unsigned capability;
    int code = give(__func__, device, "capability", &capability);
    if (code == FAKE_SUCCESS) {
        *major = (int)capability / 10;
        *minor = (int)capability % 10;
    }
    return code;
}

int nvmlDeviceGetMemoryInfo_v2(struct fake_device *device, struct fake_memory_2 *out)
{
    unsigned total, used = 0;
    int code = give(__func__, device, "memory", &total);
    if (code != FAKE_SUCCESS)
        return code;
    if (out->version != (sizeof *out | 2 << 24))
        return FAKE_INVALID_ARGUMENT;
    (void)give(__func__, device, "used", &used);
    out->total = MIB(total);
    out->used = MIB(used);
    return FAKE_SUCCESS;
}

int nvmlDeviceGetUtilizationRates(struct fake_device *device, struct fake_rates *out)
{
    out->memory = 0;
    return give(__func__, device, "busy", &out->gpu);
}

int nvmlDeviceGetMigMode(struct fake_device *device, unsigned *now, unsigned *next)
{
    int code = give(__func__, device, "mig", now);
    *next = *now;
    return code;
}

int nvmlDeviceGetEccMode(struct fake_device *device, unsigned *now, unsigned *next)
{
    int code = give(__func__, device, "ecc", now);
    *next = *now;
    return code;
}

int nvmlDeviceGetTotalEccErrors(struct fake_device *device, unsigned kind, unsigned span,
                                unsigned long long *out)
{
    unsigned count;
    int code = give(__func__, device,
                    kind == 0   ? "corrected"
                    : span == 0 ? "uncorrected_now"
                                : "uncorrected",
                    &count);
    if (code == FAKE_SUCCESS)
        *out = count;
    return code;
}

int nvmlDeviceGetRetiredPages(struct fake_device *device, unsigned cause, unsigned *count,
                              unsigned long long *addresses)
{
    unsigned pages;
    int code = give(__func__, device, "retired", &pages);
    if (code != FAKE_SUCCESS)
        return code;
    (void)addresses;
    *count = cause == 0 ? pages : 0;
    return *count ? FAKE_INSUFFICIENT_SIZE : FAKE_SUCCESS;
}

int nvmlDeviceGetRetiredPagesPendingStatus(struct fake_device *device, unsigned *out)
{
    return give(__func__, device, "retired_pending", out);
}

int nvmlDeviceGetRemappedRows(struct fake_device *device, unsigned *corrected, unsigned *uncorrected,
                              unsigned *pending, unsigned *failed)
{
    *corrected = *uncorrected = 0;
    int code = give(__func__, device, "pending", pending);
    return code == FAKE_SUCCESS ? give(__func__, device, "remap_failed", failed) : code;
}

int nvmlDeviceGetFieldValues(struct fake_device *device, int count, struct fake_field *fields)
{
    enum { RECOVERY_ACTION = 230 };
    FAKE_ENTER(device);
    for (int i = 0; i < count; i++)
        fields[i].code = fields[i].id == RECOVERY_ACTION
                             ? give(__func__, device, "recovery", &fields[i].value.number)
                             : FAKE_INVALID_ARGUMENT;
    return FAKE_SUCCESS;
}

int nvmlDeviceGetNvLinkState(struct fake_device *device, unsigned link, unsigned *out)
{
    unsigned links, down = 0;
    int code = give(__func__, device, "links", &links);
    if (code != FAKE_SUCCESS)
        return code;
    if (link >= links)
        return FAKE_INVALID_ARGUMENT;
    (void)give(__func__, device, "links_down", &down);
    *out = link >= down;
    return FAKE_SUCCESS;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(struct fake_device *device, unsigned link, struct fake_pci *out)
{
    unsigned peer;
    (void)link;
    int code = give(__func__, device, "peer", &peer);
    if (code == FAKE_SUCCESS)
        (void)snprintf(out->bus, sizeof out->bus, "00000000:%02X:00.0", fake_bus((int)peer));
    return code;
}

int nvmlDeviceGetNvLinkRemoteDeviceType(struct fake_device *device, unsigned link, unsigned *out)
{
    unsigned is_switch;
    (void)link;
    int code = give(__func__, device, "switch", &is_switch);
    if (code == FAKE_SUCCESS)
        *out = is_switch ? 2 : 0;
    return code;
}

int nvmlDeviceGetCurrPcieLinkGeneration(struct fake_device *device, unsigned *out)
{
    return give(__func__, device, "generation", out);
}

int nvmlDeviceGetMaxPcieLinkGeneration(struct fake_device *device, unsigned *out)
{
    return give(__func__, device, "generation_max", out);
}

int nvmlDeviceGetCurrPcieLinkWidth(struct fake_device *device, unsigned *out)
{
    return give(__func__, device, "width", out);
}

int nvmlDeviceGetMaxPcieLinkWidth(struct fake_device *device, unsigned *out)
{
    return give(__func__, device, "width_max", out);
}

int nvmlDeviceGetTemperature(struct fake_device *device, unsigned sensor, unsigned *out)
{
    return sensor == 0 ? give(__func__, device, "temperature", out) : FAKE_INVALID_ARGUMENT;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(struct fake_device *device, unsigned long long *out)
{
    unsigned reasons;
    int code = give(__func__, device, "throttle", &reasons);
    if (code == FAKE_SUCCESS)
        *out = reasons;
    return code;
}

int nvmlDeviceGetComputeRunningProcesses_v3(struct fake_device *device, unsigned *count,
                                            struct fake_process *out)
{
    unsigned room = *count, found = 0;
    FAKE_ENTER(device);
    for (const char *text; (text = fake_fact(device, "process", (int)found)); found++) {
        char *end;
        if (found >= room)
            continue;
        out[found] = (struct fake_process){.pid = (unsigned)strtoul(text, &end, 10)};
        out[found].memory = *end == ':' ? MIB(strtoul(end + 1, NULL, 10)) : ~0ULL;
    }
    *count = found;
    return found > room ? FAKE_INSUFFICIENT_SIZE : FAKE_SUCCESS;
}

int nvmlDeviceGetP2PStatus(struct fake_device *a, struct fake_device *b, unsigned access, unsigned *out)
{
    FAKE_ENTER(a);
    FAKE_ENTER(b);
    return fake_pair_number(a, b, access == 0 ? "p2p" : "p2p_write", out);
}

int nvmlDeviceGetTopologyCommonAncestor(struct fake_device *a, struct fake_device *b, unsigned *out)
{
    FAKE_ENTER(a);
    FAKE_ENTER(b);
    return fake_pair_number(a, b, "ancestor", out);
}

int nvmlDeviceGetGpuFabricInfo(struct fake_device *device, struct fake_fabric *out)
{
    unsigned state, status = 0;
    int code = give(__func__, device, "fabric", &state);
    if (code != FAKE_SUCCESS)
        return code;
    (void)give(__func__, device, "fabric_status", &status);
    out->state = (unsigned char)state;
    out->status = (int)status;
    out->clique = 7;
    memset(out->cluster, 0xab, sizeof out->cluster);
    return FAKE_SUCCESS;
}
