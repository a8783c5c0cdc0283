/* orders_elements.c - the operations by element, and sums of all elements. */
#include <math.h>
#include <string.h>

#include "kernels/cuda/geometry.h"
#include "tests/gpu/kernels/orders.h"

struct sizes {
    int64_t n;
    int kind, beta;
    double p;
    int segments;
    struct optimizer_segment segment[3];
    enum dtype from, to, values;
};

ORDERS_VALUES(add, p[0], p[1], p[2], s->n)
ORDERS_VALUES(accumulate, p[0], p[1], s->beta, s->n)
ORDERS_VALUES(scale, p[0], 0.3, s->n)
ORDERS_VALUES(activation_forward, p[0], p[1], s->kind, s->n)
ORDERS_VALUES(activation_backward, p[0], p[1], p[2], s->kind, s->beta, s->n)
ORDERS_VALUES(gated_forward, p[0], p[1], p[2], s->kind, s->n)
ORDERS_VALUES(gated_backward, p[0], p[1], p[2], p[3], p[4], s->kind, s->beta, s->beta, s->n)
ORDERS_VALUES(squared_error, p[0], p[1], p[2], p[3], s->n, s->beta, p[4])
ORDERS_CALL(loss_sum, p[0], p[1], p[2], p[3], s->n)
ORDERS_CALL(clip_factor, p[0])
ORDERS_CALL(adamw, p[0], p[1], p[2], p[3], s->segment, s->segments, p[4], s->to, p[5])
ORDERS_CALL(adam, p[0], p[1], p[2], p[3], s->segment, s->segments, p[4], s->to, p[5])
ORDERS_CALL(sgd, p[0], p[1], p[2], s->segment, s->segments, 0.9, 0.1, s->beta, p[3], s->to, p[4])
ORDERS_CALL(average, p[0], p[1], s->p, s->n, p[2])
ORDERS_CALL(cast, p[0], s->to, p[1], s->from, s->n)
ORDERS_CALL(widen, p[0], p[1], s->from, s->beta, s->n)

static void norm_squared_reference(void **p, const void *argument)
{
    const struct sizes *s = argument;
    kernels_ref_f32()->norm_squared(p[0], p[1], s->n, s->beta, NULL);
}
static int norm_squared_cuda(void **p, const void *argument, struct muster_error *err)
{
    const struct sizes *s = argument;
    return cuda_norm_squared(p[0], p[1], s->n, s->beta, p[2], NULL, err);
}

static void sums(void)
{
    for (int round = 0; round < ORDERS_ROUNDS_VALUES; round++) {
        struct sizes s = {
            .n = round % 4 == 3 ? 2050 : awkward(1100), .beta = round & 1, .values = round_values(round)};
        size_t n = (size_t)s.n;
        struct call_case add = {.what = "add", .halves = s.values},
                         accumulate = {.what = "accumulate", .halves = s.values};
        struct call_case scale = {.what = "scale", .relative = 1e-6, .halves = s.values};
        case_value_result(&add, n), case_value_in(&add, n), case_value_in(&add, n);
        RUN(&add, add, &s);
        case_value_result(&accumulate, n), case_value_in(&accumulate, n);
        RUN(&accumulate, accumulate, &s);
        case_value_result(&scale, n);
        RUN(&scale, scale, &s);
    }
}

/* Where a slope is small, it is as exact as elsewhere. */
static void far_from_zero(const struct sizes *s, size_t n)
{
    struct call_case c = {
        .what = "activation_backward", .absolute = 1e-30, .relative = 1e-4, .halves = DTYPE_F32};
    const struct sizes plain = {.n = s->n, .kind = s->kind, .values = DTYPE_F32};
    case_result(&c, n);
    float *in = c.buffer[case_in(&c, n)].host;
    for (size_t i = 0; i < n; i++)
        in[i] = (in[i] < 0 ? -4 : 4) + 4 * in[i];
    case_in(&c, n);
    RUN(&c, activation_backward, &plain);
}

static void activations(void)
{
    for (int round = 0; round < 4 * ACTIVATION_KINDS; round++) {
        struct sizes s = {.n = awkward(600),
                          .kind = round % ACTIVATION_KINDS,
                          .beta = round & 1,
                          .values = round < 2 * ACTIVATION_KINDS   ? DTYPE_F32
                                    : round < 3 * ACTIVATION_KINDS ? DTYPE_BF16
                                                                   : DTYPE_F16};
        size_t n = (size_t)s.n;
        struct call_case forward = {
            .what = "activation_forward", .absolute = 1e-5, .relative = 1e-4, .halves = s.values};
        struct call_case backward = {
            .what = "activation_backward", .absolute = 1e-5, .relative = 1e-4, .halves = s.values};
        case_value_result(&forward, n), case_value_in(&forward, n);
        RUN(&forward, activation_forward, &s);
        case_value_result(&backward, n), case_value_in(&backward, n), case_value_in(&backward, n);
        RUN(&backward, activation_backward, &s);
        struct call_case gated = {
            .what = "gated_forward", .absolute = 1e-5, .relative = 1e-4, .halves = s.values};
        struct call_case gradient = {
            .what = "gated_backward", .absolute = 1e-5, .relative = 1e-4, .halves = s.values};
        if (s.kind == ACTIVATION_TANH || s.kind == ACTIVATION_SIGMOID)
            far_from_zero(&s, n);
        case_value_result(&gated, n), case_value_in(&gated, n), case_value_in(&gated, n);
        RUN(&gated, gated_forward, &s);
        case_value_result(&gradient, n), case_value_result(&gradient, n);
        case_value_in(&gradient, n), case_value_in(&gradient, n), case_value_in(&gradient, n);
        RUN(&gradient, gated_backward, &s);
    }
}

static void totals(void)
{
    for (int round = 0; round < ORDERS_ROUNDS; round++) {
        struct sizes s = {.n = round ? awkward(1100) : 100000, .beta = round & 1};
        size_t n = (size_t)s.n;
        double total = 1.25;
        int64_t count = 3;
        int32_t targets[1100];
        struct call_case norm = {.what = "norm_squared", .relative = 1e-12};
        case_bytes(&norm, &total, sizeof total, DOUBLES, RESULT), case_in(&norm, n);
        case_work(&norm, cuda_norm_squared_work());
        RUN(&norm, norm_squared, &s);
        if (round == 0)
            continue;
        for (size_t i = 0; i < n; i++)
            targets[i] = (int32_t)random_below(4) - 1;
        struct step_scalars scalars = {.inverse_tokens = 0.25};
        s.values = round % 3 == 1 ? DTYPE_BF16 : round % 3 == 2 ? DTYPE_F16 : DTYPE_F32;
        struct call_case error = {
            .what = "squared_error", .absolute = 1e-6, .relative = 1e-5, .halves = s.values};
        case_value_result(&error, n), case_result(&error, n);
        case_bytes(&error, targets, n * sizeof targets[0], BYTES, RESULT), case_in(&error, n);
        case_bytes(&error, &scalars, sizeof scalars, BYTES, OPERAND);
        RUN(&error, squared_error, &s);
        struct call_case loss = {.what = "loss_sum", .relative = 1e-12};
        case_bytes(&loss, &total, sizeof total, DOUBLES, RESULT);
        case_bytes(&loss, &count, sizeof count, BYTES, RESULT), case_in(&loss, n);
        case_bytes(&loss, targets, n * sizeof targets[0], BYTES, OPERAND);
        RUN(&loss, loss_sum, &s);
    }
}

static void clip(void)
{
    static const struct step_scalars cases[] = {{.norm_squared = 16, .clip_norm = 1},
                                                {.norm_squared = 1e6, .loss_scale = 128},
                                                {.norm_squared = 1e6, .clip_norm = 1, .loss_scale = 128},
                                                {.norm_squared = (double)INFINITY, .clip_norm = 1}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct call_case c = {.what = "clip_factor"};
        case_bytes(&c, &cases[i], sizeof cases[i], BYTES, RESULT);
        RUN(&c, clip_factor, NULL);
    }
}

/* Three segments of two classes with gaps, at any place or at multiples of 16 bytes, the parameters rounded
 * to bf16 or f16 next to. */
static struct sizes optimizer_sizes(int round, int64_t *n)
{
    struct sizes s = {.segments = 3, .beta = round & 1, .to = round & 2 ? DTYPE_BF16 : DTYPE_F16, .p = 0.9};
    int64_t at = 0;
    for (int i = 0; i < 3; i++) {
        at = round < 3 ? at + (int64_t)random_below(5) : (at + 3) / 4 * 4;
        s.segment[i] = (struct optimizer_segment){at, awkward(300), i == 1 ? 7 : 0};
        at = s.segment[i].offset + s.segment[i].count;
    }
    *n = at + 3;
    s.n = *n;
    return s;
}

static void optimizers(void)
{
    for (int round = 0; round < ORDERS_ROUNDS; round++) {
        struct step_scalars scalars = {.beta1 = 0.9,
                                       .beta2 = 0.95,
                                       .epsilon = 1e-3,
                                       .clip = 0.7,
                                       .bias_correction1 = 0.1,
                                       .bias_correction2 = 0.2,
                                       .step = 1 + (uint64_t)(round & 1),
                                       .skip = round == 5};
        int64_t n = 0;
        struct sizes s = optimizer_sizes(round, &n);
        size_t count = (size_t)n;
        float v[920] = {0}; /* not below 0 */
        uint16_t moved[920] = {0};
        scalars.learning_rate[0] = 1e-2, scalars.learning_rate[7] = 2e-2, scalars.weight_decay[7] = 0.1;
        for (size_t i = 0; i < count; i++)
            v[i] = (float)fabs(random_unit());
        for (int coupled = 0; coupled < 2; coupled++) {
            struct call_case adam = {.what = coupled ? "adam" : "adamw", .absolute = 1e-5, .relative = 1e-4};
            case_result(&adam, count), case_result(&adam, count);
            case_bytes(&adam, v, count * sizeof v[0], FLOATS, RESULT), case_in(&adam, count);
            case_bytes(&adam, moved, count * sizeof moved[0], HALVES, RESULT);
            case_bytes(&adam, &scalars, sizeof scalars, BYTES, OPERAND);
            adam.halves = s.to;
            if (coupled)
                RUN(&adam, adam, &s);
            else
                RUN(&adam, adamw, &s);
        }
        struct call_case sgd = {.what = "sgd", .absolute = 1e-5, .relative = 1e-4, .halves = s.to};
        case_result(&sgd, count), case_result(&sgd, count), case_in(&sgd, count);
        case_bytes(&sgd, moved, count * sizeof moved[0], HALVES, RESULT);
        case_bytes(&sgd, &scalars, sizeof scalars, BYTES, OPERAND);
        RUN(&sgd, sgd, &s);
        struct call_case average = {.what = "average", .absolute = 1e-6, .relative = 1e-5};
        case_result(&average, count), case_in(&average, count);
        case_bytes(&average, &scalars, sizeof scalars, BYTES, OPERAND);
        s.p = round & 4 ? 0.3 : 0.99;
        RUN(&average, average, &s);
    }
}

static void casts(void)
{
    for (int round = 0; round < DTYPE_COUNT * DTYPE_COUNT; round++) {
        struct sizes s = {.n = awkward(300), .from = round % DTYPE_COUNT, .to = round / DTYPE_COUNT};
        size_t n = (size_t)s.n;
        struct call_case c = {.what = "cast"};
        float values[300];
        double wide[300], from[300];
        for (size_t i = 0; i < n; i++)
            values[i] = (float)(300 * random_unit());
        memset(wide, 0, sizeof wide);
        kernels_ref_f32()->cast(from, s.from, values, DTYPE_F32, s.n, NULL);
        case_bytes(&c, wide, n * (size_t)dtype_size(s.to), BYTES, RESULT);
        case_bytes(&c, from, n * (size_t)dtype_size(s.from), BYTES, OPERAND);
        RUN(&c, cast, &s);
        if (s.from != DTYPE_BF16 && s.from != DTYPE_F16)
            continue;
        struct call_case widen = {.what = "widen"};
        s.beta = round & 1;
        case_result(&widen, n);
        case_bytes(&widen, from, n * (size_t)dtype_size(s.from), BYTES, OPERAND);
        RUN(&widen, widen, &s);
    }
}

void orders_elements(void (*run)(const char *name, void (*test)(void)))
{
    run("sums", sums);
    run("activations", activations);
    run("totals", totals);
    run("clip", clip);
    run("optimizers", optimizers);
    run("casts", casts);
}
