/* adamw.c - AdamW and Adam in one pass over parameter, both moments and gradient (28 bytes a parameter;
 * formulas: kernels/ref/adamw.c, kernels/ref/adam.c). Constants are formed in double and rounded once. */
#include "kernels/cpu/cast.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/segments.h"

#include <math.h>

struct adamw_constants {
    float clip, beta1, one_minus_beta1, beta2, one_minus_beta2;
    float inverse_correction1, inverse_correction2, epsilon, rate, decay;
};

/* coupled: the decay is part of the gradient, as in Adam; a constant at every call. */
static inline __attribute__((always_inline)) void adam_chunk(float *restrict param, float *restrict m,
                                                             float *restrict v, const float *restrict grad,
                                                             int64_t n, struct adamw_constants k,
                                                             const int coupled)
{
    for (int64_t i = 0; i < n; i++) {
        float g = grad[i] * k.clip + (coupled ? k.decay * param[i] : 0.0f);
        float m_new = k.beta1 * m[i] + k.one_minus_beta1 * g;
        float v_new = k.beta2 * v[i] + k.one_minus_beta2 * g * g;
        float step = m_new * k.inverse_correction1 / (sqrtf(v_new * k.inverse_correction2) + k.epsilon);
        param[i] = param[i] - k.rate * (coupled ? step : step + k.decay * param[i]);
        m[i] = m_new;
        v[i] = v_new;
    }
}

static void adam_step(float *param, float *m, float *v, const float *grad,
                      const struct optimizer_segment *list, int count, void *moved, enum dtype dtype_moved,
                      const struct step_scalars *scalars, int coupled)
{
    const struct segments segments = segments_of(list, count);
    const struct adamw_constants common = {
        .clip = (float)scalars->clip,
        .beta1 = (float)scalars->beta1,
        .one_minus_beta1 = (float)(1.0 - scalars->beta1),
        .beta2 = (float)scalars->beta2,
        .one_minus_beta2 = (float)(1.0 - scalars->beta2),
        .inverse_correction1 = (float)(1.0 / scalars->bias_correction1),
        .inverse_correction2 = (float)(1.0 / scalars->bias_correction2),
        .epsilon = (float)scalars->epsilon,
    };
    if (scalars->skip)
        return;
    CPU_PARALLEL_FOR(segments.elements >= CPU_PARALLEL_MIN)
    for (int64_t chunk = 0; chunk < segments.chunks; chunk++) {
        const struct segment_chunk c = segments_chunk(&segments, chunk);
        struct adamw_constants k = common;
        k.rate = (float)scalars->learning_rate[c.parameter_class];
        k.decay = (float)scalars->weight_decay[c.parameter_class];
        if (coupled)
            adam_chunk(param + c.at, m + c.at, v + c.at, grad + c.at, c.size, k, 1);
        else
            adam_chunk(param + c.at, m + c.at, v + c.at, grad + c.at, c.size, k, 0);
        if (moved) /* while the chunk is in the cache */
            cpu_narrow((uint16_t *)moved + c.at, dtype_moved, param + c.at, c.size);
    }
}

void CPU(adamw)(void *param, void *m, void *v, const void *grad, const struct optimizer_segment *segments,
                int segment_count, void *moved, enum dtype dtype_moved, const struct step_scalars *scalars,
                void *stream)
{
    (void)stream;
    adam_step(param, m, v, grad, segments, segment_count, moved, dtype_moved, scalars, 0);
}

void CPU(adam)(void *param, void *m, void *v, const void *grad, const struct optimizer_segment *segments,
               int segment_count, void *moved, enum dtype dtype_moved, const struct step_scalars *scalars,
               void *stream)
{
    (void)stream;
    adam_step(param, m, v, grad, segments, segment_count, moved, dtype_moved, scalars, 1);
}
