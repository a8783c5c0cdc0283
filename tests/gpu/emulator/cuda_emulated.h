/* cuda_emulated.h - included before each of kernels/cuda/(*.cu), it has a C++ compiler compile them and the
 * emulator run them on a CPU: a thread of a block is a fiber, the fibers of a block take turns on the
 * stream's thread, and blocks run one after the other. Types with host versions (half, bfloat16, vectors) are
 * NVIDIA's own headers. README.md lists the faults that are found and the others. */
#ifndef MUSTER_TESTS_GPU_CUDA_EMULATED_H
#define MUSTER_TESTS_GPU_CUDA_EMULATED_H

#include <cuda_runtime.h>

#include <cstdint>
/* g++'s library: not Bessel's functions and the like, half of what <cmath> takes to read. */
#undef _GLIBCXX_USE_STD_SPEC_FUNCS
#include <cmath>
#include <cstring>
#include <type_traits>

#define CUDA_EMULATED 1

/* The thread that runs. */
struct emu_thread {
    uint3 thread, block;
    dim3 block_dim, grid_dim;
    int lane;
    uint32_t factors[2][6]; /* for a product of matrices, for the warp's other lanes: in turns, since some of
                            them may read the last one's when this lane is at its next */
    unsigned products;
};
extern __thread struct emu_thread *emu_now; /* thread_local: each use would call a function */

enum emu_kind { EMU_SHUFFLE, EMU_BALLOT, EMU_SYNCWARP };

/* Returns when all lanes of mask are here: element i is then the payload of lane i, all bits set for a lane
 * that is not in mask. Until the caller waits again. */
const uint64_t *emu_warp(enum emu_kind kind, unsigned mask, uint64_t payload, const char *file, int line);
/* Returns when all threads of the block are here: over how many of them value is not 0. */
int emu_block(int value, const char *file, int line);
/* The launch's dynamic shared memory. */
void *emu_dynamic_shared(void);
/* cudaFuncSetAttribute(cudaFuncAttributeMaxDynamicSharedMemorySize) for this thread's next launch. */
cudaError_t emu_allow_shared(size_t bytes);
/* A grid's limit, or that of EMU_GRID_LIMIT where it is lower; INT32_MAX is none. */
int64_t emu_grid_limit(int64_t limit);
/* The function of each thread of a grid. (Not std::function: its header took half of the time of compiling a
 * kernel.) */
struct emu_body {
    virtual void run() = 0;
    virtual ~emu_body() = default;
};
/* Enqueues body, which it deletes, for each thread of the grid. A launch that CUDA would refuse is refused:
 * as with <<<>>>, the thread's last error has the reason. `operation` and `kernel` live as long as the
 * program. */
void emu_enqueue(const char *operation, const char *kernel, dim3 grid, dim3 block, size_t shared,
                 cudaStream_t stream, struct emu_body *body);
template <typename F> struct emu_body_of final : emu_body {
    F f;
    explicit emu_body_of(const F &from) : f(from) {}
    void run() override
    {
        f();
    }
};
/* f calls the kernel with the arguments, which are copied now. */
template <typename F, typename... A>
static void emu_launch(const char *operation, const char *kernel, dim3 grid, dim3 block, size_t shared,
                       cudaStream_t stream, F f, A... arguments)
{
    auto body = [=] { f(arguments...); };
    emu_enqueue(operation, kernel, grid, block, shared, stream, new emu_body_of<decltype(body)>(body));
}
/* The memory of this library's __shared__ variables, which is filled with 0xff before each block. */
void emu_shared_register(void *start, void *stop);

extern char emu_shared_start[] __asm__("__start_emu_shared") __attribute__((weak, visibility("hidden")));
extern char emu_shared_stop[] __asm__("__stop_emu_shared") __attribute__((weak, visibility("hidden")));
__attribute__((constructor)) static void emu_shared_of_this_library(void)
{
    if (emu_shared_start)
        emu_shared_register(emu_shared_start, emu_shared_stop);
}

#undef __global__
#undef __device__
#undef __host__
#undef __shared__
#undef __launch_bounds__
#define __global__
#define __device__
#define __host__
#define __launch_bounds__(...)
#define __shared__ static __attribute__((section("emu_shared")))

#define threadIdx (emu_now->thread)
#define blockIdx  (emu_now->block)
#define blockDim  (emu_now->block_dim)
#define gridDim   (emu_now->grid_dim)

#define __syncthreads()                ((void)emu_block(0, __FILE__, __LINE__))
#define __syncthreads_or(x)            (emu_block((x) != 0, __FILE__, __LINE__) != 0)
#define __syncthreads_count(x)         emu_block((x) != 0, __FILE__, __LINE__)
#define __ballot_sync(mask, x)         emu_ballot(EMU_BALLOT, mask, (x) != 0, __FILE__, __LINE__)
#define __any_sync(mask, x)            (emu_ballot(EMU_BALLOT, mask, (x) != 0, __FILE__, __LINE__) != 0)
#define __syncwarp(...)                ((void)emu_ballot(EMU_SYNCWARP, 0xffffffffu, 0, __FILE__, __LINE__))
#define __shfl_sync(mask, v, at)       emu_shuffle(mask, v, (int)(at), __FILE__, __LINE__)
#define __shfl_xor_sync(mask, v, bits) emu_shuffle(mask, v, emu_now->lane ^ (int)(bits), __FILE__, __LINE__)
/* A lane whose source would be beyond the warp keeps its own. */
#define __shfl_down_sync(mask, v, by)                                                                        \
    emu_shuffle(mask, v, emu_now->lane + (int)(by) < 32 ? emu_now->lane + (int)(by) : emu_now->lane,         \
                __FILE__, __LINE__)
#define __shfl_up_sync(mask, v, by)                                                                          \
    emu_shuffle(mask, v, emu_now->lane - (int)(by) >= 0 ? emu_now->lane - (int)(by) : emu_now->lane,         \
                __FILE__, __LINE__)

template <typename T> static T emu_shuffle(unsigned mask, T value, int from, const char *file, int line)
{
    static_assert(sizeof(T) <= 8 && std::is_trivially_copyable<T>::value, "a shuffle moves at most 8 bytes");
    uint64_t bits = 0;
    T result;
    memcpy(&bits, &value, sizeof value);
    bits = emu_warp(EMU_SHUFFLE, mask, bits, file, line)[from & 31];
    memcpy(&result, &bits, sizeof result);
    return result;
}

static inline unsigned emu_ballot(enum emu_kind kind, unsigned mask, int predicate, const char *file,
                                  int line)
{
    unsigned result = 0;
    const uint64_t *all = emu_warp(kind, mask, predicate != 0, file, line);
    for (int i = 0; i < 32; i++)
        if (mask >> i & 1)
            result |= (unsigned)all[i] << i;
    return result;
}

/* To the nearest of 10 bits of mantissa, ties away from 0 (cvt.rna.tf32.f32). */
static inline float emu_tf32(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if ((bits & 0x7f800000u) != 0x7f800000u)
        bits += 0x1000u;
    bits &= ~0x1fffu;
    memcpy(&x, &bits, sizeof bits);
    return x;
}

static inline uint32_t __float_as_uint(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
static inline float __uint_as_float(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* lanes: the words of both factors of every lane of the warp. */
static inline void emu_factors(const uint32_t *lanes[32], const uint32_t left[4], uint32_t right0,
                               uint32_t right1, const char *file, int line)
{
    const uint32_t words[6] = {left[0], left[1], left[2], left[3], right0, right1};
    uint32_t *mine = emu_now->factors[emu_now->products++ % 2];
    memcpy(mine, words, sizeof words);
    const uint64_t *all = emu_warp(EMU_SHUFFLE, 0xffffffffu, (uint64_t)(uintptr_t)mine, file, line);
    memcpy(lanes, all, 32 * sizeof *lanes);
}

/* mma.sync.m16n8k8 of tf32: of both factors the lower 13 bits are not looked at, so that a factor that was
 * not rounded is cut. The GPU's order of additions is not known; here it is that of the inner index. */
static inline void emu_multiply_tf32(float sum[4], const uint32_t left[4], uint32_t right0, uint32_t right1,
                                     const char *file, int line)
{
    const uint32_t *lanes[32];
    emu_factors(lanes, left, right0, right1, file, line);
    const int g = emu_now->lane / 4, t = emu_now->lane % 4;
    for (int k = 0; k < 8; k++) { /* left (16,8): rows g and g + 8; right (8,8): columns 2t and 2t + 1 */
        const uint32_t *row = lanes[4 * g + k % 4] + k / 4 * 2;
        const uint32_t *column0 = lanes[8 * t + k % 4] + 4 + k / 4,
                       *column1 = lanes[8 * t + 4 + k % 4] + 4 + k / 4;
        for (int i = 0; i < 4; i++)
            sum[i] += __uint_as_float(row[i / 2] & ~0x1fffu) *
                      __uint_as_float((i % 2 ? *column1 : *column0) & ~0x1fffu);
    }
}

/* mma.sync.m16n8k16 of bf16 or f16: a word is two values, the first in its low half. */
template <typename V>
static inline void emu_multiply_16(float sum[4], const uint32_t left[4], uint32_t right0, uint32_t right1,
                                   const char *file, int line)
{
    const uint32_t *lanes[32];
    emu_factors(lanes, left, right0, right1, file, line);
    const int g = emu_now->lane / 4, t = emu_now->lane % 4;
    for (int k = 0; k < 16;
         k++) { /* rows g and g + 8 of left (16,16), columns 2t and 2t + 1 of right (16,8) */
        const uint32_t *row = lanes[4 * g + k % 8 / 2] + k / 8 * 2;
        const uint32_t *column0 = lanes[8 * t + k % 8 / 2] + 4 + k / 8,
                       *column1 = lanes[8 * t + 4 + k % 8 / 2] + 4 + k / 8;
        const uint32_t words[4] = {row[0], row[1], *column0, *column1};
        float values[4];
        for (int i = 0; i < 4; i++) {
            const uint16_t bits = (uint16_t)(words[i] >> k % 2 * 16);
            V value;
            memcpy((void *)&value, &bits, sizeof value);
            values[i] = (float)value;
        }
        for (int i = 0; i < 4; i++)
            sum[i] += values[i / 2] * values[2 + i % 2];
    }
}

extern bool emu_vectors; /* memory was read or written several values at once (watch.h) */
void emu_misaligned(const void *pointer, int bytes, const char *file, int line);
static inline void emu_aligned(const void *pointer, int bytes, const char *file, int line)
{
    __atomic_store_n(&emu_vectors, true, __ATOMIC_RELAXED);
    if ((uintptr_t)pointer % (uintptr_t)bytes != 0)
        emu_misaligned(pointer, bytes, file, line);
}

/* ldmatrix.sync.x4 of 16-bit elements. */
static inline void emu_matrices(uint32_t to[4], const void *row, bool transposed, const char *file, int line)
{
    emu_aligned(row, 16, file, line);
    const uint64_t *all = emu_warp(EMU_SHUFFLE, 0xffffffffu, (uint64_t)(uintptr_t)row, file, line);
    const int g = emu_now->lane / 4, t = emu_now->lane % 4;
    for (int j = 0; j < 4; j++) {
        const uint16_t *first = (const uint16_t *)(uintptr_t)all[8 * j + (transposed ? 2 * t : g)];
        const uint16_t *second = (const uint16_t *)(uintptr_t)all[8 * j + (transposed ? 2 * t + 1 : g)];
        to[j] = transposed ? first[g] | (uint32_t)second[g] << 16
                           : first[2 * t] | (uint32_t)second[2 * t + 1] << 16;
    }
}

static inline int __ffs(int x)
{
    return __builtin_ffs(x);
}
static inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}
static inline void sincospif(float x, float *sine, float *cosine)
{
    *sine = (float)sin(3.14159265358979323846 * (double)x);
    *cosine = (float)cos(3.14159265358979323846 * (double)x);
}

using std::isfinite;
using std::isinf;
using std::isnan;

#endif
