/* squared_error.cu - squared differences of n values with their gradient in place, a thread 16 bytes of
 * values (formulas: kernels/ref/squared_error.c). */
#include "kernels/cuda/check.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/values.cuh"

template <typename V>
static __global__ void squared_error_kernel(V *values, float *losses, int32_t *counted, const float *targets,
                                            int64_t n, int gradient, bool aligned,
                                            const struct step_scalars *scalars)
{
    float factor = (float)(2 * scalars->inverse_tokens);
    VALUES_EACH(V, first, n)
    {
        enum { COUNT = value_vector<V>::COUNT };
        const int count = values_left<V>(n, first);
        float x[COUNT], target[COUNT], loss[COUNT];
        int32_t counts[COUNT];
        values_load(x, values + first, count, aligned);
        elements_load<COUNT>(target, targets + first, count, aligned);
        CUDA_EACH (j, 0, COUNT) {
            const float difference = isnan(target[j]) ? 0.0f : x[j] - target[j];
            counts[j] = isnan(target[j]) ? -1 : 0;
            loss[j] = difference * difference;
            x[j] = difference * factor;
        }
        elements_store<COUNT>(counted + first, counts, count, aligned);
        elements_store<COUNT>(losses + first, loss, count, aligned);
        if (gradient)
            values_store(values + first, x, count, aligned);
    }
}

template <typename V>
static int squared_error_of(void *values, void *losses, int32_t *counted, const float *targets, int64_t n,
                            int gradient, const struct step_scalars *scalars, void *stream,
                            struct muster_error *err)
{
    struct cuda_grid grid = values_grid<V>(n);
    CUDA_CHECK_SIZE("squared_error", n, err);
    if (n == 0)
        return 0;
    CUDA_LAUNCH("squared_error", err, squared_error_kernel<V>, grid.blocks, grid.threads, 0, stream,
                (V *)values, (float *)losses, counted, targets, n, gradient,
                values_aligned(values, losses, counted, targets), scalars);
    return 0;
}

#define TYPED_squared_error ~,
#include "kernels/cuda/typed.inc"
#undef TYPED_squared_error
