/* rows.cuh - rows of C values that are a warp's: lane l has vectors l, l + 32, ... The first K vectors of a
 * lane stay in registers, so that a row is read once; the others are read again, from the cache. Which K is
 * chosen changes no bit. */
#ifndef MUSTER_KERNELS_CUDA_ROWS_CUH
#define MUSTER_KERNELS_CUDA_ROWS_CUH

#include "kernels/cuda/values.cuh"

/* K: 512 or 2,048 values of float, 1,024 or 4,096 of 16 bits; of two rows at a time, half as many of the
 * latter. And the blocks that a multiprocessor then has registers for. */
enum { ROW_FEW = 4, ROW_MANY = 16 };
#define ROW_BLOCKS(kept) ((kept) <= ROW_FEW ? 4 : (kept) <= 2 * ROW_FEW ? 3 : 2)

template <typename V> static inline bool row_is_short(int C)
{
    return C <= ROW_FEW * CUDA_WARP * value_vector<V>::COUNT;
}

/* A copy whose value the compiler does not know: it would else keep the row widened, in twice the registers.
 */
template <typename V>
static __device__ inline void row_again(value_vector<V> *to, const value_vector<V> &from)
{
    uint4 bits;
    memcpy(&bits, &from, sizeof bits);
#ifndef CUDA_EMULATED
    asm volatile("" : "+r"(bits.x), "+r"(bits.y), "+r"(bits.z), "+r"(bits.w));
#endif
    memcpy(to, &bits, sizeof bits);
}

template <typename V, int K> struct row_values {
    const V *row;
    int C;
    bool aligned;
    value_vector<V> kept[K];

    __device__ inline void load(const V *from, int columns, bool all_aligned)
    {
        row = from;
        C = columns;
        aligned = all_aligned;
        CUDA_EACH (k, 0, K) {
            const int c = (k * CUDA_WARP + lane()) * value_vector<V>::COUNT;
            if (aligned && c + value_vector<V>::COUNT <= C) {
                kept[k] = vector_load(row + c);
            } else {
                CUDA_EACH (j, 0, value_vector<V>::COUNT)
                    kept[k].of[j] = c + j < C ? row[c + j] : value_of<V>(0.0f);
            }
        }
    }
    /* The same of the sum of two rows, which goes to `to`: a row of either, or a third. */
    __device__ inline void load_sum(V *to, const V *a, const V *b, int columns, bool all_aligned);
    /* Row n of in, or of in + other, which goes to row n of `added`. */
    template <bool adds>
    __device__ inline void load_row(V *added, const V *in, const V *other, int64_t n, int columns,
                                    bool all_aligned)
    {
        const int64_t at = n * columns;
        if (adds)
            load_sum(added + at, in + at, other + at, columns, all_aligned);
        else
            load(in + at, columns, all_aligned);
    }
    /* The values from column c on: vector k of the lane where k is not -1. */
    __device__ inline void take(float *to, int k, int c) const
    {
        if (k >= 0) {
            value_vector<V> x;
            row_again(&x, kept[k]);
            CUDA_EACH (j, 0, value_vector<V>::COUNT)
                to[j] = value_get(x.of[j]);
        } else {
            values_load(to, row + c, values_left<V>(C, c), aligned);
        }
    }
};

/* Adds to SUMS sums a column's over runs of rows, (SUMS,runs,C), in their order. */
template <int SUMS>
static __device__ inline void column_totals(float *sums, const float *work, int64_t runs, int64_t C,
                                            int64_t c)
{
    for (int64_t run = 0; run < runs; run++)
        CUDA_EACH (i, 0, SUMS)
            sums[i] += work[(i * runs + run) * C + c];
}

/* f(k, c, count) for each vector of this lane of a row of C: its number, -1 where it is not in registers, its
 * first column, and how many there are. */
template <typename V, int K, typename F> static __device__ inline void row_each(int C, F f)
{
    const int first = lane() * value_vector<V>::COUNT, step = CUDA_WARP * value_vector<V>::COUNT;
    CUDA_EACH (k, 0, K)
        if (first + k * step < C)
            f(k, first + k * step, values_left<V>(C, first + k * step));
    for (int c = first + K * step; c < C; c += step)
        f(-1, c, values_left<V>(C, c));
}

/* A value is read again, if at all, by the thread that wrote it. */
template <typename V, int K>
__device__ inline void row_values<V, K>::load_sum(V *to, const V *a, const V *b, int columns,
                                                  bool all_aligned)
{
    row = to;
    C = columns;
    aligned = all_aligned;
    row_each<V, K>(C, [&](int k, int c, int count) {
        float x[value_vector<V>::COUNT], y[value_vector<V>::COUNT];
        values_load(x, a + c, count, aligned);
        values_load(y, b + c, count, aligned);
        CUDA_EACH (j, 0, value_vector<V>::COUNT)
            x[j] += y[j];
        values_store(to + c, x, count, aligned);
        if (k < 0)
            return;
        value_vector<V> sums; /* 0 beyond the row */
        CUDA_EACH (j, 0, value_vector<V>::COUNT)
            sums.of[j] = value_of<V>(x[j]);
        row_again(&kept[k], sums);
    });
}

#endif
