/* gradient_layers.c - gradient checks of the parts of a layer: products, embedding, norms, attention,
 * loss. */
#include "tests/support/cmocka_all.h"

#include <math.h>

#include "tests/unit/kernels/gradient_support.h"

struct linear {
    double *in, *weight, *bias, *out, *r;
    int N, C, OC;
};

static double linear_loss(void *context)
{
    struct linear *s = context;
    table()->linear_forward(s->out, s->in, s->weight, s->bias, s->N, s->C, s->OC, s->OC, NULL);
    return weighted_sum(s->out, s->r, (size_t)s->N * s->OC);
}

void linear_gradient(void **state)
{
    enum { N = 3, C = 5, OC = 4 };
    (void)state;
    scope_memory double *in = doubles_new(N * C), *weight = doubles_new(OC * C), *bias = doubles_new(OC);
    scope_memory double *out = doubles_new(N * OC), *r = doubles_new(N * OC);
    scope_memory double *din = doubles_new(N * C), *dweight = doubles_new(OC * C), *dbias = doubles_new(OC);
    struct linear s = {in, weight, bias, out, r, N, C, OC};
    table()->linear_backward_input(din, r, weight, N, C, OC, OC, 0, NULL);
    table()->linear_backward_weight(dweight, dbias, r, in, N, C, OC, OC, 0, NULL);
    check_gradient("din", linear_loss, &s, in, din, N * C);
    check_gradient("dweight", linear_loss, &s, weight, dweight, OC * C);
    check_gradient("dbias", linear_loss, &s, bias, dbias, OC);
    scope_memory double *din_added = doubles_copy(in, N * C), *dweight_added = doubles_copy(weight, OC * C);
    scope_memory double *dbias_added = doubles_copy(bias, OC);
    table()->linear_backward_input(din_added, r, weight, N, C, OC, OC, 1, NULL);
    table()->linear_backward_weight(dweight_added, dbias_added, r, in, N, C, OC, OC, 1, NULL);
    check_added("din", din_added, din, in, N * C);
    check_added("dweight", dweight_added, dweight, weight, OC * C);
    check_added("dbias", dbias_added, dbias, bias, OC);
}

struct embedding {
    double *wte, *wpe, *out, *r;
    const int32_t *tokens;
    int B, T, C;
};

static double embedding_loss(void *context)
{
    struct embedding *s = context;
    table()->embedding_forward(s->out, s->tokens, s->wte, s->wpe, s->B, s->T, s->C, NULL);
    return weighted_sum(s->out, s->r, (size_t)s->B * s->T * s->C);
}

void embedding_gradient(void **state)
{
    enum { B = 2, T = 3, C = 4, V = 3, MAX_T = 5 };
    static const int32_t tokens[B * T] = {0, 2, 0, 0, 1, 2};
    (void)state;
    scope_memory double *wte = doubles_new(V * C), *wpe = doubles_new(MAX_T * C);
    scope_memory double *out = doubles_new(B * T * C), *r = doubles_new(B * T * C);
    scope_memory double *dwte = doubles_new(V * C), *dwpe = doubles_new(MAX_T * C);
    struct embedding s = {wte, wpe, out, r, tokens, B, T, C};
    table()->embedding_backward(dwte, dwpe, r, tokens, B, T, C, V, MAX_T, 0, NULL);
    check_gradient("dwte", embedding_loss, &s, wte, dwte, V * C);
    check_gradient("dwpe", embedding_loss, &s, wpe, dwpe, MAX_T * C);
    scope_memory double *dwte_added = doubles_copy(wte, V * C), *dwpe_added = doubles_copy(wpe, MAX_T * C);
    table()->embedding_backward(dwte_added, dwpe_added, r, tokens, B, T, C, V, MAX_T, 1, NULL);
    check_added("dwte", dwte_added, dwte, wte, V * C);
    check_added("dwpe", dwpe_added, dwpe, wpe, MAX_T * C);
}

struct layernorm {
    double *in, *weight, *bias, *out, *mean, *rstd, *r;
    int N, C;
};

static double layernorm_loss(void *context)
{
    struct layernorm *s = context;
    table()->layernorm_forward(s->out, s->mean, s->rstd, s->in, s->weight, s->bias, s->N, s->C, 1e-5, NULL);
    return weighted_sum(s->out, s->r, (size_t)s->N * s->C);
}

void layernorm_gradient(void **state)
{
    enum { N = 4, C = 6 };
    (void)state;
    scope_memory double *in = doubles_new(N * C), *weight = doubles_new(C), *bias = doubles_new(C);
    scope_memory double *out = doubles_new(N * C), *mean = doubles_new(N), *rstd = doubles_new(N);
    scope_memory double *r = doubles_new(N * C);
    scope_memory double *din = doubles_new(N * C), *dweight = doubles_new(C), *dbias = doubles_new(C);
    struct layernorm s = {in, weight, bias, out, mean, rstd, r, N, C};
    (void)layernorm_loss(&s); /* for mean and rstd */
    table()->layernorm_backward(din, dweight, dbias, r, in, mean, rstd, weight, N, C, 0, 0, NULL, NULL);
    scope_memory double *din_added = doubles_copy(in, N * C), *dweight_added = doubles_copy(weight, C);
    scope_memory double *dbias_added = doubles_copy(bias, C);
    table()->layernorm_backward(din_added, dweight_added, dbias_added, r, in, mean, rstd, weight, N, C, 1, 1,
                                NULL, NULL);
    check_added("din", din_added, din, in, N * C);
    check_added("dweight", dweight_added, dweight, weight, C);
    check_added("dbias", dbias_added, dbias, bias, C);
    check_gradient("din", layernorm_loss, &s, in, din, N * C);
    check_gradient("dweight", layernorm_loss, &s, weight, dweight, C);
    check_gradient("dbias", layernorm_loss, &s, bias, dbias, C);
}

struct rms_norm {
    double *in, *weight, *out, *rstd, *r;
    int N, C;
    double offset;
};

static double rms_norm_loss(void *context)
{
    struct rms_norm *s = context;
    table()->rms_norm_forward(s->out, s->rstd, s->in, s->weight, s->N, s->C, 0.1, s->offset, NULL);
    return weighted_sum(s->out, s->r, (size_t)s->N * s->C);
}

void rms_norm_gradient(void **state)
{
    enum { N = 4, C = 6 };
    (void)state;
    scope_memory double *in = doubles_new(N * C), *weight = doubles_new(C), *out = doubles_new(N * C);
    scope_memory double *rstd = doubles_new(N), *r = doubles_new(N * C);
    scope_memory double *din = doubles_new(N * C), *dweight = doubles_new(C);
    scope_memory double *din_added = doubles_copy(in, N * C), *dweight_added = doubles_copy(weight, C);
    struct rms_norm s = {in, weight, out, rstd, r, N, C, 0.7};
    (void)rms_norm_loss(&s); /* for rstd */
    table()->rms_norm_backward(din, dweight, r, in, rstd, weight, 0.7, N, C, 0, 0, NULL, NULL);
    table()->rms_norm_backward(din_added, dweight_added, r, in, rstd, weight, 0.7, N, C, 1, 1, NULL, NULL);
    check_added("din", din_added, din, in, N * C);
    check_added("dweight", dweight_added, dweight, weight, C);
    check_gradient("din", rms_norm_loss, &s, in, din, N * C);
    check_gradient("dweight", rms_norm_loss, &s, weight, dweight, C);
}

struct attention_call {
    double *rows, *out, *lse, *r; /* q, k and v in one row */
    struct attention a;
};

static double attention_loss(void *context)
{
    struct attention_call *s = context;
    int q = s->a.heads * s->a.head_size, kv = s->a.kv_heads * s->a.head_size;
    table()->attention_forward(s->out, s->lse, s->rows, s->rows + q, s->rows + q + kv, &s->a, NULL, NULL);
    return weighted_sum(s->out, s->r, (size_t)s->a.B * s->a.T * q);
}

static void check_attention(struct attention a)
{
    int q = a.heads * a.head_size, kv = a.kv_heads * a.head_size;
    a.q_row = a.k_row = a.v_row = q + 2 * kv;
    size_t rows = (size_t)a.B * a.T, n = rows * (size_t)a.q_row;
    scope_memory double *x = doubles_new(n), *out = doubles_new(rows * q), *lse = doubles_new(rows * a.heads);
    scope_memory double *r = doubles_new(rows * q), *dx = doubles_new(n), *added = doubles_copy(x, n);
    struct attention_call s = {x, out, lse, r, a};
    for (size_t row = 0; a.lengths && row < rows; row++) /* outputs beyond the length are constant */
        for (int i = 0; (int)(row % a.T) >= a.lengths[row / a.T] && i < q; i++)
            assert_true(attention_loss(&s) == attention_loss(&s) && out[row * q + i] == 0);
    (void)attention_loss(&s); /* for out and lse */
    table()->attention_backward(dx, dx + q, dx + q + kv, r, x, x + q, x + q + kv, out, lse, &a,
                                (const int[3]){0}, NULL, NULL);
    table()->attention_backward(added, added + q, added + q + kv, r, x, x + q, x + q + kv, out, lse, &a,
                                (const int[3]){1, 1, 1}, NULL, NULL);
    check_added("dqkv", added, dx, x, n);
    check_gradient("dqkv", attention_loss, &s, x, dx, n);
}

void attention_gradient(void **state)
{
    static const int32_t lengths[2] = {3, 5}, positions[10] = {0, 1, 0, 0, 1, 0, 1, 2, 3, 0};
    (void)state;
    check_attention((struct attention){
        .B = 2, .T = 5, .heads = 4, .kv_heads = 2, .head_size = 3, .causal = 1, .positions = positions});
    check_attention((struct attention){.B = 2,
                                       .T = 5,
                                       .heads = 2,
                                       .kv_heads = 1,
                                       .head_size = 3,
                                       .causal = 1,
                                       .window = 3,
                                       .cap = 0.7,
                                       .lengths = lengths,
                                       .positions = positions});
    check_attention(
        (struct attention){.B = 2, .T = 5, .heads = 2, .kv_heads = 2, .head_size = 3, .causal = 1});
    check_attention((struct attention){
        .B = 2, .T = 5, .heads = 4, .kv_heads = 2, .head_size = 3, .causal = 1, .lengths = lengths});
    check_attention((struct attention){
        .B = 2, .T = 5, .heads = 3, .kv_heads = 1, .head_size = 4, .scale = 0.3, .lengths = lengths});
    check_attention((struct attention){.B = 1, .T = 4, .heads = 2, .kv_heads = 1, .head_size = 1});
    check_attention((struct attention){.B = 2,
                                       .T = 5,
                                       .heads = 2,
                                       .kv_heads = 1,
                                       .head_size = 3,
                                       .causal = 1,
                                       .window = 2,
                                       .lengths = lengths});
    check_attention((struct attention){
        .B = 2, .T = 5, .heads = 2, .kv_heads = 1, .head_size = 3, .window = 2, .lengths = lengths});
    check_attention((struct attention){
        .B = 1, .T = 5, .heads = 2, .kv_heads = 2, .head_size = 3, .causal = 1, .cap = 0.7, .scale = 0.9});
}

struct cross_entropy {
    double *logits, *work, *losses;
    const int32_t *targets;
    struct step_scalars scalars;
    int N, V;
};

static double cross_entropy_loss(void *context)
{
    struct cross_entropy *s = context;
    double total = 0;
    int64_t count = 0;
    memcpy(s->work, s->logits, (size_t)s->N * s->V * sizeof *s->work);
    table()->cross_entropy(s->work, s->losses, s->targets, s->N, s->V, s->V, 0, &s->scalars, NULL);
    table()->loss_sum(&total, &count, s->losses, s->targets, s->N, NULL);
    assert_int_equal(count, s->N - 1);
    return total * s->scalars.inverse_tokens;
}

void cross_entropy_gradient(void **state)
{
    enum { N = 4, V = 7 };
    static const int32_t targets[N] = {0, 6, -1, 3};
    (void)state;
    scope_memory double *logits = doubles_new(N * V), *work = doubles_new(N * V), *losses = doubles_new(N);
    struct cross_entropy s = {logits, work, losses, targets, {.inverse_tokens = 1.0 / 3}, N, V};
    scope_memory double *dlogits = doubles_copy(logits, N * V);
    table()->cross_entropy(dlogits, losses, targets, N, V, V, 1, &s.scalars, NULL);
    check_gradient("dlogits", cross_entropy_loss, &s, logits, dlogits, N * V);
}

struct squared_error {
    double *values, *work, *losses;
    int32_t *counted;
    const float *targets;
    struct step_scalars scalars;
    int n;
};

static double squared_error_loss(void *context)
{
    struct squared_error *s = context;
    double total = 0;
    int64_t count = 0;
    memcpy(s->work, s->values, (size_t)s->n * sizeof *s->work);
    table()->squared_error(s->work, s->losses, s->counted, s->targets, s->n, 0, &s->scalars, NULL);
    assert_memory_equal(s->work, s->values, (size_t)s->n * sizeof *s->work);
    table()->loss_sum(&total, &count, s->losses, s->counted, s->n, NULL);
    assert_int_equal(count, s->n - 1);
    return total * s->scalars.inverse_tokens;
}

void squared_error_gradient(void **state)
{
    enum { n = 5 };
    static const float targets[n] = {0.25f, -3, NAN, 0, 7}; /* one does not count */
    int32_t counted[n];
    (void)state;
    scope_memory double *values = doubles_new(n), *work = doubles_new(n), *losses = doubles_new(n);
    struct squared_error s = {values, work, losses, counted, targets, {.inverse_tokens = 1.0 / 4}, n};
    scope_memory double *gradient = doubles_copy(values, n);
    /* By hand: the mean of the squares of the values that count. */
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += i == 2 ? 0 : (values[i] - (double)targets[i]) * (values[i] - (double)targets[i]);
    assert_true(fabs(squared_error_loss(&s) - sum / 4) <= 1e-12 * sum);
    table()->squared_error(gradient, losses, counted, targets, n, 1, &s.scalars, NULL);
    assert_true(gradient[2] == 0 && losses[2] == 0 && counted[2] == -1);
    check_gradient("values", squared_error_loss, &s, values, gradient, n);
}
