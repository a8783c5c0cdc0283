/* tensor.cuh - shared by the kernels of attention by tensor cores (product.cuh): tiles, and sums of their
 * products.
 *
 * A block of four warps has 64 rows, 16 a warp, the left factor; the other side comes R rows at a time
 * through shared memory. A head has at most D columns; missing columns are 0. Sums are in a fixed order. */
#ifndef MUSTER_KERNELS_CUDA_ATTENTION_TENSOR_CUH
#define MUSTER_KERNELS_CUDA_ATTENTION_TENSOR_CUH

#include "kernels/cuda/attention/call.cuh"
#include "kernels/cuda/attention/product.cuh"

enum {
    TENSOR_ROWS = CUDA_ATTENTION_TENSOR_ROWS, /* rows of a block */
    TENSOR_THREADS = CUDA_ATTENTION_TENSOR_THREADS
};
static_assert(TENSOR_THREADS / CUDA_WARP * TENSOR_WARP_ROWS == TENSOR_ROWS, "every row has its warp");

#define TENSOR_LOG2E 1.44269504088896341f

/* ROWS rows of up to D columns, ready for products. The whole block calls; it is the caller's to wait before
 * and after. */
template <typename M, int D, int ROWS>
static __device__ void tensor_load(tensor_line<M, D> *to, struct attention_rows<typename M::value> from,
                                   int HS, int vectors)
{
    const int VECTOR = value_vector<typename M::value>::COUNT;
    for (int i = (int)threadIdx.x; i < ROWS * D / VECTOR; i += TENSOR_THREADS) {
        const int row = i / (D / VECTOR), column = i % (D / VECTOR) * VECTOR;
        const typename M::value *at = from.at + row * from.stride + column;
        value_vector<typename M::value> x = {};
        if (row < from.rows && vectors && column < HS)
            x = vector_load(at);
        else if (row < from.rows)
            CUDA_EACH (j, 0, VECTOR)
                if (column + j < HS)
                    x.of[j] = at[j];
        CUDA_EACH (j, 0, VECTOR)
            x.of[j] = M::ready(x.of[j]);
        vector_store(&to[row][column], x);
    }
}

/* This warp's 16 of the block's rows as left factors of all D columns: in registers, */
template <typename M, int D, bool KEPT> struct tensor_left {
    uint32_t of[D / M::STEP][4];

    __device__ inline void load(struct attention_rows<typename M::value> from, int HS, int,
                                tensor_line<M, D> *)
    {
        const int WORD = 4 / sizeof(typename M::value);
        CUDA_EACH (k, 0, D / M::STEP)
            for (int i = 0; i < 4; i++) {
                const int row = tensor_row(i % 2 * 2);
                const int column = k * M::STEP + tensor_t() * WORD + i / 2 * (M::STEP / 2);
                of[k][i] = row < from.rows ? M::word(from.at + row * from.stride + column, HS - column) : 0u;
            }
    }
    __device__ inline void take(uint32_t to[4], int k) const
    {
        CUDA_EACH (i, 0, 4)
            to[i] = of[k][i];
    }
};
/* or, where registers are too few, in shared memory, 64 lines of the block's. The block waits before and
 * after `load`. */
template <typename M, int D> struct tensor_left<M, D, false> {
    tensor_line<M, D> *lines;

    __device__ inline void load(struct attention_rows<typename M::value> from, int HS, int vectors,
                                tensor_line<M, D> *shared)
    {
        lines = shared;
        tensor_load<M, D, TENSOR_ROWS>(lines, from, HS, vectors);
    }
    __device__ inline void take(uint32_t to[4], int k) const
    {
        M::left(to, lines, k);
    }
};

/* sums (16,R) = left (16,D) tile (R,D)^T; inner index outermost, so that several products are under way at a
 * time. */
template <typename M, int D, int R, bool KEPT>
static __device__ void tensor_scores(float sums[R / TENSOR_COLUMNS][4], const tensor_left<M, D, KEPT> &left,
                                     const tensor_line<M, D> *tile)
{
    CUDA_EACH (n, 0, R / TENSOR_COLUMNS)
        CUDA_EACH (i, 0, 4)
            sums[n][i] = 0;
    CUDA_EACH (k, 0, D / M::STEP) {
        uint32_t factor[4], right[4];
        left.take(factor, k);
        CUDA_EACH (pair, 0, R / TENSOR_COLUMNS / 2) {
            M::rows(right, tile, k, 2 * pair);
            M::multiply(sums[2 * pair], factor, right);
            M::multiply(sums[2 * pair + 1], factor, right + 2);
        }
    }
}

/* out (16,D) += weights (16,R) tile (R,D); weights are rounded here. */
template <typename M, int D, int R>
static __device__ void tensor_add(float out[D / TENSOR_COLUMNS][4], const float weights[][4],
                                  const tensor_line<M, D> *tile)
{
    CUDA_EACH (step, 0, R / M::STEP) {
        uint32_t factor[4], right[4];
        M::weights(factor, weights, step);
        CUDA_EACH (pair, 0, D / TENSOR_COLUMNS / 2) {
            M::columns(right, tile, step, 2 * pair);
            M::multiply(out[2 * pair], factor, right);
            M::multiply(out[2 * pair + 1], factor, right + 2);
        }
    }
}

/* The block's rows of one head at `to` = beta * the old rows + sum; rows beyond `rows` add 0. */
template <typename M, int D>
static __device__ void tensor_store(typename M::value *to, int64_t stride,
                                    const float sum[D / TENSOR_COLUMNS][4], int beta,
                                    const struct attention_call *c, const struct attention_item *item)
{
    CUDA_EACH (i, 0, 4) {
        int t = item->first + tensor_row(i);
        if (t >= c->T)
            continue;
        typename M::value *row = to + ((int64_t)item->b * c->T + t) * stride + (int64_t)item->head * c->HS;
        CUDA_EACH (n, 0, D / TENSOR_COLUMNS) {
            int column = n * TENSOR_COLUMNS + tensor_column(i);
            float value = tensor_row(i) < item->rows ? sum[n][i] : 0.0f;
            if (column < c->HS)
                row[column] = value_of<typename M::value>(value + (beta ? value_get(row[column]) : 0.0f));
        }
    }
}

static __device__ inline int64_t tensor_items(const struct attention_call *c, int heads)
{
    return (int64_t)((c->T + TENSOR_ROWS - 1) / TENSOR_ROWS) * c->B * heads;
}

/* Late rows first where they have most to do: a grid's last blocks are short then. */
static __device__ inline struct attention_item tensor_item(const struct attention_call *c, int64_t index,
                                                           int heads, bool late_first)
{
    int tiles = (c->T + TENSOR_ROWS - 1) / TENSOR_ROWS;
    int64_t each = (int64_t)c->B * heads;
    struct attention_item item = {};
    int tile = (int)(index / each);
    item.first = (late_first ? tiles - 1 - tile : tile) * TENSOR_ROWS;
    item.head = (int)(index % each % heads);
    item.b = (int)(index % each / heads);
    item.length = c->lengths ? c->lengths[item.b] : c->T;
    int rows = item.length - item.first;
    item.rows = rows < 0 ? 0 : rows < TENSOR_ROWS ? rows : (int)TENSOR_ROWS;
    return item;
}

/* The block's own rows of q, k, v or dout. */
template <typename V>
static __device__ inline struct attention_rows<V> tensor_own(const void *base, int64_t stride,
                                                             const struct attention_call *c,
                                                             const struct attention_item *item, int64_t at) {
    return attention_rows_at<V>(base, stride, c->T, item->b, item->first, item->length, TENSOR_ROWS, at);
}

/* The first key, at a tile's begin, that rows of queries from `first` on may see. */
template <int R>
static __device__ inline int tensor_start(const struct attention_call *c, int b, int first)
{
    return attention_from(c, b, first) / R * R;
}

/* Keys from `key` on, of `keys` that are seen, and their values; as tensor_load. */
template <typename M, int D, int R>
static __device__ void tensor_load_keys(tensor_line<M, D> *k, tensor_line<M, D> *v,
                                        const struct attention_call *c, int b, int key, int keys, int64_t at)
{
    using V = typename M::value;
    tensor_load<M, D, R>(k, attention_rows_at<V>(c->k, c->k_row, c->T, b, key, keys, R, at), c->HS,
                         c->vectors);
    tensor_load<M, D, R>(v, attention_rows_at<V>(c->v, c->v_row, c->T, b, key, keys, R, at), c->HS,
                         c->vectors);
}

#endif
