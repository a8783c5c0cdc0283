/* average.c - the reference of the exponential moving average of parameters, by the rules of
 * torch.optim.swa_utils.AveragedModel with get_ema_multi_avg_fn: the first update copies, later ones are
 * torch.lerp, which begins at the nearer end. */
#include "kernels/ref/real.h"

void REF(average)(void *average_, const void *param_, double decay, int64_t n,
                  const struct step_scalars *scalars, void *stream)
{
    STATISTIC *average = average_;
    const STATISTIC *param = param_;
    const double weight = 1.0 - decay;
    (void)stream;
    if (scalars->skip)
        return;
    for (int64_t i = 0; i < n; i++) {
        double from = LOAD(average[i]), to = LOAD(param[i]);
        double moved = weight < 0.5 ? from + weight * (to - from) : to - (to - from) * (1.0 - weight);
        STORE(average[i], scalars->step == 1 ? to : moved);
    }
}
