/* first.c - the first position of each sample: from here on a row is a sample. To the kernels of slices, a
 * sample is one row of all its positions. */
#include "runtime/model/operation.h"

static void first_forward(const struct operation_call *c)
{
    const struct layer_context *x = c->context;
    x->kernels->slice_forward(c->out, c->in[0], x->shape.B, x->shape.T * c->width, 0, c->width, x->stream);
}

static void first_backward(const struct operation_call *c)
{
    const struct layer_context *x = c->context;
    if (c->din[0])
        x->kernels->slice_backward(c->din[0], c->dout, x->shape.B, x->shape.T * c->width, 0, c->width,
                                   c->add[0], x->stream);
}

const struct operation operation_first = {
    .name = "first",
    .forward = first_forward,
    .backward = first_backward,
    .sequences = true,
    .pools = true,
};
