/* elementwise.c - the reference of the one-line operations: the residual add, the sum of gradients,
 * scaling. */
#include "kernels/ref/real.h"

void REF(add)(void *out_, const void *a_, const void *b_, int64_t n, void *stream)
{
    VALUE *out = out_;
    const VALUE *a = a_, *b = b_;
    (void)stream;
    for (int64_t i = 0; i < n; i++)
        STORE(out[i], LOAD(a[i]) + LOAD(b[i]));
}

void REF(accumulate)(void *out_, const void *in_, int beta, int64_t n, void *stream)
{
    VALUE *out = out_;
    const VALUE *in = in_;
    (void)stream;
    for (int64_t i = 0; i < n; i++)
        STORE(out[i], beta ? LOAD(out[i]) + LOAD(in[i]) : LOAD(in[i]));
}

void REF(scale)(void *values_, double factor, int64_t n, void *stream)
{
    VALUE *values = values_;
    (void)stream;
    for (int64_t i = 0; i < n; i++)
        STORE(values[i], LOAD(values[i]) * factor);
}

void REF(slice_forward)(void *out_, const void *in_, int64_t rows, int row, int first, int width,
                        void *stream)
{
    VALUE *out = out_;
    const VALUE *in = in_;
    (void)stream;
    for (int64_t n = 0; n < rows; n++)
        for (int i = 0; i < width; i++)
            out[n * width + i] = in[n * row + first + i];
}

void REF(slice_backward)(void *din_, const void *dout_, int64_t rows, int row, int first, int width, int beta,
                         void *stream)
{
    VALUE *din = din_;
    const VALUE *dout = dout_;
    (void)stream;
    for (int64_t n = 0; n < rows; n++)
        for (int i = 0; i < row; i++) {
            double d = i >= first && i < first + width ? LOAD(dout[n * width + i - first]) : 0.0;
            STORE(din[n * row + i], beta ? LOAD(din[n * row + i]) + d : d);
        }
}
