/* average.cu - the moving average of parameters (rules: kernels/ref/average.c), a thread 16 bytes of
 * each. */
#include "kernels/cuda/check.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/values.cuh"

static __global__ void average_kernel(float *average, const float *param, float weight, float rest, int64_t n,
                                      bool aligned, const struct step_scalars *scalars)
{
    if (scalars->skip)
        return;
    const bool copies = scalars->step == 1;
    VALUES_EACH(float, first, n)
    {
        enum { COUNT = value_vector<float>::COUNT };
        const int count = values_left<float>(n, first);
        float from[COUNT], to[COUNT];
        values_load(from, average + first, count, aligned);
        values_load(to, param + first, count, aligned);
        CUDA_EACH (j, 0, COUNT) {
            const float change = to[j] - from[j];
            const float moved = weight < 0.5f ? from[j] + weight * change : to[j] - change * rest;
            from[j] = copies ? to[j] : moved;
        }
        values_store(average + first, from, count, aligned);
    }
}

extern "C" int cuda_average(void *average, const void *param, double decay, int64_t n,
                            const struct step_scalars *scalars, void *stream, struct muster_error *err)
{
    struct cuda_grid grid = values_grid<float>(n);
    CUDA_CHECK_SIZE("average", n, err);
    if (n == 0)
        return 0;
    CUDA_LAUNCH("average", err, average_kernel, grid.blocks, grid.threads, 0, stream, (float *)average,
                (const float *)param, (float)(1.0 - decay), (float)decay, n, values_aligned(average, param),
                scalars);
    return 0;
}
