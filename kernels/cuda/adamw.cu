/* adamw.cu - AdamW and Adam in one pass over param, m, v and grad, each (n), a thread 16 bytes of each (28
 * bytes a parameter; formulas: kernels/ref/adamw.c, kernels/ref/adam.c). Constants are formed in double, once
 * a block, and rounded once. */
#include "kernels/cuda/check.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/narrow.cuh"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/values.cuh"

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
                                    bool aligned, int parameter_class, uint16_t *moved,
                                    enum dtype dtype_moved, const struct step_scalars *scalars)
{
    struct adamw_constants *shared = shared_constants();
    if (scalars->skip)
        return;
    if (threadIdx.x == 0)
        *shared = constants_of(scalars, parameter_class);
    __syncthreads();
    const struct adamw_constants k = *shared;
    VALUES_EACH(float, first, n)
    {
        enum { COUNT = value_vector<float>::COUNT };
        const int count = values_left<float>(n, first);
        float p[COUNT], grads[COUNT], m_old[COUNT], v_old[COUNT];
        values_load(p, param + first, count, aligned);
        values_load(grads, grad + first, count, aligned);
        values_load(m_old, m + first, count, aligned);
        values_load(v_old, v + first, count, aligned);
        CUDA_EACH (j, 0, COUNT) {
            float g = grads[j] * k.clip + (coupled ? k.decay * p[j] : 0.0f);
            float m_new = k.beta1 * m_old[j] + k.one_minus_beta1 * g;
            float v_new = k.beta2 * v_old[j] + k.one_minus_beta2 * g * g;
            float step = m_new * k.inverse_correction1 / (sqrtf(v_new * k.inverse_correction2) + k.epsilon);
            p[j] = p[j] - k.rate * (coupled ? step : step + k.decay * p[j]);
            m_old[j] = m_new;
            v_old[j] = v_new;
        }
        values_store(param + first, p, count, aligned);
        values_store(m + first, m_old, count, aligned);
        values_store(v + first, v_old, count, aligned);
        if (moved)
            narrow_store(moved + first, p, count, aligned, dtype_moved);
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
        struct cuda_grid grid = values_grid<float>(n);
        uint16_t *to = moved ? moved + at : NULL;
        CUDA_CHECK_SIZE(name, n, err);
        CUDA_CHECK_CLASS(name, segments[i].parameter_class, err);
        if (n == 0)
            continue;
        CUDA_LAUNCH(name, err, adamw_kernel<coupled>, grid.blocks, grid.threads, 0, stream, param + at,
                    m + at, v + at, grad + at, n,
                    values_aligned(param + at, m + at, v + at, grad + at) && narrow_aligned(to),
                    segments[i].parameter_class, to, dtype_moved, scalars);
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
