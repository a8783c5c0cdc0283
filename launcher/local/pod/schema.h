/* schema.h - the shape of a Kubernetes object: its fields and their types.
 *
 * An API server refuses a field of the wrong type and silently drops an unknown one; here a wrong type is
 * a fatal error and an unknown field a warning that names the nearest known one. */
#ifndef MUSTER_LAUNCHER_LOCAL_POD_SCHEMA_H
#define MUSTER_LAUNCHER_LOCAL_POD_SCHEMA_H

#include "launcher/local/pod/problems.h"

enum schema_type {
    SCHEMA_ANY, /* not looked into */
    SCHEMA_TEXT,
    SCHEMA_BOOL,
    SCHEMA_INT32,
    SCHEMA_INT64,
    SCHEMA_QUANTITY, /* a number, or text such as 500m or 2Gi */
    SCHEMA_OBJECT,   /* of */
    SCHEMA_OBJECTS,  /* a list of them */
    SCHEMA_TEXT_LIST,
    SCHEMA_TEXT_MAP,
    SCHEMA_QUANTITY_MAP,
    SCHEMA_OBJECT_MAP, /* any key, each value of */
};

struct schema;
struct schema_field {
    const char *name;
    enum schema_type type;
    const struct schema *of;
    bool required;
    const char *note; /* not NULL: a feature not emulated, reported once if the field is given */
};
struct schema {
    const struct schema_field *fields;
    size_t count;
};

/* Checks a mapping against a schema, everything below it included. */
void schema_check(const struct schema *schema, const char *file, const struct tree_node *node,
                  const struct path *path, struct problems *problems);

/* An integer field of a map that was checked; otherwise, where it is absent or of the wrong type. */
int64_t schema_integer(const struct tree_node *map, const char *field, int64_t otherwise);

/* A pod template, and the metadata of an object. */
extern const struct schema pod_template_schema, object_metadata_schema;

/* Rows of a table of fields. */
#define SCHEMA_ROW(name, type)                                                                               \
    {                                                                                                        \
        name, SCHEMA_##type, NULL, false, NULL                                                               \
    }
#define SCHEMA_OF(name, type, of)                                                                            \
    {                                                                                                        \
        name, SCHEMA_##type, of, false, NULL                                                                 \
    }
#define SCHEMA_NEEDED(name, type, of)                                                                        \
    {                                                                                                        \
        name, SCHEMA_##type, of, true, NULL                                                                  \
    }
#define SCHEMA_NOTED(name, type, of, note)                                                                   \
    {                                                                                                        \
        name, SCHEMA_##type, of, false, note                                                                 \
    }
#define SCHEMA_FIELDS(table, ...)                                                                            \
    static const struct schema_field table##_fields[] = {__VA_ARGS__};                                       \
    static const struct schema table = {table##_fields, sizeof table##_fields / sizeof *table##_fields}

#endif
