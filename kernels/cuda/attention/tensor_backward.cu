/* tensor_backward.cu - plain_backward.cu's three kernels with products by tensor cores (tensor.cuh), in tf32,
 * bf16 and f16: dk and dv, a block 64 keys of one head of keys with all queries that see them; dq, a block 64
 * queries. D, the rows of dout.out, is formed in float.
 *
 * With heads of up to 64 columns the block's own rows are kept in registers. With 128 the sums alone fill
 * them, and its rows lie in shared memory. */
#include "kernels/cuda/attention/dots.cuh"
#include "kernels/cuda/attention/narrow.h"
#include "kernels/cuda/attention/tensor.cuh"
#include "kernels/cuda/check.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/operations.h"

/* Heads of D columns: where left factors lie, and how many rows of the other side are taken at a time. Shared
 * memory is at most 99 KiB, 64 in f16. */
template <typename M, int D> struct tensor_backward_sizes {
    static constexpr bool KEYS_KEPT = D <= 64, QUERIES_KEPT = D <= 64 || sizeof(typename M::value) == 2;
    static constexpr int R = D <= 64 || sizeof(typename M::value) == 2 ? 32 : 16;
};

/* R rows of the other side: queries' q and dout with their statistics, or keys' k and v; and the block's own
 * rows, where they are not kept in registers. */
template <typename M, int D, bool KEPT> struct tensor_key_shared {
    enum { R = tensor_backward_sizes<M, D>::R };
    tensor_line<M, D> q[R], dout[R];
    float lse[R], D_of[R];
    tensor_line<M, D> k[KEPT ? 1 : TENSOR_ROWS], v[KEPT ? 1 : TENSOR_ROWS];
};
template <typename M, int D, bool KEPT> struct tensor_query_shared {
    enum { R = tensor_backward_sizes<M, D>::R };
    tensor_line<M, D> k[R], v[R];
    tensor_line<M, D> q[KEPT ? 1 : TENSOR_ROWS], dout[KEPT ? 1 : TENSOR_ROWS];
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
template <typename M, int D, bool KEPT>
static __device__ void tensor_load_queries(struct tensor_key_shared<M, D, KEPT> *shared,
                                           const struct attention_call *c, const struct attention_item *item,
                                           const float *dots, int head, int query)
{
    using V = typename M::value;
    constexpr int R = tensor_backward_sizes<M, D>::R;
    int64_t at = (int64_t)head * c->HS, statistics = ((int64_t)item->b * c->heads + head) * c->T;
    tensor_load<M, D, R>(shared->q,
                         attention_rows_at<V>(c->q, c->q_row, c->T, item->b, query, item->length, R, at),
                         c->HS, c->vectors);
    tensor_load<M, D, R>(shared->dout,
                         attention_rows_at<V>(c->dout, c->out_row, c->T, item->b, query, item->length, R, at),
                         c->HS, c->vectors);
    if (threadIdx.x < R) {
        bool there = query + (int)threadIdx.x < item->length;
        shared->lse[threadIdx.x] = there ? c->lse[statistics + query + threadIdx.x] * TENSOR_LOG2E : 0.0f;
        shared->D_of[threadIdx.x] = there ? dots[statistics + query + threadIdx.x] : 0.0f;
    }
}

/* Softmax where rows are keys and columns are queries from `query` on. */
template <int R>
static __device__ inline void tensor_key_softmax(float p[R / TENSOR_COLUMNS][4],
                                                 float ds[R / TENSOR_COLUMNS][4], const float *lse,
                                                 const float *dots, int query, const struct attention_call *c,
                                                 const struct attention_item *item)
{
    const int last = item->first + TENSOR_ROWS; /* the key after the block's last */
    const bool whole = query + R <= item->length && last <= item->length &&
                       (!c->causal || last <= query + 1) &&
                       attention_from(c, item->b, query + R - 1) <= item->first;
    CUDA_EACH (n, 0, R / TENSOR_COLUMNS)
        CUDA_EACH (i, 0, 4) {
            int of = n * TENSOR_COLUMNS + tensor_column(i);
            tensor_unsoftmax(&p[n][i], &ds[n][i], c->scale * TENSOR_LOG2E, lse[of], dots[of], c->scale);
        }
    if (whole)
        return;
    CUDA_EACH (n, 0, R / TENSOR_COLUMNS)
        CUDA_EACH (i, 0, 4) {
            int of = query + n * TENSOR_COLUMNS + tensor_column(i), at = item->first + tensor_row(i);
            if (of >= item->length || at >= item->length || (c->causal && at > of) ||
                at < attention_from(c, item->b, of))
                p[n][i] = ds[n][i] = 0;
        }
}

/* Softmax where rows are queries and columns are keys from `key` on. */
template <int R>
static __device__ inline void tensor_query_softmax(float p[R / TENSOR_COLUMNS][4],
                                                   float ds[R / TENSOR_COLUMNS][4], const float lse[2],
                                                   const float dots[2], int key, int keys,
                                                   const struct attention_call *c,
                                                   const struct attention_item *item)
{
    const bool whole = item->rows == TENSOR_ROWS && key + R <= keys &&
                       (!c->causal || key + R <= item->first + 1) &&
                       attention_from(c, item->b, item->first + TENSOR_ROWS - 1) <= key;
    CUDA_EACH (n, 0, R / TENSOR_COLUMNS)
        CUDA_EACH (i, 0, 4)
            tensor_unsoftmax(&p[n][i], &ds[n][i], c->scale * TENSOR_LOG2E, lse[i / 2], dots[i / 2], c->scale);
    if (whole)
        return;
    CUDA_EACH (n, 0, R / TENSOR_COLUMNS)
        CUDA_EACH (i, 0, 4) {
            int of = key + n * TENSOR_COLUMNS + tensor_column(i);
            if (tensor_row(i) >= item->rows || of >= keys ||
                (c->causal && of > item->first + tensor_row(i)) ||
                of < attention_from(c, item->b, item->first + tensor_row(i)))
                p[n][i] = ds[n][i] = 0;
        }
}

template <typename M, int D>
static __global__ void __launch_bounds__(TENSOR_THREADS)
    tensor_key_kernel(typename M::value *dk, typename M::value *dv, const float *dots,
                      struct attention_call call, int beta_k, int beta_v)
{
    using V = typename M::value;
    constexpr bool KEPT = tensor_backward_sizes<M, D>::KEYS_KEPT;
    constexpr int R = tensor_backward_sizes<M, D>::R;
    using shared_memory = struct tensor_key_shared<M, D, KEPT>;
    CUDA_DYNAMIC_SHARED(shared_memory, shared);
    const struct attention_call *c = &call;
    int group = c->heads / c->kv_heads;
    for (int64_t index = blockIdx.x; index < tensor_items(c, c->kv_heads); index += gridDim.x) {
        struct attention_item item = tensor_item(c, index, c->kv_heads, false);
        int64_t kv = (int64_t)item.head * c->HS;
        int end = item.rows == 0 ? 0 : item.length;
        struct tensor_left<M, D, KEPT> k, v;
        float p[R / TENSOR_COLUMNS][4], ds[R / TENSOR_COLUMNS][4];
        float dk_sum[D / TENSOR_COLUMNS][4] = {}, dv_sum[D / TENSOR_COLUMNS][4] = {};
        if (!KEPT)
            __syncthreads(); /* the last item's products are formed */
        k.load(tensor_own<V>(c->k, c->k_row, c, &item, kv), c->HS, c->vectors, shared->k);
        v.load(tensor_own<V>(c->v, c->v_row, c, &item, kv), c->HS, c->vectors, shared->v);
        for (int head = item.head * group; head < (item.head + 1) * group; head++)
            for (int query = c->causal ? item.first : 0;
                 query < end && attention_from(c, item.b, query) < item.first + item.rows; query += R) {
                __syncthreads();
                tensor_load_queries<M, D, KEPT>(shared, c, &item, dots, head, query);
                __syncthreads();
                tensor_scores<M, D, R, KEPT>(p, k, shared->q);
                tensor_scores<M, D, R, KEPT>(ds, v, shared->dout);
                tensor_key_softmax<R>(p, ds, shared->lse, shared->D_of, query, c, &item);
                tensor_add<M, D, R>(dv_sum, p, shared->dout);
                tensor_add<M, D, R>(dk_sum, ds, shared->q);
            }
        tensor_store<M, D>(dk, c->k_row, dk_sum, beta_k, c, &item);
        tensor_store<M, D>(dv, c->v_row, dv_sum, beta_v, c, &item);
    }
}

template <typename M, int D>
static __global__ void __launch_bounds__(TENSOR_THREADS)
    tensor_query_kernel(typename M::value *dq, const float *dots, struct attention_call call, int beta)
{
    using V = typename M::value;
    constexpr bool KEPT = tensor_backward_sizes<M, D>::QUERIES_KEPT;
    constexpr int R = tensor_backward_sizes<M, D>::R;
    using shared_memory = struct tensor_query_shared<M, D, KEPT>;
    CUDA_DYNAMIC_SHARED(shared_memory, shared);
    const struct attention_call *c = &call;
    for (int64_t index = blockIdx.x; index < tensor_items(c, c->heads); index += gridDim.x) {
        struct attention_item item = tensor_item(c, index, c->heads, c->causal);
        int64_t at = (int64_t)item.head * c->HS, kv = (int64_t)(item.head / (c->heads / c->kv_heads)) * c->HS;
        int64_t statistics = ((int64_t)item.b * c->heads + item.head) * c->T + item.first;
        int keys = item.rows == 0 ? 0 : c->causal ? item.first + item.rows : item.length;
        struct tensor_left<M, D, KEPT> q, dout;
        float p[R / TENSOR_COLUMNS][4], ds[R / TENSOR_COLUMNS][4];
        float sum[D / TENSOR_COLUMNS][4] = {}, lse[2], dot[2];
        if (!KEPT)
            __syncthreads(); /* the last item's products are formed */
        q.load(tensor_own<V>(c->q, c->q_row, c, &item, at), c->HS, c->vectors, shared->q);
        dout.load(tensor_own<V>(c->dout, c->out_row, c, &item, at), c->HS, c->vectors, shared->dout);
        for (int row = 0; row < 2; row++) {
            bool there = tensor_row(2 * row) < item.rows;
            lse[row] = there ? c->lse[statistics + tensor_row(2 * row)] * TENSOR_LOG2E : 0.0f;
            dot[row] = there ? dots[statistics + tensor_row(2 * row)] : 0.0f;
        }
        for (int key = tensor_start<R>(c, item.b, item.first); key < keys; key += R) {
            __syncthreads();
            tensor_load_keys<M, D, R>(shared->k, shared->v, c, item.b, key, keys, kv);
            __syncthreads();
            tensor_scores<M, D, R, KEPT>(p, q, shared->k);
            tensor_scores<M, D, R, KEPT>(ds, dout, shared->v);
            tensor_query_softmax<R>(p, ds, lse, dot, key, keys, c, &item);
            tensor_add<M, D, R>(sum, ds, shared->k);
        }
        tensor_store<M, D>(dq, c->q_row, sum, beta, c, &item);
    }
}

template <typename M, int D>
static int tensor_backward_by(void *dq, void *dk, void *dv, float *dots, const struct attention_call *call,
                              const int beta[3], void *stream, struct muster_error *err)
{
    using V = typename M::value;
    using sizes = tensor_backward_sizes<M, D>;
    const struct cuda_grid keys = cuda_grid_attention_tensor(call->B, call->kv_heads, call->T);
    const struct cuda_grid queries = cuda_grid_attention_tensor(call->B, call->heads, call->T);
    const auto key_kernel = tensor_key_kernel<M, D>;
    const auto query_kernel = tensor_query_kernel<M, D>;
    const size_t key_bytes = sizeof(struct tensor_key_shared<M, D, sizes::KEYS_KEPT>);
    const size_t query_bytes = sizeof(struct tensor_query_shared<M, D, sizes::QUERIES_KEPT>);
    CUDA_LAUNCH_LARGE("attention_backward", err, key_kernel, keys.blocks, keys.threads, key_bytes, stream,
                      (V *)dk, (V *)dv, dots, *call, beta[1], beta[2]);
    CUDA_LAUNCH_LARGE("attention_backward", err, query_kernel, queries.blocks, queries.threads, query_bytes,
                      stream, (V *)dq, dots, *call, beta[0]);
    return 0;
}

/* The caller has seen that attention_fits_tensor. */
template <typename M>
static int tensor_backward(void *dq, void *dk, void *dv, const void *dout, const void *q, const void *k,
                           const void *v, const void *out, const void *lse, const struct attention *a,
                           const int beta[3], void *work, void *stream, struct muster_error *err)
{
    using V = typename M::value;
    struct attention_call call;
    float *dots = (float *)work;
    if (attention_call_make(&call, "attention_backward", a, q, k, v, dout, sizeof(V), err) < 0)
        return -1;
    call.lse = (const float *)lse;
    if (cuda_grid_attention_tensor(a->B, a->heads, a->T).blocks == 0)
        return 0;
    if (attention_dots<V>(dots, dout, out, a, stream, err) < 0)
        return -1;
    if (a->head_size > 64)
        return tensor_backward_by<M, 128>(dq, dk, dv, dots, &call, beta, stream, err);
    if (a->head_size > 32)
        return tensor_backward_by<M, 64>(dq, dk, dv, dots, &call, beta, stream, err);
    return tensor_backward_by<M, M::NARROWEST>(dq, dk, dv, dots, &call, beta, stream, err);
}

#define TENSOR_BACKWARD(name, M, otherwise)                                                                  \
    extern "C" int name(void *dq, void *dk, void *dv, const void *dout, const void *q, const void *k,        \
                        const void *v, const void *out, const void *lse, const struct attention *a,          \
                        const int beta[3], void *work, void *stream, struct muster_error *err)               \
    {                                                                                                        \
        return attention_fits_tensor(a)                                                                      \
                   ? tensor_backward<M>(dq, dk, dv, dout, q, k, v, out, lse, a, beta, work, stream, err)     \
                   : otherwise(dq, dk, dv, dout, q, k, v, out, lse, a, beta, work, stream, err);             \
    }
TENSOR_BACKWARD(cuda_attention_backward_tf32, tensor_tf32, cuda_attention_backward)
TENSOR_BACKWARD(cuda_attention_backward_bf16, tensor_16<__nv_bfloat16>, cuda_attention_backward_plain_bf16)
TENSOR_BACKWARD(cuda_attention_backward_f16, tensor_16<__half>, cuda_attention_backward_plain_f16)
