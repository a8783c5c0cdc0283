/* adamw.cu - AdamW and Adam in one pass over param, m, v and grad, each (n) (28 bytes a parameter; formulas:
 * kernels/ref/adamw.c, kernels/ref/adam.c). Constants are formed in double, once a block, and rounded once.
 */
#include "kernels/cuda/check.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/narrow.cuh"
#include "kernels/cuda/operations.h"

struct adamw_constants {
    float clip, beta1, one_minus_beta1, beta2, one_minus_beta2;
    float inverse_correction1, inverse_correction2, epsilon, rate, decay;
};

static __device__ struct adamw_constants constants_of(const struct step_scalars *s, int parameter_class)
{
    struct adamw_constants k;
    k.clip = (float)s->clip;
    k.beta1 = (float)s->beta1;
    k.one_minus_beta1 = (float)(1.0 - s->beta1);
    k.beta2 = (float)s->beta2;
    k.one_minus_beta2 = (float)(1.0 - s->beta2);
    k.inverse_correction1 = (float)(1.0 / s->bias_correction1);
    k.inverse_correction2 = (float)(1.0 / s->bias_correction2);
    k.epsilon = (float)s->epsilon;
    k.rate = (float)s->learning_rate[parameter_class];
    k.decay = (float)s->weight_decay[parameter_class];
    return k;
}

/* The block's; not of the kernel itself: of a template's variables the emulator would not know that they are
 * shared (g++ leaves out their section). */
static __device__ struct adamw_constants *shared_constants()
{
    __shared__ struct adamw_constants constants;
    return &constants;
}

/* coupled: the decay is part of the gradient, as in Adam. */
template <bool coupled>
static __global__ void adamw_kernel(float *param, float *m, float *v, const float *grad, int64_t n,
                                    int parameter_class, uint16_t *moved, enum dtype dtype_moved,
                                    const struct step_scalars *scalars)
{
    struct adamw_constants *shared = shared_constants();
    if (scalars->skip)
        return;
    if (threadIdx.x == 0)
        *shared = constants_of(scalars, parameter_class);
    __syncthreads();
    const struct adamw_constants k = *shared;
    for (int64_t i = thread_first(); i < n; i += thread_stride()) {
        float g = grad[i] * k.clip + (coupled ? k.decay * param[i] : 0.0f);
        float m_new = k.beta1 * m[i] + k.one_minus_beta1 * g;
        float v_new = k.beta2 * v[i] + k.one_minus_beta2 * g * g;
        float step = m_new * k.inverse_correction1 / (sqrtf(v_new * k.inverse_correction2) + k.epsilon);
        param[i] = param[i] - k.rate * (coupled ? step : step + k.decay * param[i]);
        m[i] = m_new;
        v[i] = v_new;
        if (moved)
            moved[i] = narrow_encode(param[i], dtype_moved);
    }
}

template <bool coupled>
static int launch(const char *name, float *param, float *m, float *v, const float *grad,
                  const struct optimizer_segment *segments, int segment_count, uint16_t *moved,
                  enum dtype dtype_moved, const struct step_scalars *scalars, void *stream,
                  struct muster_error *err)
{
    for (int i = 0; i < segment_count; i++) {
        const int64_t at = segments[i].offset, n = segments[i].count;
        struct cuda_grid grid = cuda_grid_elements(n);
        CUDA_CHECK_SIZE(name, n, err);
        CUDA_CHECK_CLASS(name, segments[i].parameter_class, err);
        if (n == 0)
            continue;
        CUDA_LAUNCH(name, err, adamw_kernel<coupled>, grid.blocks, grid.threads, 0, stream, param + at,
                    m + at, v + at, grad + at, n, segments[i].parameter_class, moved ? moved + at : NULL,
                    dtype_moved, scalars);
    }
    return 0;
}

extern "C" int cuda_adamw(void *param, void *m, void *v, const void *grad,
                          const struct optimizer_segment *segments, int segment_count, void *moved,
                          enum dtype dtype_moved, const struct step_scalars *scalars, void *stream,
                          struct muster_error *err)
{
    return launch<false>("adamw", (float *)param, (float *)m, (float *)v, (const float *)grad, segments,
                         segment_count, (uint16_t *)moved, dtype_moved, scalars, stream, err);
}

extern "C" int cuda_adam(void *param, void *m, void *v, const void *grad,
                         const struct optimizer_segment *segments, int segment_count, void *moved,
                         enum dtype dtype_moved, const struct step_scalars *scalars, void *stream,
                         struct muster_error *err)
{
    return launch<true>("adam", (float *)param, (float *)m, (float *)v, (const float *)grad, segments,
                        segment_count, (uint16_t *)moved, dtype_moved, scalars, stream, err);
}
