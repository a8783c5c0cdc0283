/* plain_backward.cu - the gradients of attention, probabilities formed again from lse (formulas:
 * kernels/ref/attention.c). Three kernels: D = rows of dout.out into work (B,heads,T); dk and dv, a block 32
 * keys of one head of keys with all queries that see them, head after head; dq, a block 32 queries. Scores
 * are so formed twice, and nothing is added across blocks: the order of every sum is fixed. */
#include "kernels/cuda/attention/dots.cuh"
#include "kernels/cuda/attention/narrow.h"
#include "kernels/cuda/attention/plain.cuh"
#include "kernels/cuda/check.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/operations.h"

struct key_shared {
    tile_slice a, b, p, ds;
    tile_chunk q, dout;
};
struct query_shared {
    tile_slice a, b, ds;
    tile_chunk k;
};

/* The statistics of the queries of one head of one sequence. */
struct query_statistics {
    const float *lse, *D;
};
static __device__ inline struct query_statistics statistics_of(const struct attention_call *c, const float *D,
                                                               int b, int head)
{
    int64_t at = ((int64_t)b * c->heads + head) * c->T;
    struct query_statistics statistics = {c->lse + at, D + at};
    return statistics;
}

/* Probability of a score, and the score's gradient; 0 where the query does not see the key. */
static __device__ inline void unsoftmax(float *p, float *ds, float score, float dp,
                                        struct query_statistics of, int from, int query, int key, int length,
                                        const struct attention_call *c)
{
    bool seen = attention_sees(c, from, query, key, length);
    score = attention_score(c, score);
    *p = seen ? expf(score - of.lse[query]) : 0.0f;
    *ds = seen ? *p * (dp - of.D[query]) * c->scale * attention_slope(c, score) : 0.0f;
}

/* to's rows of this item = beta * the old rows + sum. */
template <typename V>
static __device__ void store(V *to, int64_t stride, const float sum[PAIR][RESULTS], int beta,
                             const struct attention_call *c, const struct attention_item *item)
{
    for (int i = 0; i < PAIR; i++) {
        int t = item->first + row_of(i);
        if (t >= c->T)
            continue;
        V *row = to + ((int64_t)item->b * c->T + t) * stride + (int64_t)item->head * c->HS;
        for (int j = 0; j < RESULTS; j++) {
            int column = item->chunk + column_of(j);
            float value = row_of(i) < item->rows ? sum[i][j] : 0.0f;
            if (column < c->HS)
                row[column] = value_of<V>(value + (beta ? value_get(row[column]) : 0.0f));
        }
    }
}

/* What queries query..query+31 of one head add to dk and dv of the item's keys. */
template <typename V>
static __device__ void add_queries(float dk[PAIR][RESULTS], float dv[PAIR][RESULTS],
                                   struct key_shared *shared, const struct attention_call *c,
                                   const struct attention_item *item, const float *D, int head, int query)
{
    int64_t kv = (int64_t)item->head * c->HS, at = (int64_t)head * c->HS;
    struct attention_rows<V> k =
        attention_rows_at<V>(c->k, c->k_row, c->T, item->b, item->first, item->length, TILE, kv);
    struct attention_rows<V> v =
        attention_rows_at<V>(c->v, c->v_row, c->T, item->b, item->first, item->length, TILE, kv);
    struct attention_rows<V> q =
        attention_rows_at<V>(c->q, c->q_row, c->T, item->b, query, item->length, TILE, at);
    struct attention_rows<V> dout =
        attention_rows_at<V>(c->dout, c->out_row, c->T, item->b, query, item->length, TILE, at);
    struct query_statistics statistics = statistics_of(c, D, item->b, head);
    float scores[PAIR][SCORES], dp[PAIR][SCORES];
    rows_product(scores, k, q, shared->a, shared->b, c->HS, c->vectors);
    rows_product(dp, v, dout, shared->a, shared->b, c->HS, c->vectors);
    for (int j = 0; j < SCORES; j++) {
        const int at = query + column_of(j), from = attention_from(c, item->b, at);
        for (int i = 0; i < PAIR; i++)
            unsoftmax(&shared->p[row_of(i)][column_of(j)], &shared->ds[row_of(i)][column_of(j)], scores[i][j],
                      dp[i][j], statistics, from, at, item->first + row_of(i), item->length, c);
    }
    load_columns<CHUNK>(shared->q, q, item->chunk, c->HS, c->vectors);
    load_columns<CHUNK>(shared->dout, dout, item->chunk, c->HS, c->vectors);
    __syncthreads();
    add_product(dk, shared->ds, shared->q, q.rows, c->HS - item->chunk);
    add_product(dv, shared->p, shared->dout, q.rows, c->HS - item->chunk);
}

template <typename V>
static __global__ void __launch_bounds__(THREADS)
    key_gradient_kernel(V *dk, V *dv, const float *D, struct attention_call call, int beta_k, int beta_v)
{
    CUDA_DYNAMIC_SHARED(struct key_shared, shared);
    const struct attention_call *c = &call;
    int group = c->heads / c->kv_heads;
    for (int64_t index = blockIdx.x; index < item_count(c, c->kv_heads); index += gridDim.x) {
        struct attention_item item = item_of(c, index, c->kv_heads);
        float dk_sum[PAIR][RESULTS] = {}, dv_sum[PAIR][RESULTS] = {};
        int end = item.rows == 0 ? 0 : item.length;
        for (int head = item.head * group; head < (item.head + 1) * group; head++)
            for (int query = c->causal ? item.first : attention_start(c, item.b, item.first);
                 query < end && attention_from(c, item.b, query) < item.first + item.rows; query += TILE)
                add_queries<V>(dk_sum, dv_sum, shared, c, &item, D, head, query);
        store(dk, c->k_row, dk_sum, beta_k, c, &item);
        store(dv, c->v_row, dv_sum, beta_v, c, &item);
    }
}

template <typename V>
static __global__ void __launch_bounds__(THREADS)
    query_gradient_kernel(V *dq, const float *D, struct attention_call call, int beta)
{
    CUDA_DYNAMIC_SHARED(struct query_shared, shared);
    const struct attention_call *c = &call;
    for (int64_t index = blockIdx.x; index < item_count(c, c->heads); index += gridDim.x) {
        struct attention_item item = item_of(c, index, c->heads);
        struct query_statistics statistics = statistics_of(c, D, item.b, item.head);
        int64_t at = (int64_t)item.head * c->HS;
        int64_t kv = (int64_t)(item.head / (c->heads / c->kv_heads)) * c->HS;
        int keys = attention_end(c, item.first, item.rows, item.length);
        float sum[PAIR][RESULTS] = {};
        struct attention_rows<V> q =
            attention_rows_at<V>(c->q, c->q_row, c->T, item.b, item.first, item.length, TILE, at);
        struct attention_rows<V> dout =
            attention_rows_at<V>(c->dout, c->out_row, c->T, item.b, item.first, item.length, TILE, at);
        for (int key = attention_start(c, item.b, item.first); key < keys; key += TILE) {
            struct attention_rows<V> k =
                attention_rows_at<V>(c->k, c->k_row, c->T, item.b, key, keys, TILE, kv);
            struct attention_rows<V> v =
                attention_rows_at<V>(c->v, c->v_row, c->T, item.b, key, keys, TILE, kv);
            float scores[PAIR][SCORES], dp[PAIR][SCORES], p;
            rows_product(scores, q, k, shared->a, shared->b, c->HS, c->vectors);
            rows_product(dp, dout, v, shared->a, shared->b, c->HS, c->vectors);
            for (int i = 0; i < PAIR; i++) {
                const int query = item.first + row_of(i), from = attention_from(c, item.b, query);
                for (int j = 0; j < SCORES; j++)
                    unsoftmax(&p, &shared->ds[row_of(i)][column_of(j)], scores[i][j], dp[i][j], statistics,
                              from, query, key + column_of(j), item.length, c);
            }
            load_columns<CHUNK>(shared->k, k, item.chunk, c->HS, c->vectors);
            __syncthreads();
            add_product(sum, shared->ds, shared->k, k.rows, c->HS - item.chunk);
        }
        store(dq, c->q_row, sum, beta, c, &item);
    }
}

extern "C" size_t cuda_attention_work(const struct attention *a, int backward)
{
    return backward ? cuda_attention_work_bytes(a->B, a->heads, a->T) : 0;
}

template <typename V>
static int attention_backward_plain(void *dq, void *dk, void *dv, const void *dout, const void *q,
                                    const void *k, const void *v, const void *out, const void *lse,
                                    const struct attention *a, const int beta[3], void *work, void *stream,
                                    struct muster_error *err)
{
    struct attention_call call;
    float *D = (float *)work;
    if (attention_call_make(&call, "attention_backward", a, q, k, v, dout, sizeof(V), err) < 0)
        return -1;
    call.lse = (const float *)lse;
    struct cuda_grid keys = cuda_grid_attention(a->B, a->kv_heads, a->T, a->head_size);
    struct cuda_grid queries = cuda_grid_attention(a->B, a->heads, a->T, a->head_size);
    if (keys.blocks == 0 || queries.blocks == 0)
        return 0;
    if (attention_dots<V>(D, dout, out, a, stream, err) < 0)
        return -1;
    CUDA_LAUNCH("attention_backward", err, key_gradient_kernel<V>, keys.blocks, keys.threads,
                sizeof(struct key_shared), stream, (V *)dk, (V *)dv, D, call, beta[1], beta[2]);
    CUDA_LAUNCH("attention_backward", err, query_gradient_kernel<V>, queries.blocks, queries.threads,
                sizeof(struct query_shared), stream, (V *)dq, D, call, beta[0]);
    return 0;
}

#define ATTENTION_BACKWARD_PLAIN(name, V)                                                                    \
    extern "C" int name(void *dq, void *dk, void *dv, const void *dout, const void *q, const void *k,        \
                        const void *v, const void *out, const void *lse, const struct attention *a,          \
                        const int beta[3], void *work, void *stream, struct muster_error *err)               \
    {                                                                                                        \
        return attention_backward_plain<V>(dq, dk, dv, dout, q, k, v, out, lse, a, beta, work, stream, err); \
    }
ATTENTION_BACKWARD_PLAIN(cuda_attention_backward, float)
ATTENTION_BACKWARD_PLAIN(cuda_attention_backward_plain_bf16, __nv_bfloat16)
ATTENTION_BACKWARD_PLAIN(cuda_attention_backward_plain_f16, __half)
