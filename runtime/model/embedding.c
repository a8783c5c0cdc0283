/* embedding.c - tokens of the batch as rows of a table, with learned positions or without. */
#include "runtime/model/past.h"

static void embedding_forward(const struct operation_call *c)
{
    const struct layer_context *x = c->context;
    const char *positions = c->weight[1];
    const int32_t *places = operation_positions(c);
    if (positions && places) {
        positions += (int64_t)c->settings->first * c->width * dtype_size(x->kernels->weight);
        x->kernels->embedding_forward(c->out, x->batch->input[c->settings->input], c->weight[0], NULL,
                                      x->shape.B, x->shape.T, c->width, x->stream);
        x->kernels->embedding_forward(c->work, places, positions, NULL, x->shape.B, x->shape.T, c->width,
                                      x->stream);
        x->kernels->accumulate(c->out, c->work, 1, (int64_t)c->rows * c->width, x->stream);
        return;
    }
    if (positions)
        positions += ((x->past ? x->past->at : 0) + (int64_t)c->settings->first) * c->width *
                     dtype_size(x->kernels->weight);
    x->kernels->embedding_forward(c->out, x->batch->input[c->settings->input], c->weight[0], positions,
                                  x->shape.B, x->shape.T, c->width, x->stream);
}

/* The rows of the table of positions that no sequence reads have the gradient 0: no token of none is added.
 */
static void unread_positions(const struct operation_call *c)
{
    const struct layer_context *x = c->context;
    if (c->settings->first > 0 && !c->weight_add[1])
        x->kernels->embedding_backward(NULL, c->dweight[1], c->dout, x->batch->input[c->settings->input], 0,
                                       x->shape.T, c->width, 0, c->settings->first, 0, x->stream);
}

/* Two calls: a head may already have written the gradient of a tied table, and none that of the positions. */
static void embedding_backward(const struct operation_call *c)
{
    const struct layer_context *x = c->context;
    const struct operation_settings *s = c->settings;
    const int64_t before = (int64_t)s->first * c->width * dtype_size(x->kernels->gradient);
    const int32_t *places = operation_positions(c);
    if (c->dweight[1])
        unread_positions(c);
    if (c->dweight[1] && places)
        x->kernels->embedding_backward((char *)c->dweight[1] + before, NULL, c->dout, places, x->shape.B,
                                       x->shape.T, c->width, (int)s->positions - s->first, 0,
                                       c->weight_add[1], x->stream);
    for (int i = 0; i < OPERATION_PARAMS; i++) {
        if (c->dweight[i] && !(i == 1 && places))
            x->kernels->embedding_backward(
                i == 0 ? c->dweight[i] : NULL, i == 1 ? (char *)c->dweight[i] + before : NULL, c->dout,
                x->batch->input[s->input], x->shape.B, x->shape.T, c->width, (int)s->vocabulary,
                (int)s->positions - s->first, c->weight_add[i], x->stream);
    }
}

/* Rows of the table of positions that are looked up apart. */
static size_t embedding_work(const struct operation_call *c, bool backward)
{
    const bool apart = !backward && c->settings->documents && c->settings->positions;
    return apart ? (size_t)c->rows * (size_t)c->width * (size_t)dtype_size(c->context->kernels->value) : 0;
}

const struct operation operation_embedding = {
    .name = "embedding",
    .forward = embedding_forward,
    .backward = embedding_backward,
    .batch = true,
    .work = embedding_work,
};
