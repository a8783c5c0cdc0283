/* layernorm.c - the reference of layer normalisation (Ba, Kiros, Hinton 2016, arXiv 1607.06450) with the
 * biased variance, as PyTorch's nn.LayerNorm.
 *
 * Backward, with xhat = (in - mean) rstd and g = dout * weight (all of one row, means over C):
 * din = rstd (g - mean(g) - xhat mean(g xhat)); dweight = sum over rows of dout xhat; dbias = of dout. */
#include "kernels/ref/real.h"

#include <math.h>

void REF(layernorm_forward)(void *out_, void *mean_, void *rstd_, const void *in_, const void *weight_,
                            const void *bias_, int N, int C, double epsilon, void *stream)
{
    VALUE *out = out_;
    STATISTIC *mean = mean_, *rstd = rstd_;
    const VALUE *in = in_;
    const WEIGHT *weight = weight_, *bias = bias_;
    (void)stream;
    for (int n = 0; n < N; n++) {
        const VALUE *x = in + (size_t)n * C;
        double sum = 0, squares = 0;
        for (int c = 0; c < C; c++)
            sum += LOAD(x[c]);
        double m = sum / C;
        for (int c = 0; c < C; c++)
            squares += (LOAD(x[c]) - m) * (LOAD(x[c]) - m);
        double r = 1.0 / sqrt(squares / C + epsilon);
        for (int c = 0; c < C; c++)
            STORE(out[(size_t)n * C + c],
                  (LOAD(x[c]) - m) * r * LOAD(weight[c]) + (bias ? LOAD(bias[c]) : 0.0));
        STORE(mean[n], m);
        STORE(rstd[n], r);
    }
}

void REF(add_layernorm_forward)(void *out, void *sum, void *mean, void *rstd, const void *a, const void *b,
                                const void *weight, const void *bias, int N, int C, double epsilon,
                                void *stream)
{
    REF(add)(sum, a, b, (int64_t)N * C, stream);
    REF(layernorm_forward)(out, mean, rstd, sum, weight, bias, N, C, epsilon, stream);
}

/* Column sums in double, one column at a time: the reference needs no work memory. */
static void weight_gradient(GRADIENT *dweight, GRADIENT *dbias, const VALUE *dout, const VALUE *in,
                            const STATISTIC *mean, const STATISTIC *rstd, int N, int C, int beta)
{
    for (int c = 0; c < C; c++) {
        double dw = 0, db = 0;
        for (int n = 0; n < N; n++) {
            double xhat = (LOAD(in[(size_t)n * C + c]) - LOAD(mean[n])) * LOAD(rstd[n]);
            dw += LOAD(dout[(size_t)n * C + c]) * xhat;
            db += LOAD(dout[(size_t)n * C + c]);
        }
        if (dweight)
            STORE(dweight[c], dw + (beta ? LOAD(dweight[c]) : 0.0));
        if (dbias)
            STORE(dbias[c], db + (beta ? LOAD(dbias[c]) : 0.0));
    }
}

void REF(layernorm_backward)(void *din_, void *dweight_, void *dbias_, const void *dout_, const void *in_,
                             const void *mean_, const void *rstd_, const void *weight_, int N, int C,
                             int beta_in, int beta, void *work, void *stream)
{
    VALUE *din = din_;
    const VALUE *dout = dout_, *in = in_;
    const STATISTIC *mean = mean_, *rstd = rstd_;
    const WEIGHT *weight = weight_;
    (void)work;
    (void)stream;
    for (int n = 0; din && n < N; n++) {
        const VALUE *x = in + (size_t)n * C, *dy = dout + (size_t)n * C;
        double g_sum = 0, g_xhat_sum = 0;
        for (int c = 0; c < C; c++) {
            double g = LOAD(dy[c]) * LOAD(weight[c]);
            g_sum += g;
            g_xhat_sum += g * (LOAD(x[c]) - LOAD(mean[n])) * LOAD(rstd[n]);
        }
        for (int c = 0; c < C; c++) {
            double xhat = (LOAD(x[c]) - LOAD(mean[n])) * LOAD(rstd[n]);
            double g = LOAD(dy[c]) * LOAD(weight[c]);
            double d = LOAD(rstd[n]) * (g - g_sum / C - xhat * g_xhat_sum / C);
            STORE(din[(size_t)n * C + c], d + (beta_in ? LOAD(din[(size_t)n * C + c]) : 0.0));
        }
    }
    weight_gradient(dweight_, dbias_, dout, in, mean, rstd, N, C, beta);
}

size_t REF(layernorm_backward_work)(int N, int C)
{
    (void)N;
    (void)C;
    return 0;
}
