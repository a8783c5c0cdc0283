/* stored.cu - parameters in 4 or 8 bits are opened (formats: kernels/stored.h; the bits of runtime/rounding).
 * A thread opens 16 elements at a time, from 8 or 16 bytes of codes. */
#include <string.h>

#include "kernels/cuda/check.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/values.cuh"
#include "kernels/stored.h"

enum { STORED_RUN = 16 }; /* elements of a thread's pass; whole runs lie in one block of nf4 */

/* Not fused with a later sum, as the host rounds. */
static __device__ inline float stored_times(float a, float b)
{
#ifdef CUDA_EMULATED
    return a * b;
#else
    return __fmul_rn(a, b);
#endif
}

/* E4M3: a sign, 4 bits of exponent (bias 7), 3 of mantissa. Powers of two are exact factors. */
static __device__ inline float stored_e4m3(unsigned code)
{
    const unsigned exponent = code >> 3 & 15, mantissa = code & 7;
    const float power = __uint_as_float(((exponent ? exponent : 1) + 127 - 10) << 23);
    const float size = (float)(int)(exponent ? 8 + mantissa : mantissa) * power;
    return code & 0x80 ? -size : size;
}

static __device__ inline float stored_float(const uint8_t *at) /* a multiple of 4 bytes */
{
    return __uint_as_float(*(const uint32_t *)at);
}

static __device__ inline void stored_open_nf4(float *to, const uint8_t *units, int64_t first,
                                              const float *levels)
{
    const uint8_t *unit = units + first / STORED_NF4_UNIT * STORED_NF4_BYTES;
    const int at = (int)(first % STORED_NF4_UNIT);
    const uint8_t *constants = unit + STORED_NF4_CODES + STORED_NF4_BLOCKS;
    const uint2 codes = *(const uint2 *)(unit + at / 2); /* one load */
    const float spread = stored_e4m3(unit[STORED_NF4_CODES + at / STORED_NF4_BLOCK]);
    const float size = stored_float(constants) + stored_times(stored_float(constants + 4), spread);
    CUDA_EACH (i, 0, STORED_RUN)
        to[i] = stored_times(levels[(i < 8 ? codes.x >> 4 * i : codes.y >> 4 * (i - 8)) & 15], size);
}

static __device__ inline void stored_open_int8(float *to, const uint8_t *units, int64_t first)
{
    const uint8_t *unit = units + first / STORED_INT8_UNIT * STORED_INT8_BYTES;
    const uint32_t *codes = (const uint32_t *)(unit + first % STORED_INT8_UNIT);
    const float scale = stored_float(unit + STORED_INT8_UNIT);
    CUDA_EACH (word, 0, STORED_RUN / 4) {
        const uint32_t four = codes[word];
        CUDA_EACH (i, 0, 4)
            to[4 * word + i] = stored_times(scale, (float)(int8_t)(four >> 8 * i & 255));
    }
}

template <typename V>
static __global__ void stored_open_kernel(V *out, const uint8_t *units, bool is_nf4, int64_t n, bool aligned)
{
    __shared__ float levels[16]; /* a bank each */
    static const float nf4[16] = {STORED_NF4_LEVELS};
    if (threadIdx.x < 16)
        levels[threadIdx.x] = nf4[threadIdx.x];
    __syncthreads();
    for (int64_t first = thread_first() * STORED_RUN; first < n; first += thread_stride() * STORED_RUN) {
        float values[STORED_RUN];
        if (is_nf4)
            stored_open_nf4(values, units, first, levels);
        else
            stored_open_int8(values, units, first);
        CUDA_EACH (i, 0, STORED_RUN / value_vector<V>::COUNT)
            values_store(out + first + i * value_vector<V>::COUNT, values + i * value_vector<V>::COUNT,
                         value_vector<V>::COUNT, aligned);
    }
}

template <typename V>
static int stored_launch(V *out, const void *units, enum stored kind, int64_t n, void *stream,
                         struct muster_error *err)
{
    const struct cuda_grid grid = cuda_grid_elements(cuda_ceil_divide(n, STORED_RUN));
    CUDA_LAUNCH("stored_open", err, stored_open_kernel, grid.blocks, grid.threads, 0, stream, out,
                (const uint8_t *)units, kind == STORED_NF4, n, values_aligned(out));
    return 0;
}

extern "C" int cuda_stored_open(void *out, enum dtype dtype_out, const void *units, enum stored kind,
                                int64_t n, void *stream, struct muster_error *err)
{
    const int64_t unit = kind == STORED_NF4 ? STORED_NF4_UNIT : STORED_INT8_UNIT;
    CUDA_CHECK_SIZE("stored_open", n, err);
    if (kind != STORED_NF4 && kind != STORED_INT8)
        return error_set(err, MUSTER_E_INVALID, "stored_open: kind is %d; it must be nf4 or int8", (int)kind);
    if (n % unit || (uintptr_t)units % (kind == STORED_NF4 ? 8 : 4))
        return error_set(
            err, MUSTER_E_INVALID,
            "stored_open: %lld elements at %p; they must be whole units of %lld, at a multiple of "
            "8 bytes",
            (long long)n, units, (long long)unit);
    if (n == 0)
        return 0;
    switch (dtype_out) {
    case DTYPE_F32:
        return stored_launch((float *)out, units, kind, n, stream, err);
    case DTYPE_BF16:
        return stored_launch((__nv_bfloat16 *)out, units, kind, n, stream, err);
    case DTYPE_F16:
        return stored_launch((__half *)out, units, kind, n, stream, err);
    default:
        return error_set(err, MUSTER_E_INVALID, "stored_open: dtype_out is %d; it must be f32, bf16 or f16",
                         (int)dtype_out);
    }
}
