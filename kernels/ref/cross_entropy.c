/* cross_entropy.c - the reference of softmax cross-entropy and of the sum of its losses.
 *
 * loss = log(sum exp(l - max)) + max - l[target]; d loss / d l = softmax(l) - onehot(target), times
 * inverse_tokens, so that the mean over the global batch needs no further division. The maximum is
 * subtracted only for range. */
#include "kernels/ref/real.h"

#include <math.h>

static double cross_entropy_row(VALUE *logits, int target, int V, int gradient, double inverse_tokens)
{
    if (target < 0) {
        for (int i = 0; i < V && gradient; i++)
            STORE(logits[i], 0.0);
        return 0;
    }
    double maximum = -INFINITY, sum = 0;
    for (int i = 0; i < V; i++)
        maximum = fmax(maximum, LOAD(logits[i]));
    for (int i = 0; i < V; i++)
        sum += exp(LOAD(logits[i]) - maximum);
    double loss = log(sum) + maximum - LOAD(logits[target]);
    for (int i = 0; i < V && gradient; i++) {
        double p = exp(LOAD(logits[i]) - maximum) / sum;
        STORE(logits[i], (p - (i == target ? 1.0 : 0.0)) * inverse_tokens);
    }
    return loss;
}

void REF(cross_entropy)(void *logits_, void *losses_, const int32_t *targets, int N, int V, int row,
                        int gradient, const struct step_scalars *scalars, void *stream)
{
    VALUE *logits = logits_;
    STATISTIC *losses = losses_;
    (void)stream;
    for (int n = 0; n < N; n++)
        STORE(losses[n],
              cross_entropy_row(logits + (size_t)n * row, targets[n], V, gradient, scalars->inverse_tokens));
}

void REF(loss_sum)(double *total, int64_t *count, const void *losses_, const int32_t *targets, int64_t n,
                   void *stream)
{
    const STATISTIC *losses = losses_;
    double sum = 0;
    int64_t counted = 0;
    (void)stream;
    for (int64_t i = 0; i < n; i++) {
        sum += LOAD(losses[i]);
        counted += targets[i] >= 0;
    }
    *total += sum;
    *count += counted;
}
