/* squared_error.cu - squared differences of n values with their gradient in place, one thread an element
 * (formulas: kernels/ref/squared_error.c). */
#include "kernels/cuda/check.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/values.cuh"

template <typename V>
static __global__ void squared_error_kernel(V *values, float *losses, int32_t *counted, const float *targets,
                                            int64_t n, int gradient, const struct step_scalars *scalars)
{
    float factor = (float)(2 * scalars->inverse_tokens);
    for (int64_t i = thread_first(); i < n; i += thread_stride()) {
        float target = targets[i], difference = isnan(target) ? 0.0f : value_get(values[i]) - target;
        counted[i] = isnan(target) ? -1 : 0;
        losses[i] = difference * difference;
        if (gradient)
            values[i] = value_of<V>(difference * factor);
    }
}

template <typename V>
static int squared_error_of(void *values, void *losses, int32_t *counted, const float *targets, int64_t n,
                            int gradient, const struct step_scalars *scalars, void *stream,
                            struct muster_error *err)
{
    struct cuda_grid grid = cuda_grid_elements(n);
    CUDA_CHECK_SIZE("squared_error", n, err);
    if (n == 0)
        return 0;
    CUDA_LAUNCH("squared_error", err, squared_error_kernel<V>, grid.blocks, grid.threads, 0, stream,
                (V *)values, (float *)losses, counted, targets, n, gradient, scalars);
    return 0;
}

#define TYPED_squared_error ~,
#include "kernels/cuda/typed.inc"
#undef TYPED_squared_error
