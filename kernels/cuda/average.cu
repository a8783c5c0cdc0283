/* average.cu - the moving average of parameters (rules: kernels/ref/average.c), one thread an element. */
#include "kernels/cuda/check.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/operations.h"

static __global__ void average_kernel(float *average, const float *param, float weight, float rest, int64_t n,
                                      const struct step_scalars *scalars)
{
    if (scalars->skip)
        return;
    const bool copies = scalars->step == 1;
    for (int64_t i = thread_first(); i < n; i += thread_stride()) {
        float from = average[i], to = param[i];
        float moved = weight < 0.5f ? from + weight * (to - from) : to - (to - from) * rest;
        average[i] = copies ? to : moved;
    }
}

extern "C" int cuda_average(void *average, const void *param, double decay, int64_t n,
                            const struct step_scalars *scalars, void *stream, struct muster_error *err)
{
    struct cuda_grid grid = cuda_grid_elements(n);
    CUDA_CHECK_SIZE("average", n, err);
    if (n == 0)
        return 0;
    CUDA_LAUNCH("average", err, average_kernel, grid.blocks, grid.threads, 0, stream, (float *)average,
                (const float *)param, (float)(1.0 - decay), (float)decay, n, scalars);
    return 0;
}
