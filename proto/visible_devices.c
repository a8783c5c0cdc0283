/* visible_devices.c - see visible_devices.h. */
#include "proto/visible_devices.h"

#include <stdlib.h>
#include <string.h>

enum { NONE = -1, PREFIX = 4 };

int visible_devices_count(const char *list)
{
    int count = 1;
    for (; *list; list++)
        count += *list == ',';
    return count;
}

const char *visible_devices_entry(const char *list, int index, size_t *length)
{
    for (; index > 0; index--) {
        list += strcspn(list, ",");
        if (!*list++)
            return NULL;
    }
    list += strspn(list, " ");
    *length = strcspn(list, ",");
    while (*length && list[*length - 1] == ' ')
        --*length;
    return list;
}

static int find_number(const struct visible_device *devices, int count, const char *text)
{
    long number = strtol(text, NULL, 10); /* like CUDA, which ignores text after the number */
    for (int i = 0; i < count; i++)
        if (!devices[i].mig && devices[i].gpu == number)
            return i;
    return NONE;
}

/* The one device whose UUID begins with the text; else a device whose UUID is not known, and that is free. */
static int find_uuid(const struct visible_device *devices, int count, const char *text, size_t length,
                     const int *chosen, int chosen_count)
{
    bool mig = text[0] == 'M';
    int found = NONE, unknown = NONE;
    for (int i = 0; i < count; i++) {
        const char *uuid = devices[i].uuid;
        if (!uuid) {
            bool free = devices[i].mig == mig;
            for (int k = 0; k < chosen_count; k++)
                free &= chosen[k] != i;
            unknown = unknown == NONE && free ? i : unknown;
            continue;
        }
        if (strncmp(uuid, text, length))
            continue;
        if (strlen(uuid) == length)
            return i;
        if (found != NONE)
            return NONE;
        found = i;
    }
    return found != NONE ? found : unknown;
}

static int choose_all(const struct visible_device *devices, int count, int *chosen)
{
    int all = 0;
    for (int i = 0; i < count; i++)
        if (!devices[i].divided)
            chosen[all++] = i;
    return all;
}

int visible_devices_choose(const struct visible_device *devices, int count, const char *list, int *chosen)
{
    size_t length;
    int taken = 0;
    if (!list)
        return choose_all(devices, count, chosen);
    for (int index = 0;; index++) {
        const char *entry = visible_devices_entry(list, index, &length);
        int device = NONE;
        if (entry && length && *entry >= '0' && *entry <= '9')
            device = find_number(devices, count, entry);
        else if (entry && length > PREFIX &&
                 (!strncmp(entry, "GPU-", PREFIX) || !strncmp(entry, "MIG-", PREFIX)))
            device = find_uuid(devices, count, entry, length, chosen, taken);
        if (device == NONE)
            return taken;
        for (int i = 0; i < taken; i++)
            if (chosen[i] == device)
                return 0;
        chosen[taken++] = device; /* no device twice: never more than there are */
    }
}
