/* past.h - the keys and values of earlier positions, which attention keeps so that a forward pass takes the
 * new positions alone (a KV cache). For one sequence, in memory of the kernels' device. */
#ifndef MUSTER_RUNTIME_MODEL_PAST_H
#define MUSTER_RUNTIME_MODEL_PAST_H

#include "runtime/model/operation.h"

enum { PAST_CHUNK = 64 }; /* most positions of a pass */

struct layer_past {
    int at;        /* positions that are kept: the pass's first one is number `at` */
    int room;      /* most positions */
    void *cache;   /* for each attention in the order of execution its keys, then values */
    int64_t taken; /* bytes of the cache that the attentions of this pass before this one have */
    void *work;    /* of one attention at a time */
};

/* Bytes of cache and work for so many positions, in passes of PAST_CHUNK at most. false: the model has an
 * operation that mixes positions and is not causal attention, so that nothing can be kept. */
struct past_sizes {
    int64_t cache, work;
};
bool model_past_sizes(const struct model *model, const struct kernels *kernels, int room,
                      struct past_sizes *sizes);

/* Attention's forward pass where layer_context.past is not NULL: rows are positions at, at + 1, ... */
void past_attention(const struct operation_call *call, const struct attention *a);

#endif
