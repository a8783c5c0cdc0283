/* add.cu - out (n) = a + b (out may be a or b) and out = beta*out + in, a thread 16 bytes of values. */
#include "kernels/cuda/check.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/values.cuh"

template <typename V>
static __global__ void add_kernel(V *out, const V *a, const V *b, int64_t n, bool aligned)
{
    VALUES_EACH(V, first, n)
    {
        const int count = values_left<V>(n, first);
        float x[value_vector<V>::COUNT], y[value_vector<V>::COUNT];
        values_load(x, a + first, count, aligned);
        values_load(y, b + first, count, aligned);
        CUDA_EACH (j, 0, value_vector<V>::COUNT)
            x[j] += y[j];
        values_store(out + first, x, count, aligned);
    }
}

template <typename V>
static int add_of(void *out, const void *a, const void *b, int64_t n, void *stream, struct muster_error *err)
{
    const struct cuda_grid grid = values_grid<V>(n);
    CUDA_CHECK_SIZE("add", n, err);
    if (n == 0)
        return 0;
    CUDA_LAUNCH("add", err, add_kernel<V>, grid.blocks, grid.threads, 0, stream, (V *)out, (const V *)a,
                (const V *)b, n, values_aligned(out, a, b));
    return 0;
}

template <typename V>
static __global__ void accumulate_kernel(V *out, const V *in, int beta, int64_t n, bool aligned)
{
    VALUES_EACH(V, first, n)
    {
        const int count = values_left<V>(n, first);
        float x[value_vector<V>::COUNT], y[value_vector<V>::COUNT];
        values_load(x, in + first, count, aligned);
        if (beta) {
            values_load(y, out + first, count, aligned);
            CUDA_EACH (j, 0, value_vector<V>::COUNT)
                x[j] = y[j] + x[j];
        }
        values_store(out + first, x, count, aligned);
    }
}

template <typename V>
static int accumulate_of(void *out, const void *in, int beta, int64_t n, void *stream,
                         struct muster_error *err)
{
    const struct cuda_grid grid = values_grid<V>(n);
    CUDA_CHECK_SIZE("accumulate", n, err);
    if (n == 0)
        return 0;
    CUDA_LAUNCH("accumulate", err, accumulate_kernel<V>, grid.blocks, grid.threads, 0, stream, (V *)out,
                (const V *)in, beta, n, values_aligned(out, in));
    return 0;
}

#define TYPED_add        ~,
#define TYPED_accumulate ~,
#include "kernels/cuda/typed.inc"
#undef TYPED_add
#undef TYPED_accumulate
