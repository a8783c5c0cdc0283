/* schema_search.c - see schema_search.h. */
#include "launcher/local/pod/schema_search.h"

#include <string.h>

enum { DEPTH_LIMIT = 12 };

const struct schema_field *schema_field_find(const struct schema *schema, const char *name)
{
    for (size_t i = 0; i < schema->count; i++)
        if (!strcmp(schema->fields[i].name, name))
            return &schema->fields[i];
    return NULL;
}

/* The way to a place: fields from an object down. */
struct way {
    const struct schema_field *steps[DEPTH_LIMIT];
    int count;
};

/* Objects at exactly this depth are looked into, so that the nearest is found first. */
static bool find_at(const struct schema *schema, const char *name, int depth, struct way *way)
{
    if (depth == 0)
        return schema_field_find(schema, name) != NULL;
    for (size_t i = 0; i < schema->count; i++) {
        const struct schema_field *field = &schema->fields[i];
        if (!field->of)
            continue;
        way->steps[way->count++] = field;
        if (find_at(field->of, name, depth - 1, way))
            return true;
        way->count--;
    }
    return false;
}

bool schema_search(const struct schema_frame *frame, const char *name, struct buffer *place)
{
    for (; frame; frame = frame->up)
        for (int depth = 0; depth < DEPTH_LIMIT; depth++) {
            struct way way = {.count = 0};
            if (!find_at(frame->schema, name, depth, &way))
                continue;
            problems_path(frame->path, place);
            for (int i = 0; i < way.count; i++) {
                enum schema_type type = way.steps[i]->type;
                buffer_printf(place, "%s%s%s", place->length ? "." : "", way.steps[i]->name,
                              type == SCHEMA_OBJECTS      ? "[]"
                              : type == SCHEMA_OBJECT_MAP ? "[<TYPE>]"
                                                          : "");
            }
            buffer_printf(place, "%s%s", place->length ? "." : "", name);
            return true;
        }
    return false;
}
