/* pictures.c - the operations on planes: a row is the planes of a sample. */
#include "runtime/model/operation.h"

/* ---- conv2d ---- */

static void conv2d_forward(const struct operation_call *c)
{
    c->context->kernels->conv2d_forward(c->out, c->in[0], c->weight[0], c->weight[1], &c->settings->conv,
                                        c->rows, c->work, c->context->stream);
}

static void conv2d_backward(const struct operation_call *c)
{
    const struct kernels *k = c->context->kernels;
    const struct conv2d *conv = &c->settings->conv;
    void *stream = c->context->stream;
    bool apart = c->dweight[0] && c->dweight[1] && c->weight_add[0] != c->weight_add[1];
    if (c->dweight[0] || c->dweight[1])
        k->conv2d_backward_weight(c->dweight[0], apart ? NULL : c->dweight[1], c->dout, c->in[0], conv,
                                  c->rows, c->weight_add[c->dweight[0] ? 0 : 1], c->work, stream);
    if (apart)
        k->conv2d_backward_weight(NULL, c->dweight[1], c->dout, c->in[0], conv, c->rows, c->weight_add[1],
                                  c->work, stream);
    if (c->din[0])
        k->conv2d_backward_input(c->din[0], c->dout, c->weight[0], conv, c->rows, c->add[0], c->work, stream);
}

static size_t conv2d_work(const struct operation_call *c, bool backward)
{
    (void)backward;
    return c->context->kernels->conv2d_work(&c->settings->conv, c->rows);
}

static double conv2d_flops(const struct operation_call *c)
{
    const struct conv2d *conv = &c->settings->conv;
    return 2.0 * c->rows * c->width * conv->channels * conv->kernel * conv->kernel;
}

const struct operation operation_conv2d = {
    .name = "conv2d",
    .kernel = offsetof(struct kernels, conv2d_forward),
    .forward = conv2d_forward,
    .backward = conv2d_backward,
    .reads = OPERATION_IN0,
    .work = conv2d_work,
    .flops = conv2d_flops,
};

/* ---- batch_norm2d ---- */

enum { NORM_WEIGHT, NORM_BIAS, NORM_MEAN, NORM_VAR, NORM_COUNT };

static struct batch_norm norm_of(const struct operation_call *c)
{
    const struct layer_context *x = c->context;
    struct batch_norm norm = c->settings->norm;
    norm.first = x->own_sample * x->shape.T;
    norm.rows_per_sample = x->shape.T;
    norm.ranks = x->ranks > 0 ? x->ranks : 1;
    norm.counts = x->rank == 0;
    return norm;
}

static void batch_norm2d_forward(const struct operation_call *c)
{
    const struct layer_context *x = c->context;
    const struct batch_norm norm = norm_of(c);
    if (c->evaluates)
        x->kernels->batch_norm_fixed(c->out, c->in[0], c->weight[NORM_WEIGHT], c->weight[NORM_BIAS],
                                     c->weight[NORM_MEAN], c->weight[NORM_VAR], &norm, c->rows, x->stream);
    else
        x->kernels->batch_norm_forward(c->out, c->statistics[0], c->statistics[1], c->in[0],
                                       c->weight[NORM_WEIGHT], c->weight[NORM_BIAS], &norm, c->rows,
                                       x->scalars, x->stream);
}

static void batch_norm2d_backward(const struct operation_call *c)
{
    const struct layer_context *x = c->context;
    const struct batch_norm norm = norm_of(c);
    const int beta[] = {c->add[0], c->weight_add[NORM_WEIGHT], c->weight_add[NORM_BIAS]};
    x->kernels->batch_norm_backward(c->din[0], c->dweight[NORM_WEIGHT], c->dweight[NORM_BIAS], c->dout,
                                    c->in[0], c->statistics[0], c->statistics[1], c->weight[NORM_WEIGHT],
                                    &norm, c->rows, beta, x->scalars, x->stream);
    x->kernels->batch_norm_change(c->dweight[NORM_MEAN], c->dweight[NORM_VAR], c->dweight[NORM_COUNT],
                                  c->statistics[0], c->statistics[1], c->weight[NORM_MEAN],
                                  c->weight[NORM_VAR], &norm, c->rows, &c->weight_add[NORM_MEAN], x->scalars,
                                  x->stream);
}

const struct operation operation_batch_norm2d = {
    .name = "batch_norm2d",
    .kernel = offsetof(struct kernels, batch_norm_forward),
    .forward = batch_norm2d_forward,
    .backward = batch_norm2d_backward,
    .reads = OPERATION_IN0,
};

/* ---- relu ----
 *
 * Same as activation, but backward reads the result, so that relu may write over a convolution's result. */

static void relu_forward(const struct operation_call *c)
{
    c->context->kernels->activation_forward(c->out, c->in[0], ACTIVATION_RELU, (int64_t)c->rows * c->width,
                                            c->context->stream);
}

static void relu_backward(const struct operation_call *c)
{
    if (c->din[0])
        c->context->kernels->activation_backward(c->din[0], c->out, c->dout, ACTIVATION_RELU, c->add[0],
                                                 (int64_t)c->rows * c->width, c->context->stream);
}

const struct operation operation_relu = {
    .name = "relu",
    .forward = relu_forward,
    .backward = relu_backward,
    .reads = OPERATION_OUT,
    .forward_over = OPERATION_IN0,
    .backward_over = OPERATION_IN0,
};

/* ---- pooling ---- */

static void max_pool2d_forward(const struct operation_call *c)
{
    c->context->kernels->max_pool2d_forward(c->out, c->in[0], &c->settings->pool, c->rows,
                                            c->context->stream);
}

static void max_pool2d_backward(const struct operation_call *c)
{
    if (c->din[0])
        c->context->kernels->max_pool2d_backward(c->din[0], c->in[0], c->dout, &c->settings->pool, c->rows,
                                                 c->add[0], c->context->stream);
}

const struct operation operation_max_pool2d = {
    .name = "max_pool2d",
    .kernel = offsetof(struct kernels, max_pool2d_forward),
    .forward = max_pool2d_forward,
    .backward = max_pool2d_backward,
    .reads = OPERATION_IN0,
};

static void avg_pool2d_forward(const struct operation_call *c)
{
    const struct operation_settings *s = c->settings;
    c->context->kernels->avg_pool2d_forward(c->out, c->in[0], (int64_t)c->rows * s->pool.channels,
                                            s->pool.height, s->pool.width, s->out_height, s->out_width,
                                            c->context->stream);
}

static void avg_pool2d_backward(const struct operation_call *c)
{
    const struct operation_settings *s = c->settings;
    if (c->din[0])
        c->context->kernels->avg_pool2d_backward(c->din[0], c->dout, (int64_t)c->rows * s->pool.channels,
                                                 s->pool.height, s->pool.width, s->out_height, s->out_width,
                                                 c->add[0], c->context->stream);
}

const struct operation operation_avg_pool2d = {
    .name = "avg_pool2d",
    .kernel = offsetof(struct kernels, avg_pool2d_forward),
    .forward = avg_pool2d_forward,
    .backward = avg_pool2d_backward,
};
