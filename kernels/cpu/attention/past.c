/* past.c - attention over kept keys and values (formulas: kernels/ref/attention_past.c). Scores are
 * in float, as attention has them, so that both agree to float's rounding. One thread: a new token's work
 * is that of a few rows. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/value.h"

#include <math.h>
#include <string.h>

enum { PAST_WIDTH = 64 }; /* elements of out whose sums are held at once */

static float past_dot(const VALUE *a, const VALUE *b, int n)
{
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int i = 0; i < n; i++)
        sum += LOAD(a[i]) * LOAD(b[i]);
    return sum;
}

/* out (count) = the values (seen, HS) by their probabilities. */
static void past_sum(VALUE *out, const VALUE *values, const float *probabilities, int seen, int HS, int count)
{
    float sums[PAST_WIDTH] = {0};
    for (int t = 0; t < seen; t++) {
        const VALUE *value = values + (size_t)t * (size_t)HS;
        const float by = probabilities[t];
#pragma omp simd
        for (int i = 0; i < count; i++)
            sums[i] += by * LOAD(value[i]);
    }
    for (int i = 0; i < count; i++)
        STORE(out[i], sums[i]);
}

/* One query over positions 0..seen-1 of its head. */
static void past_row(VALUE *out, const VALUE *q, const VALUE *keys, const VALUE *values, int seen,
                     const struct attention *a, float *scores)
{
    const int HS = a->head_size;
    const float scale = a->scale != 0 ? (float)a->scale : (float)(1.0 / sqrt((double)HS));
    const float cap = (float)a->cap;
    float most = -INFINITY;
    double sum = 0;
    for (int t = 0; t < seen; t++) {
        scores[t] = past_dot(q, keys + (size_t)t * (size_t)HS, HS) * scale;
        if (cap > 0)
            scores[t] = cap * tanhf(scores[t] / cap);
        most = fmaxf(most, scores[t]);
    }
    for (int t = 0; t < seen; t++) {
        scores[t] = expf(scores[t] - most);
        sum += (double)scores[t];
    }
    for (int t = 0; t < seen; t++)
        scores[t] = (float)((double)scores[t] / sum);
    for (int i = 0; i < HS; i += PAST_WIDTH)
        past_sum(out + i, values + i, scores, seen, HS, HS - i < PAST_WIDTH ? HS - i : (int)PAST_WIDTH);
}

/* Rows of keys or values into their heads' caches. */
static void past_keep(VALUE *cache, const VALUE *rows, int64_t row_elements, const struct attention *a,
                      int at, int room)
{
    const size_t HS = (size_t)a->head_size;
    for (int t = 0; t < a->T; t++)
        for (int h = 0; h < a->kv_heads; h++)
            memcpy(cache + ((size_t)h * (size_t)room + (size_t)(at + t)) * HS,
                   rows + t * row_elements + (int64_t)h * a->head_size, HS * sizeof *cache);
}

void CPU(attention_past)(void *out, void *keys, void *values, const void *q, const void *k, const void *v,
                         const struct attention *a, int at, int room, void *work, void *stream)
{
    const size_t HS = (size_t)a->head_size;
    (void)stream;
    past_keep(keys, k, a->k_row, a, at, room);
    past_keep(values, v, a->v_row, a, at, room);
    for (int t = 0; t < a->T; t++)
        for (int h = 0; h < a->heads; h++) {
            const int end = at + t + 1, from = a->window > 0 && end > a->window ? end - a->window : 0;
            const size_t head = ((size_t)(h / (a->heads / a->kv_heads)) * (size_t)room + (size_t)from) * HS;
            past_row((VALUE *)out + ((size_t)t * (size_t)a->heads + (size_t)h) * HS,
                     (const VALUE *)q + t * a->q_row + (int64_t)h * a->head_size, (const VALUE *)keys + head,
                     (const VALUE *)values + head, end - from, a, work);
        }
}

size_t CPU(attention_past_work)(const struct attention *a, int room)
{
    (void)a;
    return (size_t)room * sizeof(float);
}
