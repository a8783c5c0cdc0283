/* add.cu - out (n) = a + b (out may be a or b) and out = beta*out + in, one thread an element. */
#include "kernels/cuda/check.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/operations.h"

static __global__ void add_kernel(float *out, const float *a, const float *b, int64_t n)
{
    for (int64_t i = thread_first(); i < n; i += thread_stride())
        out[i] = a[i] + b[i];
}

extern "C" int cuda_add(void *out, const void *a, const void *b, int64_t n, void *stream,
                        struct muster_error *err)
{
    struct cuda_grid grid = cuda_grid_elements(n);
    CUDA_CHECK_SIZE("add", n, err);
    if (n == 0)
        return 0;
    CUDA_LAUNCH("add", err, add_kernel, grid.blocks, grid.threads, 0, stream, (float *)out, (const float *)a,
                (const float *)b, n);
    return 0;
}

static __global__ void accumulate_kernel(float *out, const float *in, int beta, int64_t n)
{
    for (int64_t i = thread_first(); i < n; i += thread_stride())
        out[i] = beta ? out[i] + in[i] : in[i];
}

extern "C" int cuda_accumulate(void *out, const void *in, int beta, int64_t n, void *stream,
                               struct muster_error *err)
{
    struct cuda_grid grid = cuda_grid_elements(n);
    CUDA_CHECK_SIZE("accumulate", n, err);
    if (n == 0)
        return 0;
    CUDA_LAUNCH("accumulate", err, accumulate_kernel, grid.blocks, grid.threads, 0, stream, (float *)out,
                (const float *)in, beta, n);
    return 0;
}
