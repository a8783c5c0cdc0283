/* rope.h - rotary positions from config.json. Pure. */
#ifndef MUSTER_RUNTIME_PAGES_ROPE_H
#define MUSTER_RUNTIME_PAGES_ROPE_H

#include <jansson.h>

#include "kernels/kernels.h"

enum { ROPE_LISTS = 1024 }; /* factors of a head's pairs, of short and of long sequences */

/* The properties of a family of models. Texts and config live as long as the call. */
struct rope_source {
    const json_t *config;
    int head, positions;     /* elements of a head; max_position_embeddings */
    double theta;            /* where the file names none */
    const char *theta_key;   /* its name next to the sizes */
    double partial;          /* part of a head that turns, where the file names none; 0: it has to be 1 */
    const char *partial_key; /* its name next to the sizes */
    const char *part;  /* the type of layers, in families that have one object for each; NULL: one for all */
    int original;      /* family's own original_max_position_embeddings; 0: none */
    const char *kinds; /* words: the types that the family takes; NULL: all */
};

/* rotary->lists is `lists`, of ROPE_LISTS numbers, where the type has lists. `refused` gets the first key
 * that is wrong, and returns -1. */
int rope_read(const struct rope_source *source, struct rotary *rotary, double *lists,
              int (*refused)(void *context, const char *key, const json_t *value, const char *works),
              void *context);

#endif
