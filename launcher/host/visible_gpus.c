/* visible_gpus.c - see visible_gpus.h. */
#include "launcher/host/visible_gpus.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launcher/host/isolated_call.h"
#include "proto/base/clock.h"
#include "proto/base/error.h"
#include "proto/env_names.h"

static const int64_t patience_ns =
    20 * NS_PER_S; /* a driver that has to wake eight sleeping GPUs takes seconds */

enum { NONE = -1 };

static int find_index(const struct nvml_inventory *all, const char *text)
{
    char *end;
    long index = strtol(text, &end, 10); /* like CUDA, which does not look behind the number */
    for (int i = 0; end != text && i < all->count; i++)
        if (!all->devices[i].mig && all->devices[i].gpu == index)
            return i;
    return NONE;
}

/* The one device whose UUID begins with the text. */
static int find_uuid(const struct nvml_inventory *all, const char *text, size_t length)
{
    int found = NONE;
    for (int i = 0; i < all->count; i++) {
        if (strncmp(all->devices[i].uuid, text, length))
            continue;
        if (strlen(all->devices[i].uuid) == length)
            return i;
        if (found != NONE)
            return NONE;
        found = i;
    }
    return found;
}

static int find_device(const struct nvml_inventory *all, const char *text, size_t length)
{
    enum { PREFIX = 4 };
    if (length && text[0] >= '0' && text[0] <= '9')
        return find_index(all, text);
    bool named = length > PREFIX && (!strncmp(text, "GPU-", PREFIX) || !strncmp(text, "MIG-", PREFIX));
    return named ? find_uuid(all, text, length) : NONE;
}

static int all_devices(const struct nvml_inventory *all, int devices[NVML_DEVICES_LIMIT])
{
    int count = 0;
    for (int i = 0; i < all->count; i++)
        if (!all->devices[i].divided)
            devices[count++] = i;
    return count;
}

int visible_gpus(const struct nvml_inventory *all, const char *visible_devices,
                 int devices[NVML_DEVICES_LIMIT])
{
    int count = 0;
    if (!visible_devices)
        return all_devices(all, devices);
    for (const char *at = visible_devices;; at++) {
        at += strspn(at, " ");
        size_t entry = strcspn(at, ","), length = entry;
        while (length && at[length - 1] == ' ')
            length--;
        int device = find_device(all, at, length);
        if (device == NONE)
            return count;
        for (int i = 0; i < count; i++)
            if (devices[i] == device)
                return 0;
        devices[count++] = device; /* no device twice: never more than there are */
        at += entry;
        if (!*at)
            return count;
    }
}

bool visible_gpus_have_driver(void)
{
    const char *library = getenv(ENV_NVML_LIBRARY);
    return (library && *library) || access("/dev/nvidiactl", F_OK) == 0 || access("/dev/dxg", F_OK) == 0;
}

static int ask(void *context, void *result, struct muster_error *err)
{
    return nvml_read(context, result, err);
}

int visible_gpus_read(struct nvml_inventory *all, struct muster_error *err)
{
    char *library = getenv(ENV_NVML_LIBRARY);
    return isolated_call(ask, library && *library ? library : NULL, all, sizeof *all, patience_ns,
                         "NVML (the NVIDIA driver)", err);
}
