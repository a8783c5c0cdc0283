/* values.cuh - values of one type in device memory, float, bf16 or f16, which are computed with in float:
 * one at a time, and 16 bytes at a time. */
#ifndef MUSTER_KERNELS_CUDA_VALUES_CUH
#define MUSTER_KERNELS_CUDA_VALUES_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>
#include <string.h>

#include "kernels/cuda/device.cuh"

static __device__ inline float value_get(float value)
{
    return value;
}
static __device__ inline float value_get(__nv_bfloat16 value)
{
    return __bfloat162float(value);
}
static __device__ inline float value_get(__half value)
{
    return __half2float(value);
}

static __device__ inline uint16_t value_bits(__nv_bfloat16 value)
{
    return __bfloat16_as_ushort(value);
}
static __device__ inline uint16_t value_bits(__half value)
{
    return __half_as_ushort(value);
}

/* Rounded once, to the nearest, ties to even. */
template <typename V> static __device__ inline V value_of(float value);
template <> __device__ inline float value_of<float>(float value)
{
    return value;
}
template <> __device__ inline __nv_bfloat16 value_of<__nv_bfloat16>(float value)
{
    return __float2bfloat16_rn(value);
}
template <> __device__ inline __half value_of<__half>(float value)
{
    return __float2half_rn(value);
}

/* 16 bytes of values. */
template <typename V> struct __align__(16) value_vector
{
    enum { COUNT = 16 / sizeof(V) };
    V of[COUNT];
};

/* `from` is a multiple of 16 bytes. */
template <typename V> static __device__ inline value_vector<V> vector_load(const V *from)
{
    value_vector<V> vector;
    CUDA_ALIGNED(from, 16);
    const uint4 bits = *(const uint4 *)from; /* one load */
    memcpy(&vector, &bits, sizeof vector);
    return vector;
}
template <typename V> static __device__ inline void vector_store(V *to, const value_vector<V> &vector)
{
    uint4 bits;
    CUDA_ALIGNED(to, 16);
    memcpy(&bits, &vector, sizeof bits);
    *(uint4 *)to = bits;
}

/* `count` of E elements of any type, which are a number of vectors; elements that are left out are 0. */
template <int E, typename T>
static __device__ inline void elements_load(T *to, const T *from, int count, bool aligned)
{
    enum { COUNT = value_vector<T>::COUNT };
    if (aligned && count >= E) {
        CUDA_EACH (k, 0, E / COUNT) {
            const value_vector<T> x = vector_load(from + k * COUNT);
            CUDA_EACH (j, 0, COUNT)
                to[k * COUNT + j] = x.of[j];
        }
    } else {
        CUDA_EACH (j, 0, E)
            to[j] = j < count ? from[j] : T{};
    }
}
template <int E, typename T>
static __device__ inline void elements_store(T *to, const T *from, int count, bool aligned)
{
    enum { COUNT = value_vector<T>::COUNT };
    if (aligned && count >= E) {
        CUDA_EACH (k, 0, E / COUNT) {
            value_vector<T> x;
            CUDA_EACH (j, 0, COUNT)
                x.of[j] = from[k * COUNT + j];
            vector_store(to + k * COUNT, x);
        }
    } else {
        CUDA_EACH (j, 0, E)
            if (j < count)
                to[j] = from[j];
    }
}

/* `count` values from `from` on, at most a vector's, as float; the others of the vector are 0. aligned: all
 * vectors begin at a multiple of 16 bytes. Whether they do changes no bit: the same values go to the same
 * thread. */
template <typename V>
static __device__ inline void values_load(float *to, const V *from, int count, bool aligned)
{
    if (aligned && count >= value_vector<V>::COUNT) {
        const value_vector<V> x = vector_load(from);
        CUDA_EACH (j, 0, value_vector<V>::COUNT)
            to[j] = value_get(x.of[j]);
    } else {
        CUDA_EACH (j, 0, value_vector<V>::COUNT)
            to[j] = j < count ? value_get(from[j]) : 0.0f;
    }
}
template <typename V>
static __device__ inline void values_store(V *to, const float *from, int count, bool aligned)
{
    if (aligned && count >= value_vector<V>::COUNT) {
        value_vector<V> x;
        CUDA_EACH (j, 0, value_vector<V>::COUNT)
            x.of[j] = value_of<V>(from[j]);
        vector_store(to, x);
    } else {
        CUDA_EACH (j, 0, value_vector<V>::COUNT)
            if (j < count)
                to[j] = value_of<V>(from[j]);
    }
}

/* For each vector of this thread of n values: `first`, its first element, and how many there are. */
#define VALUES_EACH(V, first, n)                                                                             \
    for (int64_t first = thread_first() * value_vector<V>::COUNT; first < (n);                               \
         first += thread_stride() * value_vector<V>::COUNT)
template <typename V> static __device__ inline int values_left(int64_t n, int64_t first)
{
    return n - first < value_vector<V>::COUNT ? (int)(n - first) : (int)value_vector<V>::COUNT;
}

/* For each vector of this thread of `rows` rows of `width` values: its row, its first column, and how many
 * there are. A row begins with a vector of its own. */
template <typename V, typename F> static __device__ inline void rows_each(int64_t rows, int width, F f)
{
    const int64_t vectors = (width + value_vector<V>::COUNT - 1) / value_vector<V>::COUNT;
    for (int64_t i = thread_first(); i < rows * vectors; i += thread_stride()) {
        const int column = (int)(i % vectors) * value_vector<V>::COUNT;
        f(i / vectors, column, values_left<V>(width, column));
    }
}

/* The host's: a grid of a thread a vector of n values, or of rows, and whether pointers (or NULL) are
 * multiples of 16 bytes. */
template <typename V> static inline struct cuda_grid values_grid(int64_t n)
{
    return cuda_grid_elements(cuda_ceil_divide(n, value_vector<V>::COUNT));
}
template <typename V> static inline struct cuda_grid rows_grid(int64_t rows, int width)
{
    return cuda_grid_elements(rows * cuda_ceil_divide(width, value_vector<V>::COUNT));
}
/* Whether a distance, in values, is a number of vectors. */
template <typename V> static inline bool distance_aligned(int64_t distance)
{
    return distance % value_vector<V>::COUNT == 0;
}
static inline bool values_aligned(const void *a, const void *b = nullptr, const void *c = nullptr,
                                  const void *d = nullptr, const void *e = nullptr)
{
    return (((uintptr_t)a | (uintptr_t)b | (uintptr_t)c | (uintptr_t)d | (uintptr_t)e) & 15) == 0;
}

#endif
