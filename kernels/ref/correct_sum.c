/* correct_sum.c - the reference of how many rows have their largest logit at their target: of equal ones the
 * first counts, as torch.argmax has it on a CPU. */
#include "kernels/ref/real.h"

void REF(correct_sum)(double *total, const void *logits, const int32_t *targets, int N, int V, int row,
                      void *stream)
{
    const VALUE *at = logits;
    int64_t correct = 0;
    (void)stream;
    for (int n = 0; n < N; n++, at += row) {
        int best = 0;
        for (int i = 1; i < V; i++)
            best = LOAD(at[i]) > LOAD(at[best]) ? i : best;
        correct += targets[n] >= 0 && best == targets[n];
    }
    *total += (double)correct;
}
