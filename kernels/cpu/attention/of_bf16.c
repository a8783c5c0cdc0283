/* of_bf16.c - of_float.c for values of bf16: products of bf16 with sums of float, softmax and
 * statistics in float. Probabilities and gradients of scores are rounded to bf16 where a product reads them.
 *
 * Rows are filled up with zeros to a multiple of 16 elements, and keys to a multiple of 8. Forward holds a
 * tile's scores of all keys. Backward knows the sum of a row, so it takes ATTENTION_KEYS keys at a time,
 * which stay in the first cache. Gradients of keys and values are added up in float and rounded once: in the
 * slot of the thread, or in a part for each head of queries where heads of keys are fewer than the threads
 * may be. */
#include "kernels/cpu/attention/call.h"
#include "kernels/cpu/attention/pairs.h"
#include "kernels/cpu/value.h"

#include <stdbool.h>
#include <string.h>

enum { ATTENTION_KEYS = 64 }; /* a multiple of 8 */

static int up_to_multiple(int n, int of)
{
    return (n + of - 1) / of * of;
}

/* Elements of a row. */
static int padded_size(const struct attention *a)
{
    return up_to_multiple(a->head_size, NARROW_LANES);
}

/* Keys of a slot: a tile begins at an even key and ends at a multiple of 8 from there. */
static int padded_keys(const struct attention *a)
{
    return up_to_multiple(a->T, NARROW_ROWS) + NARROW_ROWS;
}

/* The memory of a thread. Letters: W elements of a row, Q the queries of a tile, K keys. */
struct slot {
    float *scores, *dscores;              /* (K,Q): all keys in forward, ATTENTION_KEYS in backward */
    float *sums;                          /* (Q,W): out or dq */
    float *dk, *dv;                       /* (K,W) */
    pair *keys, *values;                  /* bf16 (K,W) */
    pair *key_pairs, *value_pairs;        /* (K/2,W) */
    pair *q, *dout;                       /* bf16 (Q,W) */
    pair *q_transposed, *dout_transposed; /* (W/2,Q) */
    pair *q_pairs, *dout_pairs;           /* (Q/2,W) */
    pair *p, *ds;                         /* bf16 (ATTENTION_KEYS,Q) */
    pair *ds_pairs;                       /* (ATTENTION_KEYS/2,Q) */
};

/* Cuts a slot, and returns its size in words. memory NULL: the size alone. */
static size_t slot_cut(const struct attention *a, float *memory, struct slot *s)
{
    const size_t W = (size_t)padded_size(a), K = (size_t)padded_keys(a), Q = ATTENTION_QUERIES;
    const size_t block = (size_t)ATTENTION_KEYS * Q, tall = K * Q > 2 * block ? K * Q : 2 * block;
    size_t used = 0;
    struct slot cut;
#define SLOT_PART(member, words) (cut.member = (void *)(memory ? memory + used : NULL), used += (words))
    SLOT_PART(scores, tall), cut.dscores = memory ? cut.scores + block : NULL;
    SLOT_PART(sums, Q * W);
    SLOT_PART(dk, K * W), SLOT_PART(dv, K * W);
    SLOT_PART(keys, K * W / 2), SLOT_PART(values, K * W / 2);
    SLOT_PART(key_pairs, K * W / 2), cut.value_pairs = cut.key_pairs; /* backward's and forward's */
    SLOT_PART(q, Q * W / 2), SLOT_PART(dout, Q * W / 2);
    SLOT_PART(q_transposed, Q * W / 2), SLOT_PART(dout_transposed, Q * W / 2);
    SLOT_PART(q_pairs, Q * W / 2), SLOT_PART(dout_pairs, Q * W / 2);
    SLOT_PART(p, block / 2), SLOT_PART(ds, block / 2), SLOT_PART(ds_pairs, block / 2);
#undef SLOT_PART
    if (s)
        *s = cut;
    return used;
}

/* dk and dv (T,W) of one head of queries. */
static size_t part_floats(const struct attention *a)
{
    return (size_t)2 * (size_t)a->T * (size_t)padded_size(a);
}

size_t CPU(attention_slot)(const struct attention *a)
{
    return slot_cut(a, NULL, NULL);
}

size_t CPU(attention_parts)(const struct attention *a)
{
    return !attention_has_parts(a) ? 0 : (size_t)a->B * (size_t)a->heads * part_floats(a);
}

/* One head of queries of one sequence: pointers at its position 0, distances of rows. */
struct head {
    const VALUE *q, *k, *v, *out, *dout;
    VALUE *to, *dq, *dk, *dv;
    const float *lse;
    float *lse_to;
    size_t q_row, k_row, v_row, out_row;
    struct attention_sight sees;
    int HS, W;
    float scale, cap;
    struct slot slot;
};

static struct head head_at(const struct call *c, int b, int h, float *slot)
{
    const struct attention *a = c->a;
    const size_t row = (size_t)b * (size_t)a->T, HS = (size_t)a->head_size;
    const size_t kv = (size_t)(h / attention_group(a)) * HS, q = row * (size_t)a->q_row + (size_t)h * HS;
    const size_t out_row = (size_t)a->heads * HS, out = row * out_row + (size_t)h * HS;
    const size_t k = row * (size_t)a->k_row + kv, v = row * (size_t)a->v_row + kv;
    const size_t statistics = ((size_t)b * (size_t)a->heads + (size_t)h) * (size_t)a->T;
    struct head at = {.q = c->q + q,
                      .k = c->k + k,
                      .v = c->v + v,
                      .q_row = (size_t)a->q_row,
                      .k_row = (size_t)a->k_row,
                      .v_row = (size_t)a->v_row,
                      .out_row = out_row,
                      .sees = sight_of(a, b),
                      .HS = a->head_size,
                      .W = padded_size(a),
                      .cap = (float)a->cap,
                      .scale = attention_scale(a)};
    (void)slot_cut(a, slot, &at.slot);
    if (!c->dq) {
        at.to = c->to + out, at.lse_to = c->lse_to + statistics;
        return at;
    }
    at.out = c->out + out, at.dout = c->dout + out, at.lse = c->lse + statistics;
    at.dq = c->dq + q, at.dk = c->dk + k, at.dv = c->dv + v;
    return at;
}

/* ---- operands ---- */

/* to (rows,W) = `count` rows of HS; the rest is 0. */
static void take_rows(pair *to, const VALUE *from, size_t stride, int count, int rows, const struct head *h)
{
    const size_t W = (size_t)h->W * sizeof(VALUE), HS = (size_t)h->HS * sizeof(VALUE);
    for (int t = 0; t < rows; t++) {
        char *row = (char *)to + (size_t)t * W;
        const size_t taken = t < count ? HS : 0;
        if (taken)
            memcpy(row, from + (size_t)t * stride, taken);
        memset(row + taken, 0, W - taken);
    }
}

/* to (rows/2,W) = pairs of the rows of from (rows,W). */
static void pair_rows(pair *to, const pair *from, int rows, int W)
{
    for (int t = 0; t < rows; t += 2)
        interleave(to + (size_t)(t / 2) * (size_t)W, from + (size_t)t * (size_t)W / 2,
                   from + (size_t)(t + 1) * (size_t)W / 2, W);
}

/* The queries' rows of a tile, transposed as words: a pair of q is one element of the product. */
static void take_queries(pair *rows, pair *transposed, const VALUE *from, size_t stride, const struct tile *t,
                         const struct head *h)
{
    take_rows(rows, from + (size_t)t->first * stride, stride, t->count, ATTENTION_QUERIES, h);
    transpose_queries((float *)transposed, (const float *)rows, (size_t)h->W / 2, ATTENTION_QUERIES,
                      h->W / 2);
}

/* The tile from an even key on, which its first queries may not see. */
static struct tile even_tile_of(const struct attention_sight *s, int first)
{
    struct tile t = tile_of(s, first);
    if (t.start % 2 == 0)
        return t;
    t.start--, t.keys++, t.diagonal++;
    for (int lane = 0; lane < ATTENTION_QUERIES; lane++)
        t.from[lane]++;
    return t;
}

static void zero_lanes(float *scores, int from, int end)
{
    memset(scores + (size_t)from * ATTENTION_QUERIES, 0,
           (size_t)(end - from) * ATTENTION_QUERIES * sizeof *scores);
}

/* ---- forward ---- */

/* Scores (keys, Q) become pairs of keys (keys/2, Q) in place: each pair is written where it has been read. */
static const pair *pair_scores(float *scores, int keys)
{
    pair *pairs = (pair *)scores;
    for (int key = 0; key < keys; key += 2)
        for (int lane = 0; lane < ATTENTION_QUERIES; lane += NARROW_LANES) {
            const float *row = scores + (size_t)key * ATTENTION_QUERIES + lane;
            const __m512i low = _mm512_cvtepu16_epi32(narrow_lanes(row));
            const __m512i high = _mm512_cvtepu16_epi32(narrow_lanes(row + ATTENTION_QUERIES));
            _mm512_storeu_si512(pairs + (size_t)(key / 2) * ATTENTION_QUERIES + lane,
                                _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
        }
    return pairs;
}

static ATTENTION_APART void forward_tile(const struct head *h, int first)
{
    const struct slot *s = &h->slot;
    const struct tile t = even_tile_of(&h->sees, first);
    const size_t W = (size_t)h->W;
    const int keys = up_to_multiple(t.keys, NARROW_ROWS);
    float maximum[ATTENTION_QUERIES], sum[ATTENTION_QUERIES];
    take_queries(s->q, s->q_transposed, h->q, h->q_row, &t, h);
    narrow_product(s->scores, ATTENTION_QUERIES, (struct pairs){s->keys + (size_t)t.start * W / 2, W / 2, 1},
                   s->q_transposed, ATTENTION_QUERIES, keys, ATTENTION_QUERIES, h->W / 2, 0);
    if (h->cap > 0)
        cap_scores(s->scores, t.keys, h->scale, h->cap);
    softmax_lanes(s->scores, maximum, sum, &t, h->cap > 0 ? 1.0f : h->scale);
    zero_lanes(s->scores, t.keys, keys);
    narrow_product(s->sums, W, (struct pairs){pair_scores(s->scores, keys), 1, ATTENTION_QUERIES},
                   s->value_pairs + (size_t)(t.start / 2) * W, W, ATTENTION_QUERIES, h->W, keys / 2, 0);
    for (int lane = 0; lane < t.count; lane++) {
        const float inverse = 1.0f / sum[lane];
        const float *restrict sums = s->sums + (size_t)lane * W;
        VALUE *restrict out = h->to + (size_t)(first + lane) * h->out_row;
        for (int i = 0; i < h->HS; i++)
            STORE(out[i], sums[i] * inverse);
        h->lse_to[first + lane] = maximum[lane] + logf(sum[lane]);
    }
}

void CPU(attention_forward_head)(const struct call *c, int b, int h, float *memory)
{
    const struct head at = head_at(c, b, h, memory);
    const int T = at.sees.T, keys = padded_keys(c->a);
    take_rows(at.slot.keys, at.k, at.k_row, T, keys, &at);
    take_rows(at.slot.values, at.v, at.v_row, T, keys, &at);
    pair_rows(at.slot.value_pairs, at.slot.values, keys, at.W);
    for (int first = 0; first < T; first += ATTENTION_QUERIES)
        forward_tile(&at, first);
    for (int t = T; t < c->a->T; t++) {
        memset(at.to + (size_t)t * at.out_row, 0, (size_t)at.HS * sizeof *at.to);
        at.lse_to[t] = 0;
    }
}

/* ---- backward ---- */

/* Keys key..key+count-1 of a tile, whose first is even. */
static void backward_keys(const struct head *h, const struct tile *tile, int key, int count, const float *lse,
                          const float *D)
{
    const struct slot *s = &h->slot;
    const size_t W = (size_t)h->W, at = (size_t)(tile->start + key);
    const int keys = up_to_multiple(count, NARROW_ROWS);
    struct tile t = *tile;
    t.keys = count, t.diagonal -= key;
    for (int lane = 0; lane < ATTENTION_QUERIES; lane++)
        t.from[lane] -= key;
    narrow_product(s->scores, ATTENTION_QUERIES, (struct pairs){s->keys + at * W / 2, W / 2, 1},
                   s->q_transposed, ATTENTION_QUERIES, keys, ATTENTION_QUERIES, h->W / 2, 0);
    narrow_product(s->dscores, ATTENTION_QUERIES, (struct pairs){s->values + at * W / 2, W / 2, 1},
                   s->dout_transposed, ATTENTION_QUERIES, keys, ATTENTION_QUERIES, h->W / 2, 0);
    if (h->cap > 0) {
        cap_scores(s->scores, count, h->scale, h->cap);
        capped_backward_lanes(s->scores, s->dscores, lse, D, &t, h->scale, h->cap);
    } else {
        backward_lanes(s->scores, s->dscores, lse, D, &t, h->scale);
    }
    zero_lanes(s->scores, count, keys);
    zero_lanes(s->dscores, count, keys);
    for (int i = 0; i < keys * ATTENTION_QUERIES; i += NARROW_LANES) {
        _mm256_storeu_si256((__m256i *)(s->p + i / 2), narrow_lanes(s->scores + i));
        _mm256_storeu_si256((__m256i *)(s->ds + i / 2), narrow_lanes(s->dscores + i));
    }
    pair_rows(s->ds_pairs, s->ds, keys, ATTENTION_QUERIES);
    narrow_product(s->dv + at * W, W, (struct pairs){s->p, ATTENTION_QUERIES / 2, 1}, s->dout_pairs, W, keys,
                   h->W, ATTENTION_QUERIES / 2, 1);
    narrow_product(s->dk + at * W, W, (struct pairs){s->ds, ATTENTION_QUERIES / 2, 1}, s->q_pairs, W, keys,
                   h->W, ATTENTION_QUERIES / 2, 1);
    narrow_product(s->sums, W, (struct pairs){s->ds_pairs, 1, ATTENTION_QUERIES}, s->key_pairs + at / 2 * W,
                   W, ATTENTION_QUERIES, h->W, keys / 2, 1);
}

/* to (rows, HS) = beta*to + from (rows, W) */
static void store_rows(VALUE *to, size_t stride, const float *from, int rows, int HS, int W, int beta)
{
    for (int t = 0; t < rows; t++) {
        VALUE *restrict row = to + (size_t)t * stride;
        const float *restrict sums = from + (size_t)t * (size_t)W;
        for (int i = 0; i < HS; i++)
            STORE(row[i], beta ? LOAD(row[i]) + sums[i] : sums[i]);
    }
}

static ATTENTION_APART void backward_tile(const struct head *h, int first, int beta)
{
    const struct slot *s = &h->slot;
    const struct tile t = even_tile_of(&h->sees, first);
    float lse[ATTENTION_QUERIES] = {0}, D[ATTENTION_QUERIES] = {0};
    for (int lane = 0; lane < t.count; lane++) {
        const size_t at = (size_t)(first + lane) * h->out_row;
        lse[lane] = h->lse[first + lane];
        D[lane] = row_dot(h->dout + at, h->out + at, h->HS);
    }
    take_queries(s->q, s->q_transposed, h->q, h->q_row, &t, h);
    take_queries(s->dout, s->dout_transposed, h->dout, h->out_row, &t, h);
    pair_rows(s->q_pairs, s->q, ATTENTION_QUERIES, h->W);
    pair_rows(s->dout_pairs, s->dout, ATTENTION_QUERIES, h->W);
    memset(s->sums, 0, (size_t)ATTENTION_QUERIES * (size_t)h->W * sizeof *s->sums);
    for (int key = 0; key < t.keys; key += ATTENTION_KEYS)
        backward_keys(h, &t, key, t.keys - key < ATTENTION_KEYS ? t.keys - key : (int)ATTENTION_KEYS, lse, D);
    store_rows(h->dq + (size_t)first * h->q_row, h->q_row, s->sums, t.count, h->HS, h->W, beta);
}

static float *attention_part(const struct call *c, int b, int h)
{
    return c->parts + ((size_t)b * (size_t)c->a->heads + (size_t)h) * part_floats(c->a);
}

void CPU(attention_backward_head)(const struct call *c, int b, int h, float *memory)
{
    const struct head at = head_at(c, b, h, memory);
    const int group = attention_group(c->a), T = at.sees.T, keys = padded_keys(c->a);
    const size_t sums = (size_t)c->a->T * (size_t)at.W;
    const bool parts = attention_has_parts(c->a);
    if (parts || h % group == 0) {
        memset(at.slot.dk, 0, (size_t)keys * (size_t)at.W * sizeof *at.slot.dk);
        memset(at.slot.dv, 0, (size_t)keys * (size_t)at.W * sizeof *at.slot.dv);
        take_rows(at.slot.keys, at.k, at.k_row, T, keys, &at);
        take_rows(at.slot.values, at.v, at.v_row, T, keys, &at);
        pair_rows(at.slot.key_pairs, at.slot.keys, keys, at.W);
    }
    for (int first = 0; first < T; first += ATTENTION_QUERIES)
        backward_tile(&at, first, c->beta[0]);
    for (int t = T; !c->beta[0] && t < c->a->T; t++)
        memset(at.dq + (size_t)t * at.q_row, 0, (size_t)at.HS * sizeof *at.dq);
    if (parts) {
        memcpy(attention_part(c, b, h), at.slot.dk, sums * sizeof(float));
        memcpy(attention_part(c, b, h) + sums, at.slot.dv, sums * sizeof(float));
    } else if (h % group == group - 1) {
        store_rows(at.dk, at.k_row, at.slot.dk, c->a->T, at.HS, at.W, c->beta[1]);
        store_rows(at.dv, at.v_row, at.slot.dv, c->a->T, at.HS, at.W, c->beta[2]);
    }
}

/* ---- parts of a group ---- */

/* The parts of a group's heads of queries, added in order to the first one. */
static void add_group(const struct call *c, int b, int kv_head)
{
    const struct attention *a = c->a;
    const int group = attention_group(a), W = padded_size(a);
    float *sums = attention_part(c, b, kv_head * group);
    const size_t count = part_floats(a), row = (size_t)b * (size_t)a->T, HS = (size_t)a->head_size;
    for (int h = 1; h < group; h++) {
        const float *restrict part = attention_part(c, b, kv_head * group + h);
        for (size_t i = 0; i < count; i++)
            sums[i] += part[i];
    }
    store_rows(c->dk + row * (size_t)a->k_row + (size_t)kv_head * HS, (size_t)a->k_row, sums, a->T,
               a->head_size, W, c->beta[1]);
    store_rows(c->dv + row * (size_t)a->v_row + (size_t)kv_head * HS, (size_t)a->v_row, sums + count / 2,
               a->T, a->head_size, W, c->beta[2]);
}

void CPU(attention_add_parts)(const struct call *c)
{
    const struct attention *a = c->a;
    CPU_PARALLEL_FOR((int64_t)a->B * a->heads * a->T * a->head_size >= CPU_PARALLEL_MIN)
    for (int64_t pair = 0; pair < (int64_t)a->B * a->kv_heads; pair++) {
        add_group(c, (int)(pair / a->kv_heads), (int)(pair % a->kv_heads));
    }
}
