/* rms_norm.c - the reference of root mean square normalisation (Zhang, Sennrich 2019, arXiv 1910.07467) with
 * epsilon inside the root, as PyTorch's nn.RMSNorm and transformers' LlamaRMSNorm.
 *
 * Backward, with xhat = in rstd and g = dout * (weight + offset) (of one row, mean over C): din = rstd (g -
 * xhat mean(g xhat)); dweight = sum over rows of dout xhat. */
#include "kernels/ref/real.h"

#include <math.h>

void REF(rms_norm_forward)(void *out_, void *rstd_, const void *in_, const void *weight_, int N, int C,
                           double epsilon, double offset, void *stream)
{
    real *out = out_, *rstd = rstd_;
    const real *in = in_, *weight = weight_;
    (void)stream;
    for (int n = 0; n < N; n++) {
        const real *x = in + (size_t)n * C;
        double squares = 0;
        for (int c = 0; c < C; c++)
            squares += (double)x[c] * (double)x[c];
        double r = 1.0 / sqrt(squares / C + epsilon);
        for (int c = 0; c < C; c++)
            out[(size_t)n * C + c] = (real)((double)x[c] * r * ((double)weight[c] + offset));
        rstd[n] = (real)r;
    }
}

static void input_gradient(real *din, const real *dout, const real *in, double rstd, const real *weight,
                           double offset, int C, int beta)
{
    double g_xhat_sum = 0;
    for (int c = 0; c < C; c++)
        g_xhat_sum += (double)dout[c] * ((double)weight[c] + offset) * (double)in[c] * rstd;
    for (int c = 0; c < C; c++) {
        double g = (double)dout[c] * ((double)weight[c] + offset);
        double d = rstd * (g - (double)in[c] * rstd * g_xhat_sum / C);
        din[c] = (real)(d + (beta ? (double)din[c] : 0.0));
    }
}

void REF(rms_norm_backward)(void *din_, void *dweight_, const void *dout_, const void *in_, const void *rstd_,
                            const void *weight, double offset, int N, int C, int beta_in, int beta,
                            void *work, void *stream)
{
    real *din = din_, *dweight = dweight_;
    const real *dout = dout_, *in = in_, *rstd = rstd_;
    (void)work;
    (void)stream;
    for (int n = 0; din && n < N; n++) {
        size_t row = (size_t)n * C;
        input_gradient(din + row, dout + row, in + row, (double)rstd[n], weight, offset, C, beta_in);
    }
    for (int c = 0; dweight && c < C; c++) {
        double sum = beta ? (double)dweight[c] : 0.0;
        for (int n = 0; n < N; n++)
            sum += (double)dout[(size_t)n * C + c] * (double)in[(size_t)n * C + c] * (double)rstd[n];
        dweight[c] = (real)sum;
    }
}

size_t REF(rms_norm_backward_work)(int N, int C)
{
    (void)N;
    (void)C;
    return 0;
}
