/* gpt_layers.h - the three kinds of layer of GPT-2, for gpt.c and its tests. */
#ifndef MUSTER_RUNTIME_MODEL_GPT_LAYERS_H
#define MUSTER_RUNTIME_MODEL_GPT_LAYERS_H

#include "runtime/model/gpt.h"

/* Order of a layer's parameters (layer_desc.param). */
enum gpt_embedding_param { EMBEDDING_WTE, EMBEDDING_WPE, EMBEDDING_PARAMS };
enum gpt_block_param {
    BLOCK_LN1_WEIGHT,
    BLOCK_LN1_BIAS,
    BLOCK_QKV_WEIGHT,
    BLOCK_QKV_BIAS,
    BLOCK_PROJ_WEIGHT,
    BLOCK_PROJ_BIAS,
    BLOCK_LN2_WEIGHT,
    BLOCK_LN2_BIAS,
    BLOCK_FC_WEIGHT,
    BLOCK_FC_BIAS,
    BLOCK_OUT_WEIGHT,
    BLOCK_OUT_BIAS,
    BLOCK_PARAMS
};
enum gpt_head_param { HEAD_LN_WEIGHT, HEAD_LN_BIAS, HEAD_WTE, HEAD_PARAMS };

#define GPT_NORM_EPSILON 1e-5 /* of its layer norms */

extern const struct layer_ops gpt_embedding_ops, gpt_block_ops, gpt_head_ops;

/* Rows of logits that the head forms at a time: so many that a chunk stays below 64 MB. */
int gpt_head_rows(int N, int vocab, enum dtype dtype);

/* Memory is cut into pieces of 64 bytes' multiples. A NULL base counts bytes only. */
struct carve {
    char *base;
    int64_t used;
};
static inline void *carve_bytes(struct carve *carve, int64_t bytes)
{
    void *at = carve->base ? carve->base + carve->used : NULL;
    carve->used += (bytes + 63) / 64 * 64;
    return at;
}

#endif
