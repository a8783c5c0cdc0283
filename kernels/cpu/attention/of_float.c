/* of_float.c - attention in tiles of ATTENTION_QUERIES queries against all keys that they see (formulas:
 * kernels/ref/attention.c).
 *
 * Scores are held transposed, S^T (keys, queries): the softmax of 32 queries is then 32 independent lanes,
 * with no sum across a vector, and only the tile's own q and dout have to be transposed. A tile of 1,024 keys
 * is 128 KB and stays in the second cache, so the softmax takes the whole row and needs no rescaling; the
 * (T,T) matrix never exists.
 *
 * Where backward has parts, the first head of queries of a group writes dk and dv, and the others write parts
 * of their own. */
#include "kernels/cpu/attention/call.h"
#include "kernels/cpu/attention/tile.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

/* The memory of a thread: two score tiles (T, 32), two transposed operands (HS, 32), and copies (T, HS) of k
 * and v of one head. The copies leave out the distance between rows, which would put all rows into a few sets
 * of the cache. Forward uses one score tile, one transposed operand, and the copies. */
size_t CPU(attention_slot)(const struct attention *a)
{
    return (size_t)2 * ATTENTION_QUERIES * ((size_t)a->T + (size_t)a->head_size) +
           (size_t)2 * (size_t)a->T * (size_t)a->head_size;
}

/* dk and dv (T, HS) of one head of queries. */
static size_t attention_part_floats(const struct attention *a)
{
    return (size_t)2 * (size_t)a->T * (size_t)a->head_size;
}

size_t CPU(attention_parts)(const struct attention *a)
{
    return !attention_has_parts(a)
               ? 0
               : (size_t)a->B * (size_t)(a->heads - a->kv_heads) * attention_part_floats(a);
}

/* One head of queries of one sequence: pointers at its position 0, distances of rows, T its length. */
struct head {
    const float *q, *k, *v, *out, *dout, *lse; /* the last three: backward's */
    float *dq, *dk, *dv;                       /* backward's */
    float *to, *lse_to;                        /* forward's out and lse */
    size_t q_row, k_row, v_row, dk_row, dv_row, out_row;
    struct attention_sight sees;
    int T, HS;
    int add_q, add_k, add_v; /* not 0: backward adds to the old values */
    float scale, cap;
    /* Parts of this thread's slot. The last two are (T,HS), row after row. */
    float *scores, *dscores, *q_transposed, *dout_transposed, *keys, *values;
};

static ATTENTION_APART void forward_tile(const struct head *h, int first)
{
    struct tile t = tile_of(&h->sees, first);
    size_t row = (size_t)h->HS; /* distance of the rows of keys and values */
    float maximum[ATTENTION_QUERIES], sum[ATTENTION_QUERIES];
    float *out = h->to + (size_t)first * h->out_row;
    transpose_queries(h->q_transposed, h->q + (size_t)first * h->q_row, h->q_row, t.count, h->HS);
    const float *keys = h->keys + (size_t)t.start * row, *values = h->values + (size_t)t.start * row;
    tile_product(h->scores, ATTENTION_QUERIES, (struct tile_a){keys, row, 1}, h->q_transposed,
                 ATTENTION_QUERIES, t.keys, ATTENTION_QUERIES, h->HS, 0);
    if (h->cap > 0)
        cap_scores(h->scores, t.keys, h->scale, h->cap);
    softmax_lanes(h->scores, maximum, sum, &t, h->cap > 0 ? 1.0f : h->scale);
    tile_product(out, h->out_row, (struct tile_a){h->scores, 1, ATTENTION_QUERIES}, values, row, t.count,
                 h->HS, t.keys, 0);
    for (int lane = 0; lane < t.count; lane++) {
        float inverse = 1.0f / sum[lane];
        for (int i = 0; i < h->HS; i++)
            out[(size_t)lane * h->out_row + i] *= inverse;
        h->lse_to[first + lane] = maximum[lane] + logf(sum[lane]);
    }
}

/* to (keys, HS) += or = a (keys, count) b (count, HS): added to the first `old` keys, written to the others.
 */
static void add_to_keys(float *to, size_t to_row, const float *a, const float *b, size_t b_row, int old,
                        const struct tile *t, int HS)
{
    struct tile_a before = {a, ATTENTION_QUERIES, 1};
    struct tile_a after = {a + (size_t)old * ATTENTION_QUERIES, ATTENTION_QUERIES, 1};
    tile_product(to, to_row, before, b, b_row, old, HS, t->count, 1);
    tile_product(to + (size_t)old * to_row, to_row, after, b, b_row, t->keys - old, HS, t->count, 0);
}

static ATTENTION_APART void backward_tile(const struct head *h, int first)
{
    struct tile t = tile_of(&h->sees, first);
    size_t row = (size_t)h->HS; /* distance of the rows of keys and values */
    const float *q = h->q + (size_t)first * h->q_row, *dout = h->dout + (size_t)first * h->out_row;
    const float *out = h->out + (size_t)first * h->out_row;
    float lse[ATTENTION_QUERIES] = {0}, D[ATTENTION_QUERIES] = {0};
    for (int lane = 0; lane < t.count; lane++) {
        size_t at = (size_t)lane * h->out_row;
        lse[lane] = h->lse[first + lane];
        D[lane] = row_dot(dout + at, out + at, h->HS);
    }
    transpose_queries(h->q_transposed, q, h->q_row, t.count, h->HS);
    transpose_queries(h->dout_transposed, dout, h->out_row, t.count, h->HS);
    const float *keys = h->keys + (size_t)t.start * row, *values = h->values + (size_t)t.start * row;
    tile_product(h->scores, ATTENTION_QUERIES, (struct tile_a){keys, row, 1}, h->q_transposed,
                 ATTENTION_QUERIES, t.keys, ATTENTION_QUERIES, h->HS, 0);
    tile_product(h->dscores, ATTENTION_QUERIES, (struct tile_a){values, row, 1}, h->dout_transposed,
                 ATTENTION_QUERIES, t.keys, ATTENTION_QUERIES, h->HS, 0);
    if (h->cap > 0) {
        cap_scores(h->scores, t.keys, h->scale, h->cap);
        capped_backward_lanes(h->scores, h->dscores, lse, D, &t, h->scale, h->cap);
    } else {
        backward_lanes(h->scores, h->dscores, lse, D, &t, h->scale);
    }
    float *dk = h->dk + (size_t)t.start * h->dk_row, *dv = h->dv + (size_t)t.start * h->dv_row;
    add_to_keys(dv, h->dv_row, h->scores, dout, h->out_row, h->add_v ? t.keys : t.old, &t, h->HS);
    add_to_keys(dk, h->dk_row, h->dscores, q, h->q_row, h->add_k ? t.keys : t.old, &t, h->HS);
    tile_product(h->dq + (size_t)first * h->q_row, h->q_row,
                 (struct tile_a){h->dscores, 1, ATTENTION_QUERIES}, keys, row, t.count, h->HS, t.keys,
                 h->add_q);
}

/* ---- pieces of work ---- */

static float *attention_part(const struct call *c, int b, int h)
{
    int group = attention_group(c->a), others = group - 1;
    size_t index = ((size_t)b * c->a->kv_heads + (size_t)(h / group)) * (size_t)others;
    return c->parts + (index + (size_t)(h % group) - 1) * attention_part_floats(c->a);
}

static struct head head_at(const struct call *c, int b, int h, float *slot)
{
    const struct attention *a = c->a;
    size_t T = (size_t)a->T, row = (size_t)b * T, HS = (size_t)a->head_size;
    size_t q_row = (size_t)a->q_row, k_row = (size_t)a->k_row, v_row = (size_t)a->v_row;
    size_t out_row = (size_t)a->heads * HS, kv = (size_t)(h / attention_group(a)) * HS;
    struct head at = {.q = c->q + row * q_row + (size_t)h * HS,
                      .k = c->k + row * k_row + kv,
                      .v = c->v + row * v_row + kv,
                      .q_row = q_row,
                      .k_row = k_row,
                      .v_row = v_row,
                      .out_row = out_row,
                      .sees = sight_of(a, b),
                      .T = a->lengths ? a->lengths[b] : a->T,
                      .HS = a->head_size,
                      .cap = (float)a->cap,
                      .scale = attention_scale(a)};
    size_t out = row * out_row + (size_t)h * HS, statistics = ((size_t)b * a->heads + (size_t)h) * T;
    at.scores = slot;
    at.dscores = at.scores + T * ATTENTION_QUERIES;
    at.q_transposed = at.dscores + T * ATTENTION_QUERIES;
    at.dout_transposed = at.q_transposed + HS * ATTENTION_QUERIES;
    at.keys = at.dout_transposed + HS * ATTENTION_QUERIES;
    at.values = at.keys + T * HS;
    if (!c->dq) {
        at.to = c->to + out, at.lse_to = c->lse_to + statistics;
        return at;
    }
    at.out = c->out + out, at.dout = c->dout + out, at.lse = c->lse + statistics;
    at.dq = c->dq + row * q_row + (size_t)h * HS, at.add_q = c->beta[0];
    at.dk = c->dk + row * k_row + kv, at.dk_row = k_row, at.add_k = c->beta[1];
    at.dv = c->dv + row * v_row + kv, at.dv_row = v_row, at.add_v = c->beta[2];
    return at;
}

static void zero_rows(float *rows, size_t row, int from, int end, int width)
{
    for (int t = from; t < end; t++)
        memset(rows + (size_t)t * row, 0, (size_t)width * sizeof *rows);
}

static void pack_rows(float *to, const float *from, size_t stride, int T, int HS)
{
    for (int t = 0; t < T; t++)
        memcpy(to + (size_t)t * (size_t)HS, from + (size_t)t * stride, (size_t)HS * sizeof *to);
}

static void pack_keys(const struct head *at)
{
    pack_rows(at->keys, at->k, at->k_row, at->T, at->HS);
    pack_rows(at->values, at->v, at->v_row, at->T, at->HS);
}

void CPU(attention_forward_head)(const struct call *c, int b, int h, float *slot)
{
    struct head at = head_at(c, b, h, slot);
    pack_keys(&at);
    for (int first = 0; first < at.T; first += ATTENTION_QUERIES)
        forward_tile(&at, first);
    zero_rows(at.to, at.out_row, at.T, c->a->T, at.HS);
    zero_rows(at.lse_to, 1, at.T, c->a->T, 1);
}

void CPU(attention_backward_head)(const struct call *c, int b, int h, float *slot)
{
    struct head at = head_at(c, b, h, slot);
    if (h % attention_group(c->a) == 0) {
        if (!at.add_k)
            zero_rows(at.dk, at.dk_row, at.T, c->a->T, at.HS);
        if (!at.add_v)
            zero_rows(at.dv, at.dv_row, at.T, c->a->T, at.HS);
    } else if (attention_has_parts(c->a)) {
        at.dk = attention_part(c, b, h), at.dk_row = (size_t)at.HS, at.add_k = 0;
        at.dv = at.dk + (size_t)c->a->T * (size_t)at.HS, at.dv_row = (size_t)at.HS, at.add_v = 0;
    } else {
        at.add_k = at.add_v = 1; /* the group's first head has written dk and dv */
    }
    pack_keys(&at);
    for (int first = 0; first < at.T; first += ATTENTION_QUERIES)
        backward_tile(&at, first);
    if (!at.add_q)
        zero_rows(at.dq, at.q_row, at.T, c->a->T, at.HS);
}

/* dk and dv += the parts of the other heads of each group. */
void CPU(attention_add_parts)(const struct call *c)
{
    const struct attention *a = c->a;
    int group = attention_group(a), HS = a->head_size;
    CPU_PARALLEL_FOR((int64_t)a->B * a->heads * a->T * HS >= CPU_PARALLEL_MIN)
    for (int64_t row = 0; row < (int64_t)a->B * a->T; row++) {
        int b = (int)(row / a->T), t = (int)(row % a->T);
        if (a->lengths && t >= a->lengths[b])
            continue;
        for (int h = 0; h < a->heads; h++) {
            if (h % group == 0)
                continue;
            const float *restrict part = attention_part(c, b, h) + (size_t)t * (size_t)HS;
            const float *restrict part_v = part + (size_t)a->T * (size_t)HS;
            float *restrict dk = c->dk + (size_t)row * (size_t)a->k_row + (size_t)(h / group) * (size_t)HS;
            float *restrict dv = c->dv + (size_t)row * (size_t)a->v_row + (size_t)(h / group) * (size_t)HS;
            for (int i = 0; i < HS; i++)
                dk[i] += part[i];
            for (int i = 0; i < HS; i++)
                dv[i] += part_v[i];
        }
    }
}
