/* fake_nvml.c - a libnvidia-ml.so for tests, described by the variable FAKE_NVML: UUIDs of GPUs separated by
 * spaces, a GPU's MIG instances behind it with a plus each ("GPU-a GPU-b+MIG-1+MIG-2"); "fail" for a driver
 * that refuses, "hang" for one that blocks for ever, "crash" for one that ends its process. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, NOT_SUPPORTED = 3, NOT_FOUND = 6, DRIVER_NOT_LOADED = 9, UUID_SIZE = 96, DEVICES = 32 };

struct fake_device {
    char uuid[UUID_SIZE];
    int gpu, instance; /* instance: -1 for the whole */
};

static struct fake_device devices[DEVICES];
static int device_count, gpu_count;

struct pci_info {
    char legacy[16];
    unsigned numbers[5];
    char bus[32];
};

#define EXPORT __attribute__((visibility("default")))
EXPORT int nvmlInit_v2(void);
EXPORT int nvmlShutdown(void);
EXPORT const char *nvmlErrorString(int code);
EXPORT int nvmlDeviceGetCount_v2(unsigned *count);
EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct fake_device **device);
EXPORT int nvmlDeviceGetUUID(struct fake_device *device, char *out, unsigned size);
EXPORT int nvmlDeviceGetPciInfo_v3(struct fake_device *device, struct pci_info *out);
EXPORT int nvmlDeviceGetMaxMigDeviceCount(struct fake_device *device, unsigned *count);
EXPORT int nvmlDeviceGetMigDeviceHandleByIndex(struct fake_device *device, unsigned index,
                                               struct fake_device **out);

int nvmlInit_v2(void)
{
    const char *text = getenv("FAKE_NVML");
    device_count = gpu_count = 0;
    if (!text || !strcmp(text, "fail"))
        return DRIVER_NOT_LOADED;
    if (!strcmp(text, "crash"))
        (void)raise(SIGKILL);
    while (!strcmp(text, "hang"))
        (void)pause();
    int instance = -1;
    for (const char *at = text; *at && device_count < DEVICES;) {
        size_t length = strcspn(at, " +");
        struct fake_device *device = &devices[device_count++];
        (void)snprintf(device->uuid, sizeof device->uuid, "%.*s", (int)length, at);
        if (instance < 0)
            gpu_count++;
        device->gpu = gpu_count - 1;
        device->instance = instance;
        at += length;
        instance = *at == '+' ? instance + 2 : -1; /* numbers with gaps, as real ones have */
        at += *at != 0;
    }
    return SUCCESS;
}

int nvmlShutdown(void)
{
    return SUCCESS;
}

const char *nvmlErrorString(int code)
{
    return code == DRIVER_NOT_LOADED ? "Driver Not Loaded" : "Unknown Error";
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
    *count = (unsigned)gpu_count;
    return SUCCESS;
}

static int find(int gpu, int instance, struct fake_device **out)
{
    for (int i = 0; i < device_count; i++)
        if (devices[i].gpu == gpu && devices[i].instance == instance) {
            *out = &devices[i];
            return SUCCESS;
        }
    return NOT_FOUND;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct fake_device **device)
{
    return find((int)index, -1, device);
}

int nvmlDeviceGetUUID(struct fake_device *device, char *out, unsigned size)
{
    (void)snprintf(out, size, "%s", device->uuid);
    return SUCCESS;
}

int nvmlDeviceGetPciInfo_v3(struct fake_device *device, struct pci_info *out)
{
    (void)snprintf(out->bus, sizeof out->bus, "00000000:%02X:00.0", 0x3A + device->gpu);
    return SUCCESS;
}

int nvmlDeviceGetMaxMigDeviceCount(struct fake_device *device, unsigned *count)
{
    (void)device;
    *count = 8;
    return SUCCESS;
}

int nvmlDeviceGetMigDeviceHandleByIndex(struct fake_device *device, unsigned index, struct fake_device **out)
{
    return find(device->gpu, (int)index, out);
}
