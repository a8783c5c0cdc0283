/* kernels_dump.c - runs the operations that other models and optimizers need on random inputs, by the
 * reference for double and by this machine's table, and writes inputs and outputs for kernels_torch_test.py.
 *
 *     kernels_dump FILE
 *
 * FILE is one record after another: a line "case name count", then count doubles. Operations of float get the
 * doubles rounded, so that both tables and PyTorch start from the same values. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/dropout_place.h"
#include "kernels/kernels.h"

enum { VALUES_MAX = 1 << 16, BUFFERS = 10 };

/* One table under test; its buffers hold real values. */
struct run {
    const struct kernels *k;
    FILE *file;
    char name[64]; /* the case's */
    uint32_t drawn;
    void *buffer[BUFFERS];
    void *work;
};

static void fail(const char *what)
{
    fprintf(stderr, "kernels_dump: %s\n", what);
    exit(1);
}

static void record(struct run *run, const char *name, const void *values, int64_t count)
{
    static double out[VALUES_MAX];
    if (count > VALUES_MAX)
        fail("a record is too long");
    run->k->cast(out, DTYPE_F64, values, run->k->value, count, NULL);
    if (fprintf(run->file, "%s/%s %s %lld\n", run->name, run->k->name, name, (long long)count) < 0 ||
        fwrite(out, sizeof out[0], (size_t)count, run->file) != (size_t)count)
        fail("the file cannot be written");
}

/* Buffer `index` with `count` values in -1..1 that float holds exactly, recorded under `name`. */
static void *draw(struct run *run, int index, const char *name, int64_t count)
{
    static double values[VALUES_MAX];
    if (count > VALUES_MAX)
        fail("an input is too long");
    for (int64_t i = 0; i < count; i++) {
        const uint32_t counter[4] = {run->drawn++, 0, 0, 0}, key[2] = {1, 2};
        uint32_t word[4];
        philox4x32_10(counter, key, word);
        values[i] = (double)(word[0] >> 8) * 0x1p-23 - 1.0;
    }
    run->k->cast(run->buffer[index], run->k->value, values, DTYPE_F64, count, NULL);
    if (name)
        record(run, name, run->buffer[index], count);
    return run->buffer[index];
}

static void begin(struct run *run, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(run->name, sizeof run->name, format, arguments); /* fits */
    va_end(arguments);
    run->drawn = 0;
}

static void dump_rms_norm(struct run *run)
{
    enum { N = 7, C = 33 };
    begin(run, "rms_norm");
    const void *in = draw(run, 0, "in", N * C), *weight = draw(run, 1, "weight", C);
    const void *dout = draw(run, 2, "dout", N * C);
    void *out = run->buffer[3], *rstd = run->buffer[4], *din = run->buffer[5], *dweight = run->buffer[6];
    run->k->rms_norm_forward(out, rstd, in, weight, N, C, 1e-6, 0, NULL);
    run->k->rms_norm_backward(din, dweight, dout, in, rstd, weight, 0, N, C, 0, 0, run->work, NULL);
    record(run, "out", out, N * C);
    record(run, "din", din, N * C);
    record(run, "dweight", dweight, C);
}

static void dump_attention(struct run *run, const char *name, struct attention a)
{
    int64_t rows = (int64_t)a.B * a.T, q_n = rows * a.heads * a.head_size,
            kv_n = rows * a.kv_heads * a.head_size;
    a.q_row = a.heads * a.head_size, a.k_row = a.v_row = a.kv_heads * a.head_size;
    begin(run, "attention %s", name);
    const void *q = draw(run, 0, "q", q_n), *k = draw(run, 1, "k", kv_n), *v = draw(run, 2, "v", kv_n);
    const void *dout = draw(run, 3, "dout", q_n);
    void *out = run->buffer[4], *lse = run->buffer[5], *dq = run->buffer[6], *dk = run->buffer[7];
    void *dv = run->buffer[8];
    run->k->attention_forward(out, lse, q, k, v, &a, run->work, NULL);
    run->k->attention_backward(dq, dk, dv, dout, q, k, v, out, lse, &a, (const int[3]){0}, run->work, NULL);
    record(run, "out", out, q_n);
    record(run, "dq", dq, q_n);
    record(run, "dk", dk, kv_n);
    record(run, "dv", dv, kv_n);
}

static void dump_rotary(struct run *run, const char *name, struct rotary rotary)
{
    enum { B = 2, T = 48, NH = 3, HS = 32, COUNT = B * T * NH * HS };
    begin(run, "rotary %s", name);
    const void *in = draw(run, 0, "in", COUNT), *dout = draw(run, 1, "dout", COUNT);
    run->k->rotary(run->buffer[2], in, &rotary, B, T, NH, HS, 0, 0, NULL);
    run->k->rotary(run->buffer[3], dout, &rotary, B, T, NH, HS, 1, 0, NULL);
    record(run, "out", run->buffer[2], COUNT);
    record(run, "din", run->buffer[3], COUNT);
}

static void dump_activation(struct run *run, const char *name, int kind)
{
    enum { COUNT = 1000 };
    begin(run, "activation %s", name);
    void *in = draw(run, 0, NULL, COUNT);
    const void *dout = draw(run, 1, "dout", COUNT);
    run->k->scale(in, 8, COUNT, NULL); /* exact */
    record(run, "in", in, COUNT);
    run->k->activation_forward(run->buffer[2], in, kind, COUNT, NULL);
    run->k->activation_backward(run->buffer[3], in, dout, kind, 0, COUNT, NULL);
    record(run, "out", run->buffer[2], COUNT);
    record(run, "din", run->buffer[3], COUNT);
}

static void dump_swiglu(struct run *run)
{
    enum { COUNT = 1000 };
    begin(run, "swiglu");
    const void *gate = draw(run, 0, "gate", COUNT), *up = draw(run, 1, "up", COUNT);
    const void *dout = draw(run, 2, "dout", COUNT);
    run->k->gated_forward(run->buffer[3], gate, up, ACTIVATION_SILU, COUNT, NULL);
    run->k->gated_backward(run->buffer[4], run->buffer[5], gate, up, dout, ACTIVATION_SILU, 0, 0, COUNT,
                           NULL);
    record(run, "out", run->buffer[3], COUNT);
    record(run, "dgate", run->buffer[4], COUNT);
    record(run, "dup", run->buffer[5], COUNT);
}

static void dump_squared_error(struct run *run)
{
    enum { COUNT = 999 };
    static float targets[COUNT];
    static int32_t counted[COUNT];
    const struct step_scalars s = {.inverse_tokens = 1.0 / COUNT};
    begin(run, "squared_error");
    void *in = draw(run, 0, "in", COUNT);
    run->k->cast(targets, DTYPE_F32, draw(run, 1, "targets", COUNT), run->k->value, COUNT, NULL); /* exact */
    run->k->squared_error(in, run->buffer[2], counted, targets, COUNT, 1, &s, NULL);
    record(run, "losses", run->buffer[2], COUNT);
    record(run, "din", in, COUNT);
}

/* 50 steps with a gradient of their own each; the parameters after every step. momentum below 0: Adam. */
static void dump_optimizer(struct run *run, const char *name, double momentum, double dampening, int nesterov,
                           double decay)
{
    enum { COUNT = 20, STEPS = 50 };
    struct step_scalars s = {.learning_rate = {0.01},
                             .weight_decay = {decay},
                             .beta1 = 0.9,
                             .beta2 = 0.95,
                             .epsilon = 1e-8,
                             .clip = 1};
    begin(run, "optimizer %s", name);
    void *param = draw(run, 0, "param", COUNT), *first = run->buffer[1], *second = run->buffer[2];
    memset(first, 0, COUNT * sizeof(double));
    memset(second, 0, COUNT * sizeof(double));
    for (s.step = 1; s.step <= STEPS; s.step++) {
        const void *grad = draw(run, 3, "grad", COUNT);
        s.bias_correction1 = 1 - pow(s.beta1, (double)s.step);
        s.bias_correction2 = 1 - pow(s.beta2, (double)s.step);
        if (momentum < 0)
            run->k->adam(param, first, second, grad, OPTIMIZER_WHOLE(COUNT, 0), NULL, DTYPE_F32, &s, NULL);
        else
            run->k->sgd(param, momentum > 0 ? first : NULL, grad, OPTIMIZER_WHOLE(COUNT, 0), momentum,
                        dampening, nesterov, NULL, DTYPE_F32, &s, NULL);
        record(run, "after", param, COUNT);
    }
}

static void dump_all(struct run *run)
{
    static const int32_t lengths[3] = {19, 37, 1};
    dump_rms_norm(run);
    dump_attention(
        run, "causal",
        (struct attention){.B = 2, .T = 37, .heads = 4, .kv_heads = 4, .head_size = 16, .causal = 1});
    dump_attention(
        run, "grouped",
        (struct attention){.B = 2, .T = 37, .heads = 6, .kv_heads = 2, .head_size = 16, .causal = 1});
    dump_attention(run, "one head of keys",
                   (struct attention){.B = 1, .T = 33, .heads = 5, .kv_heads = 1, .head_size = 9});
    dump_attention(
        run, "lengths",
        (struct attention){
            .B = 3, .T = 37, .heads = 4, .kv_heads = 2, .head_size = 8, .scale = 0.2, .lengths = lengths});
    dump_rotary(run, "plain", (struct rotary){.theta = 10000, .kind = ROTARY_PLAIN});
    dump_rotary(run, "linear", (struct rotary){.theta = 10000, .kind = ROTARY_LINEAR, .factor = 4});
    dump_rotary(
        run, "llama3",
        (struct rotary){
            .theta = 500000, .kind = ROTARY_LLAMA3, .factor = 8, .low = 1, .high = 4, .original = 512});
    dump_activation(run, "gelu_tanh", ACTIVATION_GELU_TANH);
    dump_activation(run, "gelu_erf", ACTIVATION_GELU_ERF);
    dump_activation(run, "silu", ACTIVATION_SILU);
    dump_activation(run, "relu", ACTIVATION_RELU);
    dump_activation(run, "tanh", ACTIVATION_TANH);
    dump_activation(run, "sigmoid", ACTIVATION_SIGMOID);
    dump_swiglu(run);
    dump_squared_error(run);
    dump_optimizer(run, "adam", -1, 0, 0, 0);
    dump_optimizer(run, "adam decay", -1, 0, 0, 0.1);
    dump_optimizer(run, "sgd", 0, 0, 0, 0);
    dump_optimizer(run, "sgd decay", 0, 0, 0, 0.1);
    dump_optimizer(run, "sgd momentum", 0.9, 0, 0, 0.1);
    dump_optimizer(run, "sgd dampening", 0.9, 0.3, 0, 0);
    dump_optimizer(run, "sgd nesterov", 0.9, 0, 1, 0.1);
}

int main(int argc, char **argv)
{
    const struct kernels *tables[] = {kernels_ref_f64(), kernels_cpu((unsigned)-1)};
    struct run run = {.work = calloc(1 << 20, sizeof(double))};
    struct muster_error err = {0};
    if (argc != 2 || !(run.file = fopen(argv[1], "wb")) || !run.work)
        fail("usage: kernels_dump FILE");
    if (kernels_cpu_threads(2, &err) < 0)
        fail(err.text);
    for (int i = 0; i < BUFFERS; i++)
        if (!(run.buffer[i] = calloc(VALUES_MAX, sizeof(double))))
            fail("no memory");
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++) {
        run.k = tables[i];
        dump_all(&run);
    }
    for (int i = 0; i < BUFFERS; i++)
        free(run.buffer[i]);
    free(run.work);
    if (fclose(run.file) != 0)
        fail("the file cannot be written");
    return 0;
}
