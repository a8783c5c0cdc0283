/* world_variables.h - a rank's environment as the readers of runtime/world see it: a callback, and where
 * errors go. */
#ifndef MUSTER_PROTO_WORLD_WORLD_VARIABLES_H
#define MUSTER_PROTO_WORLD_WORLD_VARIABLES_H

#include <stdint.h>

#include "proto/include/muster_error.h"

struct world_variables {
    const char *(*get)(void *context, const char *name);
    void *context;
    struct muster_error *err;
};

/* NULL if it is not set or empty. */
const char *world_text(const struct world_variables *v, const char *name);
/* *value stays if the variable is not set; -1 with MUSTER_E_INVALID if it is no number from low to high. */
int world_number(const struct world_variables *v, const char *name, int64_t low, int64_t high,
                 int64_t *value);

#endif
