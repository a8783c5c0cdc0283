/* linear.c - the reference of a dense layer: out = in weight^T + bias and its gradients (PyTorch's
 * nn.Linear).
 *
 * Gradients: with L the loss and dX = dL/dX, dL/din = dout weight, dL/dweight = dout^T in and dL/dbias =
 * 1^T dout. */
#include "kernels/ref/real.h"

void REF(linear_forward)(void *out_, const void *in_, const void *weight_, const void *bias_, int N, int C,
                         int OC, int row, void *stream)
{
    real *out = out_;
    const real *in = in_, *weight = weight_, *bias = bias_;
    (void)stream;
    for (int n = 0; n < N; n++)
        for (int o = 0; o < OC; o++) {
            double sum = bias ? (double)bias[o] : 0.0;
            for (int c = 0; c < C; c++)
                sum += (double)in[(size_t)n * C + c] * (double)weight[(size_t)o * C + c];
            out[(size_t)n * row + o] = (real)sum;
        }
}

void REF(linear_backward_input)(void *din_, const void *dout_, const void *weight_, int N, int C, int OC,
                                int row, int beta_in, void *stream)
{
    real *din = din_;
    const real *dout = dout_, *weight = weight_;
    (void)stream;
    if (!din)
        return;
    for (int n = 0; n < N; n++)
        for (int c = 0; c < C; c++) {
            double sum = beta_in ? (double)din[(size_t)n * C + c] : 0.0;
            for (int o = 0; o < OC; o++)
                sum += (double)dout[(size_t)n * row + o] * (double)weight[(size_t)o * C + c];
            din[(size_t)n * C + c] = (real)sum;
        }
}

void REF(linear_backward_weight)(void *dweight_, void *dbias_, const void *dout_, const void *in_, int N,
                                 int C, int OC, int row, int beta, void *stream)
{
    real *dweight = dweight_, *dbias = dbias_;
    const real *dout = dout_, *in = in_;
    (void)stream;
    for (int o = 0; o < OC; o++) {
        for (int c = 0; dweight && c < C; c++) {
            double sum = beta ? (double)dweight[(size_t)o * C + c] : 0.0;
            for (int n = 0; n < N; n++)
                sum += (double)dout[(size_t)n * row + o] * (double)in[(size_t)n * C + c];
            dweight[(size_t)o * C + c] = (real)sum;
        }
        if (dbias) {
            double sum = beta ? (double)dbias[o] : 0.0;
            for (int n = 0; n < N; n++)
                sum += (double)dout[(size_t)n * row + o];
            dbias[o] = (real)sum;
        }
    }
}
