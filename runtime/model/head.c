/* head.c - see head.h. Training forms everything in backward, while a chunk of logits exists: logits, loss
 * and the gradients of both products. Evaluation forms the loss in forward. */
#include "runtime/model/head.h"

#include "runtime/model/operation.h"

enum { CHUNK_BYTES = 64 << 20, ROWS_MULTIPLE = 8 };

int head_rows(int rows, int row, enum dtype dtype, int64_t chunk_bytes)
{
    int64_t limit = (chunk_bytes > 0 ? chunk_bytes : CHUNK_BYTES) / ((int64_t)row * dtype_size(dtype));
    limit = limit > 0 ? limit : 1;
    int64_t chunks = (rows + limit - 1) / limit;
    return chunks > 0 ? (int)((rows + chunks - 1) / chunks) : 0; /* equal chunks: no short last product */
}

struct head {
    const struct kernels *kernels;
    int C, V, chunk;
    int row;    /* elements from a row of logits to the next. Products form all of them: the weight has as
                   many rows (param_desc.classes), and the further logits and gradients are zero */
    double cap; /* 0: none */
    char *logits, *losses;
    char *uncapped; /* the logits divided by the cap, before tanh; NULL: no cap */
};

/* Bytes of a chunk; the losses after it are aligned, as values of 16 bits need not be. */
static int64_t logits_bytes(const struct head *head)
{
    const int64_t bytes = (int64_t)head->chunk * head->row * dtype_size(head->kernels->value);
    return (bytes + 3) / 4 * 4;
}

static struct head head_of(const struct operation_call *c)
{
    struct head head = {
        .kernels = c->context->kernels, .C = c->in_width[0], .V = (int)c->settings->vocabulary};
    head.row = kernels_row(head.kernels, head.V);
    head.cap = c->settings->cap;
    head.chunk = head_rows(c->rows, head.row, head.kernels->value,
                           c->context->chunk_bytes ? c->context->chunk_bytes : head.kernels->chunk_bytes);
    if (head.kernels->row_multiple > 1 && head.chunk < c->rows) /* products have no odd size there */
        head.chunk = (head.chunk + ROWS_MULTIPLE - 1) / ROWS_MULTIPLE * ROWS_MULTIPLE;
    head.logits = c->work;
    const int64_t bytes = logits_bytes(&head);
    if (head.logits && head.cap > 0)
        head.uncapped = head.logits + bytes;
    if (head.logits)
        head.losses = head.logits + bytes * (head.cap > 0 ? 2 : 1);
    return head;
}

static size_t head_work(const struct operation_call *c, bool backward)
{
    (void)backward;
    struct head head = head_of(c);
    return (size_t)(logits_bytes(&head) * (head.cap > 0 ? 2 : 1) +
                    (int64_t)head.chunk * dtype_size(head.kernels->statistic));
}

static char *head_row(const struct head *head, const void *base, int row)
{
    return (char *)(uintptr_t)base + (int64_t)row * head->C * dtype_size(head->kernels->value);
}

/* Copies out the logits that are wanted of this chunk, whose rows touch each other then. */
static void head_capture(const struct layer_context *x, const struct head *head, int first, int count)
{
    const struct layer_capture *capture = x->capture;
    if (!capture || capture->value != LAYER_LOGITS || capture->rows <= first)
        return;
    int64_t rows = capture->rows - first < count ? capture->rows - first : count;
    const int64_t element = dtype_size(head->kernels->value), out = dtype_size(head->kernels->statistic);
    const int64_t at_once = head->row == head->V ? rows : 1; /* rows that one copy takes */
    for (int64_t n = 0; n < rows; n += at_once)
        operation_copy_out(x, (char *)capture->out + (first + n) * head->V * out,
                           head->logits + n * head->row * element, at_once * head->V);
}

void head_cap(const struct kernels *kernels, void *logits, void *uncapped, double cap, int64_t n,
              void *stream)
{
    kernels->scale(logits, 1 / cap, n, stream);
    if (uncapped)
        kernels->accumulate(uncapped, logits, 0, n, stream);
    kernels->activation_forward(logits, logits, ACTIVATION_TANH, n, stream);
    kernels->scale(logits, cap, n, stream);
}

/* Logits and losses of `count` rows from `first`; with gradient the logits become dlogits. */
static void head_chunk(const struct operation_call *c, const struct head *head, int first, int count,
                       int gradient)
{
    const struct layer_context *x = c->context;
    const int32_t *targets = (const int32_t *)x->batch->input[c->settings->input] + first;
    head->kernels->linear_forward(head->logits, head_row(head, c->in[0], first), c->weight[0], c->weight[1],
                                  count, head->C, head->row, head->row, x->stream);
    if (head->cap > 0)
        head_cap(head->kernels, head->logits, head->uncapped, head->cap, (int64_t)count * head->row,
                 x->stream);
    head_capture(x, head, first, count);
    if (c->settings->classes && x->correct_total)
        head->kernels->correct_sum(x->correct_total, head->logits, targets, count, head->V, head->row,
                                   x->stream);
    head->kernels->cross_entropy(head->logits, head->losses, targets, count, head->V, head->row, gradient,
                                 x->scalars, x->stream);
    head->kernels->loss_sum(x->loss_total, x->loss_count, head->losses, targets, count, x->stream);
    if (head->cap > 0 && gradient) /* the cap's slope is tanh's */
        head->kernels->activation_backward(head->logits, head->uncapped, head->logits, ACTIVATION_TANH, 0,
                                           (int64_t)count * head->row, x->stream);
}

static void cross_entropy_forward(const struct operation_call *c)
{
    struct head head = head_of(c);
    if (c->context->mode != LAYER_EVAL)
        return;
    for (int first = 0; first < c->rows; first += head.chunk)
        head_chunk(c, &head, first, c->rows - first < head.chunk ? c->rows - first : head.chunk, 0);
}

/* The gradients of weight and bias from a chunk of dlogits. */
static void head_weights(const struct operation_call *c, const struct head *head, int first, int count)
{
    for (int i = 0; i < 2; i++) /* a tied weight may have been written already, its bias not */
        if (c->dweight[i])
            head->kernels->linear_backward_weight(i ? NULL : c->dweight[0], i ? c->dweight[1] : NULL,
                                                  head->logits, head_row(head, c->in[0], first), count,
                                                  head->C, head->row, head->row,
                                                  first > 0 || c->weight_add[i], c->context->stream);
}

static void cross_entropy_backward(const struct operation_call *c)
{
    struct head head = head_of(c);
    void *stream = c->context->stream;
    for (int first = 0; first < c->rows; first += head.chunk) {
        int count = c->rows - first < head.chunk ? c->rows - first : head.chunk;
        head_chunk(c, &head, first, count, 1);
        if (c->din[0])
            head.kernels->linear_backward_input(head_row(&head, c->din[0], first), head.logits, c->weight[0],
                                                count, head.C, head.row, head.row, c->add[0], stream);
        head_weights(c, &head, first, count);
    }
}

static double cross_entropy_flops(const struct operation_call *c)
{
    return 2.0 * c->rows * c->in_width[0] * (double)c->settings->vocabulary;
}

const struct operation operation_cross_entropy = {
    .name = "cross_entropy",
    .forward = cross_entropy_forward,
    .backward = cross_entropy_backward,
    .reads = OPERATION_IN0,
    .loss = true,
    .batch = true,
    .work = head_work,
    .flops = cross_entropy_flops,
};
