/* sgd.c - the reference of stochastic gradient descent with momentum, Nesterov's too (Sutskever et al. 2013),
 * by the rules of torch.optim.SGD: the first momentum is the whole gradient, whatever dampening is. */
#include "kernels/ref/real.h"

void REF(sgd)(void *param_, void *momentum_, const void *grad_, const struct optimizer_segment *segments,
              int segment_count, double momentum_factor, double dampening, int nesterov, void *moved,
              enum dtype dtype_moved, const struct step_scalars *scalars, void *stream)
{
    real *param = param_, *momentum = momentum_;
    const real *grad = grad_;
    const struct step_scalars *s = scalars;
    if (s->skip)
        return;
    for (; segment_count > 0; segments++, segment_count--) {
        double rate = s->learning_rate[segments->parameter_class],
               decay = s->weight_decay[segments->parameter_class];
        int64_t first = segments->offset, end = first + segments->count;
        for (int64_t i = first; i < end; i++) {
            double g = (double)grad[i] * s->clip + decay * (double)param[i], step = g;
            if (momentum) {
                double m = s->step == 1 ? g : momentum_factor * (double)momentum[i] + (1.0 - dampening) * g;
                step = nesterov ? g + momentum_factor * m : m;
                momentum[i] = (real)m;
            }
            param[i] = (real)((double)param[i] - rate * step);
        }
        if (moved)
            REF(cast)
        ((char *)moved + first * dtype_size(dtype_moved), dtype_moved, param + first, REF_DTYPE,
         segments->count, stream);
    }
}
