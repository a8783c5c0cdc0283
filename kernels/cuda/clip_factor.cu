/* clip_factor.cu - scalars->clip = min(1, clip_norm / (norm + 1e-6)) / loss_scale with norm =
 * sqrt(norm_squared) / loss_scale, 1 / loss_scale without a clip_norm; a norm that is not finite sets skip.
 * One thread: the scalars stay on the device. */
#include "kernels/cuda/check.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/operations.h"

static __global__ void clip_factor_kernel(struct step_scalars *scalars)
{
    double unscale = scalars->loss_scale > 0 ? 1.0 / (double)scalars->loss_scale : 1.0;
    double norm = sqrt(scalars->norm_squared) * unscale;
    scalars->clip = unscale;
    if (!isfinite(norm))
        scalars->skip = 1;
    else if (scalars->clip_norm > 0)
        scalars->clip = fmin(1.0, scalars->clip_norm / (norm + 1e-6)) * unscale;
}

extern "C" int cuda_clip_factor(struct step_scalars *scalars, void *stream, struct muster_error *err)
{
    CUDA_LAUNCH("clip_factor", err, clip_factor_kernel, 1, 1, 0, stream, scalars);
    return 0;
}
