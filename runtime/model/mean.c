/* mean.c - the mean over the positions of each sample, as far as its length: from here on a row is a sample.
 */
#include "runtime/model/operation.h"

static const int32_t *lengths_of(const struct operation_call *c)
{
    return c->context->batch->input[c->settings->input];
}

static void mean_forward(const struct operation_call *c)
{
    const struct layer_context *x = c->context;
    x->kernels->mean_forward(c->out, c->in[0], lengths_of(c), x->shape.B, x->shape.T, c->width, x->stream);
}

static void mean_backward(const struct operation_call *c)
{
    const struct layer_context *x = c->context;
    if (c->din[0])
        x->kernels->mean_backward(c->din[0], c->dout, lengths_of(c), x->shape.B, x->shape.T, c->width,
                                  c->add[0], x->stream);
}

const struct operation operation_mean = {
    .name = "mean",
    .kernel = offsetof(struct kernels, mean_forward),
    .forward = mean_forward,
    .backward = mean_backward,
    .batch = true,
    .sequences = true,
    .pools = true,
};
