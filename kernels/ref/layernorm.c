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
    real *out = out_, *mean = mean_, *rstd = rstd_;
    const real *in = in_, *weight = weight_, *bias = bias_;
    (void)stream;
    for (int n = 0; n < N; n++) {
        const real *x = in + (size_t)n * C;
        double sum = 0, squares = 0;
        for (int c = 0; c < C; c++)
            sum += (double)x[c];
        double m = sum / C;
        for (int c = 0; c < C; c++)
            squares += ((double)x[c] - m) * ((double)x[c] - m);
        double r = 1.0 / sqrt(squares / C + epsilon);
        for (int c = 0; c < C; c++)
            out[(size_t)n * C + c] =
                (real)(((double)x[c] - m) * r * (double)weight[c] + (bias ? (double)bias[c] : 0.0));
        mean[n] = (real)m;
        rstd[n] = (real)r;
    }
}

/* Column sums in double, one column at a time: the reference needs no work memory. */
static void weight_gradient(real *dweight, real *dbias, const real *dout, const real *in, const real *mean,
                            const real *rstd, int N, int C, int beta)
{
    for (int c = 0; c < C; c++) {
        double dw = 0, db = 0;
        for (int n = 0; n < N; n++) {
            double xhat = ((double)in[(size_t)n * C + c] - (double)mean[n]) * (double)rstd[n];
            dw += (double)dout[(size_t)n * C + c] * xhat;
            db += (double)dout[(size_t)n * C + c];
        }
        if (dweight)
            dweight[c] = (real)(dw + (beta ? (double)dweight[c] : 0.0));
        if (dbias)
            dbias[c] = (real)(db + (beta ? (double)dbias[c] : 0.0));
    }
}

void REF(layernorm_backward)(void *din_, void *dweight_, void *dbias_, const void *dout_, const void *in_,
                             const void *mean_, const void *rstd_, const void *weight_, int N, int C,
                             int beta_in, int beta, void *work, void *stream)
{
    real *din = din_;
    const real *dout = dout_, *in = in_, *mean = mean_, *rstd = rstd_, *weight = weight_;
    (void)work;
    (void)stream;
    for (int n = 0; din && n < N; n++) {
        const real *x = in + (size_t)n * C, *dy = dout + (size_t)n * C;
        double g_sum = 0, g_xhat_sum = 0;
        for (int c = 0; c < C; c++) {
            double g = (double)dy[c] * (double)weight[c];
            g_sum += g;
            g_xhat_sum += g * ((double)x[c] - (double)mean[n]) * (double)rstd[n];
        }
        for (int c = 0; c < C; c++) {
            double xhat = ((double)x[c] - (double)mean[n]) * (double)rstd[n];
            double g = (double)dy[c] * (double)weight[c];
            double d = (double)rstd[n] * (g - g_sum / C - xhat * g_xhat_sum / C);
            din[(size_t)n * C + c] = (real)(d + (beta_in ? (double)din[(size_t)n * C + c] : 0.0));
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
