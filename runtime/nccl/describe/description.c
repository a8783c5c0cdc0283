/* description.c - creation and release of a description, and simple queries on it. */
#include "runtime/nccl/describe/description.h"

#include <stdio.h>
#include <string.h>

#include "proto/base/mem.h"
#include "runtime/nccl/describe/description_table.h"

static void free_lists(const struct description_field *fields, size_t count, void *record)
{
    for (size_t i = 0; i < count; i++) {
        const struct description_field *field = &fields[i];
        if (field->type != DESCRIPTION_FIELD_LIST)
            continue;
        char **items = (char **)((char *)record + field->offset);
        int *length = (int *)((char *)record + field->count_offset);
        for (int k = 0; *items && k < *length; k++)
            free_lists(field->table->fields, field->table->count, *items + (size_t)k * field->table->size);
        mem_free(*items);
        *items = NULL;
        *length = 0;
    }
}

void description_record_init(const struct description_table *table, void *record)
{
    memset(record, 0, table->size);
    for (size_t i = 0; i < table->count; i++) {
        const struct description_field *field = &table->fields[i];
        void *at = (char *)record + field->offset;
        switch (field->type) {
        case DESCRIPTION_FIELD_INT:
        case DESCRIPTION_FIELD_NAME: /* an enum has an int's size here */
            *(int *)at = (int)field->unknown;
            break;
        case DESCRIPTION_FIELD_INT64:
            *(int64_t *)at = field->unknown;
            break;
        case DESCRIPTION_FIELD_FLAG:
            *(enum description_flag *)at = DESCRIPTION_UNKNOWN;
            break;
        default: /* zero, "" and an empty list mean unknown */
            break;
        }
    }
}

void description_init(struct description *description)
{
    description_record_init(description_table(), description);
    description->version = DESCRIPTION_VERSION;
    description->sys_mounted = true;
    (void)snprintf(description->visible_devices, sizeof description->visible_devices, "-");
}

void description_free(struct description *description)
{
    const struct description_table *table = description_table();
    free_lists(table->fields, table->count, description);
    memset(description, 0, sizeof *description);
}

const struct description_setting *description_setting_of(const struct description *description,
                                                         const char *name)
{
    for (int i = 0; i < description->setting_count; i++)
        if (!strcmp(description->settings[i].name, name))
            return &description->settings[i];
    return NULL;
}

const char *description_distance_name(enum description_distance distance)
{
    static const char *const names[] = {"X", "NV", "PIX", "PXB", "PHB", "NODE", "SYS", "?"};
    return distance <= DESCRIPTION_DISTANCE_UNKNOWN ? names[distance] : "?";
}

int description_version(const char *text)
{
    int major, minor, patch = 0, end = 0;
    if (sscanf(text, "%2d.%2d%n.%2d%n", &major, &minor, &end, &patch, &end) < 2 || major < 0 || minor < 0 ||
        patch < 0 || (text[end] && text[end] != '+' && text[end] != '-'))
        return 0;
    return major * 10000 + minor * 100 + patch;
}
