/* scale.cu - values (n) *= factor, rounded to float once: a double for each element would cost more than its
 * memory on GPUs with few double units. */
#include "kernels/cuda/check.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/operations.h"

static __global__ void scale_kernel(float *values, float factor, int64_t n)
{
    for (int64_t i = thread_first(); i < n; i += thread_stride())
        values[i] *= factor;
}

extern "C" int cuda_scale(void *values, double factor, int64_t n, void *stream, struct muster_error *err)
{
    struct cuda_grid grid = cuda_grid_elements(n);
    CUDA_CHECK_SIZE("scale", n, err);
    if (n == 0)
        return 0;
    CUDA_LAUNCH("scale", err, scale_kernel, grid.blocks, grid.threads, 0, stream, (float *)values,
                (float)factor, n);
    return 0;
}
