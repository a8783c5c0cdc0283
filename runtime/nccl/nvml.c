/* nvml.c - see nvml.h. The few declarations that are needed of NVML stand here, so that nothing of CUDA's
 * toolkit is needed to build. */
#include "runtime/nccl/nvml.h"

#include <ctype.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"

/* --- NVML's own shapes --- */

typedef struct nvmlDevice_st *nvmlDevice_t;

typedef struct {
    char busIdLegacy[16];
    unsigned domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32];
} nvmlPciInfo_t;

enum { NVML_SUCCESS = 0, NVML_ERROR_NOT_SUPPORTED = 3, NVML_ERROR_NOT_FOUND = 6 };

/* member, NVML's name, its parameters; those of MIG are missing in old drivers */
#define NVML_FUNCTIONS(X)                                                                                    \
    X(init, "nvmlInit_v2", (void))                                                                           \
    X(shutdown, "nvmlShutdown", (void))                                                                      \
    X(count, "nvmlDeviceGetCount_v2", (unsigned *))                                                          \
    X(handle, "nvmlDeviceGetHandleByIndex_v2", (unsigned, nvmlDevice_t *))                                   \
    X(uuid, "nvmlDeviceGetUUID", (nvmlDevice_t, char *, unsigned))                                           \
    X(pci, "nvmlDeviceGetPciInfo_v3", (nvmlDevice_t, nvmlPciInfo_t *))
#define NVML_MIG_FUNCTIONS(X)                                                                                \
    X(mig_limit, "nvmlDeviceGetMaxMigDeviceCount", (nvmlDevice_t, unsigned *))                               \
    X(mig_handle, "nvmlDeviceGetMigDeviceHandleByIndex", (nvmlDevice_t, unsigned, nvmlDevice_t *))

struct nvml {
#define NVML_MEMBER(member, name, parameters) int(*member) parameters;
    NVML_FUNCTIONS(NVML_MEMBER)
    NVML_MIG_FUNCTIONS(NVML_MEMBER)
#undef NVML_MEMBER
    const char *(*error_string)(int);
};

/* --- */

/* POSIX lets a symbol's address be a function's; ISO C has no cast for it. */
#define LOAD(member, name)                                                                                   \
    do {                                                                                                     \
        void *symbol = dlsym(handle, name);                                                                  \
        memcpy(&nvml->member, &symbol, sizeof symbol);                                                       \
    } while (0)

static int load(void *handle, struct nvml *nvml, struct muster_error *err)
{
#define NVML_LOAD(member, name, parameters)                                                                  \
    LOAD(member, name);                                                                                      \
    if (!nvml->member)                                                                                       \
        return error_set(err, MUSTER_E_NOT_FOUND, "this NVML has no %s: the driver is too old", name);
    NVML_FUNCTIONS(NVML_LOAD)
#undef NVML_LOAD
#define NVML_LOAD(member, name, parameters) LOAD(member, name);
    NVML_MIG_FUNCTIONS(NVML_LOAD)
#undef NVML_LOAD
    LOAD(error_string, "nvmlErrorString");
    return 0;
}

static int refuse(const struct nvml *nvml, const char *what, int code, struct muster_error *err)
{
    return error_set(err, MUSTER_E_IO, "NVML: %s: %s (%d)", what,
                     nvml->error_string ? nvml->error_string(code) : "error", code);
}

/* NVML writes "00000000:3B:00.0", /sys "0000:3b:00.0". */
static void spell_bus(const char *text, char out[NVML_BUS_SIZE])
{
    size_t domain = strcspn(text, ":");
    if (domain == 8 && !strncmp(text, "0000", 4))
        text += 4;
    (void)snprintf(out, NVML_BUS_SIZE, "%.*s", NVML_BUS_SIZE - 1, text);
    for (char *at = out; *at; at++)
        *at = (char)tolower((unsigned char)*at);
}

static struct nvml_device *add(struct nvml_inventory *inventory, struct muster_error *err)
{
    if (inventory->count < NVML_DEVICES_LIMIT)
        return &inventory->devices[inventory->count++];
    (void)error_set(err, MUSTER_E_LIMIT, "NVML lists more than %d GPUs and MIG instances",
                    NVML_DEVICES_LIMIT);
    return NULL;
}

/* The instances of a GPU; none where the driver or the GPU knows no MIG. Instance numbers have gaps. */
static int add_instances(const struct nvml *nvml, nvmlDevice_t gpu, int index,
                         struct nvml_inventory *inventory, struct muster_error *err)
{
    struct nvml_device *whole = &inventory->devices[inventory->count - 1];
    unsigned limit = 0;
    if (!nvml->mig_limit || !nvml->mig_handle || nvml->mig_limit(gpu, &limit) != NVML_SUCCESS)
        return 0;
    for (unsigned i = 0; i < limit; i++) {
        nvmlDevice_t instance;
        int code = nvml->mig_handle(gpu, i, &instance);
        if (code == NVML_ERROR_NOT_FOUND || code == NVML_ERROR_NOT_SUPPORTED)
            continue;
        if (code != NVML_SUCCESS)
            return refuse(nvml, "a MIG instance", code, err);
        struct nvml_device *device = add(inventory, err);
        if (!device)
            return -1;
        *device = (struct nvml_device){.gpu = index, .mig = true};
        memcpy(device->bus, whole->bus, sizeof device->bus);
        if ((code = nvml->uuid(instance, device->uuid, NVML_UUID_SIZE)) != NVML_SUCCESS)
            return refuse(nvml, "the UUID of a MIG instance", code, err);
        whole->divided = true;
    }
    return 0;
}

static int add_gpu(const struct nvml *nvml, int index, struct nvml_inventory *inventory,
                   struct muster_error *err)
{
    nvmlDevice_t gpu;
    nvmlPciInfo_t pci = {0};
    struct nvml_device *device = add(inventory, err);
    if (!device)
        return -1;
    *device = (struct nvml_device){.gpu = index};
    int code = nvml->handle((unsigned)index, &gpu);
    if (code != NVML_SUCCESS)
        return refuse(nvml, "a GPU does not answer", code, err);
    if ((code = nvml->uuid(gpu, device->uuid, NVML_UUID_SIZE)) != NVML_SUCCESS)
        return refuse(nvml, "the UUID of a GPU", code, err);
    if ((code = nvml->pci(gpu, &pci)) != NVML_SUCCESS)
        return refuse(nvml, "the address of a GPU", code, err);
    pci.busId[sizeof pci.busId - 1] = 0;
    spell_bus(pci.busId, device->bus);
    return add_instances(nvml, gpu, index, inventory, err);
}

static int read_all(const struct nvml *nvml, struct nvml_inventory *inventory, struct muster_error *err)
{
    unsigned gpus = 0;
    int code = nvml->count(&gpus);
    if (code != NVML_SUCCESS)
        return refuse(nvml, "the number of GPUs", code, err);
    for (unsigned i = 0; i < gpus; i++, inventory->gpus++)
        if (add_gpu(nvml, (int)i, inventory, err) < 0)
            return error_wrap(err, "GPU %u", i);
    return 0;
}

int nvml_read(const char *library, struct nvml_inventory *inventory, struct muster_error *err)
{
    struct nvml nvml = {0};
    *inventory = (struct nvml_inventory){0};
    void *handle = dlopen(library ? library : "libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        return error_set(err, MUSTER_E_NOT_FOUND, "NVML cannot be loaded: %s", dlerror());
    int result = load(handle, &nvml, err);
    if (result == 0) {
        int code = nvml.init();
        if (code != NVML_SUCCESS) {
            result = refuse(&nvml, "it does not start", code, err);
        } else {
            result = read_all(&nvml, inventory, err);
            (void)nvml.shutdown(); /* what was read is read */
        }
    }
    (void)dlclose(handle); /* a library that stays costs nothing */
    return result;
}
