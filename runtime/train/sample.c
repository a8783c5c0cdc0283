/* sample.c - see sample.h. */
#include "runtime/train/sample.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/model/rng.h"

static int largest(const float *logits, int vocab)
{
    int best = 0;
    for (int i = 1; i < vocab; i++) {
        if (logits[i] > logits[best] || (isnan(logits[best]) && !isnan(logits[i])))
            best = i;
    }
    return best;
}

static int descending(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x < y) - (x > y);
}

/* Smallest logit that may be drawn; allowed_equal: how many equal logits may be drawn (the first). */
static float threshold(const float *logits, int vocab, int k, float *scratch, int *allowed_equal)
{
    for (int i = 0; i < vocab; i++)
        scratch[i] = isnan(logits[i]) ? -INFINITY : logits[i];
    qsort(scratch, (size_t)vocab, sizeof *scratch, descending);
    float least = scratch[k - 1];
    *allowed_equal = 0;
    for (int i = 0; i < k; i++)
        *allowed_equal += scratch[i] == least;
    return least;
}

/* Keeps the largest weights that add up to the share, the first of equal weights first, and sets the others
 * to 0. Returns the total of the kept weights. sorted: memory for as many values. */
static double keep_share(float *weights, int count, double share, double total, float *sorted)
{
    double above = 0, left = 0;
    int kept = 0, equal = 0;
    memcpy(sorted, weights, (size_t)count * sizeof *sorted);
    qsort(sorted, (size_t)count, sizeof *sorted, descending);
    while (kept < count && above < share * total)
        above += (double)sorted[kept++];
    const float least = sorted[kept > 0 ? kept - 1 : 0];
    for (int i = 0; i < kept; i++)
        equal += sorted[i] == least;
    for (int i = 0; i < count; i++) {
        if (weights[i] < least || (weights[i] == least && equal-- <= 0))
            weights[i] = 0;
        left += (double)weights[i];
    }
    return left;
}

int sample_token(const struct sample_options *options, const float *logits, int vocab, uint64_t position,
                 float *scratch)
{
    int best = largest(logits, vocab);
    if (!(options->temperature > 0) || !isfinite(logits[best]))
        return best;
    int k = options->top_k > 0 && options->top_k < vocab ? options->top_k : vocab, equal = vocab;
    float least = k < vocab ? threshold(logits, vocab, k, scratch, &equal) : -INFINITY;
    double total = 0;
    for (int i = 0; i < vocab; i++) {
        bool allowed = logits[i] > least || (logits[i] == least && equal-- > 0);
        /* exp of a difference to the largest: in (0,1], the largest itself is 1 */
        scratch[i] =
            allowed ? (float)exp(((double)logits[i] - (double)logits[best]) / options->temperature) : 0.0f;
        total += (double)scratch[i];
    }
    if (options->top_p > 0 && options->top_p < 1)
        total = keep_share(scratch, vocab, options->top_p, total, scratch + vocab);
    double draw = rng_uniform(options->seed, RNG_SAMPLE, 0, position) * total;
    int last = best;
    for (int i = 0; i < vocab; i++) {
        if (scratch[i] > 0) {
            last = i;
            draw -= (double)scratch[i];
            if (draw < 0)
                return i;
        }
    }
    return last; /* rounding left a remainder of the total: the last token that could be drawn */
}
