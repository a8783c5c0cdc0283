/* schema.h - the shape of a Kubernetes object: its fields, their types and their effect here.
 *
 * An API server refuses a field of the wrong type and silently drops an unknown one; here a wrong type is
 * a fatal error and an unknown field a warning. The advice follows the value and the name: a place that a
 * template engine did not fill, a field whose place is elsewhere, a near spelling, a newer release. */
#ifndef MUSTER_LAUNCHER_LOCAL_POD_SCHEMA_H
#define MUSTER_LAUNCHER_LOCAL_POD_SCHEMA_H

#include "launcher/local/pod/problems.h"
#include "proto/base/buffer.h"

enum schema_type {
    SCHEMA_ANY, /* not looked into */
    SCHEMA_TEXT,
    SCHEMA_NAME,  /* text in which no variable is ever expanded: the name of an object, a path */
    SCHEMA_VALUE, /* text in which $(NAME) alone is expanded: the value of a variable */
    SCHEMA_IMAGE, /* the same of an image, which is not used here */
    SCHEMA_BOOL,
    SCHEMA_INT32,
    SCHEMA_INT64,
    SCHEMA_QUANTITY, /* a number, or text such as 500m or 2Gi */
    SCHEMA_OBJECT,   /* its fields are in `of` */
    SCHEMA_OBJECTS,  /* a list of them */
    SCHEMA_TEXT_LIST,
    SCHEMA_TEXT_MAP,
    SCHEMA_QUANTITY_MAP,
    SCHEMA_OBJECT_MAP, /* any key, each value of */
};

/* The effect of a field on the pods here. A field that changes a pod's result is applied or refused. */
enum schema_effect {
    SCHEMA_APPLIED,
    SCHEMA_HARMLESS, /* it concerns a cluster alone: scheduling, pulling of images, accounts */
    SCHEMA_UNUSED,   /* not emulated, and noted once if it is given: why */
    SCHEMA_NAMED,    /* not emulated, and noted by its name where a pod uses it */
    SCHEMA_REFUSED,  /* not emulated, and an error: the pods would end otherwise than in a cluster */
};

struct schema;
struct schema_field {
    const char *name;
    enum schema_type type;
    const struct schema *of;
    bool required;
    enum schema_effect effect;
    const char *why;     /* for UNUSED and REFUSED */
    const char *choices; /* texts: "Never OnFailure", the values that the API takes; NULL: any */
};
struct schema {
    const struct schema_field *fields;
    size_t count;
    const char *release; /* objects: "JobSet 0.12", the newest whose fields are known; NULL: a part */
};

/* Checks a mapping against a schema, everything below it included. */
void schema_check(const struct schema *schema, const char *file, const struct tree_node *node,
                  const struct path *path, struct problems *problems);

/* An integer field of a map that was checked; otherwise, where it is absent or of the wrong type. */
int64_t schema_integer(const struct tree_node *map, const char *field, int64_t otherwise);

/* A pod template, and the metadata of an object. */
extern const struct schema pod_template_schema, object_metadata_schema;
/* A variable, a volume and a mount, for objects that patch a template. */
extern const struct schema pod_env_schema, pod_volume_schema, pod_volume_mount_schema;

/* Rows of a table of fields. */
#define SCHEMA_ROW(name, type)                                                                               \
    {                                                                                                        \
        name, SCHEMA_##type, NULL, false, SCHEMA_APPLIED, NULL, NULL                                         \
    }
#define SCHEMA_OF(name, type, of)                                                                            \
    {                                                                                                        \
        name, SCHEMA_##type, of, false, SCHEMA_APPLIED, NULL, NULL                                           \
    }
#define SCHEMA_NEEDED(name, type, of)                                                                        \
    {                                                                                                        \
        name, SCHEMA_##type, of, true, SCHEMA_APPLIED, NULL, NULL                                            \
    }
#define SCHEMA_CHOICE(name, choices)                                                                         \
    {                                                                                                        \
        name, SCHEMA_NAME, NULL, false, SCHEMA_APPLIED, NULL, choices                                        \
    }
#define SCHEMA_IDLE(name, type)                                                                              \
    {                                                                                                        \
        name, SCHEMA_##type, NULL, false, SCHEMA_HARMLESS, NULL, NULL                                        \
    }
#define SCHEMA_NOTED(name, type, of, why)                                                                    \
    {                                                                                                        \
        name, SCHEMA_##type, of, false, SCHEMA_UNUSED, why, NULL                                             \
    }
#define SCHEMA_BY_NAME(name)                                                                                 \
    {                                                                                                        \
        name, SCHEMA_ANY, NULL, false, SCHEMA_NAMED, NULL, NULL                                              \
    }
#define SCHEMA_REFUSE(name, type, of, why)                                                                   \
    {                                                                                                        \
        name, SCHEMA_##type, of, false, SCHEMA_REFUSED, why, NULL                                            \
    }
#define SCHEMA_FIELDS(table, ...)                                                                            \
    static const struct schema_field table##_fields[] = {__VA_ARGS__};                                       \
    static const struct schema table = {table##_fields, sizeof table##_fields / sizeof *table##_fields, NULL}

/* --- searching ---
 *
 * Finds the place where a field of a name belongs (pure). */

/* The objects from the root down to the one in which an unknown field was found. */
struct schema_frame {
    const struct schema_frame *up;
    const struct schema *schema;
    const struct path *path;
};

/* The field of this name in a schema, or NULL. */
const struct schema_field *schema_field_find(const struct schema *schema, const char *name);

#endif
