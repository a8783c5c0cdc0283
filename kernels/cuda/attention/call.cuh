/* call.cuh - a call of attention is checked on the host, and becomes its kernels' argument; and which keys a
 * query sees. */
#ifndef MUSTER_KERNELS_CUDA_ATTENTION_CALL_CUH
#define MUSTER_KERNELS_CUDA_ATTENTION_CALL_CUH

#include <math.h>

#include "kernels/cuda/check.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/values.cuh"
#include "kernels/kernels.h"

/* Passed to the kernels by value. Rows of q, k, v (and of dq, dk, dv) lie a stride of the call apart, in
 * elements. The type of the values is the kernel's. */
struct attention_call {
    const void *q, *k, *v, *dout;
    const float *lse;
    const int32_t *lengths, *positions; /* positions NULL: a sequence is one document */
    int64_t q_row, k_row, v_row, out_row;
    int B, T, heads, kv_heads, HS, causal;
    int window;       /* 0: none */
    int vectors;      /* q, k, v, dout: every row begins at a multiple of 16 bytes and is whole 16 bytes */
    float scale, cap; /* cap 0: none */
};

/* May the rows be read 16 bytes at a time? NULL: it is not read. */
static inline int attention_aligned(const void *p, int64_t row, int vector)
{
    return (uintptr_t)p % 16 == 0 && row % vector == 0;
}

/* dout NULL: forward. `size`: bytes of a value. Sizes that are no attention are MUSTER_E_INVALID. */
static inline int attention_call_make(struct attention_call *call, const char *operation,
                                      const struct attention *a, const void *q, const void *k, const void *v,
                                      const void *dout, size_t size, struct muster_error *err)
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
    const int vector = (int)(16 / size);
    *call = {};
    call->q = q;
    call->k = k;
    call->v = v;
    call->dout = dout;
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
    call->vectors = a->head_size % vector == 0 && attention_aligned(q, a->q_row, vector) &&
                    attention_aligned(k, a->k_row, vector) && attention_aligned(v, a->v_row, vector) &&
                    attention_aligned(dout, out_row, vector);
    return 0;
}

/* Does the kernel by tensor cores take it? */
static inline bool attention_fits_tensor(const struct attention *a)
{
    return a->head_size <= CUDA_ATTENTION_TENSOR_HEAD && !(a->cap > 0) && (a->window <= 0 || a->causal);
}

/* One block's piece: a tile of rows of one head of one sequence, and columns of its result from `chunk` on.
 */
struct attention_item {
    int b, head, first, chunk;
    int length; /* length of the sequence */
    int rows;   /* rows of the tile that are within the sequence; 0: none */
};

/* Some rows of one head; their number ends with the sequence. */
template <typename V> struct attention_rows {
    const V *at;
    int64_t stride;
    int rows;
};

/* The rows of sequence b from position `first` on, at most `most` and none at or beyond `end`; `at`: the
 * head's first column. */
template <typename V>
static __device__ inline struct attention_rows<V> attention_rows_at(const void *base, int64_t stride, int T,
                                                                    int b, int first, int end, int most,
                                                                    int64_t at) {
    const int rows = end - first < 0 ? 0 : end - first < most ? end - first : most;
    return {(const V *)base + ((int64_t)b * T + first) * stride + at, stride, rows};
}

/* The first key that a query of sequence b sees: it is never less than an earlier query's. */
static __device__ inline int
attention_from(const struct attention_call *c, int b, int query)
{
    int from = c->window > 0 && query >= c->window ? query + 1 - c->window : 0;
    if (c->positions && query < c->T) {
        const int own = query - c->positions[(int64_t)b * c->T + query];
        from = own > from ? own : from;
    }
    return from;
}

#endif
