/* product.cuh - products of fragments by tensor cores: (16,8) += left (16,STEP) right (STEP,8), sums in
 * float.
 *
 *   tensor_tf32                 factors are float, rounded to 10 bits of mantissa; mma.m16n8k8; sm_80
 *   tensor_16<__nv_bfloat16>    mma.m16n8k16; sm_80
 *   tensor_16<__half>           mma.m16n8k16; on sm_75 two of m16n8k8, which are its halves
 *
 * Lane 4*g + t of a warp holds, after the PTX ISA ("Matrix Fragments for mma"), in words of 32 bits:
 *
 *     tf32   left (16,8)    [0] (g,t)  [1] (g+8,t)  [2] (g,t+4)  [3] (g+8,t+4)
 *            right (8,8)    [0] (t,g)  [1] (t+4,g)
 *     16     left (16,16)   [0] (g,2t..2t+1)  [1] (g+8,2t..2t+1)  [2] (g,2t+8..2t+9)  [3] (g+8,2t+8..2t+9)
 *            right (16,8)   [0] (2t..2t+1,g)  [1] (2t+8..2t+9,g)
 *     both   sum (16,8)     [0] (g,2t)  [1] (g,2t+1)  [2] (g+8,2t)  [3] (g+8,2t+1)
 *
 * A sum becomes a left factor without leaving its lane. In 16 bits two sums that lie side by side are one
 * left factor. In tf32 a product's inner index is taken in another order: columns 2t and 2t+1 of the sum
 * serve as columns t and t+4, and the right factor's rows are taken in the same order.
 *
 * Right factors lie in shared memory, in rows that are PAD values longer than they are wide: every access is
 * without a bank conflict. ldmatrix reads right factors of 16 bits: lane i has the address of row i%8 of
 * matrix i/8, (8,8), and gets in word j the elements (g,2t..2t+1) of matrix j, or transposed (2t..2t+1,g). */
#ifndef MUSTER_KERNELS_CUDA_ATTENTION_PRODUCT_CUH
#define MUSTER_KERNELS_CUDA_ATTENTION_PRODUCT_CUH

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/values.cuh"

enum { TENSOR_WARP_ROWS = 16, TENSOR_COLUMNS = 8 }; /* a sum is so large */

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

/* A row of up to D columns in shared memory. */
template <typename M, int D> using tensor_line = typename M::value[D + M::PAD];

/* ---- the instructions ---- */

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

/* The whole warp calls, here and below. */
static __device__ inline void tensor_multiply_tf32(float sum[4], const uint32_t left[4], uint32_t right0,
                                                   uint32_t right1)
{
#if defined(CUDA_EMULATED)
    emu_multiply_tf32(sum, left, right0, right1, __FILE__, __LINE__);
#elif __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right0), "r"(right1));
#endif
}

static __device__ inline void tensor_multiply_16(float sum[4], const uint32_t left[4], uint32_t right0,
                                                 uint32_t right1, __nv_bfloat16)
{
#if defined(CUDA_EMULATED)
    emu_multiply_16<__nv_bfloat16>(sum, left, right0, right1, __FILE__, __LINE__);
#elif __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right0), "r"(right1));
#endif
}

static __device__ inline void tensor_multiply_16(float sum[4], const uint32_t left[4], uint32_t right0,
                                                 uint32_t right1, __half)
{
#if defined(CUDA_EMULATED)
    emu_multiply_16<__half>(sum, left, right0, right1, __FILE__, __LINE__);
#elif __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right0), "r"(right1));
#else
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(left[0]), "r"(left[1]), "r"(right0));
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(left[2]), "r"(left[3]), "r"(right1));
#endif
}

/* Four matrices of shared memory; `row` is a multiple of 16 bytes. */
static __device__ inline void tensor_matrices(uint32_t to[4], const void *row)
{
#if defined(CUDA_EMULATED)
    emu_matrices(to, row, false, __FILE__, __LINE__);
#else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"((uint32_t)__cvta_generic_to_shared(row))
                 : "memory");
#endif
}
static __device__ inline void tensor_matrices_transposed(uint32_t to[4], const void *row)
{
#if defined(CUDA_EMULATED)
    emu_matrices(to, row, true, __FILE__, __LINE__);
#else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"((uint32_t)__cvta_generic_to_shared(row))
                 : "memory");
#endif
}

/* ---- factors ----
 *
 * NARROWEST columns of the narrowest head that there are kernels for
 * word      a word of a left factor from memory, of whose values `count` are there
 * weights   the left factor of step `step` from sums
 * left      the left factor of step k, this warp's 16 rows of a tile
 * rows      the right factors of sums n and n + 1 (two words each) at step k, whose columns are rows of a
 * tile columns   the same, whose columns are a tile's */

struct tensor_tf32 {
    using value = float;
    enum { STEP = 8, PAD = 4, NARROWEST = 32 };

    static __device__ inline value ready(value x)
    {
        return tensor_round(x);
    }
    static __device__ inline uint32_t word(const value *at, int count)
    {
        return count > 0 ? __float_as_uint(tensor_round(*at)) : 0u;
    }
    static __device__ inline void weights(uint32_t to[4], const float sums[][4], int step)
    {
        CUDA_EACH (i, 0, 4)
            to[i] = __float_as_uint(tensor_round(sums[step][i % 2 * 2 + i / 2]));
    }
    template <typename Line> static __device__ inline void left(uint32_t to[4], const Line *tile, int k)
    {
        CUDA_EACH (i, 0, 4)
            to[i] = __float_as_uint(tile[tensor_row(i % 2 * 2)][k * STEP + tensor_t() + i / 2 * 4]);
    }
    template <typename Line>
    static __device__ inline void rows(uint32_t to[4], const Line *tile, int k, int n)
    {
        CUDA_EACH (i, 0, 4)
            to[i] = __float_as_uint(
                tile[(n + i / 2) * TENSOR_COLUMNS + tensor_g()][k * STEP + tensor_t() + i % 2 * 4]);
    }
    template <typename Line>
    static __device__ inline void columns(uint32_t to[4], const Line *tile, int step, int n)
    {
        CUDA_EACH (i, 0, 4)
            to[i] = __float_as_uint(
                tile[step * STEP + 2 * tensor_t() + i % 2][(n + i / 2) * TENSOR_COLUMNS + tensor_g()]);
    }
    static __device__ inline void multiply(float sum[4], const uint32_t left[4], const uint32_t right[2])
    {
        tensor_multiply_tf32(sum, left, right[0], right[1]);
    }
};

template <typename V> struct tensor_16 {
    using value = V;
    enum { STEP = 16, PAD = 8, NARROWEST = 64 };

    static __device__ inline value ready(value x)
    {
        return x;
    }
    static __device__ inline uint32_t two(V low, V high)
    {
        return value_bits(low) | (uint32_t)value_bits(high) << 16;
    }
    static __device__ inline uint32_t word(const value *at, int count)
    {
        return count > 1 ? two(at[0], at[1]) : count > 0 ? value_bits(at[0]) : 0u;
    }
    static __device__ inline void weights(uint32_t to[4], const float sums[][4], int step)
    {
        CUDA_EACH (i, 0, 4) {
            const float *pair = &sums[2 * step + i / 2][i % 2 * 2];
            to[i] = two(value_of<V>(pair[0]), value_of<V>(pair[1]));
        }
    }
    template <typename Line> static __device__ inline void left(uint32_t to[4], const Line *tile, int k)
    {
        const int row = (int)threadIdx.x / CUDA_WARP * TENSOR_WARP_ROWS + lane() % 16;
        tensor_matrices(to, &tile[row][k * STEP + lane() / 16 * 8]);
    }
    template <typename Line>
    static __device__ inline void rows(uint32_t to[4], const Line *tile, int k, int n)
    {
        const int row = n * TENSOR_COLUMNS + lane() / 16 * 8 + lane() % 8;
        tensor_matrices(to, &tile[row][k * STEP + lane() / 8 % 2 * 8]);
    }
    template <typename Line>
    static __device__ inline void columns(uint32_t to[4], const Line *tile, int step, int n)
    {
        tensor_matrices_transposed(to,
                                   &tile[step * STEP + lane() % 16][n * TENSOR_COLUMNS + lane() / 16 * 8]);
    }
    static __device__ inline void multiply(float sum[4], const uint32_t left[4], const uint32_t right[2])
    {
        tensor_multiply_16(sum, left, right[0], right[1], V());
    }
};

#endif
