/* gelu.c - the reference of GELU in its tanh form (Hendrycks, Gimpel 2016, arXiv 1606.08415, section 2),
 * which is what GPT-2 uses.
 *
 * y = 0.5 x (1 + tanh u), u = sqrt(2/pi) (x + 0.044715 x^3);
 * y' = 0.5 (1 + tanh u) + 0.5 x (1 - tanh^2 u) sqrt(2/pi) (1 + 3*0.044715 x^2). */
#include "kernels/ref/real.h"

#include <math.h>

static const double sqrt_2_over_pi = 0.79788456080286535588;

void REF(gelu_forward)(void *out_, const void *in_, int64_t n, void *stream)
{
    real *out = out_;
    const real *in = in_;
    (void)stream;
    for (int64_t i = 0; i < n; i++) {
        double x = (double)in[i];
        out[i] = (real)(0.5 * x * (1.0 + tanh(sqrt_2_over_pi * (x + 0.044715 * x * x * x))));
    }
}

void REF(gelu_backward)(void *din_, const void *in_, const void *dout_, int64_t n, void *stream)
{
    real *din = din_;
    const real *in = in_, *dout = dout_;
    (void)stream;
    for (int64_t i = 0; i < n; i++) {
        double x = (double)in[i];
        double tanh_u = tanh(sqrt_2_over_pi * (x + 0.044715 * x * x * x));
        double u_slope = sqrt_2_over_pi * (1.0 + 3.0 * 0.044715 * x * x);
        /* (1 - tanh)(1 + tanh) is 0 in double long before x u_slope overflows. */
        double slope = 0.5 * (1.0 + tanh_u) + 0.5 * x * (1.0 - tanh_u * tanh_u) * u_slope;
        din[i] = (real)((double)dout[i] * slope);
    }
}
