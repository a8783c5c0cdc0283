/* elementwise.c - the reference of the one-line operations: the residual add, the sum of gradients,
 * scaling. */
#include "kernels/ref/real.h"

void REF(add)(void *out_, const void *a_, const void *b_, int64_t n, void *stream)
{
    real *out = out_;
    const real *a = a_, *b = b_;
    (void)stream;
    for (int64_t i = 0; i < n; i++)
        out[i] = a[i] + b[i];
}

void REF(accumulate)(void *out_, const void *in_, int beta, int64_t n, void *stream)
{
    real *out = out_;
    const real *in = in_;
    (void)stream;
    for (int64_t i = 0; i < n; i++)
        out[i] = beta ? out[i] + in[i] : in[i];
}

void REF(scale)(void *values_, double factor, int64_t n, void *stream)
{
    real *values = values_;
    (void)stream;
    for (int64_t i = 0; i < n; i++)
        values[i] = (real)((double)values[i] * factor);
}

void REF(slice_forward)(void *out_, const void *in_, int64_t rows, int row, int first, int width,
                        void *stream)
{
    real *out = out_;
    const real *in = in_;
    (void)stream;
    for (int64_t n = 0; n < rows; n++)
        for (int i = 0; i < width; i++)
            out[n * width + i] = in[n * row + first + i];
}

void REF(slice_backward)(void *din_, const void *dout_, int64_t rows, int row, int first, int width, int beta,
                         void *stream)
{
    real *din = din_;
    const real *dout = dout_;
    (void)stream;
    for (int64_t n = 0; n < rows; n++)
        for (int i = 0; i < row; i++) {
            real d = i >= first && i < first + width ? dout[n * width + i - first] : (real)0;
            din[n * row + i] = beta ? din[n * row + i] + d : d;
        }
}
