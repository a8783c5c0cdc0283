/* attention_call.cuh - a call of attention is checked on the host, and becomes its kernels' argument. */
#ifndef MUSTER_KERNELS_CUDA_ATTENTION_CALL_CUH
#define MUSTER_KERNELS_CUDA_ATTENTION_CALL_CUH

#include <math.h>

#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/check.h"

/* May the rows be read 16 bytes at a time? NULL: it is not read. */
static inline int attention_aligned(const void *p, int64_t row)
{
    return (uintptr_t)p % sizeof(float4) == 0 && row % 4 == 0;
}

/* dout NULL: forward. Sizes that are no attention are MUSTER_E_INVALID. */
static inline int attention_call_make(struct attention_call *call, const char *operation,
                                      const struct attention *a, const void *q, const void *k, const void *v,
                                      const void *dout, struct muster_error *err)
{
    CUDA_CHECK_SIZE(operation, a->B, err);
    CUDA_CHECK_SIZE(operation, a->T, err);
    CUDA_CHECK_SIZE(operation, a->heads, err);
    if (a->head_size < 1 || a->kv_heads < 1 || a->heads % a->kv_heads != 0)
        return error_set(
            err, MUSTER_E_INVALID,
            "%s: head_size is %d, kv_heads %d and heads %d; they must be 1 or more, and kv_heads "
            "divide heads",
            operation, a->head_size, a->kv_heads, a->heads);
    const int64_t out_row = (int64_t)a->heads * a->head_size;
    *call = {};
    call->q = (const float *)q;
    call->k = (const float *)k;
    call->v = (const float *)v;
    call->dout = (const float *)dout;
    call->lengths = a->lengths;
    call->positions = a->causal ? a->positions : nullptr;
    call->q_row = a->q_row;
    call->k_row = a->k_row;
    call->v_row = a->v_row;
    call->out_row = out_row;
    call->B = a->B;
    call->T = a->T;
    call->heads = a->heads;
    call->kv_heads = a->kv_heads;
    call->HS = a->head_size;
    call->causal = a->causal;
    call->window = a->window < a->T ? a->window : 0; /* all are within a longer one */
    call->cap = (float)a->cap;
    call->scale = a->scale != 0 ? (float)a->scale : 1.0f / sqrtf((float)a->head_size);
    call->vectors = a->head_size % 4 == 0 && attention_aligned(q, a->q_row) &&
                    attention_aligned(k, a->k_row) && attention_aligned(v, a->v_row) &&
                    attention_aligned(dout, out_row);
    return 0;
}

#endif
