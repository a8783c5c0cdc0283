/* adam.c - the reference of Adam (Kingma, Ba 2015, arXiv 1412.6980) with the decay in the gradient, as
 * torch.optim.Adam, and the gradient's clip factor folded in. */
#include "kernels/ref/real.h"

#include <math.h>

void REF(adam)(void *param_, void *m_, void *v_, const void *grad_, int64_t n, int parameter_class,
               void *moved, enum dtype dtype_moved, const struct step_scalars *scalars, void *stream)
{
    real *param = param_, *m = m_, *v = v_;
    const real *grad = grad_;
    const struct step_scalars *s = scalars;
    double rate = s->learning_rate[parameter_class], decay = s->weight_decay[parameter_class];
    if (s->skip)
        return;
    for (int64_t i = 0; i < n; i++) {
        double g = (double)grad[i] * s->clip + decay * (double)param[i];
        double m_new = s->beta1 * (double)m[i] + (1.0 - s->beta1) * g;
        double v_new = s->beta2 * (double)v[i] + (1.0 - s->beta2) * g * g;
        double step = m_new / s->bias_correction1 / (sqrt(v_new / s->bias_correction2) + s->epsilon);
        param[i] = (real)((double)param[i] - rate * step);
        m[i] = (real)m_new;
        v[i] = (real)v_new;
    }
    if (moved)
        REF(cast)(moved, dtype_moved, param, REF_DTYPE, n, stream);
}
