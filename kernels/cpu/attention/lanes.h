/* lanes.h - inside kernels/cpu: what attention in tiles is for any type of values: which keys the queries
 * of a tile see, and the softmax of a tile's scores and its gradient, in float. Scores of a tile are S^T
 * (keys, ATTENTION_QUERIES): each query is a lane. */
#ifndef MUSTER_KERNELS_CPU_ATTENTION_LANES_H
#define MUSTER_KERNELS_CPU_ATTENTION_LANES_H

#ifdef CPU_VARIANT /* its loops are for the flags of a variant */

#include <math.h>
#include <stdbool.h>
#include <stddef.h>

#include "kernels/cpu/activation.h"
#include "kernels/cpu/exp.h"
#include "kernels/cpu/transpose.h"
#include "kernels/cpu/value.h"
#include "kernels/kernels.h"

enum {
    ATTENTION_QUERIES = 32, /* lanes of a tile: a multiple of every variant's two vectors */
    ATTENTION_SLOTS = 32,   /* at most this many threads have work memory */
    ATTENTION_SUM_KEYS = 32 /* keys whose exponentials are summed apart: bounds the error for long rows */
};

/* A tile's loops come out a tenth slower where they are inlined into their caller (GCC 12, AVX-512). */
#define ATTENTION_APART __attribute__((noinline))

/* Heads of queries that read one head of keys. */
static inline int attention_group(const struct attention *a)
{
    return a->kv_heads > 0 ? a->heads / a->kv_heads : 1;
}

static inline size_t attention_slots(const struct attention *a)
{
    int64_t heads = (int64_t)a->B * a->heads;
    return heads < ATTENTION_SLOTS ? (size_t)heads : (size_t)ATTENTION_SLOTS;
}

/* Which keys the queries of a sequence see. */
struct attention_sight {
    const int32_t *positions; /* places in this sequence's documents; NULL: one document */
    int T, causal, window;    /* T: the sequence's length */
};

static inline struct attention_sight sight_of(const struct attention *a, int b)
{
    return (struct attention_sight){
        .positions = a->causal && a->positions ? a->positions + (size_t)b * (size_t)a->T : NULL,
        .T = a->lengths ? a->lengths[b] : a->T,
        .causal = a->causal,
        .window = a->window < a->T ? a->window : 0, /* all are within a longer one */
    };
}

static inline float attention_scale(const struct attention *a)
{
    return a->scale != 0 ? (float)a->scale : 1.0f / sqrtf((float)a->head_size);
}

/* The queries of a tile, and the keys from `start` on that at least one query sees. Of these, lane l sees
 * keys from[l] to diagonal + l. Queries of the tiles before it see the first `old` of them. */
struct tile {
    int first, count, start, keys, diagonal, old;
    int from[ATTENTION_QUERIES];
};

/* The first key that position t sees. */
static inline int first_key(const struct attention_sight *s, int t)
{
    int from = s->window > 0 && t >= s->window ? t + 1 - s->window : 0;
    return s->positions && from < t - s->positions[t] ? t - s->positions[t] : from;
}

/* The end of the keys that queries below `first` see. */
static inline int keys_end(const struct attention_sight *s, int first)
{
    const bool limited = s->window > 0 && s->T - first >= s->window;
    return first == 0 ? 0 : s->causal ? first : limited ? first - 1 + s->window : s->T;
}

static inline struct tile tile_of(const struct attention_sight *s, int first)
{
    int count = s->T - first < ATTENTION_QUERIES ? s->T - first : ATTENTION_QUERIES;
    const int end = keys_end(s, first + count), start = first_key(s, first);
    const int after =
        s->causal || s->window == 0 ? 0 : s->window - 1; /* keys after its own that a query sees */
    struct tile t = {.first = first,
                     .count = count,
                     .start = start,
                     .keys = end - start,
                     .diagonal = s->causal || s->window > 0 ? first - start + after : end,
                     .old = first > 0 ? keys_end(s, first) - start : 0};
    for (int lane = 1; lane < count; lane++)
        t.from[lane] = first_key(s, first + lane) - start;
    return t;
}

/* to (HS, 32) = the transpose of `count` rows of HS; the lanes from count on are 0. */
static inline void transpose_queries(float *to, const float *from, size_t stride, int count, int HS)
{
    int lanes = count / 4 * 4, columns = HS / 4 * 4;
    for (int lane = 0; lane < lanes; lane += 4)
        for (int i = 0; i < columns; i += 4)
            transpose_quad(to + i * ATTENTION_QUERIES + lane, ATTENTION_QUERIES,
                           from + (size_t)lane * stride + i, stride);
    for (int i = 0; i < HS; i++)
        for (int lane = i < columns ? lanes : 0; lane < ATTENTION_QUERIES; lane++)
            to[i * ATTENTION_QUERIES + lane] = lane < count ? from[(size_t)lane * stride + i] : 0.0f;
}

/* Scores become cap tanh(score*scale / cap). */
static inline void cap_scores(float *restrict scores, int keys, float scale, float cap)
{
#pragma omp simd
    for (int i = 0; i < keys * ATTENTION_QUERIES; i++)
        scores[i] = cap * tanh_value(scores[i] * (scale / cap));
}

/* Scores become exp(score*scale - maximum), not yet divided by their sum, which is returned for each lane
 * with the maximum. */
static inline void softmax_lanes(float *restrict scores, float *restrict maximum, float *restrict sum,
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

/* scores become p and dscores (which come as dp) become ds = p (dp - D) scale. */
static inline void backward_lanes(float *restrict scores, float *restrict dscores, const float *restrict lse,
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
static inline void capped_backward_lanes(float *restrict scores, float *restrict dscores,
                                         const float *restrict lse, const float *restrict D,
                                         const struct tile *t, float scale, float cap)
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

static inline float row_dot(const VALUE *a, const VALUE *b, int n)
{
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int i = 0; i < n; i++)
        sum += LOAD(a[i]) * LOAD(b[i]);
    return sum;
}

#endif
#endif
