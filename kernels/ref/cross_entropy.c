/* cross_entropy.c - the reference of softmax cross-entropy and of the sum of its losses.
 *
 * loss = log(sum exp(l - max)) + max - l[target]; d loss / d l = softmax(l) - onehot(target), times
 * inverse_tokens, so that the mean over the global batch needs no further division. The maximum is
 * subtracted only for range. */
#include "kernels/ref/real.h"

#include <math.h>

static real cross_entropy_row(real *logits, int target, int V, int gradient, double inverse_tokens)
{
    if (target < 0) {
        for (int i = 0; i < V && gradient; i++)
            logits[i] = 0;
        return 0;
    }
    double maximum = -INFINITY, sum = 0;
    for (int i = 0; i < V; i++)
        maximum = fmax(maximum, (double)logits[i]);
    for (int i = 0; i < V; i++)
        sum += exp((double)logits[i] - maximum);
    double loss = log(sum) + maximum - (double)logits[target];
    for (int i = 0; i < V && gradient; i++) {
        double p = exp((double)logits[i] - maximum) / sum;
        logits[i] = (real)((p - (i == target ? 1.0 : 0.0)) * inverse_tokens);
    }
    return (real)loss;
}

void REF(cross_entropy)(void *logits_, void *losses_, const int32_t *targets, int N, int V, int row,
                        int gradient, const struct step_scalars *scalars, void *stream)
{
    real *logits = logits_, *losses = losses_;
    (void)stream;
    for (int n = 0; n < N; n++)
        losses[n] =
            cross_entropy_row(logits + (size_t)n * row, targets[n], V, gradient, scalars->inverse_tokens);
}

void REF(loss_sum)(double *total, int64_t *count, const void *losses_, const int32_t *targets, int64_t n,
                   void *stream)
{
    const real *losses = losses_;
    double sum = 0;
    int64_t counted = 0;
    (void)stream;
    for (int64_t i = 0; i < n; i++) {
        sum += (double)losses[i];
        counted += targets[i] >= 0;
    }
    *total += sum;
    *count += counted;
}
