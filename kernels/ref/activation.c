/* activation.c - the reference of the activations, one pair of value and slope a kind.
 *
 * GELU in its tanh form (Hendrycks, Gimpel 2016, arXiv 1606.08415, section 2), with u = sqrt(2/pi) (x +
 * 0.044715 x^3): y = 0.5 x (1 + tanh u), y' = 0.5 (1 + tanh u) + 0.5 x (1 - tanh^2 u) u'. In its exact form,
 * with the normal distribution P and density p: y = x P(x), y' = P(x) + x p(x). SiLU (the same paper): y = x
 * s(x), y' = s(x) (1 + x (1 - s(x))), s the logistic function, 1 - s(x) = s(-x).
 *
 * Gated units (Shazeer 2020, arXiv 2002.05202), with an activation f: out = f(gate) up, dgate = dout up
 * f'(gate), dup = dout f(gate). */
#include "kernels/ref/real.h"

#include <math.h>

static const double sqrt_2_over_pi = 0.79788456080286535588;
static const double sqrt_half = 0.70710678118654752440;
static const double inverse_sqrt_2_pi = 0.39894228040143267794;

static double logistic(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

static double gelu_tanh(double x)
{
    return 0.5 * x * (1.0 + tanh(sqrt_2_over_pi * (x + 0.044715 * x * x * x)));
}

static double gelu_tanh_slope(double x)
{
    double tanh_u = tanh(sqrt_2_over_pi * (x + 0.044715 * x * x * x));
    double u_slope = sqrt_2_over_pi * (1.0 + 3.0 * 0.044715 * x * x);
    /* (1 - tanh)(1 + tanh) is 0 in double long before x u_slope overflows. */
    return 0.5 * (1.0 + tanh_u) + 0.5 * x * (1.0 - tanh_u * tanh_u) * u_slope;
}

static double value_of(int kind, double x)
{
    switch (kind) {
    case ACTIVATION_GELU_TANH:
        return gelu_tanh(x);
    case ACTIVATION_GELU_ERF:
        return 0.5 * x * erfc(-x * sqrt_half);
    case ACTIVATION_SILU:
        return x * logistic(x);
    case ACTIVATION_RELU:
        return x < 0 ? 0.0 : x; /* NaN stays */
    case ACTIVATION_TANH:
        return tanh(x);
    case ACTIVATION_SIGMOID:
        return logistic(x);
    default:
        return (double)NAN;
    }
}

static double slope_of(int kind, double x)
{
    switch (kind) {
    case ACTIVATION_GELU_TANH:
        return gelu_tanh_slope(x);
    case ACTIVATION_GELU_ERF:
        return 0.5 * erfc(-x * sqrt_half) + x * inverse_sqrt_2_pi * exp(-0.5 * x * x);
    case ACTIVATION_SILU:
        return logistic(x) * (1.0 + x * logistic(-x));
    case ACTIVATION_RELU:
        return x > 0 ? 1.0 : 0.0;
    case ACTIVATION_TANH:
        return 1.0 - tanh(x) * tanh(x);
    case ACTIVATION_SIGMOID:
        return logistic(x) * logistic(-x);
    default:
        return (double)NAN;
    }
}

void REF(activation_forward)(void *out_, const void *in_, int kind, int64_t n, void *stream)
{
    VALUE *out = out_;
    const VALUE *in = in_;
    (void)stream;
    for (int64_t i = 0; i < n; i++)
        STORE(out[i], value_of(kind, LOAD(in[i])));
}

void REF(activation_backward)(void *din_, const void *in_, const void *dout_, int kind, int beta, int64_t n,
                              void *stream)
{
    VALUE *din = din_;
    const VALUE *in = in_, *dout = dout_;
    (void)stream;
    for (int64_t i = 0; i < n; i++) {
        double d = LOAD(dout[i]) * slope_of(kind, LOAD(in[i]));
        STORE(din[i], d + (beta ? LOAD(din[i]) : 0.0));
    }
}

void REF(gated_forward)(void *out_, const void *gate_, const void *up_, int kind, int64_t n, void *stream)
{
    VALUE *out = out_;
    const VALUE *gate = gate_, *up = up_;
    (void)stream;
    for (int64_t i = 0; i < n; i++)
        STORE(out[i], value_of(kind, LOAD(gate[i])) * LOAD(up[i]));
}

void REF(gated_backward)(void *dgate_, void *dup_, const void *gate_, const void *up_, const void *dout_,
                         int kind, int beta_gate, int beta_up, int64_t n, void *stream)
{
    VALUE *dgate = dgate_, *dup = dup_;
    const VALUE *gate = gate_, *up = up_, *dout = dout_;
    (void)stream;
    for (int64_t i = 0; i < n; i++) {
        double x = LOAD(gate[i]), dy = LOAD(dout[i]);
        double dx = dy * LOAD(up[i]) * slope_of(kind, x), du = dy * value_of(kind, x);
        STORE(dgate[i], dx + (beta_gate ? LOAD(dgate[i]) : 0.0));
        STORE(dup[i], du + (beta_up ? LOAD(dup[i]) : 0.0));
    }
}
