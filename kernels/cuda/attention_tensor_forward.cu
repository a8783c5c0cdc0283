/* attention_tensor_forward.cu - attention_forward.cu's algorithm by tensor cores in tf32
 * (attention_tensor.cuh): a block takes the keys of its 64 queries 32 at a time and keeps maximum and sum of
 * the exponentials so far. */
#include "kernels/cuda/attention_call.cuh"
#include "kernels/cuda/attention_tensor.cuh"
#include "kernels/cuda/check.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/operations.h"

enum { TENSOR_LANE_ROWS = 2 }; /* g and g + 8 */

template <int D> struct tensor_forward_shared {
    tensor_tile<D> k, v;
};

/* Running sums of this lane's two rows. Exponentials are of base 2, so the maximum is of scores * log2(e). */
template <int D> struct tensor_softmax {
    float maximum[TENSOR_LANE_ROWS], sum[TENSOR_LANE_ROWS], out[D / TENSOR_STEP][4];
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

/* Scores of 32 more keys, from `key` on of `keys` that are seen, become their exponentials. */
template <int D>
static __device__ void tensor_add_scores(struct tensor_softmax<D> *so_far, float scores[TENSOR_SUMS][4],
                                         const struct attention_call *c, const struct attention_item *item,
                                         int key, int keys, float scale)
{
    float largest[TENSOR_LANE_ROWS] = {-INFINITY, -INFINITY}, sum[TENSOR_LANE_ROWS] = {};
    CUDA_EACH (n, 0, TENSOR_SUMS)
        CUDA_EACH (i, 0, 4)
            scores[n][i] *= scale;
    const int last = item->first + TENSOR_ROWS - 1;
    if (key + TILE > (c->causal ? item->first + 1 : keys) ||
        key <
            attention_from(c, item->b, last < c->T ? last : c->T - 1)) { /* a row does not see some of them */
        int from[TENSOR_LANE_ROWS];
        CUDA_EACH (row, 0, TENSOR_LANE_ROWS)
            from[row] = attention_from(c, item->b, item->first + tensor_row(2 * row));
        CUDA_EACH (n, 0, TENSOR_SUMS)
            CUDA_EACH (i, 0, 4) {
                int at = key + n * TENSOR_STEP + tensor_column(i);
                if (at >= keys || (c->causal && at > item->first + tensor_row(i)) || at < from[i / 2])
                    scores[n][i] = -INFINITY;
            }
    }
    CUDA_EACH (n, 0, TENSOR_SUMS)
        CUDA_EACH (i, 0, 4)
            largest[i / 2] = fmaxf(largest[i / 2], scores[n][i]);
    CUDA_EACH (row, 0, TENSOR_LANE_ROWS) {
        largest[row] = fmaxf(so_far->maximum[row], tensor_row_max(largest[row]));
        /* -INFINITY: a later key is the first that the row sees */
        const float base = largest[row] == -INFINITY ? 0.0f : largest[row];
        CUDA_EACH (n, 0, TENSOR_SUMS)
            CUDA_EACH (i, 2 * row, 2 * row + 2) {
                scores[n][i] = exp2f(scores[n][i] - base);
                sum[row] += scores[n][i];
            }
        float before = exp2f(so_far->maximum[row] - base);
        so_far->maximum[row] = largest[row];
        so_far->sum[row] = so_far->sum[row] * before + tensor_row_sum(sum[row]);
        CUDA_EACH (n, 0, D / TENSOR_STEP)
            CUDA_EACH (i, 2 * row, 2 * row + 2)
                so_far->out[n][i] *= before;
    }
}

/* out and lse of the block's queries; positions after a sequence's end get 0. */
template <int D>
static __device__ void tensor_finish(struct tensor_softmax<D> *result, float *out, float *lse,
                                     const struct attention_call *c, const struct attention_item *item)
{
    CUDA_EACH (row, 0, TENSOR_LANE_ROWS) {
        int t = item->first + tensor_row(2 * row);
        bool there = tensor_row(2 * row) < item->rows;
        CUDA_EACH (n, 0, D / TENSOR_STEP)
            CUDA_EACH (i, 2 * row, 2 * row + 2)
                result->out[n][i] /= result->sum[row];
        if (t < c->T && tensor_t() == 0)
            lse[((int64_t)item->b * c->heads + item->head) * c->T + t] =
                there ? (result->maximum[row] + log2f(result->sum[row])) * 0.693147180559945309f : 0.0f;
    }
    tensor_store<D>(out, c->out_row, result->out, 0, c, item);
}

template <int D>
static __global__ void __launch_bounds__(TENSOR_THREADS)
    tensor_forward_kernel(float *out, float *lse, struct attention_call call)
{
    CUDA_DYNAMIC_SHARED(struct tensor_forward_shared<D>, shared);
    const struct attention_call *c = &call;
    const float scale = c->scale * TENSOR_LOG2E;
    for (int64_t index = blockIdx.x; index < tensor_items(c, c->heads); index += gridDim.x) {
        struct attention_item item = tensor_item(c, index, c->heads, c->causal);
        int64_t at = (int64_t)item.head * c->HS, kv = (int64_t)(item.head / (c->heads / c->kv_heads)) * c->HS;
        int keys = item.rows == 0 ? 0 : c->causal ? item.first + item.rows : item.length;
        struct tensor_softmax<D> so_far = {
            {-INFINITY, -INFINITY}, {}, {}
        };
        float q[D / TENSOR_STEP][4], scores[TENSOR_SUMS][4];
        tensor_load_left<D>(
            q, tensor_rows(c->q, c->q_row, c->T, item.b, item.first, item.length, TENSOR_ROWS, at), c->HS);
        for (int key = attention_start(c, item.b, item.first); key < keys; key += TILE) {
            __syncthreads();
            tensor_load_keys<D>(shared->k, shared->v, c, item.b, key, keys, kv);
            __syncthreads();
            tensor_scores<D>(scores, q, shared->k);
            tensor_add_scores<D>(&so_far, scores, c, &item, key, keys, scale);
            tensor_add<D>(so_far.out, scores, shared->v);
        }
        tensor_finish<D>(&so_far, out, lse, c, &item);
    }
}

extern "C" int cuda_attention_forward_tf32(void *out, void *lse, const void *q, const void *k, const void *v,
                                           const struct attention *a, void *work, void *stream,
                                           struct muster_error *err)
{
    struct attention_call call;
    if (a->head_size > CUDA_ATTENTION_TENSOR_HEAD || a->cap > 0 || (a->window > 0 && !a->causal))
        return cuda_attention_forward(out, lse, q, k, v, a, work, stream, err);
    if (attention_call_make(&call, "attention_forward", a, q, k, v, NULL, err) < 0)
        return -1;
    struct cuda_grid grid = cuda_grid_attention_tensor(a->B, a->heads, a->T);
    if (grid.blocks == 0)
        return 0;
    if (a->head_size <= 32)
        CUDA_LAUNCH("attention_forward", err, tensor_forward_kernel<32>, grid.blocks, grid.threads,
                    sizeof(struct tensor_forward_shared<32>), stream, (float *)out, (float *)lse, call);
    else
        CUDA_LAUNCH("attention_forward", err, tensor_forward_kernel<64>, grid.blocks, grid.threads,
                    sizeof(struct tensor_forward_shared<64>), stream, (float *)out, (float *)lse, call);
    return 0;
}
