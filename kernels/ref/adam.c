/* adam.c - the reference of Adam (Kingma, Ba 2015, arXiv 1412.6980) with the decay in the gradient, as
 * torch.optim.Adam, and the gradient's clip factor folded in. */
#include "kernels/ref/real.h"

#include <math.h>

void REF(adam)(void *param_, void *m_, void *v_, const void *grad_, const struct optimizer_segment *segments,
               int segment_count, void *moved, enum dtype dtype_moved, const struct step_scalars *scalars,
               void *stream)
{
    STATISTIC *param = param_, *m = m_, *v = v_;
    const STATISTIC *grad = grad_;
    const struct step_scalars *s = scalars;
    if (s->skip)
        return;
    for (; segment_count > 0; segments++, segment_count--) {
        double rate = s->learning_rate[segments->parameter_class],
               decay = s->weight_decay[segments->parameter_class];
        int64_t first = segments->offset, end = first + segments->count;
        for (int64_t i = first; i < end; i++) {
            double g = LOAD(grad[i]) * s->clip + decay * LOAD(param[i]);
            double m_new = s->beta1 * LOAD(m[i]) + (1.0 - s->beta1) * g;
            double v_new = s->beta2 * LOAD(v[i]) + (1.0 - s->beta2) * g * g;
            double step = m_new / s->bias_correction1 / (sqrt(v_new / s->bias_correction2) + s->epsilon);
            STORE(param[i], LOAD(param[i]) - rate * step);
            STORE(m[i], m_new);
            STORE(v[i], v_new);
        }
        if (moved)
            REF(cast)
        ((char *)moved + first * dtype_size(dtype_moved), dtype_moved, param + first, REF_STATISTIC,
         segments->count, stream);
    }
}
