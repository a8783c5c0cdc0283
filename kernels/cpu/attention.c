/* attention.c - causal attention in tiles of ATTENTION_QUERIES queries against all keys up to them (formulas:
 * kernels/ref/attention.c).
 *
 * Scores are held transposed, S^T (keys, queries): the softmax of 32 queries is then 32 independent lanes,
 * with no sum across a vector, and only the tile's own q and dout have to be transposed. A tile of 1,024 keys
 * is 128 KB and stays in the second cache, so the softmax takes the whole row and needs no rescaling; the
 * (T,T) matrix never exists. Every (b, h) is one piece of work for one thread, so nothing is summed across
 * threads. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/exp.h"
#include "kernels/cpu/tile.h"

#include <math.h>
#include <string.h>

#ifdef _OPENMP
#include <omp.h>
#endif

enum {
    ATTENTION_QUERIES = 32, /* lanes of a tile: a multiple of every variant's two vectors */
    ATTENTION_SLOTS = 32,   /* at most this many threads have work memory */
    ATTENTION_SUM_KEYS = 32 /* keys whose exponentials are summed apart: bounds the error for long rows */
};

static int attention_slots(int B, int NH)
{
    int64_t heads = (int64_t)B * NH;
    return heads < ATTENTION_SLOTS ? (int)heads : ATTENTION_SLOTS;
}

/* One thread's memory: two score tiles (T, 32) and two transposed operands (HS, 32). Forward uses one of
 * each. */
static size_t attention_slot_floats(int T, int HS)
{
    return (size_t)2 * ATTENTION_QUERIES * ((size_t)T + (size_t)HS);
}

size_t CPU(attention_work)(int B, int T, int C, int NH)
{
    return (size_t)attention_slots(B, NH) * attention_slot_floats(T, C / NH) * sizeof(float);
}

/* One head of one sequence. Rows of q, k, v (and their gradients) are `stride` apart, rows of out C apart. */
struct head {
    const float *q, *k, *v, *out, *dout, *lse; /* the last three: backward's */
    float *dq, *dk, *dv;                       /* backward's */
    float *to, *lse_to;                        /* forward's out and lse */
    size_t stride, C;
    int T, HS;
    float scale;
    float *scores, *dscores, *q_transposed, *dout_transposed; /* of this thread's slot */
};

/* to (HS, 32) = the transpose of `count` rows of HS; the lanes from count on are 0. */
static void transpose_queries(float *to, const float *from, size_t stride, int count, int HS)
{
    for (int i = 0; i < HS; i++)
        for (int lane = 0; lane < ATTENTION_QUERIES; lane++)
            to[i * ATTENTION_QUERIES + lane] = lane < count ? from[(size_t)lane * stride + i] : 0.0f;
}

/* Scores become exp(score*scale - maximum), not yet divided by their sum, which is returned for each lane
 * with the maximum. Keys from `first` on are those of the diagonal, where lane l sees keys up to first + l.
 */
static void softmax_lanes(float *restrict scores, float *restrict maximum, float *restrict sum, int first,
                          int keys, float scale)
{
    for (int lane = 0; lane < ATTENTION_QUERIES; lane++)
        maximum[lane] = -INFINITY, sum[lane] = 0;
    for (int key = 0; key < keys; key++) {
        float *restrict row = scores + (size_t)key * ATTENTION_QUERIES;
        for (int lane = 0; lane < ATTENTION_QUERIES; lane++) {
            float s = row[lane] * scale;
            s = key - first > lane ? -INFINITY : s;
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
                e = key - first > lane ? 0.0f : e;
                row[lane] = e;
                part[lane] += e;
            }
        }
        for (int lane = 0; lane < ATTENTION_QUERIES; lane++)
            sum[lane] += part[lane];
    }
}

static void forward_tile(const struct head *h, int first)
{
    int count = h->T - first < ATTENTION_QUERIES ? h->T - first : ATTENTION_QUERIES, keys = first + count;
    float maximum[ATTENTION_QUERIES], sum[ATTENTION_QUERIES];
    float *out = h->to + (size_t)first * h->C;
    transpose_queries(h->q_transposed, h->q + (size_t)first * h->stride, h->stride, count, h->HS);
    tile_product(h->scores, ATTENTION_QUERIES, (struct tile_a){h->k, h->stride, 1}, h->q_transposed,
                 ATTENTION_QUERIES, keys, ATTENTION_QUERIES, h->HS, 0);
    softmax_lanes(h->scores, maximum, sum, first, keys, h->scale);
    tile_product(out, h->C, (struct tile_a){h->scores, 1, ATTENTION_QUERIES}, h->v, h->stride, count, h->HS,
                 keys, 0);
    for (int lane = 0; lane < count; lane++) {
        float inverse = 1.0f / sum[lane];
        for (int i = 0; i < h->HS; i++)
            out[(size_t)lane * h->C + i] *= inverse;
        h->lse_to[first + lane] = maximum[lane] + logf(sum[lane]);
    }
}

/* scores become p and dscores (which come as dp) become ds = p (dp - D) scale. */
static void backward_lanes(float *restrict scores, float *restrict dscores, const float *restrict lse,
                           const float *restrict D, int first, int keys, float scale)
{
    for (int key = 0; key < keys; key++) {
        float *restrict p = scores + (size_t)key * ATTENTION_QUERIES;
        float *restrict ds = dscores + (size_t)key * ATTENTION_QUERIES;
        for (int lane = 0; lane < ATTENTION_QUERIES; lane++) {
            float e = cpu_exp(p[lane] * scale - lse[lane]);
            e = key - first > lane ? 0.0f : e;
            p[lane] = e;
            ds[lane] = e * (ds[lane] - D[lane]) * scale;
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

static void backward_tile(const struct head *h, int first)
{
    int count = h->T - first < ATTENTION_QUERIES ? h->T - first : ATTENTION_QUERIES, keys = first + count;
    size_t row = (size_t)first * h->stride, out_row = (size_t)first * h->C;
    float lse[ATTENTION_QUERIES] = {0}, D[ATTENTION_QUERIES] = {0};
    for (int lane = 0; lane < count; lane++) {
        size_t at = out_row + (size_t)lane * h->C;
        lse[lane] = h->lse[first + lane];
        D[lane] = row_dot(h->dout + at, h->out + at, h->HS);
    }
    transpose_queries(h->q_transposed, h->q + row, h->stride, count, h->HS);
    transpose_queries(h->dout_transposed, h->dout + out_row, h->C, count, h->HS);
    tile_product(h->scores, ATTENTION_QUERIES, (struct tile_a){h->k, h->stride, 1}, h->q_transposed,
                 ATTENTION_QUERIES, keys, ATTENTION_QUERIES, h->HS, 0);
    tile_product(h->dscores, ATTENTION_QUERIES, (struct tile_a){h->v, h->stride, 1}, h->dout_transposed,
                 ATTENTION_QUERIES, keys, ATTENTION_QUERIES, h->HS, 0);
    backward_lanes(h->scores, h->dscores, lse, D, first, keys, h->scale);
    /* This tile makes the first contribution to its keys: tiles go up, so these rows are still unset,
     * while earlier keys are added to. */
    struct tile_a p = {h->scores, ATTENTION_QUERIES, 1}, ds = {h->dscores, ATTENTION_QUERIES, 1};
    struct tile_a p_new = p, ds_new = ds;
    p_new.at += (size_t)first * ATTENTION_QUERIES;
    ds_new.at += (size_t)first * ATTENTION_QUERIES;
    tile_product(h->dv, h->stride, p, h->dout + out_row, h->C, first, h->HS, count, 1);
    tile_product(h->dv + row, h->stride, p_new, h->dout + out_row, h->C, count, h->HS, count, 0);
    tile_product(h->dk, h->stride, ds, h->q + row, h->stride, first, h->HS, count, 1);
    tile_product(h->dk + row, h->stride, ds_new, h->q + row, h->stride, count, h->HS, count, 0);
    tile_product(h->dq + row, h->stride, (struct tile_a){h->dscores, 1, ATTENTION_QUERIES}, h->k, h->stride,
                 count, h->HS, keys, 0);
}

/* Base pointers at position 0 of sequence 0, for one (b, h) pair and one slot of work memory. */
static struct head head_of_pair(const struct head *base, int pair, int NH, float *slot)
{
    struct head h = *base;
    size_t T = (size_t)h.T, b = (size_t)(pair / NH), column = (size_t)(pair % NH) * (size_t)h.HS;
    size_t in = b * T * h.stride + column, out = b * T * h.C + column;
    size_t statistics = (size_t)pair * T;
    h.q += in, h.k += in, h.v += in;
    if (h.dq) {
        h.dq += in, h.dk += in, h.dv += in;
        h.out += out, h.dout += out, h.lse += statistics;
    } else {
        h.to += out, h.lse_to += statistics;
    }
    h.scores = slot;
    h.dscores = h.scores + T * ATTENTION_QUERIES;
    h.q_transposed = h.dscores + T * ATTENTION_QUERIES;
    h.dout_transposed = h.q_transposed + (size_t)h.HS * ATTENTION_QUERIES;
    return h;
}

/* Runs fn for every tile of the pairs assigned to thread `me` of `threads`. */
static void share_of_heads(const struct head *base, int B, int NH, float *work, int me, int threads,
                           void (*fn)(const struct head *, int))
{
    int64_t pairs = (int64_t)B * NH;
    float *slot = work + (size_t)me * attention_slot_floats(base->T, base->HS);
    for (int pair = (int)(pairs * me / threads); pair < (int)(pairs * (me + 1) / threads); pair++) {
        struct head h = head_of_pair(base, pair, NH, slot);
        for (int first = 0; first < h.T; first += ATTENTION_QUERIES)
            fn(&h, first);
    }
}

static void for_each_head(const struct head *base, int B, int NH, float *work,
                          void (*fn)(const struct head *, int))
{
#ifdef _OPENMP
    int slots = attention_slots(B, NH);
    int64_t scores = (int64_t)B * NH * base->T * base->T;
    /* The team always has all threads, some perhaps without work: libgomp ends the threads that a smaller
     * team does not use and has to start them again for the next loop. */
#pragma omp parallel if (scores >= CPU_PARALLEL_MIN)
    {
        int threads = omp_get_num_threads() < slots ? omp_get_num_threads() : slots,
            me = omp_get_thread_num();
        if (me < threads)
            share_of_heads(base, B, NH, work, me, threads, fn);
    }
#else
    share_of_heads(base, B, NH, work, 0, 1, fn);
#endif
}

static struct head head_base(const float *qkv, int T, int C, int NH)
{
    int HS = C / NH;
    return (struct head){.q = qkv,
                         .k = qkv + C,
                         .v = qkv + 2 * (size_t)C,
                         .stride = 3 * (size_t)C,
                         .C = (size_t)C,
                         .T = T,
                         .HS = HS,
                         .scale = 1.0f / sqrtf((float)HS)};
}

void CPU(attention_forward)(void *out, void *lse, const void *qkv, int B, int T, int C, int NH, void *work,
                            void *stream)
{
    struct head base = head_base(qkv, T, C, NH);
    (void)stream;
    base.to = out;
    base.lse_to = lse;
    for_each_head(&base, B, NH, work, forward_tile);
}

void CPU(attention_backward)(void *dqkv, const void *dout, const void *qkv, const void *out, const void *lse,
                             int B, int T, int C, int NH, void *work, void *stream)
{
    struct head base = head_base(qkv, T, C, NH);
    (void)stream;
    base.out = out;
    base.dout = dout;
    base.lse = lse;
    base.dq = dqkv;
    base.dk = base.dq + C;
    base.dv = base.dq + 2 * (size_t)C;
    for_each_head(&base, B, NH, work, backward_tile);
}
