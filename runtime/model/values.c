/* values.c - numbers of the batch, as a layer's value and as the target of a model's results. */
#include "runtime/model/operation.h"

/* ---- values ---- */

static void values_forward(const struct operation_call *c)
{
    const struct layer_context *x = c->context;
    x->kernels->cast(c->out, x->kernels->value, x->batch->input[c->settings->input], c->settings->dtype,
                     (int64_t)c->rows * c->width, x->stream);
}

static void values_backward(const struct operation_call *c)
{
    (void)c; /* a batch has no gradient */
}

const struct operation operation_values = {
    .name = "values",
    .forward = values_forward,
    .backward = values_backward,
    .batch = true,
};

/* ---- squared_error ----
 *
 * As cross_entropy: training forms everything in backward, evaluation the loss in forward. Work memory is a
 * copy of the values, which becomes their gradient, then losses, then which of them count. */

struct errors {
    const struct kernels *kernels;
    int64_t count;               /* elements */
    int64_t bytes, losses_bytes; /* sizes of values and losses, so that the next array is aligned */
    char *values, *losses;
    int32_t *counted;
};

static struct errors errors_of(const struct operation_call *c)
{
    struct errors e = {.kernels = c->context->kernels, .count = (int64_t)c->rows * c->in_width[0]};
    e.bytes = (e.count * dtype_size(e.kernels->value) + 63) / 64 * 64;
    e.losses_bytes = (e.count * dtype_size(e.kernels->statistic) + 63) / 64 * 64;
    e.values = c->work;
    if (e.values) {
        e.losses = e.values + e.bytes;
        e.counted = (int32_t *)(void *)(e.losses + e.losses_bytes);
    }
    return e;
}

static size_t squared_error_work(const struct operation_call *c, bool backward)
{
    const struct errors e = errors_of(c);
    (void)backward;
    return (size_t)(e.bytes + e.losses_bytes) + (size_t)e.count * sizeof *e.counted;
}

static struct errors squared_error_run(const struct operation_call *c, int gradient)
{
    const struct layer_context *x = c->context;
    const struct errors e = errors_of(c);
    e.kernels->accumulate(e.values, c->in[0], 0, e.count, x->stream);
    e.kernels->squared_error(e.values, e.losses, e.counted, x->batch->input[c->settings->input], e.count,
                             gradient, x->scalars, x->stream);
    e.kernels->loss_sum(x->loss_total, x->loss_count, e.losses, e.counted, e.count, x->stream);
    return e;
}

static void squared_error_forward(const struct operation_call *c)
{
    if (c->context->mode == LAYER_EVAL)
        (void)squared_error_run(c, 0);
}

static void squared_error_backward(const struct operation_call *c)
{
    const struct errors e = squared_error_run(c, 1);
    if (c->din[0])
        e.kernels->accumulate(c->din[0], e.values, c->add[0], e.count, c->context->stream);
}

const struct operation operation_squared_error = {
    .name = "squared_error",
    .forward = squared_error_forward,
    .backward = squared_error_backward,
    .reads = OPERATION_IN0,
    .loss = true,
    .batch = true,
    .work = squared_error_work,
};
