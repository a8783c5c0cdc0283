/* nvml_library.h - the part of NVML that muster uses: its types, and its functions loaded from the
 * driver's library.
 *
 * The few declarations are copied here, so that the build does not need CUDA's toolkit. Sizes and numbers
 * are as in nvml.h of CUDA 13; NVML keeps them for ever and gives a function that changes a new name.
 * Used by the parts of this folder that call NVML, inside a process that may hang. */
#ifndef MUSTER_PROTO_NVML_NVML_LIBRARY_H
#define MUSTER_PROTO_NVML_NVML_LIBRARY_H

#include <stdint.h>

#include "proto/include/muster_error.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct nvmlDevice_st *nvmlDevice_t;

typedef struct {
    char busIdLegacy[16];
    unsigned domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32];
} nvmlPciInfo_t;

typedef struct {
    unsigned long long total, free, used;
} nvmlMemory_t;

typedef struct {
    unsigned version;
    unsigned long long total, reserved, free, used;
} nvmlMemory_v2_t;

typedef struct {
    unsigned gpu, memory; /* percent of the last moment */
} nvmlUtilization_t;

typedef struct {
    unsigned pid;
    unsigned long long usedGpuMemory;
    unsigned gpuInstanceId, computeInstanceId;
} nvmlProcessInfo_t;

typedef struct {
    unsigned fieldId, scopeId;
    long long timestamp, latencyUsec;
    unsigned valueType;
    int nvmlReturn;
    union {
        double dVal;
        unsigned uiVal;
        unsigned long ulVal;
        unsigned long long ullVal;
    } value;
} nvmlFieldValue_t;

typedef struct {
    unsigned char clusterUuid[16];
    int status;
    unsigned cliqueId;
    unsigned char state;
} nvmlGpuFabricInfo_t;

enum nvml_code {
    NVML_SUCCESS = 0,
    NVML_ERROR_INVALID_ARGUMENT = 2,
    NVML_ERROR_NOT_SUPPORTED = 3,
    NVML_ERROR_NO_PERMISSION = 4,
    NVML_ERROR_NOT_FOUND = 6,
    NVML_ERROR_INSUFFICIENT_SIZE = 7,
    NVML_ERROR_FUNCTION_NOT_FOUND = 13, /* also if this library lacks the function */
    NVML_ERROR_GPU_IS_LOST = 15,
};

enum {
    NVML_GPUS_LIMIT = 64, /* GPUs of a node */
    NVML_UUID_SIZE = 96,
    NVML_LINKS = 36, /* at most, of a GPU */
    NVML_PROCESSES = 256,
    NVML_MEMORY_V2 = sizeof(nvmlMemory_v2_t) | 2 << 24,
    NVML_FIELD_RECOVERY_ACTION = 230,
};

/* member, NVML's name, its parameters. The first group is required; of the second any may be missing: in
 * old drivers, in virtual GPUs, in WSL. */
#define NVML_FUNCTIONS(X)                                                                                    \
    X(init, "nvmlInit_v2", (void))                                                                           \
    X(shutdown, "nvmlShutdown", (void))                                                                      \
    X(count, "nvmlDeviceGetCount_v2", (unsigned *))                                                          \
    X(handle, "nvmlDeviceGetHandleByIndex_v2", (unsigned, nvmlDevice_t *))                                   \
    X(uuid, "nvmlDeviceGetUUID", (nvmlDevice_t, char *, unsigned))                                           \
    X(pci, "nvmlDeviceGetPciInfo_v3", (nvmlDevice_t, nvmlPciInfo_t *))
#define NVML_OPTIONAL_FUNCTIONS(X)                                                                           \
    X(mig_limit, "nvmlDeviceGetMaxMigDeviceCount", (nvmlDevice_t, unsigned *))                               \
    X(mig_handle, "nvmlDeviceGetMigDeviceHandleByIndex", (nvmlDevice_t, unsigned, nvmlDevice_t *))           \
    X(mig_mode, "nvmlDeviceGetMigMode", (nvmlDevice_t, unsigned *, unsigned *))                              \
    X(driver_version, "nvmlSystemGetDriverVersion", (char *, unsigned))                                      \
    X(cuda_version, "nvmlSystemGetCudaDriverVersion_v2", (int *))                                            \
    X(name, "nvmlDeviceGetName", (nvmlDevice_t, char *, unsigned))                                           \
    X(capability, "nvmlDeviceGetCudaComputeCapability", (nvmlDevice_t, int *, int *))                        \
    X(memory, "nvmlDeviceGetMemoryInfo", (nvmlDevice_t, nvmlMemory_t *))                                     \
    X(memory_v2, "nvmlDeviceGetMemoryInfo_v2", (nvmlDevice_t, nvmlMemory_v2_t *))                            \
    X(ecc_mode, "nvmlDeviceGetEccMode", (nvmlDevice_t, unsigned *, unsigned *))                              \
    X(ecc_errors, "nvmlDeviceGetTotalEccErrors", (nvmlDevice_t, unsigned, unsigned, unsigned long long *))   \
    X(retired_pages, "nvmlDeviceGetRetiredPages",                                                            \
      (nvmlDevice_t, unsigned, unsigned *, unsigned long long *))                                            \
    X(retired_pending, "nvmlDeviceGetRetiredPagesPendingStatus", (nvmlDevice_t, unsigned *))                 \
    X(remapped_rows, "nvmlDeviceGetRemappedRows",                                                            \
      (nvmlDevice_t, unsigned *, unsigned *, unsigned *, unsigned *))                                        \
    X(field_values, "nvmlDeviceGetFieldValues", (nvmlDevice_t, int, nvmlFieldValue_t *))                     \
    X(link_state, "nvmlDeviceGetNvLinkState", (nvmlDevice_t, unsigned, unsigned *))                          \
    X(link_remote, "nvmlDeviceGetNvLinkRemotePciInfo_v2", (nvmlDevice_t, unsigned, nvmlPciInfo_t *))         \
    X(link_remote_type, "nvmlDeviceGetNvLinkRemoteDeviceType", (nvmlDevice_t, unsigned, unsigned *))         \
    X(pcie_generation, "nvmlDeviceGetCurrPcieLinkGeneration", (nvmlDevice_t, unsigned *))                    \
    X(pcie_generation_max, "nvmlDeviceGetMaxPcieLinkGeneration", (nvmlDevice_t, unsigned *))                 \
    X(pcie_width, "nvmlDeviceGetCurrPcieLinkWidth", (nvmlDevice_t, unsigned *))                              \
    X(pcie_width_max, "nvmlDeviceGetMaxPcieLinkWidth", (nvmlDevice_t, unsigned *))                           \
    X(temperature, "nvmlDeviceGetTemperature", (nvmlDevice_t, unsigned, unsigned *))                         \
    X(throttle_reasons, "nvmlDeviceGetCurrentClocksThrottleReasons", (nvmlDevice_t, unsigned long long *))   \
    X(processes, "nvmlDeviceGetComputeRunningProcesses_v3", (nvmlDevice_t, unsigned *, nvmlProcessInfo_t *)) \
    X(processes_v2, "nvmlDeviceGetComputeRunningProcesses_v2",                                               \
      (nvmlDevice_t, unsigned *, nvmlProcessInfo_t *))                                                       \
    X(p2p_status, "nvmlDeviceGetP2PStatus", (nvmlDevice_t, nvmlDevice_t, unsigned, unsigned *))              \
    X(common_ancestor, "nvmlDeviceGetTopologyCommonAncestor", (nvmlDevice_t, nvmlDevice_t, unsigned *))      \
    X(fabric_info, "nvmlDeviceGetGpuFabricInfo", (nvmlDevice_t, nvmlGpuFabricInfo_t *))

/* Optional as well: of nvml_usage.h alone. */
#define NVML_USAGE_FUNCTIONS(X)                                                                              \
    X(utilization, "nvmlDeviceGetUtilizationRates", (nvmlDevice_t, nvmlUtilization_t *))

struct nvml_library {
#define NVML_MEMBER(member, name, parameters) int(*member) parameters;
    NVML_FUNCTIONS(NVML_MEMBER)
    NVML_OPTIONAL_FUNCTIONS(NVML_MEMBER)
    NVML_USAGE_FUNCTIONS(NVML_MEMBER)
#undef NVML_MEMBER
    const char *(*error_string)(int);
    void *loaded; /* dlopen's */
};

/* The code of an optional function, NVML_ERROR_FUNCTION_NOT_FOUND if the library lacks it. */
#define NVML_ASK(library, member, ...)                                                                       \
    ((library)->member ? (library)->member(__VA_ARGS__) : NVML_ERROR_FUNCTION_NOT_FOUND)

/* Loads and starts NVML. file NULL: the driver's library (libnvidia-ml.so.1).
 * MUSTER_E_NOT_FOUND if it cannot be loaded, MUSTER_E_IO with NVML's text if it does not start. */
int nvml_open(const char *file, struct nvml_library *nvml, struct muster_error *err);
void nvml_close(struct nvml_library *nvml);

/* NVML's text for a code: "GPU is lost (15)"; into out. */
const char *nvml_words(const struct nvml_library *nvml, int code, char *out, unsigned size);
/* NVML writes "00000000:3B:00.0", /sys "0000:3b:00.0". out has size bytes. */
void nvml_spell_bus(const char *text, char *out, unsigned size);

#ifdef __cplusplus
}
#endif
#endif
