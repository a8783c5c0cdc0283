/* orders_rows.c - the operations by rows: embedding, norms, rotary, dropout, biases, means, slices,
 * cross-entropy. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/bias.h"
#include "kernels/cuda/geometry.h"
#include "tests/gpu/kernels/orders.h"
#include "tests/gpu/kernels/reuse.h"

struct sizes {
    int N, C, B, T, V, maxT, NH, HS, beta, beta_in, row, a, b, kind;
    double p;
    int64_t first, count, at;
    enum dtype values;
};

ORDERS_VALUES(embedding_forward, p[0], p[1], p[2], p[3], s->B, s->T, s->C)
ORDERS_VALUES(embedding_backward, p[0], p[1], p[2], p[3], s->B, s->T, s->C, s->V, s->maxT, s->beta)
ORDERS_VALUES(rows_add, p[0], s->first, s->count, s->at, p[1], p[2], s->N, s->T, s->C)
ORDERS_VALUES(layernorm_forward, p[0], p[1], p[2], p[3], p[4], p[5], s->N, s->C, 1e-5)
ORDERS_VALUES(layernorm_backward, p[0], s->a == 1 ? NULL : p[1], s->a == 2 ? NULL : p[2], p[3], p[4], p[5],
              p[6], p[7], s->N, s->C, s->beta_in, s->beta, p[8])
ORDERS_VALUES(add_layernorm_forward, p[0], p[1], p[2], p[3], p[s->a], p[s->b], p[6], p[7], s->N, s->C, 1e-5)
ORDERS_VALUES(add_rms_norm_forward, p[0], p[1], p[2], p[s->a], p[s->b], p[5], s->N, s->C, 1e-5, 1)
ORDERS_VALUES(rms_norm_forward, p[0], p[1], p[2], p[3], s->N, s->C, 1e-5, 1)
ORDERS_VALUES(rms_norm_backward, p[0], p[1], p[2], p[3], p[4], p[5], 1, s->N, s->C, s->beta_in, s->beta, p[6])
/* By positions, or from `at` on; of heads of which `V` elements turn, or all. */
#define ROTARY_AT(positions_)                                                                                \
    &(struct rotary)                                                                                         \
    {                                                                                                        \
        .theta = 10000, .positions = s->a ? NULL : (positions_), .first = s->a, .size = s->V,                \
        .kind = (enum rotary_kind)s->kind, .factor = 4, .original = 8                                        \
    }
ORDERS_VALUES(rotary, p[0], p[1], ROTARY_AT(p[2]), s->B, s->T, s->NH, s->HS, s->beta_in, s->beta)
ORDERS_VALUES(dropout, p[0], p[1], s->N, s->C, s->T, 3, 9, s->p, s->beta, p[2])
ORDERS_VALUES(mean_forward, p[0], p[1], p[2], s->B, s->T, s->C)
ORDERS_VALUES(mean_backward, p[0], p[1], p[2], s->B, s->T, s->C, s->beta)
ORDERS_VALUES(slice_forward, p[0], p[1], s->N, s->row, s->V, s->C)
ORDERS_VALUES(slice_backward, p[0], p[1], s->N, s->row, s->V, s->C, s->beta)
ORDERS_VALUES(cross_entropy, p[0], p[1], p[2], s->N, s->C, s->row, s->beta, p[3])

static void tokens_into(struct call_case *c, size_t n, int vocabulary, bool some_ignored)
{
    int32_t tokens[CUDA_ROW_BLOCKS + 600];
    for (size_t i = 0; i < n; i++)
        tokens[i] = some_ignored && random_below(4) == 0 ? -1 : (int32_t)random_below((uint32_t)vocabulary);
    case_bytes(c, tokens, n * sizeof tokens[0], BYTES, OPERAND);
}

static void embedding(void)
{
    for (int round = 0; round < ORDERS_ROUNDS_VALUES; round++) {
        struct sizes s = {.B = round ? (int)random_below(4) : 2,
                          .T = round ? awkward(40) : 300,
                          .C = awkward(300),
                          .V = 1 + (int)random_below(round & 1 ? 3 : 60),
                          .beta = round & 1,
                          .values = round_values(round)};
        s.maxT = s.T + (int)random_below(3);
        size_t rows = (size_t)s.B * s.T, C = (size_t)s.C;
        struct call_case forward = {.what = "embedding_forward", .halves = s.values};
        struct call_case backward = {.what = "embedding_backward", .relative = 1e-6, .halves = s.values};
        case_value_result(&forward, rows * C), tokens_into(&forward, rows, s.V, false);
        case_value_in(&forward, (size_t)s.V * C), case_value_in(&forward, (size_t)s.maxT * C);
        RUN(&forward, embedding_forward, &s);
        case_result(&backward, (size_t)s.V * C), case_result(&backward, (size_t)s.maxT * C);
        case_value_in(&backward, rows * C), tokens_into(&backward, rows, s.V, false);
        RUN(&backward, embedding_backward, &s);
    }
}

/* The parts of three ranks, of which the bounds are inside of rows. */
static void rows_of_other_ranks(void)
{
    for (int round = 0; round < ORDERS_ROUNDS_VALUES; round++) {
        struct sizes s = {.B = (int)random_below(4),
                          .T = round ? awkward(40) : 300,
                          .C = 1 + awkward(300),
                          .V = 1 + (int)random_below(round & 1 ? 3 : 60),
                          .at = (int64_t)random_below(40),
                          .values = round_values(round)};
        const int64_t all = s.at + (int64_t)s.V * s.C;
        s.N = s.B * s.T;
        s.count = (all + 2) / 3;
        for (int part = 0; part < 3; part++) {
            struct call_case add = {
                .what = "rows_add", .relative = 1e-6, .absolute = 1e-6, .halves = s.values};
            s.first = part * s.count;
            case_result(&add, (size_t)s.count), case_value_in(&add, (size_t)s.N * (size_t)s.C);
            tokens_into(&add, (size_t)s.N, s.V, false);
            RUN(&add, rows_add, &s);
        }
    }
}

/* Positive, as rstd is. */
static void rstd_into(struct call_case *c, size_t n)
{
    float *values = c->buffer[case_in(c, n)].host;
    for (size_t i = 0; i < n; i++)
        values[i] = 1 + fabsf(values[i]);
}

static void norms(void)
{
    for (int round = 0; round < ORDERS_ROUNDS_VALUES; round++) {
        struct sizes s = {.N = awkward(70),
                          .C = 1 + awkward(260),
                          .beta = round & 1,
                          .beta_in = round >> 1 & 1,
                          .values = round_values(round)};
        if (round % 8 >= 6) { /* rows that a warp's registers hold, and longer ones */
            s.N = 3;
            s.C = round == 6 ? 600 : round == 7 ? 2100 : round == 14 ? 1100 : 4200;
        }
        size_t N = (size_t)s.N, C = (size_t)s.C;
        struct call_case f = {
            .what = "layernorm_forward", .absolute = 1e-4, .relative = 1e-4, .halves = s.values};
        struct call_case b = {
            .what = "layernorm_backward", .absolute = 1e-4, .relative = 1e-4, .halves = s.values};
        case_value_result(&f, N * C), case_result(&f, N), case_result(&f, N);
        case_value_in(&f, N * C), case_value_in(&f, C), case_value_in(&f, C);
        f.absolute = C < 4 ? 1e-1 : 1e-4; /* rows that are nearly constant */
        RUN(&f, layernorm_forward, &s);
        case_value_result(&b, N * C), case_result(&b, C), case_result(&b, C), case_value_in(&b, N * C);
        case_value_in(&b, N * C), case_in(&b, N), rstd_into(&b, N), case_value_in(&b, C);
        case_work(&b, cuda_layernorm_backward_work(s.N, s.C));
        s.a = round % 5 < 3 ? 0 : round % 5 - 2; /* without the gradient of the weight, or of the bias */
        RUN(&b, layernorm_backward, &s);
        struct call_case rf = {
            .what = "rms_norm_forward", .absolute = 1e-4, .relative = 1e-4, .halves = s.values};
        struct call_case rb = {
            .what = "rms_norm_backward", .absolute = 1e-4, .relative = 1e-4, .halves = s.values};
        case_value_result(&rf, N * C), case_result(&rf, N), case_value_in(&rf, N * C), case_value_in(&rf, C);
        RUN(&rf, rms_norm_forward, &s);
        case_value_result(&rb, N * C), case_result(&rb, C), case_value_in(&rb, N * C);
        case_value_in(&rb, N * C), rstd_into(&rb, N), case_value_in(&rb, C);
        case_work(&rb, cuda_rms_norm_backward_work(s.N, s.C));
        RUN(&rb, rms_norm_backward, &s);
        /* Of sums, which go to their own memory, or over an addend, as the result does. Sums of 16 bits are
         * rounded, as the reference's of fp32 are not: few values may then be alike. */
        const bool wide = s.values == DTYPE_F32;
        const double off = C < 4 && wide ? 1e-1 : wide ? 1e-4 : C < 8 ? 400 : 0.05;
        struct call_case sf = {.what = "add_layernorm_forward",
                               .absolute = off,
                               .relative = wide ? 1e-4 : 0.02,
                               .halves = s.values};
        struct call_case sr = sf;
        sr.what = "add_rms_norm_forward";
        case_value_result(&sf, N * C), case_value_result(&sf, N * C), case_result(&sf, N);
        case_result(&sf, N), case_value_in(&sf, N * C), case_value_in(&sf, N * C);
        case_value_in(&sf, C), case_value_in(&sf, C);
        s.a = round % 3 == 1 ? 1 : 4, s.b = round % 3 == 2 ? 0 : 5;
        RUN(&sf, add_layernorm_forward, &s);
        case_value_result(&sr, N * C), case_value_result(&sr, N * C), case_result(&sr, N);
        case_value_in(&sr, N * C), case_value_in(&sr, N * C), case_value_in(&sr, C);
        s.a = round % 3 == 1 ? 0 : 3, s.b = round % 3 == 2 ? 1 : 4;
        RUN(&sr, add_rms_norm_forward, &s);
    }
}

static void rotary(void)
{
    for (int round = 0; round < ORDERS_ROUNDS_VALUES; round++) {
        struct sizes s = {.B = (int)random_below(3),
                          .T = awkward(40),
                          .NH = 1 + (int)random_below(3),
                          .HS = 2 + 2 * awkward(round ? 20 : 140),
                          .beta = round & 1,
                          .beta_in = round >> 1 & 1,
                          .values = round_values(round)};
        s.V = round % 4 == 1 ? s.HS / 4 * 2 : 0;
        s.a = round % 4 == 2 ? 5 : 0;
        s.kind = s.a || round % 4 == 3 ? ROTARY_DYNAMIC : ROTARY_PLAIN; /* turned by the length, from 8 on */
        size_t rows = (size_t)s.B * s.T, n = rows * s.NH * s.HS;
        struct call_case c = {.what = "rotary", .absolute = 1e-4, .relative = 1e-4, .halves = s.values};
        case_value_result(&c, n), case_value_in(&c, n), tokens_into(&c, rows, 50, false);
        RUN(&c, rotary, &s);
    }
}

static void dropout(void)
{
    const struct step_scalars scalars = {.seed = 12345678901, .first_sample = 0xfffffffe};
    for (int round = 0; round < ORDERS_ROUNDS_VALUES; round++) {
        const bool large = round == 0; /* a sample has more elements than 16 bits count */
        struct sizes s = {.N = large ? 500 : awkward(30),
                          .C = large ? 137 : awkward(130),
                          .T = large ? 499 : 1 + (int)random_below(5),
                          .beta = round & 1,
                          .p = round == 7 ? 1 : 0.3,
                          .values = round_values(round)};
        size_t n = (size_t)s.N * s.C;
        struct call_case c = {.what = "dropout", .absolute = 1e-6, .relative = 1e-5, .halves = s.values};
        case_value_result(&c, n), case_value_in(&c, n);
        case_bytes(&c, &scalars, sizeof scalars, BYTES, OPERAND);
        RUN(&c, dropout, &s);
    }
}

static void bias_add_reference(void **p, const void *argument)
{
    const struct sizes *s = argument;
    float *out = p[0], *bias = p[1];
    for (int i = 0; i < s->N * s->C; i++)
        out[i / s->C * s->row + i % s->C] += bias[i % s->C];
}
static int bias_add_cuda(void **p, const void *argument, struct muster_error *err)
{
    const struct sizes *s = argument;
    return cuda_bias_add(p[0], p[1], s->values, s->N, s->C, s->row, NULL, err);
}
static void bias_gradient_reference(void **p, const void *argument)
{
    const struct sizes *s = argument;
    float *dbias = p[0], *dout = p[1];
    for (int column = 0; column < s->C; column++) {
        double sum = s->beta ? (double)dbias[column] : 0;
        for (int row = 0; row < s->N; row++)
            sum += (double)dout[row * s->row + column];
        dbias[column] = (float)sum;
    }
}
static int bias_gradient_cuda(void **p, const void *argument, struct muster_error *err)
{
    const struct sizes *s = argument;
    return cuda_bias_gradient(p[0], p[1], s->values, s->N, s->C, s->row, s->beta, p[2], (size_t)s->count,
                              NULL, err);
}

/* din, dbias, pre, work */
static void activation_bias_reference(void **p, const void *argument)
{
    const struct sizes *s = argument;
    const int64_t n = (int64_t)s->N * s->C;
    float *din = p[0];
    struct sizes dense = *s;
    kernels_ref_f32()->activation_backward(din, p[2], din, s->kind, 0, n, NULL);
    if (s->values != DTYPE_F32) { /* the sums are of rounded values */
        scope_memory uint16_t *halves = malloc((size_t)n * sizeof *halves + 1);
        if (!halves)
            abort();
        kernels_ref_f32()->cast(halves, s->values, din, DTYPE_F32, n, NULL);
        kernels_ref_f32()->cast(din, DTYPE_F32, halves, s->values, n, NULL);
    }
    dense.row = s->C;
    bias_gradient_reference((void *[]){p[1], p[0]}, &dense);
}
static int activation_bias_cuda(void **p, const void *argument, struct muster_error *err)
{
    const struct sizes *s = argument;
    return cuda_activation_bias_gradient(p[0], p[1], p[2], s->values, s->kind, s->N, s->C, s->beta, p[3],
                                         (size_t)s->count, NULL, err);
}

/* Rows that lie apart, of values in -1..1. */
static void apart_into(struct call_case *c, const struct sizes *s, enum role role)
{
    scope_memory float *dense = floats_new((size_t)s->N * (size_t)s->C, FILL_UNIT);
    scope_memory float *apart = floats_apart(dense, s->N, s->C, s->row);
    case_narrow(c,
                case_bytes(c, apart, floats_apart_count(s->N, s->C, s->row) * sizeof *apart, FLOATS, role));
}

/* With memory for as many runs of rows as there may be, and for fewer. */
static void biases(void)
{
    for (int round = 0; round < ORDERS_ROUNDS_VALUES; round++) {
        struct sizes s = {.N = round < 2 ? 600 : awkward(600), .C = awkward(130), .beta = round & 1};
        s.count = (int64_t)sizeof(float) * (s.C ? s.C : 1) * (round & 2 ? 600 : 1 + (int)random_below(4));
        s.row = s.C + (round & 1 ? 1 + awkward(40) : 0);
        s.values = round_values(round);
        struct call_case add = {.what = "bias_add", .halves = s.values};
        struct call_case gradient = {
            .what = "bias_gradient", .absolute = 1e-4, .relative = 1e-4, .halves = s.values};
        apart_into(&add, &s, RESULT), case_value_in(&add, (size_t)s.C);
        RUN(&add, bias_add, &s);
        case_result(&gradient, (size_t)s.C), apart_into(&gradient, &s, OPERAND);
        case_work(&gradient, (size_t)s.count);
        RUN(&gradient, bias_gradient, &s);
        struct call_case both = {.what = "activation_bias",
                                 .absolute = s.values == DTYPE_F32 ? 1e-4 : 2e-2,
                                 .relative = 1e-4,
                                 .halves = s.values}; /* a value may be rounded to the other side */
        s.kind = round % ACTIVATION_KINDS;
        case_value_result(&both, (size_t)s.N * (size_t)s.C), case_result(&both, (size_t)s.C);
        case_value_in(&both, (size_t)s.N * (size_t)s.C), case_work(&both, (size_t)s.count);
        RUN(&both, activation_bias, &s);
    }
}

static void means(void)
{
    for (int round = 0; round < ORDERS_ROUNDS_VALUES; round++) {
        struct sizes s = {
            .B = 3, .T = awkward(70), .C = awkward(300), .beta = round & 1, .values = round_values(round)};
        size_t rows = (size_t)s.B * s.T * s.C, out = (size_t)s.B * s.C;
        struct call_case f = {.what = "mean_forward", .absolute = 1e-6, .relative = 1e-5, .halves = s.values};
        struct call_case b = {
            .what = "mean_backward", .absolute = 1e-6, .relative = 1e-5, .halves = s.values};
        case_value_result(&f, out), case_value_in(&f, rows), tokens_into(&f, 3, s.T + 1, false);
        RUN(&f, mean_forward, &s);
        case_value_result(&b, rows), case_value_in(&b, out), tokens_into(&b, 3, s.T + 1, false);
        RUN(&b, mean_backward, &s);
    }
}

/* Columns V..V+C-1 of rows. */
static void slices(void)
{
    for (int round = 0; round < ORDERS_ROUNDS_VALUES; round++) {
        struct sizes s = {.N = awkward(300),
                          .V = (int)random_below(9),
                          .C = awkward(70),
                          .beta = round & 1,
                          .values = round_values(round)};
        s.row = s.V + s.C + (int)random_below(5);
        if (round & 4) { /* places in a row, or all but the part's end, are multiples of 16 bytes */
            s.V = s.V / 8 * 8, s.C = (s.C + 7) / 8 * 8, s.row = s.V + s.C + 8;
            s.C -= (round & 1) && s.C > 0;
        }
        if (round & 2) { /* one of the three is no multiple, or none is */
            s.N = 5;
            s.V = 16 + (round == 6 || round == 15);
            s.C = 24 + (round == 7);
            s.row = 64 + (round == 14);
        }
        struct call_case f = {.what = "slice_forward", .halves = s.values};
        struct call_case b = {.what = "slice_backward", .absolute = 1e-6, .halves = s.values};
        case_value_result(&f, (size_t)s.N * s.C), case_value_in(&f, (size_t)s.N * s.row);
        RUN(&f, slice_forward, &s);
        case_value_result(&b, (size_t)s.N * s.row), case_value_in(&b, (size_t)s.N * s.C);
        RUN(&b, slice_backward, &s);
    }
}

/* sure: targets have almost all of the probability, and gradients that are small differences. */
static void cross_entropy_of(enum dtype values, int N, int V, int row, int gradient, bool sure)
{
    const struct step_scalars scalars = {.inverse_tokens = 0.25};
    struct sizes s = {.N = N, .C = V, .row = row, .beta = gradient, .values = values};
    struct call_case c = {.what = "cross_entropy", .absolute = 1e-5, .relative = 1e-4, .halves = values};
    apart_into(&c, &s, RESULT), case_result(&c, (size_t)N);
    tokens_into(&c, (size_t)N, V, true);
    const int32_t *targets = c.buffer[2].host;
    float *logits = c.buffer[0].host;
    for (int n = 0; sure && n < N; n++)
        if (targets[n] >= 0)
            logits[n * row + targets[n]] = 8;
    case_bytes(&c, &scalars, sizeof scalars, BYTES, OPERAND);
    RUN(&c, cross_entropy, &s);
}

static void cross_entropy(void)
{
    for (int round = 0; round < ORDERS_ROUNDS_VALUES; round++) {
        const int V = 1 + awkward(1100), rows[] = {V, (V + 7) / 8 * 8, V + 1 + awkward(40)};
        for (int i = 0; i < 3; i++)
            cross_entropy_of(round_values(round), awkward(10), V, rows[i], round & 1, false);
        if (round % 4 == 1)
            cross_entropy_of(round_values(round), 9, 7, 8, 1, true);
    }
}

/* Blocks that have a second row: of several warps, which may be at different rows. */
static void rows_beyond_the_grid(void)
{
    cross_entropy_of(DTYPE_F32, CUDA_ROW_BLOCKS + 3, 40, 40, 1, false);
}

static void reuse_reference(void **p, const void *argument)
{
    const struct sizes *s = argument;
    float *sums = p[0], *maxima = p[1], *in = p[2];
    for (int row = 0; row < s->N; row++) {
        double sum = 0, largest = s->C % CUDA_WARP == 0 ? -INFINITY : 0;
        for (int i = 0; i < s->C; i++) {
            sum += (double)in[row * s->C + i];
            largest = fmax(largest, (double)in[row * s->C + i]);
        }
        sums[row] = (float)sum;
        maxima[row] = (float)largest;
    }
}
static int reuse_cuda(void **p, const void *argument, struct muster_error *err)
{
    const struct sizes *s = argument;
    return reuse_rows(p[0], p[1], p[2], s->N, s->C, err);
}

/* A block's sum and its shared memory: it may be used again at once. */
static void reuse(void)
{
    static const int widths[] = {1, 33, 64, 300, CUDA_BLOCK_LARGEST};
    for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++) {
        struct sizes s = {.N = 5, .C = widths[i]};
        struct call_case c = {.what = "block_sum, block_max", .absolute = 1e-4};
        case_result(&c, 5), case_result(&c, 5), case_in(&c, (size_t)(5 * s.C));
        RUN(&c, reuse, &s);
    }
}

void orders_rows(void (*run)(const char *name, void (*test)(void)))
{
    run("embedding", embedding);
    run("rows_add", rows_of_other_ranks);
    run("norms", norms);
    run("rotary", rotary);
    run("dropout", dropout);
    run("biases", biases);
    run("means", means);
    run("slices", slices);
    run("cross_entropy", cross_entropy);
    run("reuse", reuse);
    run("rows_beyond_the_grid", rows_beyond_the_grid);
}
