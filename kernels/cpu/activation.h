/* activation.h - the activations and their slopes for one float, without branches and without calls, so that
 * loops over them are vectorised (formulas: kernels/ref/activation.c).
 *
 * All are written with e = exp(-...) at most once. 0.5 (1 + tanh u) is 1 / (1 + exp(-2u)) = s(2u), accurate
 * relatively also where tanh has gone to -1, and 1 - s = e s. An exponential that vanishes is 1e-38 here
 * (exp.h), so what multiplies it in a slope must stay finite: x does, its square is held in bounds. NaN goes
 * through every comparison. */
#ifndef MUSTER_KERNELS_CPU_ACTIVATION_H
#define MUSTER_KERNELS_CPU_ACTIVATION_H

#include "kernels/cpu/exp.h"

#define ACTIVATION_INLINE static inline __attribute__((always_inline)) float

#define TWO_SQRT_2_OVER_PI 1.5957691216f

ACTIVATION_INLINE gelu_tanh_value(float x)
{
    float e = cpu_exp(-TWO_SQRT_2_OVER_PI * (x + 0.044715f * x * x * x));
    return x / (1.0f + e);
}

ACTIVATION_INLINE gelu_tanh_slope(float x)
{
    float square = x * x;
    square = square > 100.0f ? 100.0f : square;
    float e = cpu_exp(-TWO_SQRT_2_OVER_PI * (x + 0.044715f * x * square));
    float s = 1.0f / (1.0f + e);
    float slope = TWO_SQRT_2_OVER_PI * (1.0f + 3.0f * 0.044715f * square);
    return s + x * slope * (s * (e * s));
}

/* P(-|x|) of the normal distribution, given e = exp(-x^2/2): e t q(t) with t = 1 / (1 + 0.3 |x|/sqrt(2)), q
 * fitted for the least relative error (2e-8, a third of float's roundoff) on 0 <= |x| <= 13.3. */
ACTIVATION_INLINE normal_tail(float x, float e)
{
    float size = x < 0 ? -x : x;
    float t = 1.0f / (1.0f + 0.212132034f * size);
    float q = -0.0647034149f;
    q = q * t + 0.242476526f;
    q = q * t - 0.255451421f;
    q = q * t + 0.272993305f;
    q = q * t - 0.0466581805f;
    q = q * t + 0.107142329f;
    q = q * t + 0.0742634463f;
    q = q * t + 0.0853423424f;
    q = q * t + 0.0845950587f;
    return e * (t * q);
}

ACTIVATION_INLINE gelu_erf_value(float x)
{
    float tail = normal_tail(x, cpu_exp(-0.5f * x * x));
    return x * (x < 0 ? tail : 1.0f - tail);
}

ACTIVATION_INLINE gelu_erf_slope(float x)
{
    float e = cpu_exp(-0.5f * x * x), tail = normal_tail(x, e);
    return (x < 0 ? tail : 1.0f - tail) + x * (0.398942280f * e);
}

ACTIVATION_INLINE silu_value(float x)
{
    return x / (1.0f + cpu_exp(-x));
}

ACTIVATION_INLINE silu_slope(float x)
{
    float e = cpu_exp(-x), s = 1.0f / (1.0f + e);
    return s + x * (s * (e * s));
}

ACTIVATION_INLINE relu_value(float x)
{
    return x < 0 ? 0.0f : x;
}

ACTIVATION_INLINE relu_slope(float x)
{
    return x > 0 ? 1.0f : 0.0f;
}

/* Near 0, where 1 - e cancels, an odd polynomial (Cephes' tanhf). */
ACTIVATION_INLINE tanh_value(float x)
{
    float size = x < 0 ? -x : x, square = x * x;
    float e = cpu_exp(-2.0f * size), far = (1.0f - e) / (1.0f + e);
    float p = -5.70498872745e-3f;
    p = p * square + 2.06390887954e-2f;
    p = p * square - 5.37397155531e-2f;
    p = p * square + 1.33314422036e-1f;
    p = p * square - 3.33332819422e-1f;
    float near = x + x * (square * p), signed_far = x < 0 ? -far : far;
    return size < 0.625f ? near : signed_far;
}

ACTIVATION_INLINE tanh_slope(float x)
{
    float size = x < 0 ? -x : x, e = cpu_exp(-2.0f * size), r = 1.0f / (1.0f + e);
    return 4.0f * (e * r) * r;
}

ACTIVATION_INLINE sigmoid_value(float x)
{
    return 1.0f / (1.0f + cpu_exp(-x));
}

ACTIVATION_INLINE sigmoid_slope(float x)
{
    float size = x < 0 ? -x : x, e = cpu_exp(-size), s = 1.0f / (1.0f + e);
    return s * (e * s);
}

#endif
