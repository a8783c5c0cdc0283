/* tensor_forward.cu - plain_forward.cu's algorithm by tensor cores (tensor.cuh), in tf32, bf16 and f16: a
 * block takes the keys of its 64 queries R at a time and keeps maximum and sum of the exponentials so far. */
#include "kernels/cuda/attention/narrow.h"
#include "kernels/cuda/attention/tensor.cuh"
#include "kernels/cuda/check.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/operations.h"

enum { TENSOR_LANE_ROWS = 2 }; /* g and g + 8 */

template <typename M, int D, int R> struct tensor_forward_shared {
    tensor_line<M, D> k[R], v[R];
};

/* Running sums of this lane's two rows. Exponentials are of base 2, so the maximum is of scores * log2(e). */
template <int D> struct tensor_softmax {
    float maximum[TENSOR_LANE_ROWS], sum[TENSOR_LANE_ROWS], out[D / TENSOR_COLUMNS][4];
};

/* Over the four lanes that share a row; the whole warp calls. */
static __device__ inline float tensor_row_max(float value)
{
    value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, 1));
    return fmaxf(value, __shfl_xor_sync(0xffffffffu, value, 2));
}
static __device__ inline float tensor_row_sum(float value)
{
    value += __shfl_xor_sync(0xffffffffu, value, 1);
    return value + __shfl_xor_sync(0xffffffffu, value, 2);
}

/* Scores of R more keys, from `key` on of `keys` that are seen, become their exponentials. */
template <int D, int R>
static __device__ void tensor_add_scores(struct tensor_softmax<D> *so_far,
                                         float scores[R / TENSOR_COLUMNS][4], const struct attention_call *c,
                                         const struct attention_item *item, int key, int keys, float scale)
{
    float largest[TENSOR_LANE_ROWS] = {-INFINITY, -INFINITY}, sum[TENSOR_LANE_ROWS] = {};
    CUDA_EACH (n, 0, R / TENSOR_COLUMNS)
        CUDA_EACH (i, 0, 4)
            scores[n][i] *= scale;
    const int last = item->first + TENSOR_ROWS - 1;
    if (key + R > (c->causal ? item->first + 1 : keys) ||
        key <
            attention_from(c, item->b, last < c->T ? last : c->T - 1)) { /* a row does not see some of them */
        int from[TENSOR_LANE_ROWS];
        CUDA_EACH (row, 0, TENSOR_LANE_ROWS)
            from[row] = attention_from(c, item->b, item->first + tensor_row(2 * row));
        CUDA_EACH (n, 0, R / TENSOR_COLUMNS)
            CUDA_EACH (i, 0, 4) {
                int at = key + n * TENSOR_COLUMNS + tensor_column(i);
                if (at >= keys || (c->causal && at > item->first + tensor_row(i)) || at < from[i / 2])
                    scores[n][i] = -INFINITY;
            }
    }
    CUDA_EACH (n, 0, R / TENSOR_COLUMNS)
        CUDA_EACH (i, 0, 4)
            largest[i / 2] = fmaxf(largest[i / 2], scores[n][i]);
    CUDA_EACH (row, 0, TENSOR_LANE_ROWS) {
        largest[row] = fmaxf(so_far->maximum[row], tensor_row_max(largest[row]));
        /* -INFINITY: a later key is the first that the row sees */
        const float base = largest[row] == -INFINITY ? 0.0f : largest[row];
        CUDA_EACH (n, 0, R / TENSOR_COLUMNS)
            CUDA_EACH (i, 2 * row, 2 * row + 2) {
                scores[n][i] = exp2f(scores[n][i] - base);
                sum[row] += scores[n][i];
            }
        float before = exp2f(so_far->maximum[row] - base);
        so_far->maximum[row] = largest[row];
        so_far->sum[row] = so_far->sum[row] * before + tensor_row_sum(sum[row]);
        CUDA_EACH (n, 0, D / TENSOR_COLUMNS)
            CUDA_EACH (i, 2 * row, 2 * row + 2)
                so_far->out[n][i] *= before;
    }
}

/* out and lse of the block's queries; positions after a sequence's end get 0. */
template <typename M, int D>
static __device__ void tensor_finish(struct tensor_softmax<D> *result, typename M::value *out, float *lse,
                                     const struct attention_call *c, const struct attention_item *item)
{
    CUDA_EACH (row, 0, TENSOR_LANE_ROWS) {
        int t = item->first + tensor_row(2 * row);
        bool there = tensor_row(2 * row) < item->rows;
        CUDA_EACH (n, 0, D / TENSOR_COLUMNS)
            CUDA_EACH (i, 2 * row, 2 * row + 2)
                result->out[n][i] /= result->sum[row];
        if (t < c->T && tensor_t() == 0)
            lse[((int64_t)item->b * c->heads + item->head) * c->T + t] =
                there ? (result->maximum[row] + log2f(result->sum[row])) * 0.693147180559945309f : 0.0f;
    }
    tensor_store<M, D>(out, c->out_row, result->out, 0, c, item);
}

template <typename M, int D, int R>
static __global__ void __launch_bounds__(TENSOR_THREADS)
    tensor_forward_kernel(typename M::value *out, float *lse, struct attention_call call)
{
    using V = typename M::value;
    using shared_memory = struct tensor_forward_shared<M, D, R>;
    CUDA_DYNAMIC_SHARED(shared_memory, shared);
    const struct attention_call *c = &call;
    const float scale = c->scale * TENSOR_LOG2E;
    for (int64_t index = blockIdx.x; index < tensor_items(c, c->heads); index += gridDim.x) {
        struct attention_item item = tensor_item(c, index, c->heads, c->causal);
        int64_t at = (int64_t)item.head * c->HS, kv = (int64_t)(item.head / (c->heads / c->kv_heads)) * c->HS;
        int keys = item.rows == 0 ? 0 : c->causal ? item.first + item.rows : item.length;
        struct tensor_softmax<D> so_far = {
            {-INFINITY, -INFINITY}, {}, {}
        };
        float scores[R / TENSOR_COLUMNS][4];
        struct tensor_left<M, D, true> q;
        q.load(tensor_own<V>(c->q, c->q_row, c, &item, at), c->HS, c->vectors, nullptr);
        for (int key = tensor_start<R>(c, item.b, item.first); key < keys; key += R) {
            __syncthreads();
            tensor_load_keys<M, D, R>(shared->k, shared->v, c, item.b, key, keys, kv);
            __syncthreads();
            tensor_scores<M, D, R, true>(scores, q, shared->k);
            tensor_add_scores<D, R>(&so_far, scores, c, &item, key, keys, scale);
            tensor_add<M, D, R>(so_far.out, scores, shared->v);
        }
        tensor_finish<M, D>(&so_far, out, lse, c, &item);
    }
}

template <typename M, int D>
static int tensor_forward_by(void *out, void *lse, const struct attention_call *call, void *stream,
                             struct muster_error *err)
{
    enum { R = 32 };
    const struct cuda_grid grid = cuda_grid_attention_tensor(call->B, call->heads, call->T);
    const auto kernel = tensor_forward_kernel<M, D, R>;
    const size_t shared = sizeof(struct tensor_forward_shared<M, D, R>);
    CUDA_LAUNCH("attention_forward", err, kernel, grid.blocks, grid.threads, shared, stream,
                (typename M::value *)out, (float *)lse, *call);
    return 0;
}

/* The caller has seen that attention_fits_tensor. */
template <typename M>
static int tensor_forward(void *out, void *lse, const void *q, const void *k, const void *v,
                          const struct attention *a, void *stream, struct muster_error *err)
{
    struct attention_call call;
    if (attention_call_make(&call, "attention_forward", a, q, k, v, NULL, sizeof(typename M::value), err) < 0)
        return -1;
    if (cuda_grid_attention_tensor(a->B, a->heads, a->T).blocks == 0)
        return 0;
    if (a->head_size > 64)
        return tensor_forward_by<M, 128>(out, lse, &call, stream, err);
    if (a->head_size > 32)
        return tensor_forward_by<M, 64>(out, lse, &call, stream, err);
    return tensor_forward_by<M, M::NARROWEST>(out, lse, &call, stream, err);
}

#define TENSOR_FORWARD(name, M, otherwise)                                                                   \
    extern "C" int name(void *out, void *lse, const void *q, const void *k, const void *v,                   \
                        const struct attention *a, void *work, void *stream, struct muster_error *err)       \
    {                                                                                                        \
        return attention_fits_tensor(a) ? tensor_forward<M>(out, lse, q, k, v, a, stream, err)               \
                                        : otherwise(out, lse, q, k, v, a, work, stream, err);                \
    }
TENSOR_FORWARD(cuda_attention_forward_tf32, tensor_tf32, cuda_attention_forward)
TENSOR_FORWARD(cuda_attention_forward_bf16, tensor_16<__nv_bfloat16>, cuda_attention_forward_plain_bf16)
TENSOR_FORWARD(cuda_attention_forward_f16, tensor_16<__half>, cuda_attention_forward_plain_f16)
