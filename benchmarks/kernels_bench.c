/* kernels_bench.c - the cost of every kernel in a training step, against the machine's limits, measured
 * in the same run: products against the best sgemm, everything else against a memcpy that moves as many bytes
 * at the same size (so caches count the same on both sides).
 *
 *     kernels_bench [threads] [shape] [variant]
 *
 * defaults: 1 thread, every shape (all, demo, gpt2-256, gpt2-1024), the best variant (base, avx2, avx512;
 * OpenBLAS chooses its own, OPENBLAS_CORETYPE=Haswell holds it to AVX2).
 *
 * Then comes a shape's step: products, the same products without biases, everything else, and the ratio of
 * the whole to the bare products, which is the number that a trainer lives on; then what other models need,
 * and the products by each library (kernels_rates.h).
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "benchmarks/support/figures.h"
#include "benchmarks/support/kernels_rates.h"
#include "kernels/kernels.h"
#include "proto/base/text.h"

struct shape {
    const char *name;
    int B, T, C, NH, V, layers;
};
static const struct shape shapes[] = {
    {"demo", 8, 64, 128, 4, 256, 4},
    {"gpt2-256", 4, 64, 768, 12, 50257, 12},
    {"gpt2-1024", 1, 1024, 768, 12, 50257, 12},
};

/* Everything that an operation reads or writes. Sizes: rows N = B*T, channels 4C at most, vocabulary V. */
struct bench {
    const struct kernels *k;
    struct shape s;
    int N, threads;
    int64_t parameters;      /* elements of the whole model */
    int64_t slice;           /* the share of them that the optimizer's measurement uses */
    float *wide[4];          /* (N, 4C) each */
    float *logits;           /* (N, V) */
    float *weight, *dweight; /* (max(V, 4C), C) */
    float *row[4];           /* (4C) each: biases, weights of layer norms */
    float *statistics;       /* (B, NH, T) or 2N */
    float *moments;          /* 4 * slice */
    int32_t *tokens;
    void *work;
    struct step_scalars scalars;
};

struct operation {
    const char *name;
    int calls;   /* in one step of one micro-batch */
    int product; /* 1: a matrix product with its bias, 2: the same product bare */
    double flops, bytes;
    void (*run)(struct bench *, int OC, int C);
    int OC, C;
};

static void run_forward(struct bench *b, int OC, int C)
{
    float *out = OC == b->s.V ? b->logits : b->wide[1];
    b->k->linear_forward(out, b->wide[0], b->weight, OC == b->s.V ? NULL : b->row[0], b->N, C, OC, OC, NULL);
}
static void run_backward_input(struct bench *b, int OC, int C)
{
    const float *dout = OC == b->s.V ? b->logits : b->wide[1];
    b->k->linear_backward_input(b->wide[0], dout, b->weight, b->N, C, OC, OC, 0, NULL);
}
static void run_backward_weight(struct bench *b, int OC, int C)
{
    const float *dout = OC == b->s.V ? b->logits : b->wide[1];
    b->k->linear_backward_weight(b->dweight, OC == b->s.V ? NULL : b->row[1], dout, b->wide[0], b->N, C, OC,
                                 OC, 1, NULL);
}
static void run_bare(struct bench *b, int OC, int C)
{
    float *out = OC == b->s.V ? b->logits : b->wide[1];
    b->k->linear_forward(out, b->wide[0], b->weight, NULL, b->N, C, OC, OC, NULL);
    b->k->linear_backward_input(b->wide[0], out, b->weight, b->N, C, OC, OC, 0, NULL);
    b->k->linear_backward_weight(b->dweight, NULL, out, b->wide[0], b->N, C, OC, OC, 1, NULL);
}
static void run_embedding(struct bench *b, int OC, int C)
{
    (void)OC;
    b->k->embedding_forward(b->wide[0], b->tokens, b->weight, b->wide[1], b->s.B, b->s.T, C, NULL);
}
static void run_embedding_backward(struct bench *b, int OC, int C)
{
    (void)OC;
    b->k->embedding_backward(b->dweight, b->wide[1], b->wide[0], b->tokens, b->s.B, b->s.T, C, b->s.V, b->s.T,
                             1, NULL);
}
static void run_layernorm(struct bench *b, int OC, int C)
{
    (void)OC;
    b->k->layernorm_forward(b->wide[1], b->statistics, b->statistics + b->N, b->wide[0], b->row[0], b->row[1],
                            b->N, C, 1e-5, NULL);
}
static void run_layernorm_backward(struct bench *b, int OC, int C)
{
    (void)OC;
    b->k->layernorm_backward(b->wide[2], b->row[2], b->row[3], b->wide[1], b->wide[0], b->statistics,
                             b->statistics + b->N, b->row[0], b->N, C, 1, 1, b->work, NULL);
}
/* GPT-2's: a row is q, then k, then v. */
static struct attention packed_attention(struct shape s)
{
    int64_t row = 3 * (int64_t)s.C;
    return (struct attention){.B = s.B,
                              .T = s.T,
                              .heads = s.NH,
                              .kv_heads = s.NH,
                              .head_size = s.C / s.NH,
                              .causal = 1,
                              .q_row = row,
                              .k_row = row,
                              .v_row = row};
}
static void run_attention(struct bench *b, int OC, int C)
{
    (void)OC;
    const struct attention a = packed_attention(b->s);
    b->k->attention_forward(b->wide[1], b->statistics, b->wide[0], b->wide[0] + C, b->wide[0] + 2 * C, &a,
                            b->work, NULL);
}
static void run_attention_backward(struct bench *b, int OC, int C)
{
    (void)OC;
    const struct attention a = packed_attention(b->s);
    b->k->attention_backward(b->wide[2], b->wide[2] + C, b->wide[2] + 2 * C, b->wide[3], b->wide[0],
                             b->wide[0] + C, b->wide[0] + 2 * C, b->wide[1], b->statistics, &a,
                             (const int[3]){0}, b->work, NULL);
}
static void run_gelu(struct bench *b, int OC, int C)
{
    (void)OC;
    b->k->activation_forward(b->wide[1], b->wide[0], ACTIVATION_GELU_TANH, (int64_t)b->N * C, NULL);
}
static void run_gelu_backward(struct bench *b, int OC, int C)
{
    (void)OC;
    b->k->activation_backward(b->wide[2], b->wide[0], b->wide[1], ACTIVATION_GELU_TANH, 0, (int64_t)b->N * C,
                              NULL);
}
/* Llama's: four heads of queries read the same head of keys. */
static struct attention grouped_attention(struct shape s)
{
    struct attention a = packed_attention(s);
    a.kv_heads = s.NH / 4;
    a.q_row = a.k_row = a.v_row = (int64_t)(a.heads + 2 * a.kv_heads) * a.head_size;
    return a;
}
static void run_grouped(struct bench *b, int OC, int C)
{
    const struct attention a = grouped_attention(b->s);
    const float *q = b->wide[0], *k = q + C, *v = k + (size_t)a.kv_heads * (size_t)a.head_size;
    (void)OC;
    b->k->attention_forward(b->wide[1], b->statistics, q, k, v, &a, b->work, NULL);
}
static void run_grouped_backward(struct bench *b, int OC, int C)
{
    const struct attention a = grouped_attention(b->s);
    size_t kv = (size_t)a.kv_heads * (size_t)a.head_size;
    const float *q = b->wide[0], *k = q + C;
    float *dq = b->wide[2], *dk = dq + C;
    (void)OC;
    b->k->attention_backward(dq, dk, dk + kv, b->wide[3], q, k, k + kv, b->wide[1], b->statistics, &a,
                             (const int[3]){0}, b->work, NULL);
}
static void run_rms_norm(struct bench *b, int OC, int C)
{
    (void)OC;
    b->k->rms_norm_forward(b->wide[1], b->statistics, b->wide[0], b->row[0], b->N, C, 1e-5, 0, NULL);
}
static void run_rms_norm_backward(struct bench *b, int OC, int C)
{
    (void)OC;
    b->k->rms_norm_backward(b->wide[2], b->row[2], b->wide[1], b->wide[0], b->statistics, b->row[0], 0, b->N,
                            C, 1, 1, b->work, NULL);
}
static void run_rotary(struct bench *b, int OC, int C)
{
    const struct rotary rotary = {.theta = 10000};
    (void)OC;
    b->k->rotary(b->wide[1], b->wide[0], &rotary, b->s.B, b->s.T, b->s.NH, C / b->s.NH, 0, 0, NULL);
}
static void run_swiglu(struct bench *b, int OC, int C)
{
    (void)OC;
    b->k->gated_forward(b->wide[2], b->wide[0], b->wide[1], ACTIVATION_SILU, (int64_t)b->N * C, NULL);
}
static void run_gated_backward(struct bench *b, int OC, int C)
{
    int64_t n = (int64_t)b->N * C;
    (void)OC;
    b->k->gated_backward(b->wide[3], b->wide[3] + n, b->wide[0], b->wide[1], b->wide[2], ACTIVATION_SILU, 0,
                         0, n, NULL);
}
/* OC is the kind. */
static void run_activation(struct bench *b, int OC, int C)
{
    b->k->activation_forward(b->wide[1], b->wide[0], OC, (int64_t)b->N * C, NULL);
}
static void run_activation_backward(struct bench *b, int OC, int C)
{
    b->k->activation_backward(b->wide[2], b->wide[0], b->wide[1], OC, 0, (int64_t)b->N * C, NULL);
}
static void run_dropout(struct bench *b, int OC, int C)
{
    (void)OC;
    b->k->dropout(b->wide[1], b->wide[0], b->N, C, b->s.T, 0, 1, 0.1, 0, &b->scalars, NULL);
}
static void run_accumulate(struct bench *b, int OC, int C)
{
    (void)OC;
    b->k->accumulate(b->wide[1], b->wide[0], 1, (int64_t)b->N * C, NULL);
}
static void run_add(struct bench *b, int OC, int C)
{
    (void)OC;
    b->k->add(b->wide[2], b->wide[0], b->wide[1], (int64_t)b->N * C, NULL);
}
static void run_cross_entropy(struct bench *b, int OC, int C)
{
    (void)OC, (void)C;
    b->k->cross_entropy(b->logits, b->statistics, b->tokens, b->N, b->s.V, b->s.V, 1, &b->scalars, NULL);
}
static void run_norm(struct bench *b, int OC, int C)
{
    double out;
    (void)OC, (void)C;
    b->k->norm_squared(&out, b->moments, b->slice, 0, NULL);
}
static void run_adamw(struct bench *b, int OC, int C)
{
    (void)OC, (void)C;
    b->k->adamw(b->moments, b->moments + b->slice, b->moments + 2 * b->slice, b->moments + 3 * b->slice,
                OPTIMIZER_WHOLE(b->slice, 0), NULL, DTYPE_F32, &b->scalars, NULL);
}
static void run_adam(struct bench *b, int OC, int C)
{
    (void)OC, (void)C;
    b->k->adam(b->moments, b->moments + b->slice, b->moments + 2 * b->slice, b->moments + 3 * b->slice,
               OPTIMIZER_WHOLE(b->slice, 0), NULL, DTYPE_F32, &b->scalars, NULL);
}
static void run_sgd(struct bench *b, int OC, int C)
{
    (void)OC, (void)C;
    b->k->sgd(b->moments, b->moments + b->slice, b->moments + 3 * b->slice, OPTIMIZER_WHOLE(b->slice, 0), 0.9,
              0, 0, NULL, DTYPE_F32, &b->scalars, NULL);
}
/* The two limits of what moves OC * C bytes: a copy, whose destination is read before it is written, and an
 * update in place, on as many threads as the kernels have. */
static void run_copy(struct bench *b, int OC, int C)
{
    size_t half = (size_t)OC * (size_t)C / 2;
    b->k->cast(b->moments, DTYPE_U8, (char *)b->moments + half, DTYPE_U8, (int64_t)half, NULL);
}
static void run_update(struct bench *b, int OC, int C)
{
    b->k->scale(b->moments, 1.0, (int64_t)OC * C / 2 / (int64_t)sizeof(float), NULL);
}

static void *block_new(size_t bytes, float value)
{
    float *block = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!block) {
        fprintf(stderr, "kernels_bench: no memory for %zu bytes\n", bytes);
        exit(1);
    }
    for (size_t i = 0; i < bytes / sizeof(float); i++)
        block[i] = value * (float)((int)(i * 2654435761u >> 20 & 1023) - 512) / 512.0f;
    return block;
}

/* Seconds of one call: the median of runs that together take at least a fifth of a second. */
static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
static double seconds_of(struct bench *b, void (*run)(struct bench *, int, int), int OC, int C)
{
    enum { SAMPLES_MAX = 51, SAMPLES_MIN = 5 };
    double samples[SAMPLES_MAX], total = 0;
    int count = 0, repeat = 1;
    run(b, OC, C); /* warm */
    while (count < SAMPLES_MAX && (count < SAMPLES_MIN || total < 0.2)) {
        const double start = kernels_rates_now(b->threads);
        for (int i = 0; i < repeat; i++)
            run(b, OC, C);
        const double seconds = kernels_rates_now(b->threads) - start;
        if (seconds < 1e-3 && repeat < 1 << 20) { /* shorter than the clock and a switch can tell */
            repeat *= 2;
            continue;
        }
        samples[count++] = seconds / repeat;
        total += seconds;
    }
    qsort(samples, (size_t)count, sizeof samples[0], compare_doubles);
    return samples[count / 2];
}

static struct bench bench_new(const struct kernels *k, struct shape s, int threads)
{
    struct bench b = {.k = k, .s = s, .N = s.B * s.T, .threads = threads};
    size_t widest = (size_t)(s.V > 4 * s.C ? s.V : 4 * s.C), N = (size_t)b.N;
    const struct attention attention = packed_attention(s), grouped = grouped_attention(s);
    size_t work = k->attention_work(&attention, 1), grouped_work = k->attention_work(&grouped, 1),
           norm_work = k->layernorm_backward_work(b.N, s.C);
    b.parameters = (int64_t)s.V * s.C + (int64_t)s.T * s.C + (int64_t)s.layers * 12 * s.C * s.C;
    b.slice = b.parameters < (16 << 20) ? b.parameters : 16 << 20;
    for (int i = 0; i < 4; i++) {
        b.wide[i] = block_new(N * 4 * (size_t)s.C * sizeof(float), 1);
        b.row[i] = block_new(4 * (size_t)s.C * sizeof(float), 1);
    }
    b.logits = block_new(N * (size_t)s.V * sizeof(float), 1);
    b.weight = block_new(widest * (size_t)s.C * sizeof(float), 0.05f);
    b.dweight = block_new(widest * (size_t)s.C * sizeof(float), 0);
    b.statistics = block_new(N * (size_t)(s.NH + 2) * sizeof(float), 1);
    b.moments = block_new(4 * (size_t)b.slice * sizeof(float), 1);
    work = work > grouped_work ? work : grouped_work;
    b.work = block_new(work > norm_work ? work : norm_work, 0);
    b.tokens = block_new(N * sizeof(int32_t), 0);
    for (size_t i = 0; i < N; i++)
        b.tokens[i] = (int32_t)(i * 2654435761u % (unsigned)s.V);
    for (int64_t i = 0; i < b.slice; i++)
        b.moments[2 * b.slice + i] = fabsf(b.moments[2 * b.slice + i]);
    b.scalars = (struct step_scalars){.beta1 = 0.9,
                                      .beta2 = 0.95,
                                      .epsilon = 1e-8,
                                      .bias_correction1 = 0.5,
                                      .bias_correction2 = 0.5,
                                      .clip = 1,
                                      .inverse_tokens = 1.0 / b.N};
    return b;
}

static void bench_destroy(struct bench *b)
{
    for (int i = 0; i < 4; i++) {
        free(b->wide[i]);
        free(b->row[i]);
    }
    free(b->logits);
    free(b->weight);
    free(b->dweight);
    free(b->statistics);
    free(b->moments);
    free(b->work);
    free(b->tokens);
}

struct totals {
    double products, bare, rest;
};

static void report(struct bench *b, const struct operation *op, double peak, struct totals *totals)
{
    double seconds = seconds_of(b, op->run, op->OC, op->C), limit, rate;
    const char *unit;
    if (op->product) {
        rate = op->flops / seconds / 1e9, limit = peak, unit = "GFLOP/s";
    } else {
        int lines = (int)(fmin(op->bytes, (double)b->slice * 16) / 64);
        double copy = seconds_of(b, run_copy, lines, 64), update = seconds_of(b, run_update, lines, 64);
        rate = op->bytes / seconds / 1e9, limit = 64.0 * lines / fmin(copy, update) / 1e9, unit = "GB/s   ";
    }
    double step = seconds * op->calls;
    *(op->product == 1 ? &totals->products : op->product == 2 ? &totals->bare : &totals->rest) += step;
    printf("  %-26s %4d x %10.1f us = %9.3f ms  %8.1f %s  %5.1f%% of %.1f\n", op->name, op->calls,
           seconds * 1e6, step * 1e3, rate, unit, 100 * rate / limit, limit);
}

static void report_products(struct bench *b, double peak, struct totals *totals)
{
    int C = b->s.C, L = b->s.layers, V = b->s.V;
    const struct {
        const char *name;
        int OC, C, calls;
    } layers[] = {{"qkv", 3 * C, C, L},
                  {"projection", C, C, L},
                  {"mlp up", 4 * C, C, L},
                  {"mlp down", C, 4 * C, L},
                  {"head", V, C, 1}};
    for (size_t i = 0; i < sizeof layers / sizeof layers[0]; i++) {
        double flops = 2.0 * b->N * layers[i].OC * layers[i].C;
        const struct {
            const char *name;
            int product, count;
            void (*run)(struct bench *, int, int);
        } passes[] = {{"forward", 1, 1, run_forward},
                      {"backward input", 1, 1, run_backward_input},
                      {"backward weight", 1, 1, run_backward_weight},
                      {"all three bare", 2, 3, run_bare}};
        for (size_t j = 0; j < sizeof passes / sizeof passes[0]; j++) {
            char name[64];
            (void)snprintf(name, sizeof name, "%s %s", layers[i].name, passes[j].name); /* fits */
            report(b,
                   &(struct operation){name, layers[i].calls, passes[j].product, flops * passes[j].count, 0,
                                       passes[j].run, layers[i].OC, layers[i].C},
                   peak, totals);
        }
    }
}

static void report_others(struct bench *b, double peak, struct totals *totals)
{
    int C = b->s.C, L = b->s.layers;
    double row = 4.0 * b->N * C, logits = 4.0 * b->N * b->s.V, optimizer = 4.0 * (double)b->slice;
    /* Bytes are the least that can be moved: each operand once, += counted twice. */
    const struct operation operations[] = {
        {"embedding", 1, 0, 0, 2 * row, run_embedding, 0, C},
        {"embedding backward", 1, 0, 0, 3 * row, run_embedding_backward, 0, C},
        {"layernorm", 2 * L + 1, 0, 0, 2 * row, run_layernorm, 0, C},
        {"layernorm backward", 2 * L + 1, 0, 0, 4 * row, run_layernorm_backward, 0, C},
        {"gelu", L, 0, 0, 8 * row, run_gelu, 0, 4 * C},
        {"gelu backward", L, 0, 0, 12 * row, run_gelu_backward, 0, 4 * C},
        {"residual add", 2 * L, 0, 0, 3 * row, run_add, 0, C},
        {"cross entropy", 1, 0, 0, 2 * logits, run_cross_entropy, 0, 0},
        {"norm squared (slice)", 1, 0, 0, optimizer, run_norm, 0, 0},
        {"adamw (slice)", 1, 0, 0, 7 * optimizer, run_adamw, 0, 0},
    };
    for (size_t i = 0; i < sizeof operations / sizeof operations[0]; i++) {
        struct operation op = operations[i];
        struct totals alone = {0};
        report(b, &op, peak, &alone);
        /* The optimizer is measured on a slice of the parameters and counted for all. */
        totals->rest +=
            alone.rest *
            (op.run == run_norm || op.run == run_adamw ? (double)b->parameters / (double)b->slice : 1);
    }
    /* Attention is products too, but not OpenBLAS's: it counts with the rest. */
    double pairs = 2.0 * b->s.B * ((double)b->s.T * (b->s.T + 1) / 2) * C;
    struct totals attention = {0};
    report(b, &(struct operation){"attention", L, 1, 2 * pairs, 0, run_attention, 0, C}, peak, &attention);
    report(b, &(struct operation){"attention backward", L, 1, 5 * pairs, 0, run_attention_backward, 0, C},
           peak, &attention);
    totals->rest += attention.products;
}

/* What Llama and others need: not part of this step. */
static void report_more(struct bench *b, double peak)
{
    int C = b->s.C, L = b->s.layers;
    double row = 4.0 * b->N * C, optimizer = 4.0 * (double)b->slice;
    double pairs = 2.0 * b->s.B * ((double)b->s.T * (b->s.T + 1) / 2) * C;
    const struct operation operations[] = {
        {"rms norm", 2 * L + 1, 0, 0, 2 * row, run_rms_norm, 0, C},
        {"rms norm backward", 2 * L + 1, 0, 0, 4 * row, run_rms_norm_backward, 0, C},
        {"rotary", L, 0, 0, 2 * row, run_rotary, 0, C},
        {"swiglu", L, 0, 0, 6 * row, run_swiglu, 0, 2 * C},
        {"swiglu backward", L, 0, 0, 10 * row, run_gated_backward, 0, 2 * C},
        {"gelu erf", L, 0, 0, 8 * row, run_activation, ACTIVATION_GELU_ERF, 4 * C},
        {"gelu erf backward", L, 0, 0, 12 * row, run_activation_backward, ACTIVATION_GELU_ERF, 4 * C},
        {"silu", L, 0, 0, 8 * row, run_activation, ACTIVATION_SILU, 4 * C},
        {"silu backward", L, 0, 0, 12 * row, run_activation_backward, ACTIVATION_SILU, 4 * C},
        {"tanh", L, 0, 0, 8 * row, run_activation, ACTIVATION_TANH, 4 * C},
        {"relu", L, 0, 0, 8 * row, run_activation, ACTIVATION_RELU, 4 * C},
        {"dropout", L, 0, 0, 2 * row, run_dropout, 0, C},
        {"accumulate", L, 0, 0, 3 * row, run_accumulate, 0, C},
        {"adam (slice)", 1, 0, 0, 7 * optimizer, run_adam, 0, 0},
        {"sgd, momentum (slice)", 1, 0, 0, 5 * optimizer, run_sgd, 0, 0},
        {"grouped attention", L, 1, 2 * pairs, 0, run_grouped, 0, C},
        {"grouped attention backward", L, 1, 5 * pairs, 0, run_grouped_backward, 0, C},
    };
    struct totals ignored = {0};
    printf("  not in this step:\n");
    for (size_t i = 0; i < sizeof operations / sizeof operations[0]; i++)
        report(b, &operations[i], peak, &ignored);
}

/* The best rate of the products that OpenBLAS likes most on this machine. */
static double sgemm_peak(struct bench *b)
{
    enum { SIDE = 1024 };
    float *kept[3] = {b->wide[0], b->wide[1], b->weight};
    int N = b->N;
    double best = 0;
    for (int i = 0; i < 3; i++) {
        b->wide[0] = block_new((size_t)SIDE * SIDE * sizeof(float), 1);
        b->wide[1] = block_new((size_t)SIDE * SIDE * sizeof(float), 1);
        b->weight = block_new((size_t)SIDE * SIDE * sizeof(float), 1);
        b->N = SIDE;
        best = fmax(best, 2.0 * SIDE * SIDE * SIDE / seconds_of(b, run_backward_input, SIDE, SIDE) / 1e9);
        free(b->wide[0]);
        free(b->wide[1]);
        free(b->weight);
    }
    b->wide[0] = kept[0], b->wide[1] = kept[1], b->weight = kept[2], b->N = N;
    return best;
}

static void bench_shape(const struct kernels *k, struct shape s, int threads)
{
    struct bench b = bench_new(k, s, threads);
    struct totals totals = {0};
    double peak = sgemm_peak(&b);
    printf("%s: B=%d T=%d C=%d NH=%d V=%d, %d layers, %" PRId64 " parameters\n", s.name, s.B, s.T, s.C, s.NH,
           s.V, s.layers, b.parameters);
    printf("  limits: sgemm %.1f GFLOP/s; bytes against a copy or update of as many\n", peak);
    report_products(&b, peak, &totals);
    report_others(&b, peak, &totals);
    printf("  step: products %.3f ms (bare %.3f ms), everything else %.3f ms; whole / bare products = %.3f\n",
           totals.products * 1e3, totals.bare * 1e3, totals.rest * 1e3,
           (totals.products + totals.rest) / totals.bare);
    char figure[128];
    (void)snprintf(figure, sizeof figure, "GPT-2 step by its kernels, %s", s.name);
    figure_add(figure, "ms", (totals.products + totals.rest) * 1e3, "its bare products", totals.bare * 1e3,
               false);
    report_more(&b, peak);
    bench_destroy(&b);
    kernels_rates(s.B * s.T, s.C, s.V, threads);
}

static int usage(void)
{
    fprintf(stderr,
            "usage: kernels_bench [threads 1..1024] [all|demo|gpt2-256|gpt2-1024] [base|avx2|avx512]\n");
    return 2;
}

static unsigned isa_named(const char *name)
{
    if (strcmp(name, "base") == 0)
        return KERNELS_ISA_BASE;
    if (strcmp(name, "avx2") == 0)
        return KERNELS_ISA_BASE | KERNELS_ISA_AVX2;
    return strcmp(name, "avx512") == 0 ? (unsigned)-1 : 0;
}

int main(int argc, char **argv)
{
    struct muster_error err = {0};
    int64_t threads = 1;
    const char *only = argc > 2 ? argv[2] : "all";
    unsigned isa = argc > 3 ? isa_named(argv[3]) : (unsigned)-1;
    int found = 0;
    if (argc > 4 || isa == 0 ||
        (argc > 1 && (!text_int64(argv[1], &threads) || threads < 1 || threads > 1024)))
        return usage();
    if (kernels_cpu_threads((int)threads, &err) < 0) {
        fprintf(stderr, "kernels_bench: %s\n", err.text);
        return 1;
    }
    const struct kernels *k = kernels_cpu(isa);
    printf("%s, %s, %" PRId64 " threads\n", k->name, kernels_cpu_blas(), threads);
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        if (strcmp(only, "all") == 0 || strcmp(only, shapes[i].name) == 0) {
            bench_shape(k, shapes[i], (int)threads);
            found = 1;
        }
    return found ? 0 : usage();
}
