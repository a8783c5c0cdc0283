/* sgd.cu - SGD with momentum in one pass over param, momentum and grad, each (n), a thread 16 bytes of
 * each (rules: kernels/ref/sgd.c). Constants are rounded once. */
#include "kernels/cuda/check.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/narrow.cuh"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/values.cuh"

static __global__ void sgd_kernel(float *param, float *momentum, const float *grad, int64_t n, bool aligned,
                                  int parameter_class, float factor, float added, int nesterov,
                                  uint16_t *moved, enum dtype dtype_moved, const struct step_scalars *scalars)
{
    if (scalars->skip)
        return;
    float clip = (float)scalars->clip, rate = (float)scalars->learning_rate[parameter_class];
    float decay = (float)scalars->weight_decay[parameter_class];
    const bool begins = scalars->step == 1; /* the first momentum is the gradient */
    VALUES_EACH(float, first, n)
    {
        enum { COUNT = value_vector<float>::COUNT };
        const int count = values_left<float>(n, first);
        float p[COUNT], grads[COUNT], m[COUNT] = {};
        values_load(p, param + first, count, aligned);
        values_load(grads, grad + first, count, aligned);
        if (momentum)
            values_load(m, momentum + first, count, aligned);
        CUDA_EACH (j, 0, COUNT) {
            float g = grads[j] * clip + decay * p[j], step = g;
            if (momentum) {
                m[j] = begins ? g : factor * m[j] + added * g;
                step = nesterov ? g + factor * m[j] : m[j];
            }
            p[j] = p[j] - rate * step;
        }
        if (momentum)
            values_store(momentum + first, m, count, aligned);
        values_store(param + first, p, count, aligned);
        if (moved)
            narrow_store(moved + first, p, count, aligned, dtype_moved);
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
        struct cuda_grid grid = values_grid<float>(n);
        float *to_momentum = momentum ? momentum + at : NULL;
        uint16_t *to = moved ? moved + at : NULL;
        CUDA_CHECK_SIZE("sgd", n, err);
        CUDA_CHECK_CLASS("sgd", segments[i].parameter_class, err);
        if (n == 0)
            continue;
        CUDA_LAUNCH("sgd", err, sgd_kernel, grid.blocks, grid.threads, 0, stream, param + at, to_momentum,
                    grad + at, n, values_aligned(param + at, to_momentum, grad + at) && narrow_aligned(to),
                    segments[i].parameter_class, (float)momentum_factor, (float)(1.0 - dampening), nesterov,
                    to, dtype_moved, scalars);
    }
    return 0;
}
