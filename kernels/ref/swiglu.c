/* swiglu.c - the reference of the gated unit of Llama's feed-forward layer (Shazeer 2020, arXiv 2002.05202):
 * out = silu(gate) up, silu(x) = x s(x) with the logistic function s.
 *
 * Backward: dgate = dout up s(gate) (1 + gate (1 - s(gate))), dup = dout silu(gate). */
#include "kernels/ref/real.h"

#include <math.h>

static double logistic(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

void REF(swiglu_forward)(void *out_, const void *gate_, const void *up_, int64_t n, void *stream)
{
    real *out = out_;
    const real *gate = gate_, *up = up_;
    (void)stream;
    for (int64_t i = 0; i < n; i++)
        out[i] = (real)((double)gate[i] * logistic((double)gate[i]) * (double)up[i]);
}

void REF(swiglu_backward)(void *dgate_, void *dup_, const void *gate_, const void *up_, const void *dout_,
                          int beta_gate, int beta_up, int64_t n, void *stream)
{
    real *dgate = dgate_, *dup = dup_;
    const real *gate = gate_, *up = up_, *dout = dout_;
    (void)stream;
    for (int64_t i = 0; i < n; i++) {
        double x = (double)gate[i], s = logistic(x), dy = (double)dout[i];
        double dx = dy * (double)up[i] * s * (1.0 + x * logistic(-x)), du = dy * x * s;
        dgate[i] = (real)(dx + (beta_gate ? (double)dgate[i] : 0.0));
        dup[i] = (real)(du + (beta_up ? (double)dup[i] : 0.0));
    }
}
