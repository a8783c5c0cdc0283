/* attention.c - the reference of multi-head attention (Vaswani et al. 2017, arXiv 1706.03762), with fewer
 * heads of keys and values than of queries (Ainslie et al. 2023, arXiv 2305.13245).
 *
 * For one (b, h) and position t, over the t2 that it sees: s = q.k scale, or cap tanh(q.k scale / cap),
 * p = exp(s - lse), out = sum p v, where lse = log sum exp(s) is formed with the maximum subtracted. Backward
 * recomputes p from lse (Dao et al. 2022, arXiv 2205.14135, section 3.1): with D = dout.out, dp = dout.v and
 * ds = p (dp - D), dq = scale sum ds k, dk = scale sum ds q, dv = sum p dout. With a cap, ds is multiplied by
 * 1 - (s / cap)^2. */
#include "kernels/ref/real.h"

#include <math.h>

/* Where position t of query head h stands, and how far it sees. */
struct place {
    size_t q, k, v, out, lse; /* offsets; k and v of position 0 */
    int from, seen;           /* positions from..seen-1; 0: the query is beyond its sequence's length */
};

static struct place place_at(const struct attention *a, int b, int h, int t)
{
    size_t row = (size_t)b * a->T + t, first = (size_t)b * a->T, HS = (size_t)a->head_size;
    size_t kv = (size_t)(h / (a->heads / a->kv_heads)) * HS;
    int length = a->lengths ? a->lengths[b] : a->T;
    int from = a->window > 0 && t >= a->window ? t + 1 - a->window : 0;
    int end = a->window > 0 && length - t > a->window ? t + a->window : length;
    if (a->causal && a->positions && from < t - a->positions[row])
        from = t - a->positions[row];
    return (struct place){.q = row * (size_t)a->q_row + h * HS,
                          .k = first * (size_t)a->k_row + kv,
                          .v = first * (size_t)a->v_row + kv,
                          .out = (row * a->heads + h) * HS,
                          .lse = ((size_t)b * a->heads + h) * a->T + t,
                          .from = t >= length ? 0 : from,
                          .seen = t >= length ? 0
                                  : a->causal ? t + 1
                                              : end};
}

static double scale_of(const struct attention *a)
{
    return a->scale != 0 ? a->scale : 1.0 / sqrt((double)a->head_size);
}

static double dot(const real *a, const real *b, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

static double score(const real *q, const real *k, const struct attention *a)
{
    double s = dot(q, k, a->head_size) * scale_of(a);
    return a->cap > 0 ? a->cap * tanh(s / a->cap) : s;
}

static void forward_row(real *out, real *lse, const real *q, const real *keys, const real *values,
                        struct place at, const struct attention *a)
{
    double maximum = -INFINITY, sum = 0;
    for (int t2 = at.from; t2 < at.seen; t2++)
        maximum = fmax(maximum, score(q, keys + t2 * a->k_row, a));
    for (int t2 = at.from; t2 < at.seen; t2++)
        sum += exp(score(q, keys + t2 * a->k_row, a) - maximum);
    *lse = at.seen ? (real)(maximum + log(sum)) : 0;
    for (int i = 0; i < a->head_size; i++) {
        double o = 0;
        for (int t2 = at.from; t2 < at.seen; t2++)
            o += exp(score(q, keys + t2 * a->k_row, a) - maximum) / sum * (double)values[t2 * a->v_row + i];
        out[i] = (real)o;
    }
}

void REF(attention_forward)(void *out_, void *lse_, const void *q_, const void *k_, const void *v_,
                            const struct attention *a, void *work, void *stream)
{
    real *out = out_, *lse = lse_;
    const real *q = q_, *k = k_, *v = v_;
    (void)work;
    (void)stream;
    for (int b = 0; b < a->B; b++)
        for (int h = 0; h < a->heads; h++)
            for (int t = 0; t < a->T; t++) {
                struct place at = place_at(a, b, h, t);
                forward_row(out + at.out, lse + at.lse, q + at.q, k + at.k, v + at.v, at, a);
            }
}

struct gradient {
    real *dq, *dk, *dv;
    const real *dout, *q, *k, *v, *out, *lse;
};

/* The contributions of one query to its own dq and to dk, dv of every position that it sees. */
static void backward_row(const struct gradient *g, struct place at, const struct attention *a)
{
    const real *q = g->q + at.q, *dout = g->dout + at.out;
    double scale = scale_of(a), D = dot(dout, g->out + at.out, a->head_size), lse = (double)g->lse[at.lse];
    for (int t2 = at.from; t2 < at.seen; t2++) {
        size_t k_at = at.k + (size_t)t2 * (size_t)a->k_row, v_at = at.v + (size_t)t2 * (size_t)a->v_row;
        real *dq = g->dq + at.q, *dk = g->dk + k_at, *dv = g->dv + v_at;
        double capped = score(q, g->k + k_at, a), p = exp(capped - lse);
        double ds = p * (dot(dout, g->v + v_at, a->head_size) - D) * scale;
        if (a->cap > 0)
            ds *= 1 - capped / a->cap * (capped / a->cap);
        for (int i = 0; i < a->head_size; i++) {
            dq[i] = (real)((double)dq[i] + ds * (double)g->k[k_at + i]);
            dk[i] = (real)((double)dk[i] + ds * (double)q[i]);
            dv[i] = (real)((double)dv[i] + p * (double)dout[i]);
        }
    }
}

static void zero_rows(real *rows, int64_t count, int64_t row, int width)
{
    for (int64_t n = 0; n < count; n++)
        for (int i = 0; i < width; i++)
            rows[n * row + i] = 0;
}

void REF(attention_backward)(void *dq, void *dk, void *dv, const void *dout, const void *q, const void *k,
                             const void *v, const void *out, const void *lse, const struct attention *a,
                             const int beta[3], void *work, void *stream)
{
    const struct gradient g = {dq, dk, dv, dout, q, k, v, out, lse};
    int64_t rows = (int64_t)a->B * a->T;
    (void)work;
    (void)stream;
    if (!beta[0])
        zero_rows(dq, rows, a->q_row, a->heads * a->head_size);
    if (!beta[1])
        zero_rows(dk, rows, a->k_row, a->kv_heads * a->head_size);
    if (!beta[2])
        zero_rows(dv, rows, a->v_row, a->kv_heads * a->head_size);
    for (int b = 0; b < a->B; b++)
        for (int h = 0; h < a->heads; h++)
            for (int t = 0; t < a->T; t++)
                backward_row(&g, place_at(a, b, h, t), a);
}

size_t REF(attention_work)(const struct attention *a)
{
    (void)a;
    return 0;
}
