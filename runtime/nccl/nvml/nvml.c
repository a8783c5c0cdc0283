/* nvml.c - see nvml.h. */
#include "runtime/nccl/nvml/nvml.h"

#include <string.h>

#include "proto/base/error.h"
#include "runtime/nccl/nvml/nvml_library.h"

static int refuse(const struct nvml_library *nvml, const char *what, int code, struct muster_error *err)
{
    char words[128];
    return error_set(err, MUSTER_E_IO, "NVML: %s: %s", what, nvml_words(nvml, code, words, sizeof words));
}

static struct nvml_device *add(struct nvml_inventory *inventory, struct muster_error *err)
{
    if (inventory->count < NVML_DEVICES_LIMIT)
        return &inventory->devices[inventory->count++];
    (void)error_set(err, MUSTER_E_LIMIT, "NVML lists more than %d GPUs and MIG instances",
                    NVML_DEVICES_LIMIT);
    return NULL;
}

/* The instances of a GPU; none if the driver or the GPU does not support MIG. Instance numbers have gaps. */
static int add_instances(const struct nvml_library *nvml, nvmlDevice_t gpu, int index,
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

static int add_gpu(const struct nvml_library *nvml, int index, struct nvml_inventory *inventory,
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
        return refuse(nvml, "a GPU that does not respond", code, err);
    if ((code = nvml->uuid(gpu, device->uuid, NVML_UUID_SIZE)) != NVML_SUCCESS)
        return refuse(nvml, "the UUID of a GPU", code, err);
    if ((code = nvml->pci(gpu, &pci)) != NVML_SUCCESS)
        return refuse(nvml, "the address of a GPU", code, err);
    pci.busId[sizeof pci.busId - 1] = 0;
    nvml_spell_bus(pci.busId, device->bus, sizeof device->bus);
    return add_instances(nvml, gpu, index, inventory, err);
}

static int read_all(const struct nvml_library *nvml, struct nvml_inventory *inventory,
                    struct muster_error *err)
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
    struct nvml_library nvml;
    *inventory = (struct nvml_inventory){0};
    if (nvml_open(library, &nvml, err) < 0)
        return -1;
    int result = read_all(&nvml, inventory, err);
    nvml_close(&nvml);
    return result;
}
