/* attention.c - attention in tiles of ATTENTION_QUERIES queries against all keys that they see (formulas:
 * kernels/ref/attention.c).
 *
 * Scores are held transposed, S^T (keys, queries): the softmax of 32 queries is then 32 independent lanes,
 * with no sum across a vector, and only the tile's own q and dout have to be transposed. A tile of 1,024 keys
 * is 128 KB and stays in the second cache, so the softmax takes the whole row and needs no rescaling; the
 * (T,T) matrix never exists. Forward's piece of work for one thread is one head of queries of one sequence.
 *
 * Backward's is one head of keys with all heads of queries that read it, so that nothing is summed across
 * threads. Where these are fewer than the threads may be (and more than one head of queries reads each), it
 * is one head of queries: the first of a group writes dk and dv, the others parts of their own in `work`,
 * which are added in order at the end. Which of the two depends on the shape alone. */
#include "kernels/cpu/activation.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/exp.h"
#include "kernels/cpu/tile.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#ifdef _OPENMP
#include <omp.h>
#endif

enum {
    ATTENTION_QUERIES = 32, /* lanes of a tile: a multiple of every variant's two vectors */
    ATTENTION_SLOTS = 32,   /* at most this many threads have work memory */
    ATTENTION_SUM_KEYS = 32 /* keys whose exponentials are summed apart: bounds the error for long rows */
};

/* A tile's loops come out a tenth slower where they are inlined into their caller (GCC 12, AVX-512). */
#define ATTENTION_APART __attribute__((noinline))

/* Heads of queries that read one head of keys. */
static int attention_group(const struct attention *a)
{
    return a->kv_heads > 0 ? a->heads / a->kv_heads : 1;
}

static bool attention_has_parts(const struct attention *a)
{
    return attention_group(a) > 1 && (int64_t)a->B * a->kv_heads < ATTENTION_SLOTS;
}

/* The memory of a thread: two score tiles (T, 32), two transposed operands (HS, 32), and copies (T, HS) of k
 * and v of one head. The copies leave out the distance between rows, which would put all rows into a few sets
 * of the cache. Forward uses one score tile, one transposed operand, and the copies. */
static size_t attention_slot_floats(const struct attention *a)
{
    return (size_t)2 * ATTENTION_QUERIES * ((size_t)a->T + (size_t)a->head_size) +
           (size_t)2 * (size_t)a->T * (size_t)a->head_size;
}

static size_t attention_slots(const struct attention *a)
{
    int64_t heads = (int64_t)a->B * a->heads;
    return heads < ATTENTION_SLOTS ? (size_t)heads : (size_t)ATTENTION_SLOTS;
}

/* dk and dv (T, HS) of one head of queries. */
static size_t attention_part_floats(const struct attention *a)
{
    return (size_t)2 * (size_t)a->T * (size_t)a->head_size;
}

size_t CPU(attention_work)(const struct attention *a)
{
    size_t floats = attention_slots(a) * attention_slot_floats(a);
    if (attention_has_parts(a))
        floats += (size_t)a->B * (size_t)(a->heads - a->kv_heads) * attention_part_floats(a);
    return floats * sizeof(float);
}

/* One head of queries of one sequence: pointers at its position 0, distances of rows, T its length. */
struct head {
    const float *q, *k, *v, *out, *dout, *lse; /* the last three: backward's */
    float *dq, *dk, *dv;                       /* backward's */
    float *to, *lse_to;                        /* forward's out and lse */
    size_t q_row, k_row, v_row, dk_row, dv_row, out_row;
    const int32_t *positions; /* places in this sequence's documents; NULL: one document */
    int T, HS, causal, window;
    int add_q, add_k, add_v; /* not 0: backward adds to the old values */
    float scale, cap;
    /* Parts of this thread's slot. The last two are (T,HS), row after row. */
    float *scores, *dscores, *q_transposed, *dout_transposed, *keys, *values;
};

/* The queries of a tile, and the keys from `start` on that at least one query sees. Of these, lane l sees
 * keys from[l] to diagonal + l. Queries of the tiles before it see the first `old` of them. */
struct tile {
    int first, count, start, keys, diagonal, old;
    int from[ATTENTION_QUERIES];
};

/* The first key that position t sees. */
static int first_key(const struct head *h, int t)
{
    int from = h->window > 0 && t >= h->window ? t + 1 - h->window : 0;
    return h->positions && from < t - h->positions[t] ? t - h->positions[t] : from;
}

/* The end of the keys that queries below `first` see. */
static int keys_end(const struct head *h, int first)
{
    const bool limited = h->window > 0 && h->T - first >= h->window;
    return first == 0 ? 0 : h->causal ? first : limited ? first - 1 + h->window : h->T;
}

static struct tile tile_of(const struct head *h, int first)
{
    int count = h->T - first < ATTENTION_QUERIES ? h->T - first : ATTENTION_QUERIES;
    const int end = keys_end(h, first + count), start = first_key(h, first);
    const int after =
        h->causal || h->window == 0 ? 0 : h->window - 1; /* keys after its own that a query sees */
    struct tile t = {.first = first,
                     .count = count,
                     .start = start,
                     .keys = end - start,
                     .diagonal = h->causal || h->window > 0 ? first - start + after : end,
                     .old = first > 0 ? keys_end(h, first) - start : 0};
    for (int lane = 1; lane < count; lane++)
        t.from[lane] = first_key(h, first + lane) - start;
    return t;
}

typedef float quad __attribute__((vector_size(16), aligned(4), may_alias));
typedef int32_t quad_order __attribute__((vector_size(16)));

/* to (4, 32 apart) = the transpose of 4 rows of 4. */
static inline __attribute__((always_inline)) void transpose_quad(float *to, const float *from, size_t stride)
{
    quad a = *(const quad *)from, b = *(const quad *)(from + stride);
    quad c = *(const quad *)(from + 2 * stride), d = *(const quad *)(from + 3 * stride);
    quad ab_low = __builtin_shuffle(a, b, (quad_order){0, 4, 1, 5});
    quad ab_high = __builtin_shuffle(a, b, (quad_order){2, 6, 3, 7});
    quad cd_low = __builtin_shuffle(c, d, (quad_order){0, 4, 1, 5});
    quad cd_high = __builtin_shuffle(c, d, (quad_order){2, 6, 3, 7});
    *(quad *)to = __builtin_shuffle(ab_low, cd_low, (quad_order){0, 1, 4, 5});
    *(quad *)(to + ATTENTION_QUERIES) = __builtin_shuffle(ab_low, cd_low, (quad_order){2, 3, 6, 7});
    *(quad *)(to + 2 * ATTENTION_QUERIES) = __builtin_shuffle(ab_high, cd_high, (quad_order){0, 1, 4, 5});
    *(quad *)(to + 3 * ATTENTION_QUERIES) = __builtin_shuffle(ab_high, cd_high, (quad_order){2, 3, 6, 7});
}

/* to (HS, 32) = the transpose of `count` rows of HS; the lanes from count on are 0. */
static void transpose_queries(float *to, const float *from, size_t stride, int count, int HS)
{
    int lanes = count / 4 * 4, columns = HS / 4 * 4;
    for (int lane = 0; lane < lanes; lane += 4)
        for (int i = 0; i < columns; i += 4)
            transpose_quad(to + i * ATTENTION_QUERIES + lane, from + (size_t)lane * stride + i, stride);
    for (int i = 0; i < HS; i++)
        for (int lane = i < columns ? lanes : 0; lane < ATTENTION_QUERIES; lane++)
            to[i * ATTENTION_QUERIES + lane] = lane < count ? from[(size_t)lane * stride + i] : 0.0f;
}

/* Scores become cap tanh(score*scale / cap). */
static void cap_scores(float *restrict scores, int keys, float scale, float cap)
{
#pragma omp simd
    for (int i = 0; i < keys * ATTENTION_QUERIES; i++)
        scores[i] = cap * tanh_value(scores[i] * (scale / cap));
}

/* Scores become exp(score*scale - maximum), not yet divided by their sum, which is returned for each lane
 * with the maximum. */
static void softmax_lanes(float *restrict scores, float *restrict maximum, float *restrict sum,
                          const struct tile *t, float scale)
{
    const int diagonal = t->diagonal, keys = t->keys;
    const int *restrict from = t->from;
    for (int lane = 0; lane < ATTENTION_QUERIES; lane++)
        maximum[lane] = -INFINITY, sum[lane] = 0;
    for (int key = 0; key < keys; key++) {
        float *restrict row = scores + (size_t)key * ATTENTION_QUERIES;
        for (int lane = 0; lane < ATTENTION_QUERIES; lane++) {
            float s = row[lane] * scale;
            s = key - diagonal > lane || key < from[lane] ? -INFINITY : s;
            row[lane] = s;
            maximum[lane] = s > maximum[lane] ? s : maximum[lane];
        }
    }
    for (int block = 0; block < keys; block += ATTENTION_SUM_KEYS) {
        int end = block + ATTENTION_SUM_KEYS < keys ? block + ATTENTION_SUM_KEYS : keys;
        float part[ATTENTION_QUERIES] = {0};
        for (int key = block; key < end; key++) {
            float *restrict row = scores + (size_t)key * ATTENTION_QUERIES;
            for (int lane = 0; lane < ATTENTION_QUERIES; lane++) {
                float e = cpu_exp(row[lane] - maximum[lane]);
                e = key - diagonal > lane || key < from[lane] ? 0.0f : e;
                row[lane] = e;
                part[lane] += e;
            }
        }
        for (int lane = 0; lane < ATTENTION_QUERIES; lane++)
            sum[lane] += part[lane];
    }
}

static ATTENTION_APART void forward_tile(const struct head *h, int first)
{
    struct tile t = tile_of(h, first);
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

/* scores become p and dscores (which come as dp) become ds = p (dp - D) scale. */
static void backward_lanes(float *restrict scores, float *restrict dscores, const float *restrict lse,
                           const float *restrict D, const struct tile *t, float scale)
{
    const int diagonal = t->diagonal, keys = t->keys;
    const int *restrict from = t->from;
    for (int key = 0; key < keys; key++) {
        float *restrict p = scores + (size_t)key * ATTENTION_QUERIES;
        float *restrict ds = dscores + (size_t)key * ATTENTION_QUERIES;
        for (int lane = 0; lane < ATTENTION_QUERIES; lane++) {
            float e = cpu_exp(p[lane] * scale - lse[lane]);
            e = key - diagonal > lane || key < from[lane] ? 0.0f : e;
            p[lane] = e;
            ds[lane] = e * (ds[lane] - D[lane]) * scale;
        }
    }
}

/* The same of scores that are capped already: ds is multiplied by 1 - (score / cap)^2, too. */
static void capped_backward_lanes(float *restrict scores, float *restrict dscores, const float *restrict lse,
                                  const float *restrict D, const struct tile *t, float scale, float cap)
{
    const float inverse = 1.0f / cap;
    for (int key = 0; key < t->keys; key++) {
        float *restrict p = scores + (size_t)key * ATTENTION_QUERIES;
        float *restrict ds = dscores + (size_t)key * ATTENTION_QUERIES;
        for (int lane = 0; lane < ATTENTION_QUERIES; lane++) {
            float part = p[lane] * inverse, e = cpu_exp(p[lane] - lse[lane]);
            e = key - t->diagonal > lane || key < t->from[lane] ? 0.0f : e;
            p[lane] = e;
            ds[lane] = e * (ds[lane] - D[lane]) * scale * (1.0f - part * part);
        }
    }
}

static float row_dot(const float *a, const float *b, int n)
{
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
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
    struct tile t = tile_of(h, first);
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

/* One call: forward has dq NULL. */
struct call {
    const struct attention *a;
    const float *q, *k, *v, *dout, *out, *lse;
    float *dq, *dk, *dv, *to, *lse_to;
    const int *beta;
    float *slots, *parts;
};

static float *part_of(const struct call *c, int b, int h)
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
                      .positions = a->causal && a->positions ? a->positions + row : NULL,
                      .T = a->lengths ? a->lengths[b] : a->T,
                      .HS = a->head_size,
                      .causal = a->causal,
                      .window = a->window < a->T ? a->window : 0, /* all are within a longer one */
                      .cap = (float)a->cap,
                      .scale = a->scale != 0 ? (float)a->scale : 1.0f / sqrtf((float)a->head_size)};
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

static void forward_head(const struct call *c, int b, int h, float *slot)
{
    struct head at = head_at(c, b, h, slot);
    pack_keys(&at);
    for (int first = 0; first < at.T; first += ATTENTION_QUERIES)
        forward_tile(&at, first);
    zero_rows(at.to, at.out_row, at.T, c->a->T, at.HS);
    zero_rows(at.lse_to, 1, at.T, c->a->T, 1);
}

static void backward_head(const struct call *c, int b, int h, float *slot)
{
    struct head at = head_at(c, b, h, slot);
    if (h % attention_group(c->a) == 0) {
        if (!at.add_k)
            zero_rows(at.dk, at.dk_row, at.T, c->a->T, at.HS);
        if (!at.add_v)
            zero_rows(at.dv, at.dv_row, at.T, c->a->T, at.HS);
    } else if (attention_has_parts(c->a)) {
        at.dk = part_of(c, b, h), at.dk_row = (size_t)at.HS, at.add_k = 0;
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

/* Runs fn for the heads of queries of the pieces that thread `me` of `threads` has; a piece is `each` heads.
 */
static void share_of_heads(const struct call *c, int each, int me, int threads,
                           void (*fn)(const struct call *, int, int, float *))
{
    int heads = c->a->heads;
    int64_t pieces = (int64_t)c->a->B * heads / each;
    float *slot = c->slots + (size_t)me * attention_slot_floats(c->a);
    for (int64_t pair = pieces * me / threads * each; pair < pieces * (me + 1) / threads * each; pair++)
        fn(c, (int)(pair / heads), (int)(pair % heads), slot);
}

static void for_each_head(const struct call *c, int each, void (*fn)(const struct call *, int, int, float *))
{
#ifdef _OPENMP
    int slots = (int)attention_slots(c->a);
    int64_t scores = (int64_t)c->a->B * c->a->heads * c->a->T * c->a->T;
    /* The team always has all threads, some perhaps without work: libgomp ends the threads that a smaller
     * team does not use and has to start them again for the next loop. */
#pragma omp parallel if (scores >= CPU_PARALLEL_MIN)
    {
        int threads = omp_get_num_threads() < slots ? omp_get_num_threads() : slots,
            me = omp_get_thread_num();
        if (me < threads)
            share_of_heads(c, each, me, threads, fn);
    }
#else
    share_of_heads(c, each, 0, 1, fn);
#endif
}

/* dk and dv += the parts of the other heads of each group. */
static void add_parts(const struct call *c)
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
            const float *restrict part = part_of(c, b, h) + (size_t)t * (size_t)HS;
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

void CPU(attention_forward)(void *out, void *lse, const void *q, const void *k, const void *v,
                            const struct attention *a, void *work, void *stream)
{
    const struct call c = {.a = a, .q = q, .k = k, .v = v, .to = out, .lse_to = lse, .slots = work};
    (void)stream;
    for_each_head(&c, 1, forward_head);
}

void CPU(attention_backward)(void *dq, void *dk, void *dv, const void *dout, const void *q, const void *k,
                             const void *v, const void *out, const void *lse, const struct attention *a,
                             const int beta[3], void *work, void *stream)
{
    float *slots = work;
    const struct call c = {.a = a,
                           .q = q,
                           .k = k,
                           .v = v,
                           .dout = dout,
                           .out = out,
                           .lse = lse,
                           .dq = dq,
                           .dk = dk,
                           .dv = dv,
                           .beta = beta,
                           .slots = slots,
                           .parts = slots + attention_slots(a) * attention_slot_floats(a)};
    (void)stream;
    for_each_head(&c, attention_has_parts(a) ? 1 : attention_group(a), backward_head);
    if (attention_has_parts(a))
        add_parts(&c);
}
