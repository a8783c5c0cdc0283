/* batch_source.h - where the samples of a batch come from: texts, or pictures. */
#ifndef MUSTER_RUNTIME_APP_BATCH_SOURCE_H
#define MUSTER_RUNTIME_APP_BATCH_SOURCE_H

#include "runtime/data/data.h"
#include "runtime/pictures/pictures.h"

struct batch_source {
    const void *from;   /* outlives it; only read, by any thread */
    size_t input_bytes; /* of a sample: what the model reads */
    int64_t targets;    /* of a sample: i32 */
    int64_t samples;    /* of an epoch */
    /* Sample g of the run. Returns how many of its targets count; -1 on error. */
    int (*read)(const struct batch_source *source, uint64_t g, void *input, int32_t *targets,
                struct muster_error *err);
};

struct batch_source batch_source_texts(const struct data *data, int positions);
struct batch_source batch_source_pictures(const struct pictures *pictures);

#endif
