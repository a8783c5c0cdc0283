/* sgd.c - the reference of stochastic gradient descent with momentum, Nesterov's too (Sutskever et al. 2013),
 * by the rules of torch.optim.SGD: the first momentum is the whole gradient, whatever dampening is. */
#include "kernels/ref/real.h"

void REF(sgd)(void *param_, void *momentum_, const void *grad_, const struct optimizer_segment *segments,
              int segment_count, double momentum_factor, double dampening, int nesterov, void *moved,
              enum dtype dtype_moved, const struct step_scalars *scalars, void *stream)
{
    STATISTIC *param = param_, *momentum = momentum_;
    const STATISTIC *grad = grad_;
    const struct step_scalars *s = scalars;
    if (s->skip)
        return;
    for (; segment_count > 0; segments++, segment_count--) {
        double rate = s->learning_rate[segments->parameter_class],
               decay = s->weight_decay[segments->parameter_class];
        int64_t first = segments->offset, end = first + segments->count;
        for (int64_t i = first; i < end; i++) {
            double g = LOAD(grad[i]) * s->clip + decay * LOAD(param[i]), step = g;
            if (momentum) {
                double m = s->step == 1 ? g : momentum_factor * LOAD(momentum[i]) + (1.0 - dampening) * g;
                step = nesterov ? g + momentum_factor * m : m;
                STORE(momentum[i], m);
            }
            STORE(param[i], LOAD(param[i]) - rate * step);
        }
        if (moved)
            REF(cast)
        ((char *)moved + first * dtype_size(dtype_moved), dtype_moved, param + first, REF_STATISTIC,
         segments->count, stream);
    }
}
