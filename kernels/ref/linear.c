/* linear.c - the reference of a dense layer: out = in weight^T + bias and its gradients (PyTorch's
 * nn.Linear).
 *
 * Gradients: with L the loss and dX = dL/dX, dL/din = dout weight, dL/dweight = dout^T in and dL/dbias =
 * 1^T dout. */
#include "kernels/ref/real.h"

void REF(linear_forward)(void *out_, const void *in_, const void *weight_, const void *bias_, int N, int C,
                         int OC, int row, void *stream)
{
    VALUE *out = out_;
    const VALUE *in = in_;
    const WEIGHT *weight = weight_, *bias = bias_;
    (void)stream;
    for (int n = 0; n < N; n++)
        for (int o = 0; o < OC; o++) {
            double sum = bias ? LOAD(bias[o]) : 0.0;
            for (int c = 0; c < C; c++)
                sum += LOAD(in[(size_t)n * C + c]) * LOAD(weight[(size_t)o * C + c]);
            STORE(out[(size_t)n * row + o], sum);
        }
}

void REF(linear_backward_input)(void *din_, const void *dout_, const void *weight_, int N, int C, int OC,
                                int row, int beta_in, void *stream)
{
    VALUE *din = din_;
    const VALUE *dout = dout_;
    const WEIGHT *weight = weight_;
    (void)stream;
    if (!din)
        return;
    for (int n = 0; n < N; n++)
        for (int c = 0; c < C; c++) {
            double sum = beta_in ? LOAD(din[(size_t)n * C + c]) : 0.0;
            for (int o = 0; o < OC; o++)
                sum += LOAD(dout[(size_t)n * row + o]) * LOAD(weight[(size_t)o * C + c]);
            STORE(din[(size_t)n * C + c], sum);
        }
}

void REF(linear_backward_weight)(void *dweight_, void *dbias_, const void *dout_, const void *in_, int N,
                                 int C, int OC, int row, int beta, void *stream)
{
    GRADIENT *dweight = dweight_, *dbias = dbias_;
    const VALUE *dout = dout_, *in = in_;
    (void)stream;
    for (int o = 0; o < OC; o++) {
        for (int c = 0; dweight && c < C; c++) {
            double sum = beta ? LOAD(dweight[(size_t)o * C + c]) : 0.0;
            for (int n = 0; n < N; n++)
                sum += LOAD(dout[(size_t)n * row + o]) * LOAD(in[(size_t)n * C + c]);
            STORE(dweight[(size_t)o * C + c], sum);
        }
        if (dbias) {
            double sum = beta ? LOAD(dbias[o]) : 0.0;
            for (int n = 0; n < N; n++)
                sum += LOAD(dout[(size_t)n * row + o]);
            STORE(dbias[o], sum);
        }
    }
}
