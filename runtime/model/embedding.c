/* embedding.c - tokens of the batch as rows of a table, with learned positions or without. */
#include "runtime/model/past.h"

static void embedding_forward(const struct operation_call *c)
{
    const struct layer_context *x = c->context;
    const float *positions = c->weight[1];
    if (x->past && positions)
        positions += (int64_t)x->past->at * c->width;
    x->kernels->embedding_forward(c->out, x->batch->input[c->settings->input], c->weight[0], positions,
                                  x->shape.B, x->shape.T, c->width, x->stream);
}

/* Two calls: a head may already have written the gradient of a tied table, and none that of the positions. */
static void embedding_backward(const struct operation_call *c)
{
    const struct layer_context *x = c->context;
    const struct operation_settings *s = c->settings;
    for (int i = 0; i < OPERATION_PARAMS; i++) {
        if (c->dweight[i])
            x->kernels->embedding_backward(i == 0 ? c->dweight[i] : NULL, i == 1 ? c->dweight[i] : NULL,
                                           c->dout, x->batch->input[s->input], x->shape.B, x->shape.T,
                                           c->width, (int)s->vocabulary, (int)s->positions, c->weight_add[i],
                                           x->stream);
    }
}

const struct operation operation_embedding = {
    .name = "embedding",
    .forward = embedding_forward,
    .backward = embedding_backward,
    .batch = true,
};
