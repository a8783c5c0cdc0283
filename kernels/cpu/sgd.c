/* sgd.c - SGD with momentum in one pass over parameter, momentum and gradient (20 bytes a parameter, 12
 * without momentum; rules: kernels/ref/sgd.c). Constants are formed in double and rounded once. */
#include "kernels/cpu/cast.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/segments.h"

struct sgd_constants {
    float clip, rate, decay;
    float kept, added;      /* factors of the momentum and of the gradient in the new momentum */
    float ahead, unchanged; /* the step is ahead * momentum + unchanged * gradient */
};

static void momentum_chunk(float *restrict param, float *restrict momentum, const float *restrict grad,
                           int64_t n, struct sgd_constants k)
{
    for (int64_t i = 0; i < n; i++) {
        float g = grad[i] * k.clip + k.decay * param[i];
        float m = k.kept * momentum[i] + k.added * g;
        param[i] = param[i] - k.rate * (k.ahead * m + k.unchanged * g);
        momentum[i] = m;
    }
}

/* The first momentum is the gradient. The old memory is not read, so it may hold anything. */
static void first_chunk(float *restrict param, float *restrict momentum, const float *restrict grad,
                        int64_t n, struct sgd_constants k)
{
    for (int64_t i = 0; i < n; i++) {
        float g = grad[i] * k.clip + k.decay * param[i];
        param[i] = param[i] - k.rate * (k.ahead * g + k.unchanged * g);
        momentum[i] = g;
    }
}

static void plain_chunk(float *restrict param, const float *restrict grad, int64_t n, struct sgd_constants k)
{
    for (int64_t i = 0; i < n; i++)
        param[i] = param[i] - k.rate * (grad[i] * k.clip + k.decay * param[i]);
}

void CPU(sgd)(void *param_, void *momentum_, const void *grad_, const struct optimizer_segment *list,
              int count, double momentum_factor, double dampening, int nesterov, void *moved,
              enum dtype dtype_moved, const struct step_scalars *scalars, void *stream)
{
    float *param = param_, *momentum = momentum_;
    const float *grad = grad_;
    const struct segments segments = segments_of(list, count);
    const struct sgd_constants common = {
        .clip = (float)scalars->clip,
        .kept = (float)momentum_factor,
        .added = (float)(1.0 - dampening),
        .ahead = nesterov ? (float)momentum_factor : 1.0f,
        .unchanged = nesterov ? 1.0f : 0.0f,
    };
    (void)stream;
    if (scalars->skip)
        return;
    CPU_PARALLEL_FOR(segments.elements >= CPU_PARALLEL_MIN)
    for (int64_t chunk = 0; chunk < segments.chunks; chunk++) {
        const struct segment_chunk c = segments_chunk(&segments, chunk);
        struct sgd_constants k = common;
        k.rate = (float)scalars->learning_rate[c.parameter_class];
        k.decay = (float)scalars->weight_decay[c.parameter_class];
        if (!momentum)
            plain_chunk(param + c.at, grad + c.at, c.size, k);
        else if (scalars->step == 1)
            first_chunk(param + c.at, momentum + c.at, grad + c.at, c.size, k);
        else
            momentum_chunk(param + c.at, momentum + c.at, grad + c.at, c.size, k);
        if (moved)
            cpu_narrow((uint16_t *)moved + c.at, dtype_moved, param + c.at, c.size);
    }
}
