/* schema_search.h - finds the place where a field of a name belongs (pure). */
#ifndef MUSTER_LAUNCHER_LOCAL_POD_SCHEMA_SEARCH_H
#define MUSTER_LAUNCHER_LOCAL_POD_SCHEMA_SEARCH_H

#include "launcher/local/pod/schema.h"
#include "proto/base/buffer.h"

/* The objects from the root down to the one in which an unknown field was found. */
struct schema_frame {
    const struct schema_frame *up;
    const struct schema *schema;
    const struct path *path;
};

/* The field of this name in a schema, or NULL. */
const struct schema_field *schema_field_find(const struct schema *schema, const char *name);
/* Appends the nearest place of a field of this name: below the object first, then below the ones above it;
 * "spec.runPolicy.cleanPodPolicy". False: no object of the whole has such a field. */
bool schema_search(const struct schema_frame *frame, const char *name, struct buffer *place);

#endif
