/* orders_images.c - convolution, pooling, normalisation of planes, and how many rows have their largest logit
 * at their target. */
#include <math.h>

#include "kernels/cuda/geometry.h"
#include "tests/gpu/kernels/orders.h"

struct sizes {
    struct conv2d conv;
    struct pool2d pool;
    struct batch_norm norm;
    int betas[3];
    int N, V, row, planes, rows, columns, beta;
    bool has_bias;
    enum dtype values;
};

ORDERS_VALUES(conv2d_forward, p[0], p[1], p[2], s->has_bias ? p[3] : NULL, &s->conv, s->N, NULL)
ORDERS_VALUES(conv2d_backward_input, p[0], p[1], p[2], &s->conv, s->N, s->beta, NULL)
ORDERS_VALUES(max_pool2d_forward, p[0], p[1], &s->pool, s->N)
ORDERS_VALUES(max_pool2d_backward, p[0], p[1], p[2], &s->pool, s->N, s->beta)
ORDERS_VALUES(avg_pool2d_forward, p[0], p[1], s->planes, s->pool.height, s->pool.width, s->rows, s->columns)
ORDERS_VALUES(avg_pool2d_backward, p[0], p[1], s->planes, s->pool.height, s->pool.width, s->rows, s->columns,
              s->beta)
ORDERS_VALUES(batch_norm_forward, p[0], p[1], p[2], p[3], p[4], p[5], &s->norm, s->N, p[6])
ORDERS_VALUES(batch_norm_fixed, p[0], p[1], p[2], p[3], p[4], p[5], &s->norm, s->N)
ORDERS_VALUES(batch_norm_backward, p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7], &s->norm, s->N, s->betas,
              p[8])
ORDERS_VALUES(batch_norm_change, p[0], p[1], p[2], p[3], p[4], p[5], p[6], &s->norm, s->N, s->betas, p[7])
ORDERS_CALL(batch_norm_step, p[0], p[1], s->N, p[2], DTYPE_BF16, p[3])
ORDERS_VALUES(correct_sum, p[0], p[1], p[2], s->N, s->V, s->row)

/* The reference needs work memory here, the kernels none. */
static void conv2d_backward_weight_reference(void **p, const void *argument)
{
    const struct sizes *s = argument;
    kernels_ref_f32()->conv2d_backward_weight(p[0], s->has_bias ? p[1] : NULL, p[2], p[3], &s->conv, s->N,
                                              s->beta, p[4], NULL);
}
static int conv2d_backward_weight_cuda(void **p, const void *argument, struct muster_error *err)
{
    const struct sizes *s = argument;
    return (s->values == DTYPE_BF16  ? cuda_conv2d_backward_weight_bf16
            : s->values == DTYPE_F16 ? cuda_conv2d_backward_weight_f16
                                     : cuda_conv2d_backward_weight)(
        p[0], s->has_bias ? p[1] : NULL, p[2], p[3], &s->conv, s->N, s->beta, NULL, NULL, err);
}

static int below(int limit)
{
    return (int)random_below((uint32_t)limit);
}

static struct call_case near(const struct sizes *s, const char *what, double absolute, double relative)
{
    return (struct call_case){.what = what, .absolute = absolute, .relative = relative, .halves = s->values};
}

static void convolution(void)
{
    for (int round = 0; round < ORDERS_ROUNDS_VALUES; round++) {
        struct sizes s = {.conv = {1 + below(3), 3 + below(9), 3 + below(9), 1 + below(5), 1 + below(3),
                                   1 + below(3), below(2)},
                          .N = round ? below(4) : 3,
                          .beta = round & 1,
                          .has_bias = round & 2,
                          .values = round_values(round)};
        const struct conv2d *c = &s.conv;
        const size_t N = (size_t)s.N, filters = (size_t)c->filters;
        const size_t ins = N * (size_t)(c->channels * c->height * c->width);
        const size_t weights = filters * (size_t)(c->channels * c->kernel * c->kernel);
        const size_t outs = N * filters * (size_t)conv2d_size(c->height, c->kernel, c->stride, c->padding) *
                            (size_t)conv2d_size(c->width, c->kernel, c->stride, c->padding);
        struct call_case f = near(&s, "conv2d_forward", 1e-5, 1e-4);
        struct call_case b = near(&s, "conv2d_backward_input", 1e-5, 1e-4);
        struct call_case w = near(&s, "conv2d_backward_weight", 1e-4, 1e-4);
        case_value_result(&f, outs), case_value_in(&f, ins), case_value_in(&f, weights);
        case_value_in(&f, filters);
        RUN(&f, conv2d_forward, &s);
        case_value_result(&b, ins), case_value_in(&b, outs), case_value_in(&b, weights);
        RUN(&b, conv2d_backward_input, &s);
        case_result(&w, weights), case_result(&w, filters), case_value_in(&w, outs), case_value_in(&w, ins);
        case_work(&w, kernels_ref_f32()->conv2d_work(c, s.N));
        RUN(&w, conv2d_backward_weight, &s);
    }
}

/* Values of which some are the same, and now and then a NaN. */
static void ties_into(struct call_case *c, size_t n)
{
    float *values = c->buffer[case_in(c, n)].host;
    for (size_t i = 0; i < n; i++)
        values[i] = random_below(60) == 0 ? NAN : rintf(4 * values[i]);
    case_narrow(c, c->count - 1);
}

static void pooling(void)
{
    for (int round = 0; round < ORDERS_ROUNDS_VALUES; round++) {
        const int kernel = 2 + below(2);
        struct sizes s = {.pool = {1 + below(3), 3 + below(9), 3 + below(9), kernel, 1 + below(3), below(2)},
                          .N = round ? below(4) : 3,
                          .rows = 1 + below(5),
                          .columns = 1 + below(13),
                          .beta = round & 1,
                          .values = round_values(round)};
        const struct pool2d *p = &s.pool;
        s.planes = s.N * p->channels;
        const size_t planes = (size_t)s.planes, ins = planes * (size_t)(p->height * p->width);
        const size_t outs = planes * (size_t)conv2d_size(p->height, kernel, p->stride, p->padding) *
                            (size_t)conv2d_size(p->width, kernel, p->stride, p->padding);
        const size_t means = planes * (size_t)(s.rows * s.columns);
        struct call_case f = near(&s, "max_pool2d_forward", 0, 0);
        struct call_case b = near(&s, "max_pool2d_backward", 1e-6, 1e-6);
        struct call_case mf = near(&s, "avg_pool2d_forward", 1e-6, 1e-5);
        struct call_case mb = near(&s, "avg_pool2d_backward", 1e-6, 1e-5);
        case_value_result(&f, outs), ties_into(&f, ins);
        RUN(&f, max_pool2d_forward, &s);
        case_value_result(&b, ins), ties_into(&b, ins), case_value_in(&b, outs);
        RUN(&b, max_pool2d_backward, &s);
        case_value_result(&mf, means), case_value_in(&mf, ins);
        RUN(&mf, avg_pool2d_forward, &s);
        case_value_result(&mb, ins), case_value_in(&mb, means);
        RUN(&mb, avg_pool2d_backward, &s);
    }
}

/* Variances are positive. */
static void variance_into(struct call_case *c, size_t n)
{
    float *values = c->buffer[case_in(c, n)].host;
    for (size_t i = 0; i < n; i++)
        values[i] = 0.1f + fabsf(values[i]);
}

static void batch_norm(void)
{
    for (int round = 0; round < ORDERS_ROUNDS_VALUES; round++) {
        struct sizes s = {.norm = {.channels = 1 + below(5),
                                   .plane = 1 + below(round == 1 ? 700 : 60),
                                   .epsilon = 1e-3,
                                   .momentum = 0.1,
                                   .first = below(4),
                                   .rows_per_sample = 1 + below(2),
                                   .ranks = 1 + below(2),
                                   .counts = round & 1},
                          .N = 1 + below(6),
                          .betas = {round & 1, round >> 1 & 1, round >> 2 & 1},
                          .values = round_values(round)};
        const struct step_scalars scalars = {.samples = below(9)};
        const size_t C = (size_t)s.norm.channels, n = (size_t)s.N * C * (size_t)s.norm.plane;
        struct call_case f = near(&s, "batch_norm_forward", 1e-4, 1e-4);
        struct call_case e = near(&s, "batch_norm_fixed", 1e-5, 1e-4);
        struct call_case b = near(&s, "batch_norm_backward", 1e-3, 1e-3);
        struct call_case d = near(&s, "batch_norm_change", 1e-5, 1e-4);
        struct call_case t = {
            .what = "batch_norm_step", .absolute = 1e-6, .relative = 1e-6, .halves = DTYPE_BF16};
        case_value_result(&f, n), case_result(&f, C), case_result(&f, C);
        case_value_in(&f, n), case_value_in(&f, C), case_value_in(&f, C);
        case_bytes(&f, &scalars, sizeof scalars, BYTES, OPERAND);
        RUN(&f, batch_norm_forward, &s);
        case_value_result(&e, n), case_value_in(&e, n), case_value_in(&e, C), case_value_in(&e, C);
        case_value_in(&e, C), variance_into(&e, C), case_narrow(&e, e.count - 1);
        RUN(&e, batch_norm_fixed, &s);
        case_value_result(&b, n), case_result(&b, C), case_result(&b, C), case_value_in(&b, n);
        case_value_in(&b, n), case_in(&b, C), variance_into(&b, C), case_value_in(&b, C);
        case_bytes(&b, &scalars, sizeof scalars, BYTES, OPERAND);
        RUN(&b, batch_norm_backward, &s);
        case_result(&d, C), case_result(&d, C), case_result(&d, 1);
        case_in(&d, C), variance_into(&d, C), case_value_in(&d, C);
        variance_into(&d, C), case_narrow(&d, d.count - 1);
        case_bytes(&d, &scalars, sizeof scalars, BYTES, OPERAND);
        RUN(&d, batch_norm_change, &s);
        const uint16_t moved[6] = {0};
        case_result(&t, (size_t)s.N), case_in(&t, (size_t)s.N);
        case_bytes(&t, moved, (size_t)s.N * sizeof moved[0], HALVES, RESULT);
        case_bytes(&t, &scalars, sizeof scalars, BYTES, OPERAND);
        RUN(&t, batch_norm_step, &s);
    }
}

static void classes(void)
{
    for (int round = 0; round < ORDERS_ROUNDS_VALUES; round++) {
        struct sizes s = {.N = awkward(600), .V = 1 + below(4)};
        s.row = s.V + below(3);
        int32_t targets[600];
        double total = 2;
        for (int i = 0; i < s.N; i++)
            targets[i] = below(s.V + 1) - 1;
        s.values = round_values(round);
        struct call_case c = near(&s, "correct_sum", 0, 0);
        case_bytes(&c, &total, sizeof total, DOUBLES, RESULT);
        ties_into(&c, (size_t)s.N * (size_t)s.row);
        case_bytes(&c, targets, (size_t)s.N * sizeof targets[0], BYTES, OPERAND);
        RUN(&c, correct_sum, &s);
    }
}

void orders_images(void (*run)(const char *name, void (*test)(void)))
{
    run("convolution", convolution);
    run("pooling", pooling);
    run("batch_norm", batch_norm);
    run("classes", classes);
}
