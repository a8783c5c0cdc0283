/* gpt_layers.c - forward and backward of GPT-2's layers: sequences of kernel calls on planned memory. The
 * functions ..._saved and ..._work divide a layer's kept memory (`saved`) and scratch memory (`work`), and
 * also return their sizes. */
#include "runtime/model/gpt_layers.h"

#include <math.h>

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static bool eval(const struct layer_context *x)
{
    return x->mode == LAYER_EVAL;
}

/* The channels of a row of (N,3C) from `first` on. */
static void *channels_at(void *rows, int first, int size)
{
    return (char *)rows + (size_t)first * (size_t)size;
}

/* A row of qkv is q, then k, then v. */
static struct attention attention_of(const struct gpt_config *c, struct shape shape)
{
    int64_t row = 3 * (int64_t)c->channels;
    return (struct attention){.B = shape.B,
                              .T = shape.T,
                              .heads = c->heads,
                              .kv_heads = c->heads,
                              .head_size = c->channels / c->heads,
                              .causal = 1,
                              .q_row = row,
                              .k_row = row,
                              .v_row = row};
}

/* ---- embedding ---- */

static void embedding_sizes(const void *config, struct shape max, enum dtype dtype, enum layer_mode mode,
                            const struct kernels *kernels, struct layer_sizes *sizes)
{
    const struct gpt_config *c = config;
    (void)kernels;
    (void)mode;
    *sizes = (struct layer_sizes){.out = (int64_t)max.B * max.T * c->channels * dtype_size(dtype)};
}

static void embedding_forward(const void *config, const struct layer_context *x)
{
    const struct gpt_config *c = config;
    if (!x->out)
        return; /* recomputed for its saved memory only, and it has none */
    x->kernels->embedding_forward(x->out, x->batch->tokens, x->weight[EMBEDDING_WTE],
                                  x->weight[EMBEDDING_WPE], x->shape.B, x->shape.T, c->channels, x->stream);
}

static void embedding_backward(const void *config, const struct layer_context *x, unsigned parts)
{
    const struct gpt_config *c = config;
    if (!(parts & LAYER_WEIGHT))
        return;
    /* Two calls: the head has already written the tied wte, no layer has written wpe. */
    for (int param = 0; param < EMBEDDING_PARAMS; param++) {
        if (x->grad[param])
            x->kernels->embedding_backward(param == EMBEDDING_WTE ? x->grad[param] : NULL,
                                           param == EMBEDDING_WPE ? x->grad[param] : NULL, x->dout,
                                           x->batch->tokens, x->shape.B, x->shape.T, c->channels, c->vocab,
                                           c->max_positions, x->grad_beta[param], x->stream);
    }
}

/* ---- block ---- */

struct block_saved {
    void *ln1, *mean1, *rstd1, *qkv, *lse, *attention, *middle, *ln2, *mean2, *rstd2, *fc, *gelu;
};

static struct block_saved block_saved(const struct gpt_config *c, struct shape shape, int size,
                                      struct carve *at)
{
    int64_t rows = (int64_t)shape.B * shape.T, row = rows * size, wide = row * c->channels;
    return (struct block_saved){
        .ln1 = carve_bytes(at, wide),
        .mean1 = carve_bytes(at, row),
        .rstd1 = carve_bytes(at, row),
        .qkv = carve_bytes(at, 3 * wide),
        .lse = carve_bytes(at, row * c->heads),
        .attention = carve_bytes(at, wide),
        .middle = carve_bytes(at, wide),
        .ln2 = carve_bytes(at, wide),
        .mean2 = carve_bytes(at, row),
        .rstd2 = carve_bytes(at, row),
        .fc = carve_bytes(at, 4 * wide),
        .gelu = carve_bytes(at, 4 * wide),
    };
}

struct block_work {
    void *wide4;   /* (N,4C): gradient behind fc, later of qkv */
    void *narrow;  /* (N,C): gradient of a layer norm's output, of attention's output */
    void *middle;  /* (N,C): gradient between the two halves */
    void *scratch; /* scratch memory of attention and layer norm */
};

static int64_t block_scratch(const struct gpt_config *c, struct shape shape, const struct kernels *k)
{
    struct attention attention = attention_of(c, shape);
    return larger((int64_t)k->attention_work(&attention),
                  (int64_t)k->layernorm_backward_work(shape.B * shape.T, c->channels));
}

static struct block_work block_work(const struct gpt_config *c, struct shape shape, int size,
                                    const struct kernels *k, struct carve *at)
{
    int64_t wide = (int64_t)shape.B * shape.T * c->channels * size;
    return (struct block_work){
        .wide4 = carve_bytes(at, 4 * wide),
        .narrow = carve_bytes(at, wide),
        .middle = carve_bytes(at, wide),
        .scratch = carve_bytes(at, block_scratch(c, shape, k)),
    };
}

static void block_sizes(const void *config, struct shape max, enum dtype dtype, enum layer_mode mode,
                        const struct kernels *kernels, struct layer_sizes *sizes)
{
    const struct gpt_config *c = config;
    int size = dtype_size(dtype);
    double rows = (double)max.B * max.T, C = c->channels;
    struct carve saved = {0}, work = {0};
    (void)block_saved(c, max, size, &saved);
    if (mode == LAYER_EVAL)
        (void)carve_bytes(&work, saved.used + block_scratch(c, max, kernels)); /* used during the call only */
    else
        (void)block_work(c, max, size, kernels, &work);
    *sizes = (struct layer_sizes){
        .out = (int64_t)max.B * max.T * c->channels * size,
        .saved = mode == LAYER_EVAL ? 0 : saved.used,
        .work = work.used,
        .forward_flops = 24.0 * rows * C * C + 4.0 * rows * max.T * C,
    };
}

static void block_forward(const void *config, const struct layer_context *x)
{
    const struct gpt_config *c = config;
    const struct kernels *k = x->kernels;
    const void *const *w = x->weight;
    const void *in = x->in[0];
    int size = dtype_size(k->dtype), B = x->shape.B, T = x->shape.T, C = c->channels, N = B * T;
    int64_t n = (int64_t)N * C;
    struct carve work = {.base = x->work};
    void *scratch = x->saved ? block_work(c, x->shape, size, k, &work).scratch
                             : carve_bytes(&work, block_scratch(c, x->shape, k));
    struct carve keep = {.base = x->saved};
    struct block_saved s = block_saved(c, x->shape, size, x->saved ? &keep : &work);

    k->layernorm_forward(s.ln1, s.mean1, s.rstd1, in, w[BLOCK_LN1_WEIGHT], w[BLOCK_LN1_BIAS], N, C,
                         GPT_NORM_EPSILON, x->stream);
    k->linear_forward(s.qkv, s.ln1, w[BLOCK_QKV_WEIGHT], w[BLOCK_QKV_BIAS], N, C, 3 * C, x->stream);
    const struct attention attention = attention_of(c, x->shape);
    k->attention_forward(s.attention, s.lse, s.qkv, channels_at(s.qkv, C, size),
                         channels_at(s.qkv, 2 * C, size), &attention, scratch, x->stream);
    k->linear_forward(s.middle, s.attention, w[BLOCK_PROJ_WEIGHT], w[BLOCK_PROJ_BIAS], N, C, C, x->stream);
    k->add(s.middle, s.middle, in, n, x->stream);
    k->layernorm_forward(s.ln2, s.mean2, s.rstd2, s.middle, w[BLOCK_LN2_WEIGHT], w[BLOCK_LN2_BIAS], N, C,
                         GPT_NORM_EPSILON, x->stream);
    k->linear_forward(s.fc, s.ln2, w[BLOCK_FC_WEIGHT], w[BLOCK_FC_BIAS], N, C, 4 * C, x->stream);
    k->activation_forward(s.gelu, s.fc, ACTIVATION_GELU_TANH, 4 * n, x->stream);
    if (!x->out)
        return; /* recomputed for backward: the output exists already or is not needed */
    k->linear_forward(x->out, s.gelu, w[BLOCK_OUT_WEIGHT], w[BLOCK_OUT_BIAS], N, 4 * C, C, x->stream);
    k->add(x->out, x->out, s.middle, n, x->stream);
}

/* dweight and dbias of the product whose weight is parameter `weight` and whose bias is the next one. */
static void product_weight(const struct layer_context *x, int weight, const void *dout, const void *in, int C,
                           int OC, unsigned parts)
{
    if ((parts & LAYER_WEIGHT) && x->grad[weight])
        x->kernels->linear_backward_weight(x->grad[weight], x->grad[weight + 1], dout, in,
                                           x->shape.B * x->shape.T, C, OC, x->grad_beta[weight], x->stream);
}

/* dweight and dbias of the layer norm whose weight is parameter `weight` and whose bias is the next one, and
 * din; what is NULL is not wanted. */
static void norm_backward(const struct layer_context *x, int weight, void *din, const void *dout,
                          const void *in, const void *mean, const void *rstd, int C, int beta_in,
                          void *scratch)
{
    x->kernels->layernorm_backward(din, x->grad[weight], x->grad[weight + 1], dout, in, mean, rstd,
                                   x->weight[weight], x->shape.B * x->shape.T, C, beta_in,
                                   x->grad_beta[weight], scratch, x->stream);
}

static void block_backward(const void *config, const struct layer_context *x, unsigned parts)
{
    const struct gpt_config *c = config;
    const struct kernels *k = x->kernels;
    const void *const *w = x->weight;
    int size = dtype_size(k->dtype), B = x->shape.B, T = x->shape.T, C = c->channels, N = B * T;
    int64_t n = (int64_t)N * C;
    struct carve keep = {.base = x->saved}, scratch = {.base = x->work};
    struct block_saved s = block_saved(c, x->shape, size, &keep);
    struct block_work b = block_work(c, x->shape, size, k, &scratch);

    /* out = middle + gelu(fc(ln2(middle))) */
    product_weight(x, BLOCK_OUT_WEIGHT, x->dout, s.gelu, 4 * C, C, parts);
    k->linear_backward_input(b.wide4, x->dout, w[BLOCK_OUT_WEIGHT], N, 4 * C, C, 0, x->stream);
    k->activation_backward(b.wide4, s.fc, b.wide4, ACTIVATION_GELU_TANH, 0, 4 * n, x->stream);
    product_weight(x, BLOCK_FC_WEIGHT, b.wide4, s.ln2, C, 4 * C, parts);
    k->linear_backward_input(b.narrow, b.wide4, w[BLOCK_FC_WEIGHT], N, C, 4 * C, 0, x->stream);
    norm_backward(x, BLOCK_LN2_WEIGHT, b.middle, b.narrow, s.middle, s.mean2, s.rstd2, C, 0, b.scratch);
    k->add(b.middle, b.middle, x->dout, n, x->stream);

    /* middle = in + proj(attention(ln1(in))) */
    product_weight(x, BLOCK_PROJ_WEIGHT, b.middle, s.attention, C, C, parts);
    k->linear_backward_input(b.narrow, b.middle, w[BLOCK_PROJ_WEIGHT], N, C, C, 0, x->stream);
    const struct attention attention = attention_of(c, x->shape);
    k->attention_backward(b.wide4, channels_at(b.wide4, C, size), channels_at(b.wide4, 2 * C, size), b.narrow,
                          s.qkv, channels_at(s.qkv, C, size), channels_at(s.qkv, 2 * C, size), s.attention,
                          s.lse, &attention, (const int[3]){0}, b.scratch, x->stream);
    product_weight(x, BLOCK_QKV_WEIGHT, b.wide4, s.ln1, C, 3 * C, parts);
    k->linear_backward_input(b.narrow, b.wide4, w[BLOCK_QKV_WEIGHT], N, C, 3 * C, 0, x->stream);
    norm_backward(x, BLOCK_LN1_WEIGHT, x->din[0], b.narrow, x->in[0], s.mean1, s.rstd1, C, x->din_beta[0],
                  b.scratch);
    if (x->din[0])
        k->add(x->din[0], x->din[0], b.middle, n, x->stream);
}

/* ---- head ---- */

/* Training forms everything in backward, while a chunk of logits exists: logits, loss, both products'
 * gradients. Forward only keeps the layer norm. Evaluation forms the loss in forward. */
struct head_saved {
    void *ln, *mean, *rstd;
};

static struct head_saved head_saved(const struct gpt_config *c, int N, int size, struct carve *at)
{
    return (struct head_saved){
        .ln = carve_bytes(at, (int64_t)N * c->channels * size),
        .mean = carve_bytes(at, (int64_t)N * size),
        .rstd = carve_bytes(at, (int64_t)N * size),
    };
}

struct head_work {
    void *logits, *losses, *dln, *scratch;
    int rows;
};

static struct head_work head_work(const struct gpt_config *c, int N, const struct kernels *k, bool train,
                                  struct carve *at)
{
    int size = dtype_size(k->dtype), rows = gpt_head_rows(N, c->vocab, k->dtype);
    struct head_work work = {.rows = rows};
    work.logits = carve_bytes(at, (int64_t)rows * c->vocab * size);
    work.losses = carve_bytes(at, (int64_t)rows * size);
    if (train) {
        work.dln = carve_bytes(at, (int64_t)N * c->channels * size);
        work.scratch = carve_bytes(at, (int64_t)k->layernorm_backward_work(N, c->channels));
    }
    return work;
}

int gpt_head_rows(int N, int vocab, enum dtype dtype)
{
    int64_t limit = (INT64_C(64) << 20) / ((int64_t)vocab * dtype_size(dtype));
    limit = limit > 0 ? limit : 1;
    int64_t chunks = (N + limit - 1) / limit;
    return chunks > 0 ? (int)((N + chunks - 1) / chunks) : 0; /* equal chunks: no short last product */
}

static void head_sizes(const void *config, struct shape max, enum dtype dtype, enum layer_mode mode,
                       const struct kernels *kernels, struct layer_sizes *sizes)
{
    const struct gpt_config *c = config;
    int N = max.B * max.T;
    struct carve saved = {0}, work = {0};
    (void)head_saved(c, N, dtype_size(dtype), &saved);
    (void)head_work(c, N, kernels, mode != LAYER_EVAL, &work);
    *sizes = (struct layer_sizes){
        .saved = mode == LAYER_EVAL ? 0 : saved.used,
        .work = work.used + (mode == LAYER_EVAL ? saved.used : 0),
        .forward_flops = 2.0 * N * c->channels * c->vocab,
    };
}

static const void *rows_at(const void *base, int64_t row, int64_t width, const struct kernels *k)
{
    return (const char *)base + row * width * dtype_size(k->dtype);
}

/* Logits and losses of `count` rows from `first`; with gradient the logits become dlogits. */
static void head_chunk(const struct gpt_config *c, const struct layer_context *x, const struct head_saved *s,
                       const struct head_work *work, int first, int count, int gradient)
{
    const struct kernels *k = x->kernels;
    k->linear_forward(work->logits, rows_at(s->ln, first, c->channels, k), x->weight[HEAD_WTE], NULL, count,
                      c->channels, c->vocab, x->stream);
    k->cross_entropy(work->logits, work->losses, x->batch->targets + first, count, c->vocab, gradient,
                     x->scalars, x->stream);
    k->loss_sum(x->loss_total, x->loss_count, work->losses, x->batch->targets + first, count, x->stream);
}

static void head_forward(const void *config, const struct layer_context *x)
{
    const struct gpt_config *c = config;
    const struct kernels *k = x->kernels;
    int N = x->shape.B * x->shape.T;
    struct carve keep = {.base = x->saved}, scratch = {.base = x->work};
    struct head_work work = head_work(c, N, k, !eval(x), &scratch);
    struct head_saved s = head_saved(c, N, dtype_size(k->dtype), x->saved ? &keep : &scratch);
    k->layernorm_forward(s.ln, s.mean, s.rstd, x->in[0], x->weight[HEAD_LN_WEIGHT], x->weight[HEAD_LN_BIAS],
                         N, c->channels, GPT_NORM_EPSILON, x->stream);
    for (int first = 0; eval(x) && first < N; first += work.rows)
        head_chunk(c, x, &s, &work, first, N - first < work.rows ? N - first : work.rows, 0);
}

static void head_backward(const void *config, const struct layer_context *x, unsigned parts)
{
    const struct gpt_config *c = config;
    const struct kernels *k = x->kernels;
    int N = x->shape.B * x->shape.T, C = c->channels, V = c->vocab;
    struct carve keep = {.base = x->saved}, scratch = {.base = x->work};
    struct head_saved s = head_saved(c, N, dtype_size(k->dtype), &keep);
    struct head_work work = head_work(c, N, k, true, &scratch);
    int beta = x->grad_beta[HEAD_WTE];
    for (int first = 0; first < N; first += work.rows) {
        int count = N - first < work.rows ? N - first : work.rows;
        head_chunk(c, x, &s, &work, first, count, 1);
        k->linear_backward_input((void *)rows_at(work.dln, first, C, k), work.logits, x->weight[HEAD_WTE],
                                 count, C, V, 0, x->stream);
        if ((parts & LAYER_WEIGHT) && x->grad[HEAD_WTE])
            k->linear_backward_weight(x->grad[HEAD_WTE], NULL, work.logits, rows_at(s.ln, first, C, k), count,
                                      C, V, beta, x->stream);
        beta = 1;
    }
    norm_backward(x, HEAD_LN_WEIGHT, x->din[0], work.dln, x->in[0], s.mean, s.rstd, C, x->din_beta[0],
                  work.scratch);
}

const struct layer_ops gpt_embedding_ops = {"gpt_embedding", embedding_sizes, embedding_forward,
                                            embedding_backward};
const struct layer_ops gpt_block_ops = {"gpt_block", block_sizes, block_forward, block_backward};
const struct layer_ops gpt_head_ops = {"gpt_head", head_sizes, head_forward, head_backward};
