/* gradient_pictures.c - gradient checks of the operations on planes: convolutions with and without an edge,
 * a stride, a bias; pooling whose windows overlap, leave rows out or differ in size; batch normalisation with
 * and without rows that are not there. */
#include "tests/support/cmocka_all.h"

#include "tests/unit/kernels/gradient_support.h"

enum { N = 2 };

struct conv_call {
    const struct conv2d *c;
    double *in, *weight, *bias, *out, *r;
    size_t outs;
};

static double conv_loss(void *context)
{
    struct conv_call *s = context;
    table()->conv2d_forward(s->out, s->in, s->weight, s->bias, s->c, N, NULL, NULL);
    return weighted_sum(s->out, s->r, s->outs);
}

static void check_conv(const struct conv2d *c)
{
    size_t ins = (size_t)(N * c->channels * c->height * c->width);
    size_t weights = (size_t)(c->filters * c->channels * c->kernel * c->kernel);
    size_t outs = (size_t)(N * c->filters * conv2d_size(c->height, c->kernel, c->stride, c->padding) *
                           conv2d_size(c->width, c->kernel, c->stride, c->padding));
    size_t filters = (size_t)c->filters;
    scope_memory double *in = doubles_new(ins), *weight = doubles_new(weights), *bias = doubles_new(filters);
    scope_memory double *out = doubles_new(outs), *r = doubles_new(outs);
    scope_memory double *din = doubles_new(ins), *dweight = doubles_new(weights);
    scope_memory double *dbias = doubles_new(filters);
    scope_memory double *din_added = doubles_copy(in, ins), *dweight_added = doubles_copy(weight, weights);
    scope_memory double *dbias_added = doubles_copy(bias, filters);
    struct conv_call s = {c, in, weight, bias, out, r, outs};
    table()->conv2d_backward_input(din, r, weight, c, N, 0, NULL, NULL);
    table()->conv2d_backward_input(din_added, r, weight, c, N, 1, NULL, NULL);
    table()->conv2d_backward_weight(dweight, dbias, r, in, c, N, 0, NULL, NULL);
    table()->conv2d_backward_weight(dweight_added, NULL, r, in, c, N, 1, NULL, NULL);
    table()->conv2d_backward_weight(NULL, dbias_added, r, in, c, N, 1, NULL, NULL);
    check_added("din", din_added, din, in, ins);
    check_added("dweight", dweight_added, dweight, weight, weights);
    check_added("dbias", dbias_added, dbias, bias, filters);
    check_gradient("din", conv_loss, &s, in, din, ins);
    check_gradient("dweight", conv_loss, &s, weight, dweight, weights);
    check_gradient("dbias", conv_loss, &s, bias, dbias, filters);
}

void conv2d_gradient(void **state)
{
    static const struct conv2d convs[] = {{2, 4, 5, 3, 3, 1, 1}, {2, 5, 4, 2, 3, 1, 0},
                                          {1, 7, 6, 2, 3, 2, 1}, {3, 3, 4, 2, 1, 1, 0},
                                          {2, 5, 5, 1, 1, 2, 0}, {1, 5, 3, 2, 2, 3, 1}};
    (void)state;
    for (size_t i = 0; i < sizeof convs / sizeof *convs; i++)
        check_conv(&convs[i]);
}

struct pool_call {
    const struct pool2d *p;
    double *in, *out, *r;
    int rows, columns; /* size of the output */
};

static double max_loss(void *context)
{
    struct pool_call *s = context;
    table()->max_pool2d_forward(s->out, s->in, s->p, N, NULL);
    return weighted_sum(s->out, s->r, (size_t)(N * s->p->channels * s->rows * s->columns));
}

void max_pool2d_gradient(void **state)
{
    static const struct pool2d pools[] = {
        {2, 4, 6, 2, 2, 0}, {1, 5, 7, 2, 2, 0}, {2, 6, 5, 3, 2, 1}, {1, 5, 5, 3, 1, 1}};
    (void)state;
    for (size_t i = 0; i < sizeof pools / sizeof *pools; i++) {
        const struct pool2d *p = &pools[i];
        int rows = conv2d_size(p->height, p->kernel, p->stride, p->padding);
        int columns = conv2d_size(p->width, p->kernel, p->stride, p->padding);
        size_t ins = (size_t)(N * p->channels * p->height * p->width);
        size_t outs = (size_t)(N * p->channels * rows * columns);
        scope_memory double *in = doubles_new(ins), *out = doubles_new(outs), *r = doubles_new(outs);
        scope_memory double *din = doubles_new(ins), *added = doubles_copy(in, ins);
        struct pool_call s = {p, in, out, r, rows, columns};
        table()->max_pool2d_backward(din, in, r, p, N, 0, NULL);
        table()->max_pool2d_backward(added, in, r, p, N, 1, NULL);
        check_added("din", added, din, in, ins);
        check_gradient("din", max_loss, &s, in, din, ins);
    }
}

static double avg_loss(void *context)
{
    struct pool_call *s = context;
    table()->avg_pool2d_forward(s->out, s->in, N * s->p->channels, s->p->height, s->p->width, s->rows,
                                s->columns, NULL);
    return weighted_sum(s->out, s->r, (size_t)(N * s->p->channels * s->rows * s->columns));
}

void avg_pool2d_gradient(void **state)
{
    static const int sizes[][4] = {{4, 6, 1, 1}, {5, 7, 2, 3}, {4, 4, 4, 4}, {3, 2, 5, 4}};
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const struct pool2d p = {.channels = 2, .height = sizes[i][0], .width = sizes[i][1]};
        size_t ins = (size_t)(N * p.channels * p.height * p.width);
        size_t outs = (size_t)(N * p.channels * sizes[i][2] * sizes[i][3]);
        scope_memory double *in = doubles_new(ins), *out = doubles_new(outs), *r = doubles_new(outs);
        scope_memory double *din = doubles_new(ins), *added = doubles_copy(in, ins);
        struct pool_call s = {&p, in, out, r, sizes[i][2], sizes[i][3]};
        table()->avg_pool2d_backward(din, r, N * p.channels, p.height, p.width, s.rows, s.columns, 0, NULL);
        table()->avg_pool2d_backward(added, r, N * p.channels, p.height, p.width, s.rows, s.columns, 1, NULL);
        check_added("din", added, din, in, ins);
        check_gradient("din", avg_loss, &s, in, din, ins);
    }
}

struct norm_call {
    const struct batch_norm *b;
    struct step_scalars scalars;
    int N;
    double *in, *weight, *bias, *out, *mean, *var, *r;
};

static double norm_loss(void *context)
{
    struct norm_call *s = context;
    const int there = batch_norm_rows(s->b, s->N, s->scalars.samples);
    table()->batch_norm_forward(s->out, s->mean, s->var, s->in, s->weight, s->bias, s->b, s->N, &s->scalars,
                                NULL);
    return weighted_sum(s->out, s->r, (size_t)(there * s->b->channels * s->b->plane));
}

/* The last row is not there in the second one: nothing depends on it. */
void batch_norm_gradient(void **state)
{
    static const struct batch_norm norms[] = {{3, 6, 1e-3, 0.1, 0, 1, 1, 1}, {2, 4, 1e-3, 0.1, 8, 1, 1, 1}};
    (void)state;
    for (size_t i = 0; i < sizeof norms / sizeof *norms; i++) {
        const struct batch_norm *b = &norms[i];
        enum { ROWS = 4 };
        size_t C = (size_t)b->channels, n = ROWS * C * (size_t)b->plane;
        scope_memory double *in = doubles_new(n), *out = doubles_new(n), *r = doubles_new(n);
        scope_memory double *weight = doubles_new(C), *bias = doubles_new(C);
        scope_memory double *mean = doubles_new(C), *var = doubles_new(C);
        scope_memory double *din = doubles_new(n), *dweight = doubles_new(C), *dbias = doubles_new(C);
        scope_memory double *din_added = doubles_copy(in, n), *dweight_added = doubles_copy(weight, C);
        scope_memory double *dbias_added = doubles_copy(bias, C);
        struct norm_call s = {b, {.samples = i ? 11 : 4}, ROWS, in, weight, bias, out, mean, var, r};
        const int plain[] = {0, 0, 0}, added[] = {1, 1, 1};
        (void)norm_loss(&s);
        table()->batch_norm_backward(din, dweight, dbias, r, in, mean, var, weight, b, ROWS, plain,
                                     &s.scalars, NULL);
        table()->batch_norm_backward(din_added, dweight_added, dbias_added, r, in, mean, var, weight, b, ROWS,
                                     added, &s.scalars, NULL);
        check_added("din", din_added, din, in, n);
        check_added("dweight", dweight_added, dweight, weight, C);
        check_added("dbias", dbias_added, dbias, bias, C);
        check_gradient("din", norm_loss, &s, in, din, n);
        check_gradient("dweight", norm_loss, &s, weight, dweight, C);
        check_gradient("dbias", norm_loss, &s, bias, dbias, C);
    }
}
