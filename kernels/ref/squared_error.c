/* squared_error.c - the reference of squared differences with their gradient in place.
 *
 * loss = (value - target)^2; d loss / d value = 2 (value - target), times inverse_tokens, so that the mean
 * over the elements that count in the global batch needs no further division. */
#include "kernels/ref/real.h"

#include <math.h>

void REF(squared_error)(void *values_, void *losses_, int32_t *counted, const float *targets, int64_t n,
                        int gradient, const struct step_scalars *scalars, void *stream)
{
    VALUE *values = values_;
    STATISTIC *losses = losses_;
    (void)stream;
    for (int64_t i = 0; i < n; i++) {
        int counts = !isnan(targets[i]);
        double difference = counts ? LOAD(values[i]) - (double)targets[i] : 0;
        counted[i] = counts ? 0 : -1;
        STORE(losses[i], difference * difference);
        if (gradient)
            STORE(values[i], 2 * difference * scalars->inverse_tokens);
    }
}
