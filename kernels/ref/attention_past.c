/* attention_past.c - the reference of attention over kept keys and values: formulas of attention.c, for the
 * new positions of one sequence. */
#include "kernels/ref/real.h"

#include <math.h>

static double past_score(const VALUE *q, const VALUE *key, const struct attention *a)
{
    double s = 0;
    for (int i = 0; i < a->head_size; i++)
        s += LOAD(q[i]) * LOAD(key[i]);
    s *= a->scale != 0 ? a->scale : 1.0 / sqrt((double)a->head_size);
    return a->cap > 0 ? a->cap * tanh(s / a->cap) : s;
}

/* One query over positions from..end-1 of its head. */
static void past_row(VALUE *out, const VALUE *q, const VALUE *keys, const VALUE *values, int from, int end,
                     const struct attention *a)
{
    const size_t HS = (size_t)a->head_size;
    double most = -(double)INFINITY, sum = 0;
    for (int t = from; t < end; t++)
        most = fmax(most, past_score(q, keys + (size_t)t * HS, a));
    for (int t = from; t < end; t++)
        sum += exp(past_score(q, keys + (size_t)t * HS, a) - most);
    for (size_t i = 0; i < HS; i++) {
        double total = 0;
        for (int t = from; t < end; t++)
            total +=
                exp(past_score(q, keys + (size_t)t * HS, a) - most) / sum * LOAD(values[(size_t)t * HS + i]);
        STORE(out[i], total);
    }
}

static void past_keep(VALUE *cache, const VALUE *rows, int64_t row_elements, const struct attention *a,
                      int at, int room)
{
    const size_t HS = (size_t)a->head_size;
    for (int t = 0; t < a->T; t++)
        for (int h = 0; h < a->kv_heads; h++)
            for (size_t i = 0; i < HS; i++)
                cache[((size_t)h * (size_t)room + (size_t)(at + t)) * HS + i] =
                    rows[t * row_elements + (int64_t)h * a->head_size + (int64_t)i];
}

void REF(attention_past)(void *out, void *keys, void *values, const void *q, const void *k, const void *v,
                         const struct attention *a, int at, int room, void *work, void *stream)
{
    const size_t HS = (size_t)a->head_size;
    (void)work, (void)stream;
    past_keep(keys, k, a->k_row, a, at, room);
    past_keep(values, v, a->v_row, a, at, room);
    for (int t = 0; t < a->T; t++)
        for (int h = 0; h < a->heads; h++) {
            const int end = at + t + 1, from = a->window > 0 && end > a->window ? end - a->window : 0;
            const size_t head = (size_t)(h / (a->heads / a->kv_heads)) * (size_t)room * HS;
            past_row((VALUE *)out + ((size_t)t * (size_t)a->heads + (size_t)h) * HS,
                     (const VALUE *)q + t * a->q_row + (int64_t)h * a->head_size, (const VALUE *)keys + head,
                     (const VALUE *)values + head, from, end, a);
        }
}

size_t REF(attention_past_work)(const struct attention *a, int room)
{
    (void)a, (void)room;
    return 0;
}
