/* attention_checks.c - attention of a table against the reference for double. Tolerances as in
 * kernels_cpu_test.c. */
#include "tests/unit/kernels/attention_checks.h"

#include "tests/support/cmocka_all.h"

#include <math.h>

#include "proto/base/mem.h"
#include "tests/unit/kernels/kernels_support.h"

#define U FLOAT_ROUNDOFF

static const struct kernels *exact(void)
{
    return kernels_ref_f64();
}

/* How q, k and v lie: parts of one row, or apart with `gap` elements between rows. */
struct layout {
    const char *name;
    bool packed;
    int gap;
};
static const struct layout layouts[] = {
    {"packed", true, 0}, {"packed, gap", true, 3}, {"apart", false, 0}, {"apart, gap", false, 5}};
enum { LAYOUTS = sizeof layouts / sizeof layouts[0], BLOCKS = 3 };

/* q, k and v, or their gradients, in one block of memory, or in three. */
struct operands {
    float *block[BLOCKS];
    double *block64[BLOCKS];
    size_t n[BLOCKS];
    float *part[BLOCKS];
    double *part64[BLOCKS];
};

static void operands_destroy(struct operands *o)
{
    for (int i = 0; i < BLOCKS; i++) {
        mem_free(o->block[i]);
        mem_free(o->block64[i]);
    }
}

static int attention_width(const struct attention *a, int i)
{
    return (i == 0 ? a->heads : a->kv_heads) * a->head_size;
}

/* The rows' distances of a layout. */
static void place_rows(struct attention *a, const struct layout *layout)
{
    int64_t *rows[BLOCKS] = {&a->q_row, &a->k_row, &a->v_row};
    for (int i = 0; i < BLOCKS; i++)
        *rows[i] = layout->packed ? (a->heads + 2 * a->kv_heads) * a->head_size + layout->gap
                                  : attention_width(a, i) + layout->gap;
}

/* Blocks end with the last used element of the last row: a gap after it belongs to no buffer. */
static struct operands operands_new(const struct attention *a, const struct layout *layout,
                                    enum kernels_fill fill)
{
    struct operands o = {0};
    size_t rows = (size_t)a->B * (size_t)a->T;
    const int64_t row[BLOCKS] = {a->q_row, a->k_row, a->v_row};
    int blocks = layout->packed ? 1 : BLOCKS;
    for (int i = 0; i < blocks; i++) {
        o.n[i] = rows ? rows * (size_t)row[i] - (size_t)layout->gap : 0;
        o.block[i] = floats_new(o.n[i], fill);
        o.block64[i] = doubles_of(o.block[i], o.n[i]);
    }
    for (int i = 0, at = 0; i < BLOCKS; at += attention_width(a, i), i++) {
        o.part[i] = layout->packed ? o.block[0] + (rows ? at : 0) : o.block[i];
        o.part64[i] = layout->packed ? o.block64[0] + (rows ? at : 0) : o.block64[i];
    }
    return o;
}

static double operands_largest(const struct operands *o)
{
    double largest = 0;
    for (int i = 0; i < BLOCKS && o->block[i]; i++)
        largest = fmax(largest, floats_largest(o->block[i], o->n[i]));
    return largest;
}

/* For a table that takes the keys 32 at a time and forms its sums anew for each. */
static double rescaled(const struct kernels *k, int T)
{
    return strncmp(k->name, "cuda", 4) == 0 ? 6.0 * (T / 32 + 1) * U : 0;
}

/* The error of each product of two elements: tf32 rounds both to 10 bits of mantissa. */
static double product_roundoff(const struct kernels *k)
{
    return strstr(k->name, "tf32") ? 2 * 4.8828125e-4 : 0;
}

struct bounds {
    double X, score, p, ds, sum; /* sum: terms of a gradient's sum */
    double round;                /* see product_roundoff */
};

/* A score is off by S = (HS + 4) u |q||k| scale, so a probability relatively by that, by its exponential (4
 * u) and by its sum ((T/32 + 40) u); out and each gradient are sums of at most T products, or T times the
 * heads that read a key. dp and D are at most HS X and off by (HS + 4) u of that; ds = p (dp - D) scale.
 * Where products round their factors, each of them is off by so much more. */
static struct bounds bounds_of(const struct kernels *k, const struct attention *a, double X)
{
    int HS = a->head_size, T = a->T;
    double scale = a->scale != 0 ? a->scale : 1 / sqrt((double)HS), score = HS * X * X * scale;
    struct bounds b = {.X = X, .round = product_roundoff(k)};
    b.score = ((HS + 4) * U + b.round) * score;
    b.p = 2 * b.score + (4 + T / 32 + 40) * U + 2 * rescaled(k, T);
    double p_again = b.p + U * (score + 8); /* lse was rounded to float */
    double ds = 2 * HS * X * scale, ds_off = ds * p_again + (2 * (HS + 4) * U + b.round) * HS * X * scale;
    b.sum = (double)T * (a->kv_heads ? a->heads / a->kv_heads : 1);
    b.ds = b.sum * (X * ds_off + (U + b.round) * X * ds) + b.sum * (p_again + b.round + b.sum * U);
    return b;
}

static void check_backward(const struct kernels *k, const struct attention *a, const struct layout *layout,
                           const struct operands *in, const float *out, const float *lse, float *work,
                           int betas)
{
    struct operands d __attribute__((cleanup(operands_destroy))) = operands_new(a, layout, FILL_UNIT);
    const int beta[3] = {betas & 1, betas >> 1 & 1, betas >> 2};
    size_t n = (size_t)a->B * a->T * a->heads * a->head_size, statistics = (size_t)a->B * a->heads * a->T;
    scope_memory float *dout = floats_new(n, FILL_UNIT);
    scope_memory double *dout64 = doubles_of(dout, n), *out64 = doubles_of(out, n);
    scope_memory double *lse64 = doubles_of(lse, statistics);
    struct bounds bounds = bounds_of(k, a, operands_largest(in));
    exact()->attention_backward(d.part64[0], d.part64[1], d.part64[2], dout64, in->part64[0], in->part64[1],
                                in->part64[2], out64, lse64, a, beta, NULL, NULL);
    k->attention_backward(d.part[0], d.part[1], d.part[2], dout, in->part[0], in->part[1], in->part[2], out,
                          lse, a, beta, work, NULL);
    static const char *const names[BLOCKS] = {"dq, dqkv", "dk", "dv"};
    for (int i = 0; i < BLOCKS && d.block[i]; i++) /* gaps too: they stay as they were */
        assert_true(doubles_close(names[i], d.block[i], d.block64[i], d.n[i],
                                  bounds.ds + FLOAT_FLUSHED + 2 * U, bounds.sum * U));
}

static void check_attention(const struct kernels *k, struct attention a, const struct layout *layout,
                            enum kernels_fill fill, int betas)
{
    place_rows(&a, layout);
    struct operands in __attribute__((cleanup(operands_destroy))) = operands_new(&a, layout, fill);
    size_t n = (size_t)a.B * a.T * a.heads * a.head_size, statistics = (size_t)a.B * a.heads * a.T;
    scope_memory float *out = floats_new(n, FILL_LARGE), *lse = floats_new(statistics, FILL_LARGE);
    scope_memory double *out64 = doubles_of(out, n), *lse64 = doubles_of(lse, statistics);
    scope_memory float *work = floats_new(k->attention_work(&a, 1) / sizeof(float), FILL_LARGE);
    struct bounds bounds = bounds_of(k, &a, operands_largest(&in));
    computing("%s attention B=%d T=%d heads=%d kv=%d HS=%d causal=%d window=%d scale=%g cap=%g lengths=%s "
              "documents=%s %s "
              "fill=%s "
              "betas=%d",
              k->name, a.B, a.T, a.heads, a.kv_heads, a.head_size, a.causal, a.window, a.scale, a.cap,
              a.lengths ? "yes" : "no", a.positions ? "yes" : "no", layout->name, kernels_fill_name(fill),
              betas);
    exact()->attention_forward(out64, lse64, in.part64[0], in.part64[1], in.part64[2], &a, NULL, NULL);
    k->attention_forward(out, lse, in.part[0], in.part[1], in.part[2], &a, work, NULL);
    assert_true(doubles_close("lse", lse, lse64, statistics,
                              bounds.score + (a.T / 32 + 48) * U + rescaled(k, a.T), 2 * U));
    assert_true(doubles_close("out", out, out64, n,
                              (2 * bounds.p + bounds.round + a.T * U) * bounds.X + FLOAT_FLUSHED, U));
    check_backward(k, &a, layout, &in, out, lse, work, betas);
}

/* Not where the rounding of scores alone is more than 1: 1e4 x HS in float, anything large in tf32. */
static bool fill_has_sense(const struct kernels *k, enum kernels_fill fill)
{
    return product_roundoff(k) > 0 ? fill == FILL_UNIT : fill != FILL_OFFSET;
}

/* GPT-2's: packed, causal, as many heads of keys as of queries. */
void attention_check_packed(const struct kernels *k)
{
    static const int shapes[][4] = {{0, 4, 8, 2},   {1, 1, 1, 1},   {2, 1, 8, 2},   {2, 7, 6, 3},
                                    {1, 31, 32, 4}, {1, 32, 64, 1}, {2, 33, 36, 3}, {1, 65, 80, 2},
                                    {3, 5, 50, 2},  {1, 97, 17, 1}, {7, 3, 40, 10}, {1, 130, 64, 2}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        const int *s = shapes[i];
        for (enum kernels_fill fill = 0; fill < FILL_COUNT; fill++)
            if (fill_has_sense(k, fill))
                check_attention(k, packed_attention(s[0], s[1], s[2], s[3]), &layouts[0], fill, 0);
    }
}

void attention_check_shape(const struct kernels *k, struct attention packed)
{
    check_attention(k, packed, &layouts[0], FILL_UNIT, 5);
}

/* Sequences of every length from none to all. */
static int32_t *lengths_new(int B, int T)
{
    int32_t *lengths = tokens_new((size_t)B, T + 1, false);
    if (B > 1)
        lengths[0] = 0, lengths[B - 1] = T;
    return lengths;
}

static void check_every_mode(const struct kernels *k, struct attention a)
{
    scope_memory int32_t *lengths = lengths_new(a.B, a.T), *positions = positions_new(a.B, a.T);
    for (int mode = 0; mode < 4; mode++) {
        a.causal = mode & 1;
        a.lengths = mode >> 1 ? lengths : NULL;
        a.window = random_below(2) ? 1 + (int)random_below((uint32_t)a.T + 2) : 0;
        a.cap = random_below(3) ? 0 : 1.5;
        a.positions = mode & 1 && random_below(2) ? positions : NULL;
        check_attention(k, a, &layouts[random_below(LAYOUTS)], FILL_UNIT, (int)random_below(8));
    }
}

void attention_check_grouped(const struct kernels *k, int random_shapes)
{
    /* B, T, heads, kv_heads, head_size: one head of keys, as many as queries, sequences of one position, odd
     * sizes; the last ones are many pieces of work, which need no parts of dk and dv. */
    static const int shapes[][5] = {{0, 4, 4, 2, 8},  {2, 1, 3, 1, 7},  {1, 40, 4, 1, 16}, {2, 33, 6, 3, 5},
                                    {1, 70, 3, 3, 9}, {3, 32, 2, 1, 1}, {2, 65, 9, 3, 20}, {1, 96, 8, 2, 17},
                                    {17, 5, 4, 2, 8}, {8, 35, 8, 4, 12}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        const int *s = shapes[i];
        struct attention a = {.B = s[0], .T = s[1], .heads = s[2], .kv_heads = s[3], .head_size = s[4]};
        const bool tf32 =
            product_roundoff(k) > 0; /* fewer: rows are found as without, and it is slow emulated */
        for (int layout = 0; layout < LAYOUTS; layout += tf32 ? LAYOUTS : 1)
            for (enum kernels_fill fill = 0; fill < FILL_COUNT; fill++)
                if (fill_has_sense(k, fill) && (fill == FILL_UNIT || layout == 0)) {
                    a.causal = 1;
                    check_attention(k, a, &layouts[layout], fill, (int)random_below(8));
                }
        if (!tf32 || i % 3 == 1)
            check_every_mode(k, a);
    }
    for (int i = 0; i < random_shapes; i++) {
        struct attention a = {.B = (int)random_below(4),
                              .T = (int)random_below(80),
                              .kv_heads = 1 + (int)random_below(3),
                              .head_size = 1 + (int)random_below(20),
                              .scale = random_below(2) ? 0.2 : 0};
        a.heads = a.kv_heads * (1 + (int)random_below(4));
        check_every_mode(k, a);
    }
}

/* A position that nobody may see changes nothing, not even by a NaN. */
void attention_check_unseen(const struct kernels *k)
{
    enum { B = 2, T = 40, HEADS = 4, KV = 2, HS = 8, N = B * T * HEADS * HS, KEYS = B * T * KV * HS };
    static const int32_t lengths[B] = {33, 0};
    const struct attention a = {.B = B,
                                .T = T,
                                .heads = HEADS,
                                .kv_heads = KV,
                                .head_size = HS,
                                .q_row = HEADS * HS,
                                .k_row = KV * HS,
                                .v_row = KV * HS,
                                .lengths = lengths};
    scope_memory float *q = floats_new(N, FILL_UNIT), *keys = floats_new(KEYS, FILL_UNIT);
    scope_memory float *values = floats_new(KEYS, FILL_UNIT), *out = floats_new(N, FILL_UNIT);
    scope_memory float *lse = floats_new(B * HEADS * T, FILL_UNIT);
    scope_memory float *work = floats_new(k->attention_work(&a, 1) / sizeof(float), FILL_UNIT);
    for (int i = 33 * KV * HS; i < KEYS; i++)
        keys[i] = values[i] = NAN;
    k->attention_forward(out, lse, q, keys, values, &a, work, NULL);
    for (int i = 0; i < N; i++) {
        assert_false(isnan(out[i]));
        if (i >= 33 * HEADS * HS)
            assert_true(out[i] == 0);
    }
}
