/* elementwise.c - the reference of the two one-line operations, the residual add and scaling. */
#include "kernels/ref/real.h"

void REF(add)(void *out_, const void *a_, const void *b_, int64_t n, void *stream)
{
    real *out = out_;
    const real *a = a_, *b = b_;
    (void)stream;
    for (int64_t i = 0; i < n; i++)
        out[i] = a[i] + b[i];
}

void REF(scale)(void *values_, double factor, int64_t n, void *stream)
{
    real *values = values_;
    (void)stream;
    for (int64_t i = 0; i < n; i++)
        values[i] = (real)((double)values[i] * factor);
}
