/* schema.h - the shape of a Kubernetes object: its fields and their types.
 *
 * An API server refuses a field of the wrong type and silently drops an unknown one; here a wrong type is
 * a fatal error and an unknown field a warning that names the nearest known one. */
#ifndef MUSTER_LAUNCHER_LOCAL_MANIFEST_SCHEMA_H
#define MUSTER_LAUNCHER_LOCAL_MANIFEST_SCHEMA_H

#include "launcher/local/manifest/problems.h"

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

/* A PyTorchJob of kubeflow.org/v1. */
extern const struct schema pytorchjob_schema;

#endif
