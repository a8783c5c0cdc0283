/* clip.c - the reference of the squared norm and of the clip factor that it gives (PyTorch's
 * clip_grad_norm_, with the same 1e-6). */
#include "kernels/ref/real.h"

#include <math.h>

void REF(norm_squared)(double *out, const void *values_, int64_t n, int beta, void *stream)
{
    const STATISTIC *values = values_;
    double sum = 0;
    (void)stream;
    for (int64_t i = 0; i < n; i++)
        sum += LOAD(values[i]) * LOAD(values[i]);
    *out = sum + (beta ? *out : 0.0);
}

void REF(clip_factor)(struct step_scalars *scalars, void *stream)
{
    (void)stream;
    double unscale = scalars->loss_scale > 0 ? 1.0 / (double)scalars->loss_scale : 1.0;
    double norm = sqrt(scalars->norm_squared) * unscale;
    scalars->clip = unscale;
    if (!isfinite(norm)) {
        scalars->skip = 1;
        return;
    }
    if (scalars->clip_norm > 0)
        scalars->clip = fmin(1.0, scalars->clip_norm / (norm + 1e-6)) * unscale;
}
