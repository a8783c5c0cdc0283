/* gradient_elements.c - gradient checks of the operations on elements and pairs. */
#include "tests/support/cmocka_all.h"

#include "tests/unit/kernels/gradient_support.h"

enum { COUNT = 41 };

/* An operation on up to two vectors; run is its forward. */
struct elements {
    double *a, *b, *out, *r;
    void (*run)(const struct elements *);
    int kind;
};

static double elements_loss(void *context)
{
    struct elements *s = context;
    s->run(s);
    return weighted_sum(s->out, s->r, COUNT);
}

/* -6..6, with a kink at 0 between two of them. */
static void spread(double *x)
{
    for (int i = 0; i < COUNT; i++)
        x[i] = (i - COUNT / 2) * 0.3 + 0.01;
}

static void run_activation(const struct elements *s)
{
    table()->activation_forward(s->out, s->a, s->kind, COUNT, NULL);
}

void activation_gradient(void **state)
{
    (void)state;
    scope_memory double *in = doubles_new(COUNT), *out = doubles_new(COUNT), *r = doubles_new(COUNT);
    scope_memory double *din = doubles_new(COUNT);
    spread(in);
    for (int kind = 0; kind < ACTIVATION_KINDS; kind++) {
        struct elements s = {in, NULL, out, r, run_activation, kind};
        scope_memory double *added = doubles_copy(in, COUNT);
        table()->activation_backward(din, in, r, kind, 0, COUNT, NULL);
        table()->activation_backward(added, in, r, kind, 1, COUNT, NULL);
        check_added("din", added, din, in, COUNT);
        check_gradient("din", elements_loss, &s, in, din, COUNT);
    }
}

static void run_gated(const struct elements *s)
{
    table()->gated_forward(s->out, s->a, s->b, s->kind, COUNT, NULL);
}

void gated_gradient(void **state)
{
    (void)state;
    for (int kind = 0; kind < ACTIVATION_KINDS; kind++) {
        scope_memory double *gate = doubles_new(COUNT), *up = doubles_new(COUNT), *out = doubles_new(COUNT);
        scope_memory double *r = doubles_new(COUNT), *dgate = doubles_new(COUNT), *dup = doubles_new(COUNT);
        scope_memory double *dgate_added = doubles_copy(up, COUNT), *dup_added = doubles_copy(up, COUNT);
        scope_memory double *ignored = doubles_new(COUNT);
        struct elements s = {gate, up, out, r, run_gated, kind};
        spread(gate);
        table()->gated_backward(dgate, dup, gate, up, r, kind, 0, 0, COUNT, NULL);
        table()->gated_backward(dgate_added, ignored, gate, up, r, kind, 1, 0, COUNT, NULL);
        table()->gated_backward(ignored, dup_added, gate, up, r, kind, 0, 1, COUNT, NULL);
        check_added("dgate", dgate_added, dgate, up, COUNT);
        check_added("dup", dup_added, dup, up, COUNT);
        check_gradient("dgate", elements_loss, &s, gate, dgate, COUNT);
        check_gradient("dup", elements_loss, &s, up, dup, COUNT);
    }
}

struct slice_call {
    double *in, *out, *r;
};
enum { SLICE_ROWS = 3, SLICE_ROW = 7, SLICE_FIRST = 2, SLICE_WIDTH = 4 };

static double slice_loss(void *context)
{
    struct slice_call *s = context;
    table()->slice_forward(s->out, s->in, SLICE_ROWS, SLICE_ROW, SLICE_FIRST, SLICE_WIDTH, NULL);
    return weighted_sum(s->out, s->r, SLICE_ROWS * SLICE_WIDTH);
}

void slice_gradient(void **state)
{
    enum { IN = SLICE_ROWS * SLICE_ROW, OUT = SLICE_ROWS * SLICE_WIDTH };
    (void)state;
    scope_memory double *in = doubles_new(IN), *out = doubles_new(OUT), *r = doubles_new(OUT);
    scope_memory double *din = doubles_new(IN), *added = doubles_copy(in, IN);
    struct slice_call s = {in, out, r};
    table()->slice_backward(din, r, SLICE_ROWS, SLICE_ROW, SLICE_FIRST, SLICE_WIDTH, 0, NULL);
    table()->slice_backward(added, r, SLICE_ROWS, SLICE_ROW, SLICE_FIRST, SLICE_WIDTH, 1, NULL);
    check_added("din", added, din, in, IN);
    check_gradient("din", slice_loss, &s, in, din, IN);
    (void)slice_loss(&s);
    assert_true(out[SLICE_WIDTH] == in[SLICE_ROW + SLICE_FIRST]);
}

enum { B = 2, T = 5, NH = 2, HS = 6, ROTARY_COUNT = B * T * NH * HS };

struct rotary_call {
    const struct rotary *rotary;
    double *in, *out, *r;
};

static double rotary_loss(void *context)
{
    struct rotary_call *s = context;
    table()->rotary(s->out, s->in, s->rotary, B, T, NH, HS, 0, 0, NULL);
    return weighted_sum(s->out, s->r, ROTARY_COUNT);
}

void rotary_gradient(void **state)
{
    static const double lists[] = {1, 1, 1, 1.5, 2, 3};
    static const struct rotary rotaries[] = {
        {.theta = 100, .kind = ROTARY_PLAIN},
        {.theta = 100, .kind = ROTARY_LINEAR, .factor = 4},
        {.theta = 100, .kind = ROTARY_LLAMA3, .factor = 4, .low = 1, .high = 4, .original = 16},
        {.theta = 100, .kind = ROTARY_DYNAMIC, .factor = 4, .original = 3},
        {.theta = 100, .kind = ROTARY_YARN, .factor = 4, .low = 1, .high = 4, .original = 64, .amplitude = 1},
        {.theta = 100, .kind = ROTARY_LISTED, .lists = lists, .original = 3},
        {.theta = 100, .size = 4}};
    (void)state;
    for (size_t i = 0; i < sizeof rotaries / sizeof rotaries[0]; i++) {
        scope_memory double *in = doubles_new(ROTARY_COUNT), *out = doubles_new(ROTARY_COUNT);
        scope_memory double *r = doubles_new(ROTARY_COUNT), *din = doubles_new(ROTARY_COUNT);
        scope_memory double *added = doubles_copy(in, ROTARY_COUNT);
        struct rotary_call s = {&rotaries[i], in, out, r};
        table()->rotary(din, r, s.rotary, B, T, NH, HS, 1, 0, NULL);
        table()->rotary(added, r, s.rotary, B, T, NH, HS, 1, 1, NULL);
        check_added("din", added, din, in, ROTARY_COUNT);
        check_gradient("din", rotary_loss, &s, in, din, ROTARY_COUNT);
        /* The position counts: the same rows elsewhere would be other values. */
        (void)rotary_loss(&s);
        assert_memory_equal(out, in, NH * HS * sizeof *out); /* position 0 */
        assert_memory_not_equal(out + NH * HS, in + NH * HS, NH * HS * sizeof *out);
    }
}

static void run_dropout(const struct elements *s)
{
    const struct step_scalars scalars = {.seed = 3, .first_sample = 8};
    table()->dropout(s->out, s->a, 1, COUNT, 1, 0, 4, 0.4, 0, &scalars, NULL);
}

void dropout_gradient(void **state)
{
    const struct step_scalars scalars = {.seed = 3, .first_sample = 8};
    (void)state;
    scope_memory double *in = doubles_new(COUNT), *out = doubles_new(COUNT), *r = doubles_new(COUNT);
    scope_memory double *din = doubles_new(COUNT), *added = doubles_copy(in, COUNT);
    struct elements s = {in, NULL, out, r, run_dropout, 0};
    table()->dropout(din, r, 1, COUNT, 1, 0, 4, 0.4, 0, &scalars, NULL);
    table()->dropout(added, r, 1, COUNT, 1, 0, 4, 0.4, 1, &scalars, NULL);
    check_added("din", added, din, in, COUNT);
    check_gradient("din", elements_loss, &s, in, din, COUNT);
}

static void run_add(const struct elements *s)
{
    table()->add(s->out, s->a, s->b, COUNT, NULL);
}

static void run_accumulate(const struct elements *s)
{
    memcpy(s->out, s->b, COUNT * sizeof *s->out);
    table()->accumulate(s->out, s->a, 1, COUNT, NULL);
}

static void run_scale(const struct elements *s)
{
    memcpy(s->out, s->a, COUNT * sizeof *s->out);
    table()->scale(s->out, -0.7, COUNT, NULL);
}

/* Sums hand their gradient on as it is, and a factor multiplies it too. */
void sums_gradient(void **state)
{
    (void)state;
    scope_memory double *a = doubles_new(COUNT), *b = doubles_new(COUNT), *out = doubles_new(COUNT);
    scope_memory double *r = doubles_new(COUNT), *scaled = doubles_copy(r, COUNT);
    struct elements s = {a, b, out, r, run_add, 0};
    check_gradient("da", elements_loss, &s, a, r, COUNT);
    check_gradient("db", elements_loss, &s, b, r, COUNT);
    s.run = run_accumulate;
    check_gradient("din", elements_loss, &s, a, r, COUNT);
    check_gradient("dout", elements_loss, &s, b, r, COUNT);
    s.run = run_scale;
    table()->scale(scaled, -0.7, COUNT, NULL);
    check_gradient("dvalues", elements_loss, &s, a, scaled, COUNT);
}

/* ---- the mean over positions ---- */

enum { MEAN_B = 3, MEAN_T = 4, MEAN_C = 5 };
static const int32_t mean_lengths[MEAN_B] = {4, 0, 3};

struct mean_call {
    double *in, *out, *r;
};

static double mean_loss(void *context)
{
    struct mean_call *s = context;
    table()->mean_forward(s->out, s->in, mean_lengths, MEAN_B, MEAN_T, MEAN_C, NULL);
    return weighted_sum(s->out, s->r, (size_t)MEAN_B * MEAN_C);
}

void mean_gradient(void **state)
{
    const size_t ins = (size_t)MEAN_B * MEAN_T * MEAN_C, outs = (size_t)MEAN_B * MEAN_C;
    scope_memory double *in = doubles_new(ins), *out = doubles_new(outs), *r = doubles_new(outs);
    scope_memory double *din = doubles_new(ins), *added = doubles_copy(in, ins);
    struct mean_call s = {in, out, r};
    (void)state;
    table()->mean_backward(din, r, mean_lengths, MEAN_B, MEAN_T, MEAN_C, 0, NULL);
    table()->mean_backward(added, r, mean_lengths, MEAN_B, MEAN_T, MEAN_C, 1, NULL);
    check_added("din", added, din, in, ins);
    check_gradient("din", mean_loss, &s, in, din, ins);
}
