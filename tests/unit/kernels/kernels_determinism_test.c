/* kernels_determinism_test.c - the same call gives the same bits: twice with the same number of threads for
 * every operation, and with 1, 2 and 3 threads for all but the matrix products, whose split is OpenBLAS's;
 * and ranks that are threads of one process do not disturb each other. */
#include "tests/support/cmocka_all.h"

#include "proto/base/mem.h"
#include "tests/support/rank_threads.h"
#include "tests/unit/kernels/kernels_support.h"

/* Sizes above the limit under which one thread does everything. */
enum { B = 3, T = 65, C = 192, NH = 4, V = 300, N = B * T, REST = 5 };

/* All inputs of one run, and everything that it writes in one block. */
struct run {
    float *in, *weight, *bias, *dout, *qkv;
    int32_t *tokens;
    float *outputs; /* OUTPUT_FLOATS */
    float *work;
    size_t work_floats;
};

enum {
    OUT = 0,
    STATISTICS = OUT + N * C * 3,
    GRADIENT = STATISTICS + 2 * N * NH,
    WEIGHT_GRADIENT = GRADIENT + N * C * 3,
    LOGITS = WEIGHT_GRADIENT + V * C + 2 * C + T * C,
    LOSSES = LOGITS + N * V,
    NORM = LOSSES + N,
    RSTD = NORM + 2,
    SECOND = RSTD + N,
    OUTPUT_FLOATS = SECOND + N * C
};

/* All on the last third of OUT and GRADIENT, which the others leave alone. */
static void run_llama(const struct kernels *k, struct run *run, const struct step_scalars *scalars)
{
    const struct rotary rotary = {.theta = 10000};
    float *out = run->outputs + OUT + 2 * N * C, *gradient = run->outputs + GRADIENT + 2 * N * C;
    k->rms_norm_forward(out, run->outputs + RSTD, run->in, run->weight, N, C, 1e-5, 0, NULL);
    k->rotary(out, out, &rotary, B, T, NH, C / NH, 0, 0, NULL);
    k->dropout(out, run->in, N, C, T, 1, 2, 0.2, 1, scalars, NULL);
    k->gated_forward(out, out, run->in, ACTIVATION_SILU, N * C, NULL);
    k->rms_norm_backward(gradient, run->outputs + WEIGHT_GRADIENT, run->dout, run->in, run->outputs + RSTD,
                         run->weight, 0, N, C, 0, 1, run->work, NULL);
    k->gated_backward(gradient, out, run->in, run->dout, run->dout, ACTIVATION_SILU, 1, 1, N * C, NULL);
    k->accumulate(gradient, out, 1, N * C, NULL);
    k->adam(out, gradient, run->outputs + SECOND, run->dout, OPTIMIZER_WHOLE(N * C, 0), NULL, DTYPE_F32,
            scalars, NULL);
    k->sgd(out, gradient, run->dout, OPTIMIZER_WHOLE(N * C, 0), 0.9, 0, 1, NULL, DTYPE_F32, scalars, NULL);
    k->average(gradient, out, 0.9, N * C, scalars, NULL);
}

static void run_others(const struct kernels *k, struct run *run)
{
    float *o = run->outputs;
    struct step_scalars scalars = {.inverse_tokens = 0.01,
                                   .clip = 1,
                                   .beta1 = 0.9,
                                   .beta2 = 0.95,
                                   .epsilon = 1e-8,
                                   .bias_correction1 = 0.5,
                                   .bias_correction2 = 0.5,
                                   .learning_rate = {1e-3}};
    double norm = 0;
    k->layernorm_forward(o + OUT, o + STATISTICS, o + STATISTICS + N, run->in, run->weight, run->bias, N, C,
                         1e-5, NULL);
    k->layernorm_backward(o + GRADIENT, o + WEIGHT_GRADIENT, o + WEIGHT_GRADIENT + C, run->dout, run->in,
                          o + STATISTICS, o + STATISTICS + N, run->weight, N, C, 0, 1, run->work, NULL);
    k->activation_forward(o + OUT + N * C, o + OUT, ACTIVATION_GELU_TANH, N * C, NULL);
    k->activation_backward(o + GRADIENT + N * C, run->in, run->dout, ACTIVATION_GELU_TANH, 0, N * C, NULL);
    run_llama(k, run, &scalars);
    k->embedding_backward(o + WEIGHT_GRADIENT + 2 * C, o + WEIGHT_GRADIENT + 2 * C + V * C, run->dout,
                          run->tokens, B, T, C, V, T, 0, NULL);
    k->cross_entropy(o + LOGITS, o + LOSSES, run->tokens, N, V, V, 1, &scalars, NULL);
    k->norm_squared(&norm, o + GRADIENT, 2 * N * C, 0, NULL);
    memcpy(o + NORM, &norm, sizeof norm);
    k->adamw(o + OUT, o + OUT + N * C, o + OUT + 2 * N * C, run->dout, OPTIMIZER_WHOLE(N * C, 0), NULL,
             DTYPE_F32, &scalars, NULL);
    k->add(o + OUT + N * C, o + OUT, o + OUT + N * C, N * C, NULL);
}

static void run_attention(const struct kernels *k, struct run *run)
{
    float *o = run->outputs;
    const float *q = run->qkv;
    const struct attention a = packed_attention(B, T, C, NH);
    float *dq = o + GRADIENT;
    k->attention_forward(o + OUT, o + STATISTICS, q, q + C, q + 2 * C, &a, run->work, NULL);
    k->attention_backward(dq, dq + C, dq + 2 * C, run->dout, q, q + C, q + 2 * C, o + OUT, o + STATISTICS, &a,
                          (const int[3]){0}, run->work, NULL);
}

/* Few heads of keys: dk and dv are summed over heads of queries from parts. */
static struct attention grouped_attention(void)
{
    return (struct attention){.B = B,
                              .T = T,
                              .heads = NH,
                              .kv_heads = 1,
                              .head_size = C / NH,
                              .q_row = 3 * C,
                              .k_row = 3 * C,
                              .v_row = 3 * C};
}

static void run_grouped_attention(const struct kernels *k, struct run *run)
{
    float *o = run->outputs;
    const float *q = run->qkv;
    const struct attention a = grouped_attention();
    float *dq = o + GRADIENT;
    k->attention_forward(o + OUT, o + STATISTICS, q, q + C, q + 2 * C, &a, run->work, NULL);
    k->attention_backward(dq, dq + C, dq + 2 * C, run->dout, q, q + C, q + 2 * C, o + OUT, o + STATISTICS, &a,
                          (const int[3]){0, 1, 0}, run->work, NULL);
}

static void run_linear(const struct kernels *k, struct run *run)
{
    float *o = run->outputs;
    k->linear_forward(o + LOGITS, run->in, run->weight, run->bias, N, C, V, V, NULL);
    k->linear_backward_input(o + GRADIENT, o + LOGITS, run->weight, N, C, V, V, 0, NULL);
    k->linear_backward_weight(o + WEIGHT_GRADIENT, o + OUT, o + LOGITS, run->in, N, C, V, V, 0, NULL);
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static struct run run_new(const struct kernels *k)
{
    const struct attention a = packed_attention(B, T, C, NH), grouped = grouped_attention();
    size_t work = larger(k->attention_work(&a, 1), k->attention_work(&grouped, 1));
    work = larger(work, larger(k->layernorm_backward_work(N, C), k->rms_norm_backward_work(N, C)));
    return (struct run){.in = floats_new(N * C, FILL_UNIT),
                        .weight = floats_new(V * C, FILL_UNIT),
                        .bias = floats_new(V, FILL_UNIT),
                        .dout = floats_new(N * C, FILL_UNIT),
                        .qkv = floats_new(N * C * 3, FILL_UNIT),
                        .tokens = tokens_new(N, V, false),
                        .outputs = NULL,
                        .work = floats_new(work / sizeof(float), FILL_UNIT),
                        .work_floats = work / sizeof(float)};
}

static void run_destroy(struct run *run)
{
    void *blocks[] = {run->in,  run->weight, run->bias,    run->dout,
                      run->qkv, run->tokens, run->outputs, run->work};
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++)
        mem_free(blocks[i]);
}

static void threads_set(int threads)
{
    struct muster_error err = {0};
    if (kernels_cpu_threads(threads, &err) < 0)
        fail_msg("%s", err.text);
}

/* Runs body for every variant with the given numbers of threads from equal starts; all must agree. */
static void check_same(void (*body)(const struct kernels *, struct run *), const int *threads, int runs)
{
    for (const struct kernels *const *k = kernels_variants(); *k; k++) {
        struct run run __attribute__((cleanup(run_destroy))) = run_new(*k);
        scope_memory float *start = floats_new(OUTPUT_FLOATS, FILL_UNIT);
        scope_memory float *expected = NULL;
        for (int i = 0; i < runs; i++) {
            threads_set(threads[i]);
            run.outputs = floats_copy(start, OUTPUT_FLOATS);
            body(*k, &run);
            if (!expected) {
                expected = run.outputs;
            } else {
                for (size_t j = 0; j < OUTPUT_FLOATS; j++)
                    if (memcmp(&expected[j], &run.outputs[j], sizeof(float)) != 0)
                        fail_msg("%s: output %zu differs with %d threads from %d", (*k)->name, j, threads[i],
                                 threads[0]);
                mem_free(run.outputs);
            }
            run.outputs = NULL;
        }
    }
}

static void twice_the_same(void **state)
{
    static const int threads[] = {2, 2, 2};
    (void)state;
    check_same(run_linear, threads, 3);
    check_same(run_attention, threads, 3);
    check_same(run_grouped_attention, threads, 3);
    check_same(run_others, threads, 3);
}

static void any_threads_the_same(void **state)
{
    static const int threads[] = {1, 2, 3};
    (void)state;
    check_same(run_attention, threads, 3);
    check_same(run_grouped_attention, threads, 3);
    check_same(run_others, threads, 3);
}

enum { RANKS = 2 };
struct ranks {
    const struct kernels *k;
    struct run run[RANKS];
};

/* One rank's thread: its own number of threads, then all operations on memory of its own. */
static int rank_body(int rank, int world_size, void *context)
{
    struct ranks *ranks = context;
    struct muster_error err;
    (void)world_size;
    if (kernels_cpu_threads(1, &err) < 0) {
        print_error("rank %d: %s\n", rank, err.text);
        return 1;
    }
    for (int i = 0; i < 3; i++) {
        run_linear(ranks->k, &ranks->run[rank]);
        run_attention(ranks->k, &ranks->run[rank]);
        run_grouped_attention(ranks->k, &ranks->run[rank]);
        run_others(ranks->k, &ranks->run[rank]);
    }
    return 0;
}

static void ranks_side_by_side(void **state)
{
    struct ranks ranks = {.k = kernels_cpu((unsigned)-1)};
    struct run first __attribute__((cleanup(run_destroy))) = run_new(ranks.k);
    scope_memory float *start = floats_new(OUTPUT_FLOATS, FILL_UNIT);
    (void)state;
    for (int rank = 0; rank < RANKS; rank++) { /* equal inputs, outputs and work of their own */
        ranks.run[rank] = first;
        ranks.run[rank].outputs = floats_copy(start, OUTPUT_FLOATS);
        ranks.run[rank].work = floats_copy(first.work, first.work_floats);
    }
    assert_int_equal(rank_threads_run(RANKS, rank_body, &ranks), 0);
    assert_memory_equal(ranks.run[0].outputs, ranks.run[1].outputs, OUTPUT_FLOATS * sizeof(float));
    for (int rank = 0; rank < RANKS; rank++) {
        mem_free(ranks.run[rank].outputs);
        mem_free(ranks.run[rank].work);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(twice_the_same),
                                       cmocka_unit_test(any_threads_the_same),
                                       cmocka_unit_test(ranks_side_by_side)};
    kernels_test_begin(2);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
