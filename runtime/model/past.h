/* past.h - the keys and values of earlier positions, which attention keeps so that a forward pass takes the
 * new positions alone (a KV cache). Of float kernels in memory that the host reaches; for one sequence. */
#ifndef MUSTER_RUNTIME_MODEL_PAST_H
#define MUSTER_RUNTIME_MODEL_PAST_H

#include "runtime/model/operation.h"

struct layer_past {
    int at;        /* positions that are kept: the pass's first one is number `at` */
    int room;      /* most positions */
    float *cache;  /* model_past_bytes: for each attention in the order of execution its keys, then values */
    int64_t taken; /* floats of the cache that the attentions of this pass before this one have */
    float *scores; /* (room): scratch */
};

/* Bytes of cache and scores for so many positions, scores first; -1: the model has an operation that mixes
 * positions and is not causal attention, so that nothing can be kept. */
int64_t model_past_bytes(const struct model *model, int room);

/* These operations' forward passes where layer_context.past is not NULL: rows are positions at, at + 1, ...
 */
void past_rotary(const struct operation_call *call);
void past_attention(const struct operation_call *call);

#endif
