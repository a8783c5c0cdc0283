/* container_sources.h - sources of a variable's value besides a literal: the pod's own fields, its
 * resources, ConfigMaps and Secrets of the same files (pure). */
#ifndef MUSTER_LAUNCHER_LOCAL_POD_CONTAINER_SOURCES_H
#define MUSTER_LAUNCHER_LOCAL_POD_CONTAINER_SOURCES_H

#include "launcher/local/pod/container_env.h"

/* The value of a valueFrom. 1 and *value (owned by the caller); 0 if there is none, which is a fatal
 * problem unless it was optional; -1 without memory. */
int container_source(const struct container_place *place, const struct tree_node *from,
                     const struct path *path, char **value, struct problems *problems,
                     struct muster_error *err);

/* All labels or annotations of the pod as a file of a downwardAPI volume has them: key="value" lines, sorted
 * by key. 1, or 0 where from is a fieldRef to no such map; -1 without memory. */
int container_field_map(const struct container_place *place, const struct tree_node *from,
                        struct buffer *out);

/* Appends what text stands for; false if it is not base64, or has a zero byte and zeros are not allowed. */
bool container_base64(const char *text, bool zeros, struct buffer *out);

/* The data of a ConfigMap or Secret. */
struct container_values {
    const struct document_object *object; /* NULL: there is none */
    const struct tree_node *data;         /* base64 in a Secret */
    const struct tree_node *plain;        /* stringData of a Secret, which takes precedence */
};

/* Looks up the object of a configMapRef or secretRef; kind is "ConfigMap" or "Secret". A missing object that
 * is not optional is a fatal problem. */
void container_values_find(const struct container_place *place, const char *kind, const struct tree_node *ref,
                           const struct path *path, struct container_values *values,
                           struct problems *problems);
size_t container_values_count(const struct container_values *values);
/* The key and value (owned by the caller) of one entry: 1, 0 if it cannot be read (reported), -1 without
 * memory. */
int container_values_at(const struct container_values *values, size_t at, const char **key, char **value,
                        struct problems *problems, struct muster_error *err);

#endif
