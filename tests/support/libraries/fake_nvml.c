/* fake_nvml.c - see fake_nvml.h: the functions that every driver has. Alone it is an old driver; with
 * fake_nvml_facts.c a new one. */
#include "tests/support/libraries/fake_nvml.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DRIVER_NOT_LOADED = 9, DEVICES = 64 };

static struct fake_device devices[DEVICES];
static int device_count, gpu_count;
static pthread_mutex_t listing = PTHREAD_MUTEX_INITIALIZER;

EXPORT int nvmlInit_v2(void);
EXPORT int nvmlShutdown(void);
EXPORT const char *nvmlErrorString(int code);
EXPORT int nvmlDeviceGetCount_v2(unsigned *count);
EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct fake_device **device);
EXPORT int nvmlDeviceGetUUID(struct fake_device *device, char *out, unsigned size);
EXPORT int nvmlDeviceGetPciInfo_v3(struct fake_device *device, struct fake_pci *out);
EXPORT int nvmlDeviceGetMaxMigDeviceCount(struct fake_device *device, unsigned *count);
EXPORT int nvmlDeviceGetMigDeviceHandleByIndex(struct fake_device *device, unsigned index,
                                               struct fake_device **out);

/* "WHO.name=value" of FAKE_NVML_FACTS for who or "*" */
static const char *find_fact(const char *who, const char *name, int skip)
{
    const char *facts = getenv("FAKE_NVML_FACTS");
    size_t length = strlen(who), name_length = strlen(name);
    for (const char *at = facts ? facts : ""; *at; at += strspn(at, " ")) {
        size_t token = strcspn(at, " ");
        const char *rest = !strncmp(at, "*.", 2)                            ? at + 2
                           : !strncmp(at, who, length) && at[length] == '.' ? at + length + 1
                                                                            : NULL;
        if (rest && !strncmp(rest, name, name_length) && rest[name_length] == '=' && skip-- == 0)
            return rest + name_length + 1;
        at += token;
    }
    return NULL;
}

const char *fake_fact(const struct fake_device *device, const char *name, int skip)
{
    char who[16];
    (void)snprintf(who, sizeof who, "%d", device->gpu);
    return find_fact(who, name, skip);
}

int fake_number(const struct fake_device *device, const char *name, long long *out)
{
    const char *text = fake_fact(device, name, 0);
    if (!text)
        return FAKE_NOT_SUPPORTED;
    *out = strtoll(text, NULL, 0);
    return FAKE_SUCCESS;
}

int fake_pair_number(const struct fake_device *a, const struct fake_device *b, const char *name,
                     unsigned *out)
{
    char who[32];
    (void)snprintf(who, sizeof who, "%d-%d", a->gpu < b->gpu ? a->gpu : b->gpu,
                   a->gpu < b->gpu ? b->gpu : a->gpu);
    const char *text = find_fact(who, name, 0);
    if (!text)
        return FAKE_NOT_SUPPORTED;
    *out = (unsigned)strtoul(text, NULL, 0);
    return FAKE_SUCCESS;
}

int fake_bus(int gpu)
{
    const char *first = getenv("FAKE_NVML_BUS");
    return (first ? (int)strtol(first, NULL, 16) : 0x3A) + gpu;
}

static int do_code(const char *code)
{
    if (!strncmp(code, "crash", 5))
        (void)raise(SIGKILL);
    while (!strncmp(code, "hang", 4))
        (void)pause();
    return (int)strtol(code, NULL, 10);
}

int fake_enter(const char *function, const struct fake_device *device)
{
    const char *at = getenv("FAKE_NVML_FAIL");
    size_t length = strlen(function);
    long long lost;
    if (device && fake_number(device, "lost", &lost) == FAKE_SUCCESS && lost)
        return FAKE_GPU_IS_LOST;
    for (at = at ? at : ""; *at; at += strspn(at, " ")) {
        size_t token = strcspn(at, " ");
        const char *colon = memchr(at, ':', token);
        const char *gpu = memchr(at, '@', token);
        size_t name = (size_t)((gpu ? gpu : colon ? colon : at) - at);
        if (colon && name == length && !strncmp(at, function, length) &&
            (!gpu || (device && strtol(gpu + 1, NULL, 10) == device->gpu)))
            return do_code(colon + 1);
        at += token;
    }
    return FAKE_SUCCESS;
}

int nvmlInit_v2(void)
{
    const char *text = getenv("FAKE_NVML");
    FAKE_ENTER(NULL);
    if (!text || !strcmp(text, "fail"))
        return DRIVER_NOT_LOADED;
    if (!strcmp(text, "crash") || !strcmp(text, "hang"))
        (void)do_code(text);
    int instance = -1;
    (void)pthread_mutex_lock(&listing); /* NVML may be opened by several threads */
    device_count = gpu_count = 0;
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
    (void)pthread_mutex_unlock(&listing);
    return FAKE_SUCCESS;
}

int nvmlShutdown(void)
{
    return FAKE_SUCCESS;
}

const char *nvmlErrorString(int code)
{
    return code == DRIVER_NOT_LOADED  ? "Driver Not Loaded"
           : code == FAKE_GPU_IS_LOST ? "GPU is lost"
                                      : "Unknown Error";
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
    FAKE_ENTER(NULL);
    *count = (unsigned)gpu_count;
    return FAKE_SUCCESS;
}

static int find(int gpu, int instance, struct fake_device **out)
{
    for (int i = 0; i < device_count; i++)
        if (devices[i].gpu == gpu && devices[i].instance == instance) {
            *out = &devices[i];
            return FAKE_SUCCESS;
        }
    return FAKE_NOT_FOUND;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct fake_device **device)
{
    int code = find((int)index, -1, device);
    if (code == FAKE_SUCCESS)
        FAKE_ENTER(*device);
    return code;
}

int nvmlDeviceGetUUID(struct fake_device *device, char *out, unsigned size)
{
    FAKE_ENTER(device);
    (void)snprintf(out, size, "%s", device->uuid);
    return FAKE_SUCCESS;
}

int nvmlDeviceGetPciInfo_v3(struct fake_device *device, struct fake_pci *out)
{
    FAKE_ENTER(device);
    (void)snprintf(out->bus, sizeof out->bus, "00000000:%02X:00.0", fake_bus(device->gpu));
    return FAKE_SUCCESS;
}

int nvmlDeviceGetMaxMigDeviceCount(struct fake_device *device, unsigned *count)
{
    FAKE_ENTER(device);
    *count = 8;
    return FAKE_SUCCESS;
}

int nvmlDeviceGetMigDeviceHandleByIndex(struct fake_device *device, unsigned index, struct fake_device **out)
{
    FAKE_ENTER(device);
    return find(device->gpu, (int)index, out);
}
