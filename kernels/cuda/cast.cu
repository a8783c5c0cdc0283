/* cast.cu - to[i] = (dtype_to) from[i] for i < n, every pair of element types, rounded once, to nearest even;
 * to integers towards zero, out of range to the nearest end, NaN to 0 (kernels/ref/cast.c).
 *
 * A thread has 16 bytes of the narrower type. An element is widened exactly to float, or to double where
 * float cannot hold it, and narrowed from there: between float, bf16 and f16 nothing goes through double, of
 * which small GPUs have few units. */
#include "kernels/cuda/check.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/values.cuh"

static __device__ inline float widen(float value)
{
    return value;
}
static __device__ inline double widen(double value)
{
    return value;
}
static __device__ inline float widen(__nv_bfloat16 value)
{
    return __bfloat162float(value);
}
static __device__ inline float widen(__half value)
{
    return __half2float(value);
}
static __device__ inline double widen(int32_t value)
{
    return value;
}
static __device__ inline float widen(uint8_t value)
{
    return value;
}

/* fmax and fmin would turn NaN into an end. */
static __device__ inline double clamp(double value, double low, double high)
{
    return isnan(value) ? 0.0 : fmin(fmax(value, low), high);
}

template <typename Wide> static __device__ inline void narrow(float *to, Wide value)
{
    *to = (float)value;
}
template <typename Wide> static __device__ inline void narrow(double *to, Wide value)
{
    *to = (double)value;
}
static __device__ inline void narrow(__nv_bfloat16 *to, float value)
{
    *to = __float2bfloat16_rn(value);
}
static __device__ inline void narrow(__nv_bfloat16 *to, double value)
{
    *to = __double2bfloat16(value);
}
static __device__ inline void narrow(__half *to, float value)
{
    *to = __float2half_rn(value);
}
static __device__ inline void narrow(__half *to, double value)
{
    *to = __double2half(value);
}
template <typename Wide> static __device__ inline void narrow(int32_t *to, Wide value)
{
    *to = (int32_t)clamp((double)value, INT32_MIN, INT32_MAX);
}
template <typename Wide> static __device__ inline void narrow(uint8_t *to, Wide value)
{
    *to = (uint8_t)clamp((double)value, 0, UINT8_MAX);
}

/* Elements of a thread: 16 bytes of the narrower type are some vectors of the wider one. */
template <typename To, typename From> struct cast_of {
    enum { COUNT = 16 / (sizeof(To) < sizeof(From) ? sizeof(To) : sizeof(From)) };
};

template <typename To, typename From>
static __global__ void cast_kernel(To *to, const From *from, int64_t n, bool aligned)
{
    enum { COUNT = cast_of<To, From>::COUNT };
    for (int64_t first = thread_first() * COUNT; first < n; first += thread_stride() * COUNT) {
        const int count = n - first < COUNT ? (int)(n - first) : (int)COUNT;
        From in[COUNT];
        To out[COUNT];
        elements_load<COUNT>(in, from + first, count, aligned);
        CUDA_EACH (j, 0, COUNT)
            narrow(out + j, widen(in[j]));
        elements_store<COUNT>(to + first, out, count, aligned);
    }
}

template <typename To, typename From>
static int cast_enqueue(To *to, const From *from, int64_t n, cudaStream_t stream, struct muster_error *err)
{
    const struct cuda_grid grid = cuda_grid_elements(cuda_ceil_divide(n, cast_of<To, From>::COUNT));
    auto *kernel = cast_kernel<To, From>;
    CUDA_LAUNCH("cast", err, kernel, grid.blocks, grid.threads, 0, stream, to, from, n,
                values_aligned(to, from));
    return 0;
}
/* Nothing is to be converted, and cuda_cast copies. */
template <typename Same>
static int cast_enqueue(Same *, const Same *, int64_t, cudaStream_t, struct muster_error *)
{
    return 0;
}

/* A dtype's name and the device's type for it. */
#define CAST_TYPES(X)                                                                                        \
    X(DTYPE_F32, float)                                                                                      \
    X(DTYPE_F64, double)                                                                                     \
    X(DTYPE_BF16, __nv_bfloat16)                                                                             \
    X(DTYPE_F16, __half)                                                                                     \
    X(DTYPE_I32, int32_t)                                                                                    \
    X(DTYPE_U8, uint8_t)

template <typename To>
static int cast_launch(To *to, const void *from, enum dtype dtype_from, int64_t n, cudaStream_t stream,
                       struct muster_error *err)
{
    switch (dtype_from) {
#define CAST_FROM(name, type)                                                                                \
    case name:                                                                                               \
        return cast_enqueue(to, (const type *)from, n, stream, err);
        CAST_TYPES(CAST_FROM)
#undef CAST_FROM
    case DTYPE_COUNT:
        break;
    }
    return error_set(err, MUSTER_E_INVALID, "cast: dtype_from is %d; it must be 0 to %d", (int)dtype_from,
                     DTYPE_COUNT - 1);
}

extern "C" int cuda_cast(void *to, enum dtype dtype_to, const void *from, enum dtype dtype_from, int64_t n,
                         void *stream, struct muster_error *err)
{
    cudaStream_t queue = (cudaStream_t)stream;
    CUDA_CHECK_SIZE("cast", n, err);
    if (n == 0)
        return 0;
    if (dtype_to == dtype_from && dtype_size(dtype_to) > 0) {
        size_t bytes = (size_t)n * (size_t)dtype_size(dtype_to);
        CUDA_CHECK("cast: cudaMemcpyAsync", cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, queue),
                   err);
        return 0;
    }
    switch (dtype_to) {
#define CAST_TO(name, type)                                                                                  \
    case name:                                                                                               \
        return cast_launch((type *)to, from, dtype_from, n, queue, err);
        CAST_TYPES(CAST_TO)
#undef CAST_TO
    case DTYPE_COUNT:
        break;
    }
    return error_set(err, MUSTER_E_INVALID, "cast: dtype_to is %d; it must be 0 to %d", (int)dtype_to,
                     DTYPE_COUNT - 1);
}

template <typename V>
static __global__ void widen_kernel(float *out, const V *in, int beta, int64_t n, bool aligned)
{
    VALUES_EACH(V, first, n)
    {
        enum { COUNT = value_vector<V>::COUNT };
        const int count = values_left<V>(n, first);
        float x[COUNT], old[COUNT];
        values_load(x, in + first, count, aligned);
        if (beta) {
            elements_load<COUNT>(old, out + first, count, aligned);
            CUDA_EACH (j, 0, COUNT)
                x[j] = old[j] + x[j];
        }
        elements_store<COUNT>(out + first, x, count, aligned);
    }
}

template <typename V>
static int widen_launch(void *out, const void *in, int beta, int64_t n, void *stream,
                        struct muster_error *err)
{
    const struct cuda_grid grid = values_grid<V>(n);
    CUDA_LAUNCH("widen", err, widen_kernel<V>, grid.blocks, grid.threads, 0, stream, (float *)out,
                (const V *)in, beta, n, values_aligned(out, in));
    return 0;
}

extern "C" int cuda_widen(void *out, const void *in, enum dtype dtype_in, int beta, int64_t n, void *stream,
                          struct muster_error *err)
{
    CUDA_CHECK_SIZE("widen", n, err);
    if (dtype_in != DTYPE_BF16 && dtype_in != DTYPE_F16)
        return error_set(err, MUSTER_E_INVALID, "widen: dtype_in is %d; it must be bf16 or f16",
                         (int)dtype_in);
    if (n == 0)
        return 0;
    return dtype_in == DTYPE_BF16 ? widen_launch<__nv_bfloat16>(out, in, beta, n, stream, err)
                                  : widen_launch<__half>(out, in, beta, n, stream, err);
}
