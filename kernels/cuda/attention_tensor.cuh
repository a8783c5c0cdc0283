/* attention_tensor.cuh - shared by the three kernels of attention by tensor cores: products of tiles in tf32.
 * tf32 rounds both factors to 10 bits of mantissa and adds in float.
 *
 * A block of four warps has 64 rows, 16 a warp, which stay in registers as the left factor; the other side
 * comes 32 rows at a time through shared memory. Lane 4*g + t of a warp holds, of mma.m16n8k8 (PTX ISA,
 * "Matrix Fragments for mma.m16n8k8"):
 *
 *     left (16,8)    [0] (g,t)   [1] (g+8,t)   [2] (g,t+4)   [3] (g+8,t+4)
 *     right (8,8)    [0] (t,g)   [1] (t+4,g)
 *     sum (16,8)     [0] (g,2t)  [1] (g,2t+1)  [2] (g+8,2t)  [3] (g+8,2t+1)
 *
 * A sum becomes a left factor without leaving its lane: a product's inner index may be taken in any order.
 * Columns 2t and 2t+1 of the sum serve as columns t and t+4, and the right factor's rows are taken in the
 * same order. Rows in shared memory lie 4 floats further apart than they are long: every access above is then
 * without a bank conflict. A head has at most D columns; missing columns are 0. Sums are in a fixed order. */
#ifndef MUSTER_KERNELS_CUDA_ATTENTION_TENSOR_CUH
#define MUSTER_KERNELS_CUDA_ATTENTION_TENSOR_CUH

#include "kernels/cuda/attention.cuh"

enum {
    TENSOR_ROWS = CUDA_ATTENTION_TENSOR_ROWS, /* rows of a block */
    TENSOR_THREADS = CUDA_ATTENTION_TENSOR_THREADS,
    TENSOR_WARP_ROWS = 16,
    TENSOR_STEP = 8,                                /* columns of a left factor, and of a sum */
    TENSOR_SUMS = CUDA_ATTENTION_TILE / TENSOR_STEP /* sums of a warp's rows with a tile */
};
static_assert(TENSOR_THREADS / CUDA_WARP * TENSOR_WARP_ROWS == TENSOR_ROWS, "every row has its warp");

#define TENSOR_LOG2E 1.44269504088896341f

/* Rounded to tf32, to the nearest; ties away from 0. */
static __device__ inline float tensor_round(float x)
{
#if defined(CUDA_EMULATED)
    return emu_tf32(x);
#elif __CUDA_ARCH__ >= 800
    uint32_t bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
    return __uint_as_float(bits);
#else
    return x; /* never runs: a device without tf32 is refused */
#endif
}

/* sum (16,8) += left (16,8) right (8,8); factors are rounded already. The whole warp calls. */
static __device__ inline void tensor_multiply(float sum[4], const float left[4], float right0, float right1)
{
#if defined(CUDA_EMULATED)
    emu_multiply_tf32(sum, left, right0, right1, __FILE__, __LINE__);
#elif __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(__float_as_uint(left[0])), "r"(__float_as_uint(left[1])), "r"(__float_as_uint(left[2])),
          "r"(__float_as_uint(left[3])), "r"(__float_as_uint(right0)), "r"(__float_as_uint(right1)));
#endif
}

/* g and t of this lane. */
static __device__ inline int tensor_g()
{
    return lane() / 4;
}
static __device__ inline int tensor_t()
{
    return lane() % 4;
}
/* Where element i of a sum is: its row among the block's, its column from the sum's first. */
static __device__ inline int tensor_row(int i)
{
    return (int)threadIdx.x / CUDA_WARP * TENSOR_WARP_ROWS + tensor_g() + i / 2 * 8;
}
static __device__ inline int tensor_column(int i)
{
    return 2 * tensor_t() + i % 2;
}

/* 32 rows of up to D columns, rounded. */
template <int D> using tensor_tile = float[TILE][D + 4];

/* The whole block calls; it is the caller's to wait before and after. */
template <int D>
static __device__ void tensor_load(tensor_tile<D> &to, struct attention_rows from, int HS, int vectors)
{
    for (int i = (int)threadIdx.x; i < TILE * D / 4; i += TENSOR_THREADS) {
        int row = i / (D / 4), column = i % (D / 4) * 4;
        const float *at = from.at + row * from.stride + column;
        float4 x = make_float4(0, 0, 0, 0);
        if (row < from.rows && vectors && column < HS) {
            x = *(const float4 *)at;
        } else if (row < from.rows) {
            x.x = column < HS ? at[0] : 0.0f;
            x.y = column + 1 < HS ? at[1] : 0.0f;
            x.z = column + 2 < HS ? at[2] : 0.0f;
            x.w = column + 3 < HS ? at[3] : 0.0f;
        }
        *(float4 *)&to[row][column] =
            make_float4(tensor_round(x.x), tensor_round(x.y), tensor_round(x.z), tensor_round(x.w));
    }
}

/* This warp's 16 of the block's rows as left factors of all D columns. */
template <int D>
static __device__ void tensor_load_left(float left[D / TENSOR_STEP][4], struct attention_rows from, int HS)
{
    CUDA_EACH (k, 0, D / TENSOR_STEP)
        for (int i = 0; i < 4; i++) {
            int row = tensor_row(i % 2 * 2), column = k * TENSOR_STEP + tensor_t() + i / 2 * 4;
            bool there = row < from.rows && column < HS;
            left[k][i] = there ? tensor_round(from.at[row * from.stride + column]) : 0.0f;
        }
}

/* sums (16,32) = left (16,D) tile (32,D)^T; inner index outermost, so that four products are under way at a
 * time. */
template <int D>
static __device__ void tensor_scores(float sums[TENSOR_SUMS][4], const float left[D / TENSOR_STEP][4],
                                     const tensor_tile<D> &tile)
{
    CUDA_EACH (n, 0, TENSOR_SUMS)
        CUDA_EACH (i, 0, 4)
            sums[n][i] = 0;
    CUDA_EACH (k, 0, D / TENSOR_STEP)
        CUDA_EACH (n, 0, TENSOR_SUMS) {
            const float *row = tile[n * TENSOR_STEP + tensor_g()];
            tensor_multiply(sums[n], left[k], row[k * TENSOR_STEP + tensor_t()],
                            row[k * TENSOR_STEP + tensor_t() + 4]);
        }
}

/* out (16,D) += weights (16,32) tile (32,D); weights are rounded here. */
template <int D>
static __device__ void tensor_add(float out[D / TENSOR_STEP][4], const float weights[TENSOR_SUMS][4],
                                  const tensor_tile<D> &tile)
{
    CUDA_EACH (k, 0, TENSOR_SUMS) {
        const float left[4] = {tensor_round(weights[k][0]), tensor_round(weights[k][2]),
                               tensor_round(weights[k][1]), tensor_round(weights[k][3])};
        const float *row0 = tile[k * TENSOR_STEP + 2 * tensor_t()],
                    *row1 = tile[k * TENSOR_STEP + 2 * tensor_t() + 1];
        CUDA_EACH (n, 0, D / TENSOR_STEP)
            tensor_multiply(out[n], left, row0[n * TENSOR_STEP + tensor_g()],
                            row1[n * TENSOR_STEP + tensor_g()]);
    }
}

/* The block's rows of one head at `to` = beta * the old rows + sum; rows beyond `rows` add 0. */
template <int D>
static __device__ void tensor_store(float *to, int64_t stride, const float sum[D / TENSOR_STEP][4], int beta,
                                    const struct attention_call *c, const struct attention_item *item)
{
    CUDA_EACH (i, 0, 4) {
        int t = item->first + tensor_row(i);
        if (t >= c->T)
            continue;
        float *row = to + ((int64_t)item->b * c->T + t) * stride + (int64_t)item->head * c->HS;
        CUDA_EACH (n, 0, D / TENSOR_STEP) {
            int column = n * TENSOR_STEP + tensor_column(i);
            float value = tensor_row(i) < item->rows ? sum[n][i] : 0.0f;
            if (column < c->HS)
                row[column] = value + (beta ? row[column] : 0.0f);
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

/* Rows first.. of a part whose rows lie `stride` apart, at most `most` and none at or beyond `end`. */
static __device__ inline struct attention_rows tensor_rows(const float *base, int64_t stride, int T, int b,
                                                           int first, int end, int most, int64_t at)
{
    struct attention_rows rows = {base + ((int64_t)b * T + first) * stride + at, stride, end - first};
    rows.rows = rows.rows < 0 ? 0 : rows.rows < most ? rows.rows : most;
    return rows;
}

/* Keys from `key` on, of `keys` that are seen, and their values; as tensor_load. */
template <int D>
static __device__ void tensor_load_keys(tensor_tile<D> &k, tensor_tile<D> &v, const struct attention_call *c,
                                        int b, int key, int keys, int64_t at)
{
    tensor_load<D>(k, tensor_rows(c->k, c->k_row, c->T, b, key, keys, TILE, at), c->HS, c->vectors);
    tensor_load<D>(v, tensor_rows(c->v, c->v_row, c->T, b, key, keys, TILE, at), c->HS, c->vectors);
}

#endif
