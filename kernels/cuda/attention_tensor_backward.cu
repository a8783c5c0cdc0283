/* attention_tensor_backward.cu - attention_backward.cu's three kernels with products by tensor cores in tf32
 * (attention_tensor.cuh): dk and dv, a block 64 keys of one head of keys with all queries that see them; dq,
 * a block 64 queries. D, the rows of dout.out, is formed in float. */
#include "kernels/cuda/attention_call.cuh"
#include "kernels/cuda/attention_dots.cuh"
#include "kernels/cuda/attention_tensor.cuh"
#include "kernels/cuda/check.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/operations.h"

/* 32 rows of the other side: queries' q and dout with their statistics, or keys' k and v. */
template <int D> struct tensor_key_shared {
    tensor_tile<D> q, dout;
    float lse[TILE], D_of[TILE];
};
template <int D> struct tensor_query_shared {
    tensor_tile<D> k, v;
};

/* A score becomes its probability, and dp, the probability's gradient, the score's. scale and lse are times
 * log2(e), base_scale is not. */
static __device__ inline void tensor_unsoftmax(float *score, float *dp, float scale, float lse, float dot,
                                               float base_scale)
{
    *score = exp2f(*score * scale - lse);
    *dp = *score * (*dp - dot) * base_scale;
}

/* Queries from `query` on of one head into shared memory. */
template <int D>
static __device__ void tensor_load_queries(struct tensor_key_shared<D> *shared,
                                           const struct attention_call *c, const struct attention_item *item,
                                           const float *dots, int head, int query)
{
    int64_t at = (int64_t)head * c->HS, statistics = ((int64_t)item->b * c->heads + head) * c->T;
    tensor_load<D>(shared->q, tensor_rows(c->q, c->q_row, c->T, item->b, query, item->length, TILE, at),
                   c->HS, c->vectors);
    tensor_load<D>(shared->dout,
                   tensor_rows(c->dout, c->out_row, c->T, item->b, query, item->length, TILE, at), c->HS,
                   c->vectors);
    if (threadIdx.x < TILE) {
        bool there = query + (int)threadIdx.x < item->length;
        shared->lse[threadIdx.x] = there ? c->lse[statistics + query + threadIdx.x] * TENSOR_LOG2E : 0.0f;
        shared->D_of[threadIdx.x] = there ? dots[statistics + query + threadIdx.x] : 0.0f;
    }
}

/* Softmax where rows are keys and columns are queries from `query` on. */
static __device__ inline void tensor_key_softmax(float p[TENSOR_SUMS][4], float ds[TENSOR_SUMS][4],
                                                 const float *lse, const float *dots, int query,
                                                 const struct attention_call *c,
                                                 const struct attention_item *item)
{
    const int last = item->first + TENSOR_ROWS; /* the key after the block's last */
    const bool whole = query + TILE <= item->length && last <= item->length &&
                       (!c->causal || last <= query + 1) &&
                       attention_from(c, item->b, query + TILE - 1) <= item->first;
    CUDA_EACH (n, 0, TENSOR_SUMS)
        CUDA_EACH (i, 0, 4) {
            int of = n * TENSOR_STEP + tensor_column(i);
            tensor_unsoftmax(&p[n][i], &ds[n][i], c->scale * TENSOR_LOG2E, lse[of], dots[of], c->scale);
        }
    if (whole)
        return;
    CUDA_EACH (n, 0, TENSOR_SUMS)
        CUDA_EACH (i, 0, 4) {
            int of = query + n * TENSOR_STEP + tensor_column(i), at = item->first + tensor_row(i);
            if (of >= item->length || at >= item->length || (c->causal && at > of) ||
                at < attention_from(c, item->b, of))
                p[n][i] = ds[n][i] = 0;
        }
}

/* Softmax where rows are queries and columns are keys from `key` on. */
static __device__ inline void tensor_query_softmax(float p[TENSOR_SUMS][4], float ds[TENSOR_SUMS][4],
                                                   const float lse[2], const float dots[2], int key, int keys,
                                                   const struct attention_call *c,
                                                   const struct attention_item *item)
{
    const bool whole = item->rows == TENSOR_ROWS && key + TILE <= keys &&
                       (!c->causal || key + TILE <= item->first + 1) &&
                       attention_from(c, item->b, item->first + TENSOR_ROWS - 1) <= key;
    CUDA_EACH (n, 0, TENSOR_SUMS)
        CUDA_EACH (i, 0, 4)
            tensor_unsoftmax(&p[n][i], &ds[n][i], c->scale * TENSOR_LOG2E, lse[i / 2], dots[i / 2], c->scale);
    if (whole)
        return;
    CUDA_EACH (n, 0, TENSOR_SUMS)
        CUDA_EACH (i, 0, 4) {
            int of = key + n * TENSOR_STEP + tensor_column(i);
            if (tensor_row(i) >= item->rows || of >= keys ||
                (c->causal && of > item->first + tensor_row(i)) ||
                of < attention_from(c, item->b, item->first + tensor_row(i)))
                p[n][i] = ds[n][i] = 0;
        }
}

template <int D>
static __global__ void __launch_bounds__(TENSOR_THREADS)
    tensor_key_kernel(float *dk, float *dv, const float *dots, struct attention_call call, int beta_k,
                      int beta_v)
{
    CUDA_DYNAMIC_SHARED(struct tensor_key_shared<D>, shared);
    const struct attention_call *c = &call;
    int group = c->heads / c->kv_heads;
    for (int64_t index = blockIdx.x; index < tensor_items(c, c->kv_heads); index += gridDim.x) {
        struct attention_item item = tensor_item(c, index, c->kv_heads, false);
        int64_t kv = (int64_t)item.head * c->HS;
        int end = item.rows == 0 ? 0 : item.length;
        float k[D / TENSOR_STEP][4], v[D / TENSOR_STEP][4], p[TENSOR_SUMS][4], ds[TENSOR_SUMS][4];
        float dk_sum[D / TENSOR_STEP][4] = {}, dv_sum[D / TENSOR_STEP][4] = {};
        tensor_load_left<D>(
            k, tensor_rows(c->k, c->k_row, c->T, item.b, item.first, item.length, TENSOR_ROWS, kv), c->HS);
        tensor_load_left<D>(
            v, tensor_rows(c->v, c->v_row, c->T, item.b, item.first, item.length, TENSOR_ROWS, kv), c->HS);
        for (int head = item.head * group; head < (item.head + 1) * group; head++)
            for (int query = c->causal ? item.first : 0;
                 query < end && attention_from(c, item.b, query) < item.first + item.rows; query += TILE) {
                __syncthreads();
                tensor_load_queries<D>(shared, c, &item, dots, head, query);
                __syncthreads();
                tensor_scores<D>(p, k, shared->q);
                tensor_scores<D>(ds, v, shared->dout);
                tensor_key_softmax(p, ds, shared->lse, shared->D_of, query, c, &item);
                tensor_add<D>(dv_sum, p, shared->dout);
                tensor_add<D>(dk_sum, ds, shared->q);
            }
        tensor_store<D>(dk, c->k_row, dk_sum, beta_k, c, &item);
        tensor_store<D>(dv, c->v_row, dv_sum, beta_v, c, &item);
    }
}

template <int D>
static __global__ void __launch_bounds__(TENSOR_THREADS)
    tensor_query_kernel(float *dq, const float *dots, struct attention_call call, int beta)
{
    CUDA_DYNAMIC_SHARED(struct tensor_query_shared<D>, shared);
    const struct attention_call *c = &call;
    for (int64_t index = blockIdx.x; index < tensor_items(c, c->heads); index += gridDim.x) {
        struct attention_item item = tensor_item(c, index, c->heads, c->causal);
        int64_t at = (int64_t)item.head * c->HS, kv = (int64_t)(item.head / (c->heads / c->kv_heads)) * c->HS;
        int64_t statistics = ((int64_t)item.b * c->heads + item.head) * c->T + item.first;
        int keys = item.rows == 0 ? 0 : c->causal ? item.first + item.rows : item.length;
        float q[D / TENSOR_STEP][4], dout[D / TENSOR_STEP][4], p[TENSOR_SUMS][4], ds[TENSOR_SUMS][4];
        float sum[D / TENSOR_STEP][4] = {}, lse[2], dot[2];
        tensor_load_left<D>(
            q, tensor_rows(c->q, c->q_row, c->T, item.b, item.first, item.length, TENSOR_ROWS, at), c->HS);
        tensor_load_left<D>(
            dout, tensor_rows(c->dout, c->out_row, c->T, item.b, item.first, item.length, TENSOR_ROWS, at),
            c->HS);
        for (int row = 0; row < 2; row++) {
            bool there = tensor_row(2 * row) < item.rows;
            lse[row] = there ? c->lse[statistics + tensor_row(2 * row)] * TENSOR_LOG2E : 0.0f;
            dot[row] = there ? dots[statistics + tensor_row(2 * row)] : 0.0f;
        }
        for (int key = attention_start(c, item.b, item.first); key < keys; key += TILE) {
            __syncthreads();
            tensor_load_keys<D>(shared->k, shared->v, c, item.b, key, keys, kv);
            __syncthreads();
            tensor_scores<D>(p, q, shared->k);
            tensor_scores<D>(ds, dout, shared->v);
            tensor_query_softmax(p, ds, lse, dot, key, keys, c, &item);
            tensor_add<D>(sum, ds, shared->k);
        }
        tensor_store<D>(dq, c->q_row, sum, beta, c, &item);
    }
}

template <int D>
static int tensor_gradients(float *dq, float *dk, float *dv, float *dots, const struct attention_call *call,
                            const int beta[3], void *stream, struct muster_error *err)
{
    struct cuda_grid keys = cuda_grid_attention_tensor(call->B, call->kv_heads, call->T);
    struct cuda_grid queries = cuda_grid_attention_tensor(call->B, call->heads, call->T);
    CUDA_LAUNCH("attention_backward", err, tensor_key_kernel<D>, keys.blocks, keys.threads,
                sizeof(struct tensor_key_shared<D>), stream, dk, dv, dots, *call, beta[1], beta[2]);
    CUDA_LAUNCH("attention_backward", err, tensor_query_kernel<D>, queries.blocks, queries.threads,
                sizeof(struct tensor_query_shared<D>), stream, dq, dots, *call, beta[0]);
    return 0;
}

extern "C" int cuda_attention_backward_tf32(void *dq, void *dk, void *dv, const void *dout, const void *q,
                                            const void *k, const void *v, const void *out, const void *lse,
                                            const struct attention *a, const int beta[3], void *work,
                                            void *stream, struct muster_error *err)
{
    struct attention_call call;
    if (a->head_size > CUDA_ATTENTION_TENSOR_HEAD || a->cap > 0 || (a->window > 0 && !a->causal))
        return cuda_attention_backward(dq, dk, dv, dout, q, k, v, out, lse, a, beta, work, stream, err);
    if (attention_call_make(&call, "attention_backward", a, q, k, v, dout, err) < 0)
        return -1;
    call.lse = (const float *)lse;
    float *dots = (float *)work;
    if (cuda_grid_attention_tensor(a->B, a->heads, a->T).blocks == 0)
        return 0;
    if (attention_dots(dots, dout, out, a, stream, err) < 0)
        return -1;
    if (a->head_size <= 32)
        return tensor_gradients<32>((float *)dq, (float *)dk, (float *)dv, dots, &call, beta, stream, err);
    return tensor_gradients<64>((float *)dq, (float *)dk, (float *)dv, dots, &call, beta, stream, err);
}
