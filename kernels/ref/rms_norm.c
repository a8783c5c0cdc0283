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
    VALUE *out = out_;
    STATISTIC *rstd = rstd_;
    const VALUE *in = in_;
    const WEIGHT *weight = weight_;
    (void)stream;
    for (int n = 0; n < N; n++) {
        const VALUE *x = in + (size_t)n * C;
        double squares = 0;
        for (int c = 0; c < C; c++)
            squares += LOAD(x[c]) * LOAD(x[c]);
        double r = 1.0 / sqrt(squares / C + epsilon);
        for (int c = 0; c < C; c++)
            STORE(out[(size_t)n * C + c], LOAD(x[c]) * r * (LOAD(weight[c]) + offset));
        STORE(rstd[n], r);
    }
}

void REF(add_rms_norm_forward)(void *out, void *sum, void *rstd, const void *a, const void *b,
                               const void *weight, int N, int C, double epsilon, double offset, void *stream)
{
    REF(add)(sum, a, b, (int64_t)N * C, stream);
    REF(rms_norm_forward)(out, rstd, sum, weight, N, C, epsilon, offset, stream);
}

static void input_gradient(VALUE *din, const VALUE *dout, const VALUE *in, double rstd, const WEIGHT *weight,
                           double offset, int C, int beta)
{
    double g_xhat_sum = 0;
    for (int c = 0; c < C; c++)
        g_xhat_sum += LOAD(dout[c]) * (LOAD(weight[c]) + offset) * LOAD(in[c]) * rstd;
    for (int c = 0; c < C; c++) {
        double g = LOAD(dout[c]) * (LOAD(weight[c]) + offset);
        double d = rstd * (g - LOAD(in[c]) * rstd * g_xhat_sum / C);
        STORE(din[c], d + (beta ? LOAD(din[c]) : 0.0));
    }
}

void REF(rms_norm_backward)(void *din_, void *dweight_, const void *dout_, const void *in_, const void *rstd_,
                            const void *weight, double offset, int N, int C, int beta_in, int beta,
                            void *work, void *stream)
{
    VALUE *din = din_;
    GRADIENT *dweight = dweight_;
    const VALUE *dout = dout_, *in = in_;
    const STATISTIC *rstd = rstd_;
    (void)work;
    (void)stream;
    for (int n = 0; din && n < N; n++) {
        size_t row = (size_t)n * C;
        input_gradient(din + row, dout + row, in + row, LOAD(rstd[n]), weight, offset, C, beta_in);
    }
    for (int c = 0; dweight && c < C; c++) {
        double sum = beta ? LOAD(dweight[c]) : 0.0;
        for (int n = 0; n < N; n++)
            sum += LOAD(dout[(size_t)n * C + c]) * LOAD(in[(size_t)n * C + c]) * LOAD(rstd[n]);
        STORE(dweight[c], sum);
    }
}

size_t REF(rms_norm_backward_work)(int N, int C)
{
    (void)N;
    (void)C;
    return 0;
}
