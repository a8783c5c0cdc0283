/* operation.c - the rows of the operations that are one kernel each way. */
#include "runtime/model/operation.h"

#include "runtime/model/past.h"

static int64_t elements(const struct operation_call *c)
{
    return (int64_t)c->rows * c->width;
}

/* ---- linear ---- */

static void linear_forward(const struct operation_call *c)
{
    c->context->kernels->linear_forward(c->out, c->in[0], c->weight[0], c->weight[1], c->rows, c->in_width[0],
                                        c->width, c->width, c->context->stream);
}

static void linear_backward(const struct operation_call *c)
{
    const struct kernels *k = c->context->kernels;
    int N = c->rows, C = c->in_width[0], OC = c->width;
    bool apart = c->dweight[1] && c->dweight[0] && c->weight_add[0] != c->weight_add[1];
    if (c->dweight[0] || c->dweight[1])
        k->linear_backward_weight(c->dweight[0], apart ? NULL : c->dweight[1], c->dout, c->in[0], N, C, OC,
                                  OC, c->weight_add[c->dweight[0] ? 0 : 1], c->context->stream);
    if (apart) /* the weight or the bias is tied to another layer's parameter, which has written it already */
        k->linear_backward_weight(NULL, c->dweight[1], c->dout, c->in[0], N, C, OC, OC, c->weight_add[1],
                                  c->context->stream);
    if (c->din[0] && c->before)
        k->linear_backward_activation(c->din[0], c->before_bias, c->dout, c->weight[0], c->before,
                                      c->before_kind, N, C, OC, c->before_bias_add, c->context->stream);
    else if (c->din[0])
        k->linear_backward_input(c->din[0], c->dout, c->weight[0], N, C, OC, OC, c->add[0],
                                 c->context->stream);
}

static double linear_flops(const struct operation_call *c)
{
    return 2.0 * c->rows * c->in_width[0] * c->width;
}

const struct operation operation_linear = {
    .name = "linear",
    .forward = linear_forward,
    .backward = linear_backward,
    .reads = OPERATION_IN0,
    .flops = linear_flops,
};

/* ---- norms ---- */

static void layer_norm_forward(const struct operation_call *c)
{
    const struct kernels *k = c->context->kernels;
    if (c->addend[0])
        k->add_layernorm_forward(c->out, (void *)(uintptr_t)c->in[0], c->statistics[0], c->statistics[1],
                                 c->addend[0], c->addend[1], c->weight[0], c->weight[1], c->rows, c->width,
                                 c->settings->epsilon, c->context->stream);
    else
        k->layernorm_forward(c->out, c->statistics[0], c->statistics[1], c->in[0], c->weight[0], c->weight[1],
                             c->rows, c->width, c->settings->epsilon, c->context->stream);
}

static void layer_norm_backward(const struct operation_call *c)
{
    const struct kernels *k = c->context->kernels;
    bool apart = c->dweight[0] && c->dweight[1] && c->weight_add[0] != c->weight_add[1];
    k->layernorm_backward(c->din[0], c->dweight[0], apart ? NULL : c->dweight[1], c->dout, c->in[0],
                          c->statistics[0], c->statistics[1], c->weight[0], c->rows, c->width, c->add[0],
                          c->weight_add[c->dweight[0] ? 0 : 1], c->work, c->context->stream);
    if (apart)
        k->layernorm_backward(NULL, NULL, c->dweight[1], c->dout, c->in[0], c->statistics[0],
                              c->statistics[1], c->weight[0], c->rows, c->width, 0, c->weight_add[1], c->work,
                              c->context->stream);
}

static size_t layer_norm_work(const struct operation_call *c, bool backward)
{
    return backward ? c->context->kernels->layernorm_backward_work(c->rows, c->width) : 0;
}

const struct operation operation_layer_norm = {
    .name = "layer_norm",
    .forward = layer_norm_forward,
    .backward = layer_norm_backward,
    .reads = OPERATION_IN0,
    .work = layer_norm_work,
};

/* Rows of a norm over parts of a row are its parts. */
static int norm_parts(const struct operation_call *c)
{
    return c->settings->heads > 0 ? c->settings->heads : 1;
}

static void rms_norm_forward(const struct operation_call *c)
{
    const struct kernels *k = c->context->kernels;
    const int parts = norm_parts(c), N = c->rows * parts, C = c->width / parts;
    if (c->addend[0])
        k->add_rms_norm_forward(c->out, (void *)(uintptr_t)c->in[0], c->statistics[0], c->addend[0],
                                c->addend[1], c->weight[0], N, C, c->settings->epsilon, c->settings->offset,
                                c->context->stream);
    else
        k->rms_norm_forward(c->out, c->statistics[0], c->in[0], c->weight[0], N, C, c->settings->epsilon,
                            c->settings->offset, c->context->stream);
}

static void rms_norm_backward(const struct operation_call *c)
{
    const int parts = norm_parts(c);
    c->context->kernels->rms_norm_backward(
        c->din[0], c->dweight[0], c->dout, c->in[0], c->statistics[0], c->weight[0], c->settings->offset,
        c->rows * parts, c->width / parts, c->add[0], c->weight_add[0], c->work, c->context->stream);
}

static size_t rms_norm_work(const struct operation_call *c, bool backward)
{
    const int parts = norm_parts(c);
    return backward ? c->context->kernels->rms_norm_backward_work(c->rows * parts, c->width / parts) : 0;
}

const struct operation operation_rms_norm = {
    .name = "rms_norm",
    .forward = rms_norm_forward,
    .backward = rms_norm_backward,
    .reads = OPERATION_IN0,
    .work = rms_norm_work,
};

void operation_copy_out(const struct layer_context *x, void *out, const void *values, int64_t n)
{
    if (x->kernels->value == x->kernels->statistic)
        x->kernels->accumulate(out, values, 0, n, x->stream);
    else
        x->kernels->widen(out, values, x->kernels->value, 0, n, x->stream);
}

/* ---- positions and attention ---- */

static void rotary_turn(const struct operation_call *c, void *to, const void *from, int backward, int add)
{
    const struct operation_settings *s = c->settings;
    struct rotary rotary = s->rotary;
    rotary.positions = operation_positions(c);
    rotary.first = c->context->past ? c->context->past->at : 0;
    c->context->kernels->rotary(to, from, &rotary, c->context->shape.B, c->context->shape.T, s->heads,
                                c->width / s->heads, backward, add, c->context->stream);
}

static void rotary_forward(const struct operation_call *c)
{
    rotary_turn(c, c->out, c->in[0], 0, 0);
}

static void rotary_backward(const struct operation_call *c)
{
    if (c->din[0])
        rotary_turn(c, c->din[0], c->dout, 1, c->add[0]);
}

const struct operation operation_rotary = {
    .name = "rotary",
    .forward = rotary_forward,
    .backward = rotary_backward,
    .sequences = true,
    .forward_over = OPERATION_IN0,
    .backward_over = OPERATION_IN0,
};

static struct attention attention_shape(const struct operation_call *c)
{
    const struct operation_settings *s = c->settings;
    const struct batch *batch = c->context->batch; /* NULL while sizes are computed */
    return (struct attention){
        .B = c->context->shape.B,
        .T = c->context->shape.T,
        .heads = s->heads,
        .kv_heads = s->kv_heads,
        .head_size = c->width / s->heads,
        .causal = s->causal,
        .window = s->window,
        .scale = s->scale,
        .cap = s->cap,
        .q_row = c->in_width[0],
        .k_row = c->in_width[1],
        .v_row = c->in_width[2],
        .lengths = s->by_length && batch ? batch->input[s->input] : NULL,
        .positions = operation_positions(c),
        .by = s->by_length ? NULL : c->context->kernels->attention_by,
    };
}

static void attention_forward(const struct operation_call *c)
{
    const struct attention a = attention_shape(c);
    if (c->context->past) {
        past_attention(c, &a);
        return;
    }
    c->context->kernels->attention_forward(c->out, c->statistics[0], c->in[0], c->in[1], c->in[2], &a,
                                           c->work, c->context->stream);
}

static void attention_backward(const struct operation_call *c)
{
    const struct attention a = attention_shape(c);
    c->context->kernels->attention_backward(c->din[0], c->din[1], c->din[2], c->dout, c->in[0], c->in[1],
                                            c->in[2], c->out, c->statistics[0], &a, c->add, c->work,
                                            c->context->stream);
}

static size_t attention_work(const struct operation_call *c, bool backward)
{
    const struct attention a = attention_shape(c);
    return c->context->kernels->attention_work(&a, backward);
}

/* Scores and their product with v, of all pairs of positions. */
static double attention_flops(const struct operation_call *c)
{
    return 4.0 * c->rows * c->context->shape.T * c->width;
}

const struct operation operation_attention = {
    .name = "attention",
    .forward = attention_forward,
    .backward = attention_backward,
    .reads = OPERATION_IN0 | OPERATION_IN1 | OPERATION_IN2 | OPERATION_OUT,
    .whole = true,
    .sequences = true,
    .work = attention_work,
    .flops = attention_flops,
};

/* One input whose rows hold q, k and v one after the other: a view of it as three. */
static struct operation_call attention_unpacked(const struct operation_call *c)
{
    const struct operation_settings *s = c->settings;
    struct operation_call three = *c;
    size_t size = (size_t)dtype_size(c->context->kernels->value), head = (size_t)(c->width / s->heads) * size;
    size_t k = (size_t)s->heads * head, v = k + (size_t)s->kv_heads * head;
    const char *in = c->in[0];
    char *din = c->din[0];
    for (int i = 0; i < OPERATION_INPUTS; i++) {
        size_t at = i == 0 ? 0 : i == 1 ? k : v;
        three.in_width[i] = c->in_width[0];
        three.in[i] = in ? in + at : NULL;
        three.din[i] = din ? din + at : NULL;
        three.add[i] = c->add[0];
    }
    return three;
}

static void attention_packed_forward(const struct operation_call *c)
{
    const struct operation_call three = attention_unpacked(c);
    attention_forward(&three);
}

static void attention_packed_backward(const struct operation_call *c)
{
    const struct operation_call three = attention_unpacked(c);
    attention_backward(&three);
}

static size_t attention_packed_work(const struct operation_call *c, bool backward)
{
    const struct operation_call three = attention_unpacked(c);
    return attention_work(&three, backward);
}

const struct operation operation_attention_packed = {
    .name = "attention_packed",
    .forward = attention_packed_forward,
    .backward = attention_packed_backward,
    .reads = OPERATION_IN0 | OPERATION_OUT,
    .sequences = true,
    .work = attention_packed_work,
    .flops = attention_flops,
};

/* ---- element by element ---- */

static void activation_forward(const struct operation_call *c)
{
    c->context->kernels->activation_forward(c->out, c->in[0], c->settings->kind, elements(c),
                                            c->context->stream);
}

static void activation_backward(const struct operation_call *c)
{
    if (c->din[0])
        c->context->kernels->activation_backward(c->din[0], c->in[0], c->dout, c->settings->kind, c->add[0],
                                                 elements(c), c->context->stream);
}

const struct operation operation_activation = {
    .name = "activation",
    .forward = activation_forward,
    .backward = activation_backward,
    .reads = OPERATION_IN0,
    .forward_over = OPERATION_IN0,
    .backward_over = OPERATION_IN0,
};

static void gated_forward(const struct operation_call *c)
{
    c->context->kernels->gated_forward(c->out, c->in[0], c->in[1], c->settings->kind, elements(c),
                                       c->context->stream);
}

static void gated_backward(const struct operation_call *c)
{
    c->context->kernels->gated_backward(c->din[0], c->din[1], c->in[0], c->in[1], c->dout, c->settings->kind,
                                        c->add[0], c->add[1], elements(c), c->context->stream);
}

const struct operation operation_gated = {
    .name = "gated",
    .forward = gated_forward,
    .backward = gated_backward,
    .reads = OPERATION_IN0 | OPERATION_IN1,
    .forward_over = OPERATION_IN0 | OPERATION_IN1,
    .backward_over = OPERATION_IN0 | OPERATION_IN1,
    .whole = true,
};

/* A part of each group of a row; a group is a row of the kernel. */
static int64_t slice_row(const struct operation_call *c)
{
    return c->in_width[0] / c->settings->heads;
}

static void slice_forward(const struct operation_call *c)
{
    const struct operation_settings *s = c->settings;
    c->context->kernels->slice_forward(c->out, c->in[0], (int64_t)c->rows * s->heads, (int)slice_row(c),
                                       s->first, c->width / s->heads, c->context->stream);
}

static void slice_backward(const struct operation_call *c)
{
    const struct operation_settings *s = c->settings;
    if (c->din[0])
        c->context->kernels->slice_backward(c->din[0], c->dout, (int64_t)c->rows * s->heads,
                                            (int)slice_row(c), s->first, c->width / s->heads, c->add[0],
                                            c->context->stream);
}

const struct operation operation_slice = {
    .name = "slice",
    .forward = slice_forward,
    .backward = slice_backward,
};

static void add_forward(const struct operation_call *c)
{
    c->context->kernels->add(c->out, c->in[0], c->in[1], elements(c), c->context->stream);
}

static void add_backward(const struct operation_call *c)
{
    for (int i = 0; i < 2; i++) {
        if (c->din[i] && c->din[i] != c->dout)
            c->context->kernels->accumulate(c->din[i], c->dout, c->add[i], elements(c), c->context->stream);
    }
}

const struct operation operation_add = {
    .name = "add",
    .forward = add_forward,
    .backward = add_backward,
    .forward_over = OPERATION_IN0 | OPERATION_IN1,
    .shares = true,
};

static void scale_forward(const struct operation_call *c)
{
    const struct kernels *k = c->context->kernels;
    if (c->out != c->in[0])
        k->accumulate(c->out, c->in[0], 0, elements(c), c->context->stream);
    k->scale(c->out, c->settings->factor, elements(c), c->context->stream);
}

/* Where the gradient is added to, it is scaled apart: dout may be another value's gradient, too. */
static void scale_backward(const struct operation_call *c)
{
    const struct kernels *k = c->context->kernels;
    void *scaled = c->add[0] ? c->work : c->din[0];
    if (!c->din[0])
        return;
    if (scaled != c->dout)
        k->accumulate(scaled, c->dout, 0, elements(c), c->context->stream);
    k->scale(scaled, c->settings->factor, elements(c), c->context->stream);
    if (c->add[0])
        k->accumulate(c->din[0], scaled, 1, elements(c), c->context->stream);
}

static size_t scale_work(const struct operation_call *c, bool backward)
{
    return backward ? (size_t)elements(c) * (size_t)dtype_size(c->context->kernels->value) : 0;
}

const struct operation operation_scale = {
    .name = "scale",
    .forward = scale_forward,
    .backward = scale_backward,
    .forward_over = OPERATION_IN0,
    .backward_over = OPERATION_IN0,
    .work = scale_work,
};

static void dropout_apply(const struct operation_call *c, void *to, const void *from, int add)
{
    const struct layer_context *x = c->context;
    x->kernels->dropout(to, from, c->rows, c->width, c->rows / x->shape.B, x->sample, c->settings->site,
                        c->evaluates ? 0 : c->settings->probability, add, x->scalars, x->stream);
}

static void dropout_forward(const struct operation_call *c)
{
    dropout_apply(c, c->out, c->in[0], 0);
}

static void dropout_backward(const struct operation_call *c)
{
    if (c->din[0])
        dropout_apply(c, c->din[0], c->dout, c->add[0]);
}

const struct operation operation_dropout = {
    .name = "dropout",
    .forward = dropout_forward,
    .backward = dropout_backward,
    .forward_over = OPERATION_IN0,
    .backward_over = OPERATION_IN0,
};

const struct operation *const *operation_table(void)
{
#define OPERATION_ADDRESS(name) &operation_##name,
    static const struct operation *const table[] = {OPERATIONS(OPERATION_ADDRESS) NULL};
#undef OPERATION_ADDRESS
    return table;
}
