/* sgd.cu - SGD with momentum in one pass over param, momentum and grad, each (n) (rules: kernels/ref/sgd.c).
 * Constants are rounded once. */
#include "kernels/cuda/check.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/narrow.cuh"
#include "kernels/cuda/operations.h"

static __global__ void sgd_kernel(float *param, float *momentum, const float *grad, int64_t n,
                                  int parameter_class, float factor, float added, int nesterov,
                                  uint16_t *moved, enum dtype dtype_moved, const struct step_scalars *scalars)
{
    if (scalars->skip)
        return;
    float clip = (float)scalars->clip, rate = (float)scalars->learning_rate[parameter_class];
    float decay = (float)scalars->weight_decay[parameter_class];
    bool first = scalars->step == 1; /* the first momentum is the gradient */
    for (int64_t i = thread_first(); i < n; i += thread_stride()) {
        float g = grad[i] * clip + decay * param[i], step = g;
        if (momentum) {
            float m = first ? g : factor * momentum[i] + added * g;
            step = nesterov ? g + factor * m : m;
            momentum[i] = m;
        }
        param[i] = param[i] - rate * step;
        if (moved)
            moved[i] = narrow_encode(param[i], dtype_moved);
    }
}

extern "C" int cuda_sgd(void *param_, void *momentum_, const void *grad_,
                        const struct optimizer_segment *segments, int segment_count, double momentum_factor,
                        double dampening, int nesterov, void *moved_, enum dtype dtype_moved,
                        const struct step_scalars *scalars, void *stream, struct muster_error *err)
{
    float *param = (float *)param_, *momentum = (float *)momentum_;
    const float *grad = (const float *)grad_;
    uint16_t *moved = (uint16_t *)moved_;
    for (int i = 0; i < segment_count; i++) {
        const int64_t at = segments[i].offset, n = segments[i].count;
        struct cuda_grid grid = cuda_grid_elements(n);
        CUDA_CHECK_SIZE("sgd", n, err);
        CUDA_CHECK_CLASS("sgd", segments[i].parameter_class, err);
        if (n == 0)
            continue;
        CUDA_LAUNCH("sgd", err, sgd_kernel, grid.blocks, grid.threads, 0, stream, param + at,
                    momentum ? momentum + at : NULL, grad + at, n, segments[i].parameter_class,
                    (float)momentum_factor, (float)(1.0 - dampening), nesterov, moved ? moved + at : NULL,
                    dtype_moved, scalars);
    }
    return 0;
}
