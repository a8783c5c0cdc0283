/* kernels_gradient_test.c - every backward of the double reference against central differences of its
 * forward.
 *
 * The loss is L = sum(out * r) for a fixed random r. With h = 1e-5 a central difference is off by h^2/6 times
 * the third derivative (below 100 for these inputs: 2e-9) and by double's roundoff of L over h (about 1e-15 *
 * 10 / 1e-5 = 1e-9): BOUND leaves a factor of ten or more, and a wrong formula is off by the size of the
 * gradient itself. Accumulation is checked beside it: with beta = 1 the gradient is added, exactly once, to
 * what was there. */
#include "tests/support/cmocka_all.h"

#include <math.h>

#include "proto/base/mem.h"
#include "tests/unit/kernels/kernels_support.h"

static const double step = 1e-5, BOUND = 3e-8;

static const struct kernels *table(void)
{
    return kernels_ref_f64();
}

static double *doubles_new(size_t n)
{
    double *values = mem_calloc(n, sizeof *values);
    assert_non_null(values);
    for (size_t i = 0; i < n; i++)
        values[i] = random_unit();
    return values;
}

/* A function of a vector x: forward computes L, which everything else it needs is in context for. */
typedef double loss_function(void *context);

static void check_gradient(const char *what, loss_function *loss, void *context, double *x,
                           const double *gradient, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        double kept = x[i];
        x[i] = kept + step;
        double above = loss(context);
        x[i] = kept - step;
        double below = loss(context);
        x[i] = kept;
        double expected = (above - below) / (2 * step);
        if (!(fabs(gradient[i] - expected) <= BOUND * (1 + fabs(expected))))
            fail_msg("%s[%zu] of %zu: %.12g, by differences %.12g (seed %llu)", what, i, n, gradient[i],
                     expected, (unsigned long long)kernels_test_seed());
    }
}

/* added was `before` when backward ran with beta = 1; plain comes from beta = 0. */
static void check_added(const char *what, const double *added, const double *plain, const double *before,
                        size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!(fabs(added[i] - (before[i] + plain[i])) <= 1e-14 * (1 + fabs(plain[i])) * 10))
            fail_msg("%s[%zu]: beta = 1 gives %.17g, expected %.17g + %.17g", what, i, added[i], before[i],
                     plain[i]);
}

static double weighted_sum(const double *out, const double *r, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += out[i] * r[i];
    return sum;
}

static double *doubles_copy(const double *from, size_t n)
{
    double *values = mem_calloc(n, sizeof *values);
    assert_non_null(values);
    memcpy(values, from, n * sizeof *values);
    return values;
}

struct linear {
    double *in, *weight, *bias, *out, *r;
    int N, C, OC;
};

static double linear_loss(void *context)
{
    struct linear *s = context;
    table()->linear_forward(s->out, s->in, s->weight, s->bias, s->N, s->C, s->OC, NULL);
    return weighted_sum(s->out, s->r, (size_t)s->N * s->OC);
}

static void linear_gradient(void **state)
{
    enum { N = 3, C = 5, OC = 4 };
    (void)state;
    scope_memory double *in = doubles_new(N * C), *weight = doubles_new(OC * C), *bias = doubles_new(OC);
    scope_memory double *out = doubles_new(N * OC), *r = doubles_new(N * OC);
    scope_memory double *din = doubles_new(N * C), *dweight = doubles_new(OC * C), *dbias = doubles_new(OC);
    struct linear s = {in, weight, bias, out, r, N, C, OC};
    table()->linear_backward_input(din, r, weight, N, C, OC, 0, NULL);
    table()->linear_backward_weight(dweight, dbias, r, in, N, C, OC, 0, NULL);
    check_gradient("din", linear_loss, &s, in, din, N * C);
    check_gradient("dweight", linear_loss, &s, weight, dweight, OC * C);
    check_gradient("dbias", linear_loss, &s, bias, dbias, OC);
    scope_memory double *din_added = doubles_copy(in, N * C), *dweight_added = doubles_copy(weight, OC * C);
    scope_memory double *dbias_added = doubles_copy(bias, OC);
    table()->linear_backward_input(din_added, r, weight, N, C, OC, 1, NULL);
    table()->linear_backward_weight(dweight_added, dbias_added, r, in, N, C, OC, 1, NULL);
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

static void embedding_gradient(void **state)
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

static void layernorm_gradient(void **state)
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

struct attention_call {
    double *qkv, *out, *lse, *r;
    int B, T, C, NH;
};

static double attention_loss(void *context)
{
    struct attention_call *s = context;
    const struct attention a = packed_attention(s->B, s->T, s->C, s->NH);
    table()->attention_forward(s->out, s->lse, s->qkv, s->qkv + s->C, s->qkv + 2 * s->C, &a, NULL, NULL);
    return weighted_sum(s->out, s->r, (size_t)s->B * s->T * s->C);
}

static void attention_gradient(void **state)
{
    enum { B = 2, T = 5, C = 6, NH = 2, ROWS = B * T };
    (void)state;
    scope_memory double *qkv = doubles_new(ROWS * 3 * C), *out = doubles_new(ROWS * C),
                        *lse = doubles_new(ROWS * NH);
    scope_memory double *r = doubles_new(ROWS * C), *dqkv = doubles_new(ROWS * 3 * C);
    struct attention_call s = {qkv, out, lse, r, B, T, C, NH};
    (void)attention_loss(&s); /* for out and lse */
    const struct attention a = packed_attention(B, T, C, NH);
    table()->attention_backward(dqkv, dqkv + C, dqkv + 2 * C, r, qkv, qkv + C, qkv + 2 * C, out, lse, &a,
                                (const int[3]){0}, NULL, NULL);
    check_gradient("dqkv", attention_loss, &s, qkv, dqkv, ROWS * 3 * C);
}

struct gelu {
    double *in, *out, *r;
    int64_t n;
};

static double gelu_loss(void *context)
{
    struct gelu *s = context;
    table()->activation_forward(s->out, s->in, ACTIVATION_GELU_TANH, s->n, NULL);
    return weighted_sum(s->out, s->r, (size_t)s->n);
}

static void gelu_gradient(void **state)
{
    enum { COUNT = 41 };
    (void)state;
    scope_memory double *in = doubles_new(COUNT), *out = doubles_new(COUNT), *r = doubles_new(COUNT);
    scope_memory double *din = doubles_new(COUNT);
    struct gelu s = {in, out, r, COUNT};
    for (int i = 0; i < COUNT; i++)
        in[i] = (i - COUNT / 2) * 0.3;
    table()->activation_backward(din, in, r, ACTIVATION_GELU_TANH, 0, COUNT, NULL);
    check_gradient("din", gelu_loss, &s, in, din, COUNT);
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
    table()->cross_entropy(s->work, s->losses, s->targets, s->N, s->V, 0, &s->scalars, NULL);
    table()->loss_sum(&total, &count, s->losses, s->targets, s->N, NULL);
    assert_int_equal(count, s->N - 1);
    return total * s->scalars.inverse_tokens;
}

static void cross_entropy_gradient(void **state)
{
    enum { N = 4, V = 7 };
    static const int32_t targets[N] = {0, 6, -1, 3};
    (void)state;
    scope_memory double *logits = doubles_new(N * V), *work = doubles_new(N * V), *losses = doubles_new(N);
    struct cross_entropy s = {logits, work, losses, targets, {.inverse_tokens = 1.0 / 3}, N, V};
    scope_memory double *dlogits = doubles_copy(logits, N * V);
    table()->cross_entropy(dlogits, losses, targets, N, V, 1, &s.scalars, NULL);
    check_gradient("dlogits", cross_entropy_loss, &s, logits, dlogits, N * V);
}

/* AdamW has no backward: three steps by hand from the paper's algorithm 2, for a clip of one half. */
static void adamw_by_hand(void **state)
{
    double param = 0.5, m = 0, v = 0, p = 0.5, first = 0, second = 0;
    struct step_scalars s = {.beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-8, .clip = 0.5};
    (void)state;
    s.learning_rate[2] = 0.01, s.weight_decay[2] = 0.1;
    for (int t = 1; t <= 3; t++) {
        double grad = 0.3 * t, g = 0.5 * grad;
        first = 0.9 * first + 0.1 * g, second = 0.99 * second + 0.01 * g * g;
        double m_hat = first / (1 - pow(0.9, t)), v_hat = second / (1 - pow(0.99, t));
        p = p - 0.01 * 0.1 * p - 0.01 * m_hat / (sqrt(v_hat) + 1e-8);
        s.bias_correction1 = 1 - pow(0.9, t), s.bias_correction2 = 1 - pow(0.99, t);
        table()->adamw(&param, &m, &v, &grad, 1, 2, &s, NULL);
    }
    assert_true(fabs(param - p) < 1e-15 && fabs(m - first) < 1e-15 && fabs(v - second) < 1e-15);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear_gradient),    cmocka_unit_test(embedding_gradient),
        cmocka_unit_test(layernorm_gradient), cmocka_unit_test(attention_gradient),
        cmocka_unit_test(gelu_gradient),      cmocka_unit_test(cross_entropy_gradient),
        cmocka_unit_test(adamw_by_hand),
    };
    kernels_test_begin(1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
