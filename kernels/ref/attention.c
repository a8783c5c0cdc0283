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

static double dot(const VALUE *a, const VALUE *b, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += LOAD(a[i]) * LOAD(b[i]);
    return sum;
}

static double score(const VALUE *q, const VALUE *k, const struct attention *a)
{
    double s = dot(q, k, a->head_size) * scale_of(a);
    return a->cap > 0 ? a->cap * tanh(s / a->cap) : s;
}

static void forward_row(VALUE *out, STATISTIC *lse, const VALUE *q, const VALUE *keys, const VALUE *values,
                        struct place at, const struct attention *a)
{
    double maximum = -INFINITY, sum = 0;
    for (int t2 = at.from; t2 < at.seen; t2++)
        maximum = fmax(maximum, score(q, keys + t2 * a->k_row, a));
    for (int t2 = at.from; t2 < at.seen; t2++)
        sum += exp(score(q, keys + t2 * a->k_row, a) - maximum);
    STORE(*lse, at.seen ? maximum + log(sum) : 0.0);
    for (int i = 0; i < a->head_size; i++) {
        double o = 0;
        for (int t2 = at.from; t2 < at.seen; t2++)
            o += exp(score(q, keys + t2 * a->k_row, a) - maximum) / sum * LOAD(values[t2 * a->v_row + i]);
        STORE(out[i], o);
    }
}

void REF(attention_forward)(void *out_, void *lse_, const void *q_, const void *k_, const void *v_,
                            const struct attention *a, void *work, void *stream)
{
    VALUE *out = out_;
    STATISTIC *lse = lse_;
    const VALUE *q = q_, *k = k_, *v = v_;
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
    VALUE *dq, *dk, *dv;
    const VALUE *dout, *q, *k, *v, *out;
    const STATISTIC *lse;
    const struct attention *a;
    const int *beta;
};

/* The probability that query (b, h, t) gives to position t2, and the gradient of their scaled score. */
struct pair {
    double p, ds;
};

static struct pair pair_at(const struct gradient *g, struct place at, int t2)
{
    const struct attention *a = g->a;
    const VALUE *dout = g->dout + at.out;
    const size_t k_at = at.k + (size_t)t2 * (size_t)a->k_row, v_at = at.v + (size_t)t2 * (size_t)a->v_row;
    const double capped = score(g->q + at.q, g->k + k_at, a), D = dot(dout, g->out + at.out, a->head_size);
    struct pair pair = {.p = exp(capped - LOAD(g->lse[at.lse]))};
    pair.ds = pair.p * (dot(dout, g->v + v_at, a->head_size) - D) * scale_of(a);
    if (a->cap > 0)
        pair.ds *= 1 - capped / a->cap * (capped / a->cap);
    return pair;
}

/* Elements of a head whose sums are formed together, so that each is stored once. */
enum { TOGETHER = 64 };

static int together(const struct attention *a, int first)
{
    return a->head_size - first < TOGETHER ? a->head_size - first : TOGETHER;
}

static void store_sums(VALUE *to, const double *sums, int count, int beta)
{
    for (int i = 0; i < count; i++)
        STORE(to[i], sums[i] + (beta ? LOAD(to[i]) : 0.0));
}

/* Every position that the query sees contributes to its dq. */
static void query_gradient(const struct gradient *g, int b, int h, int t)
{
    const struct attention *a = g->a;
    const struct place at = place_at(a, b, h, t);
    for (int first = 0; first < a->head_size; first += TOGETHER) {
        const int count = together(a, first);
        double sums[TOGETHER] = {0};
        for (int t2 = at.from; t2 < at.seen; t2++) {
            const double ds = pair_at(g, at, t2).ds;
            const VALUE *k = g->k + at.k + (size_t)t2 * (size_t)a->k_row + first;
            for (int i = 0; i < count; i++)
                sums[i] += ds * LOAD(k[i]);
        }
        store_sums(g->dq + at.q + first, sums, count, g->beta[0]);
    }
}

/* Every query that sees the position, of all heads that read its key, contributes to its dk and dv. */
static void key_gradient(const struct gradient *g, int b, int kv, int t2)
{
    const struct attention *a = g->a;
    const int heads = a->heads / a->kv_heads;
    const struct place here = place_at(a, b, kv * heads, t2);
    for (int first = 0; first < a->head_size; first += TOGETHER) {
        const int count = together(a, first);
        double keys[TOGETHER] = {0}, values[TOGETHER] = {0};
        for (int h = kv * heads; h < (kv + 1) * heads; h++)
            for (int t = 0; t < a->T; t++) {
                const struct place at = place_at(a, b, h, t);
                if (t2 < at.from || t2 >= at.seen)
                    continue;
                const struct pair pair = pair_at(g, at, t2);
                for (int i = 0; i < count; i++) {
                    keys[i] += pair.ds * LOAD(g->q[at.q + (size_t)(first + i)]);
                    values[i] += pair.p * LOAD(g->dout[at.out + (size_t)(first + i)]);
                }
            }
        store_sums(g->dk + here.k + (size_t)t2 * (size_t)a->k_row + first, keys, count, g->beta[1]);
        store_sums(g->dv + here.v + (size_t)t2 * (size_t)a->v_row + first, values, count, g->beta[2]);
    }
}

void REF(attention_backward)(void *dq, void *dk, void *dv, const void *dout, const void *q, const void *k,
                             const void *v, const void *out, const void *lse, const struct attention *a,
                             const int beta[3], void *work, void *stream)
{
    const struct gradient g = {dq, dk, dv, dout, q, k, v, out, lse, a, beta};
    (void)work;
    (void)stream;
    for (int b = 0; b < a->B; b++)
        for (int t = 0; t < a->T; t++) {
            for (int h = 0; h < a->heads; h++)
                query_gradient(&g, b, h, t);
            for (int kv = 0; kv < a->kv_heads; kv++)
                key_gradient(&g, b, kv, t);
        }
}

size_t REF(attention_work)(const struct attention *a, int backward)
{
    (void)a;
    (void)backward;
    return 0;
}
