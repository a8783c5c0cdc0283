/* plain_forward.cu - softmax(scale q k^T) v and its log-sum-exp without the (T,T) matrix: a block takes
 * the keys of its 32 queries 32 at a time and keeps maximum and sum of the exponentials so far (Dao et al.
 * 2022, arXiv 2205.14135, algorithm 1; the result is kernels/ref/attention.c's). */
#include "kernels/cuda/attention/narrow.h"
#include "kernels/cuda/attention/plain.cuh"
#include "kernels/cuda/check.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/operations.h"

struct forward_shared {
    tile_slice q, k, p;
    tile_chunk v;
};

/* Over the 8 lanes that share a row; the whole warp calls. */
static __device__ inline float row_max(float value)
{
    for (int mask = LANES / 2; mask > 0; mask /= 2)
        value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, mask));
    return value;
}
static __device__ inline float row_sum(float value)
{
    for (int mask = LANES / 2; mask > 0; mask /= 2)
        value += __shfl_xor_sync(0xffffffffu, value, mask);
    return value;
}

/* Running sums of the rows of a thread: maximum of the scores, sum of exp(score - maximum), and the sum of
 * v times exp(score - maximum).
 */
struct softmax {
    float maximum[PAIR], sum[PAIR], out[PAIR][RESULTS];
};

/* Takes in the scores of 32 more keys (from `key` on, `keys` of all are seen) and leaves their exponentials
 * in `p`. */
static __device__ void add_scores(struct softmax *so_far, float scores[PAIR][SCORES], tile_slice p,
                                  const struct attention_call *c, const struct attention_item *item, int key,
                                  int keys)
{
    for (int i = 0; i < PAIR; i++) {
        const int query = item->first + row_of(i), from = attention_from(c, item->b, query);
        float largest = -INFINITY, sum = 0;
        for (int j = 0; j < SCORES; j++) {
            int at = key + column_of(j);
            const bool within = c->window == 0 || at - query < c->window;
            bool seen = at < keys && (!c->causal || at <= query) && within && at >= from;
            scores[i][j] = seen ? attention_score(c, scores[i][j]) : -INFINITY;
            largest = fmaxf(largest, scores[i][j]);
        }
        largest = fmaxf(so_far->maximum[i],
                        row_max(largest)); /* -INFINITY: a later key is the first that the row sees */
        const float base = largest == -INFINITY ? 0.0f : largest;
        float before = expf(so_far->maximum[i] - base);
        for (int j = 0; j < SCORES; j++) {
            float e = expf(scores[i][j] - base);
            p[row_of(i)][column_of(j)] = e;
            sum += e;
        }
        so_far->maximum[i] = largest;
        so_far->sum[i] = so_far->sum[i] * before + row_sum(sum);
        for (int j = 0; j < RESULTS; j++)
            so_far->out[i][j] *= before;
    }
}

template <typename V>
static __device__ void store(const struct softmax *result, V *out, float *lse, const struct attention_call *c,
                             const struct attention_item *item)
{
    for (int i = 0; i < PAIR; i++) {
        int t = item->first + row_of(i);
        bool there = row_of(i) < item->rows;
        if (t >= c->T)
            continue;
        V *row = out + ((int64_t)item->b * c->T + t) * c->out_row + (int64_t)item->head * c->HS;
        for (int j = 0; j < RESULTS; j++)
            if (item->chunk + column_of(j) < c->HS)
                row[item->chunk + column_of(j)] =
                    value_of<V>(there ? result->out[i][j] / result->sum[i] : 0.0f);
        if (item->chunk == 0 && column_of(0) == 0)
            lse[((int64_t)item->b * c->heads + item->head) * c->T + t] =
                there ? result->maximum[i] + logf(result->sum[i]) : 0.0f;
    }
}

template <typename V>
static __global__ void __launch_bounds__(THREADS)
    plain_forward_kernel(V *out, float *lse, struct attention_call call)
{
    CUDA_DYNAMIC_SHARED(struct forward_shared, shared);
    const struct attention_call *c = &call;
    for (int64_t index = blockIdx.x; index < item_count(c, c->heads); index += gridDim.x) {
        struct attention_item item = item_of(c, index, c->heads);
        int64_t kv = (int64_t)(item.head / (c->heads / c->kv_heads)) * c->HS;
        int keys = attention_end(c, item.first, item.rows, item.length);
        struct softmax so_far = {{-INFINITY, -INFINITY}, {0, 0}, {}};
        struct attention_rows<V> q = attention_rows_at<V>(c->q, c->q_row, c->T, item.b, item.first,
                                                          item.length, TILE, (int64_t)item.head * c->HS);
        for (int key = attention_start(c, item.b, item.first); key < keys; key += TILE) {
            struct attention_rows<V> k =
                attention_rows_at<V>(c->k, c->k_row, c->T, item.b, key, keys, TILE, kv);
            struct attention_rows<V> v =
                attention_rows_at<V>(c->v, c->v_row, c->T, item.b, key, keys, TILE, kv);
            float scores[PAIR][SCORES];
            rows_product(scores, q, k, shared->q, shared->k, c->HS, c->vectors);
            add_scores(&so_far, scores, shared->p, c, &item, key, keys);
            load_columns<CHUNK>(shared->v, v, item.chunk, c->HS, c->vectors);
            __syncthreads();
            add_product(so_far.out, shared->p, shared->v, v.rows, c->HS - item.chunk);
        }
        store(&so_far, out, lse, c, &item);
    }
}

template <typename V>
static int attention_forward_plain(void *out, void *lse, const void *q, const void *k, const void *v,
                                   const struct attention *a, void *stream, struct muster_error *err)
{
    struct attention_call call;
    if (attention_call_make(&call, "attention_forward", a, q, k, v, NULL, sizeof(V), err) < 0)
        return -1;
    struct cuda_grid grid = cuda_grid_attention(a->B, a->heads, a->T, a->head_size);
    if (grid.blocks == 0)
        return 0;
    CUDA_LAUNCH("attention_forward", err, plain_forward_kernel<V>, grid.blocks, grid.threads,
                sizeof(struct forward_shared), stream, (V *)out, (float *)lse, call);
    return 0;
}

#define ATTENTION_FORWARD_PLAIN(name, V)                                                                     \
    extern "C" int name(void *out, void *lse, const void *q, const void *k, const void *v,                   \
                        const struct attention *a, void *work, void *stream, struct muster_error *err)       \
    {                                                                                                        \
        (void)work;                                                                                          \
        return attention_forward_plain<V>(out, lse, q, k, v, a, stream, err);                                \
    }
ATTENTION_FORWARD_PLAIN(cuda_attention_forward, float)
ATTENTION_FORWARD_PLAIN(cuda_attention_forward_plain_bf16, __nv_bfloat16)
ATTENTION_FORWARD_PLAIN(cuda_attention_forward_plain_f16, __half)
