/* activation.cuh - the activations and their slopes for one element (formulas: kernels/ref/activation.c).
 *
 * 0.5 (1 + tanh u) is 1 / (1 + exp(-2u)) =: s, which has no cancellation where tanh is near -1, and 1 - s is
 * exp(-2u) s. An exponential's argument is held at 80 and what multiplies a vanishing exponential in a slope
 * within bounds, so that infinity times 0 does not come about: beyond, that part is less than 1e-31. NaN goes
 * through: the comparisons keep it. */
#ifndef MUSTER_KERNELS_CUDA_ACTIVATION_CUH
#define MUSTER_KERNELS_CUDA_ACTIVATION_CUH

#include "kernels/cuda/check.h"
#include "kernels/cuda/device.cuh"
#include "kernels/kernels.h"

#define ACTIVATIONS(X)                                                                                       \
    X(ACTIVATION_GELU_TANH)                                                                                  \
    X(ACTIVATION_GELU_ERF)                                                                                   \
    X(ACTIVATION_SILU)                                                                                       \
    X(ACTIVATION_RELU)                                                                                       \
    X(ACTIVATION_TANH)                                                                                       \
    X(ACTIVATION_SIGMOID)

static __device__ inline float activation_within(float x, float limit)
{
    float above = x < -limit ? -limit : x;
    return above > limit ? limit : above;
}

/* 1 / s - 1 = exp(-x) */
static __device__ inline float exp_minus(float x)
{
    return expf(-x > 80.0f ? 80.0f : -x);
}

static __device__ inline float gelu_argument(float x, float square)
{
    return 2.0f * 0.79788456080286535588f * (x + 0.044715f * x * square);
}

template <int kind> static __device__ inline float activation_value(float x)
{
    switch (kind) {
    case ACTIVATION_GELU_TANH:
        return x / (1.0f + exp_minus(gelu_argument(x, x * x)));
    case ACTIVATION_GELU_ERF:
        return 0.5f * x * erfcf(-0.70710678f * x);
    case ACTIVATION_SILU:
        return x / (1.0f + exp_minus(x));
    case ACTIVATION_RELU:
        return x < 0 ? 0.0f : x;
    case ACTIVATION_TANH:
        return tanhf(x);
    default:
        return 1.0f / (1.0f + exp_minus(x));
    }
}

template <int kind> static __device__ inline float activation_slope(float x)
{
    float near = activation_within(x, kind == ACTIVATION_SILU ? 80.0f : 10.0f);
    float e = exp_minus(kind == ACTIVATION_GELU_TANH ? gelu_argument(near, near * near) : near);
    float s = 1.0f / (1.0f + e);
    switch (kind) {
    case ACTIVATION_GELU_TANH:
        return s + near * s * (e * s) * 1.5957691216f * (1.0f + 3.0f * 0.044715f * near * near);
    case ACTIVATION_GELU_ERF:
        near = activation_within(x, 13.0f);
        return 0.5f * erfcf(-0.70710678f * near) + near * 0.398942280f * expf(-0.5f * near * near);
    case ACTIVATION_SILU:
        return s + near * s * (e * s);
    case ACTIVATION_RELU:
        return x > 0 ? 1.0f : 0.0f;
    case ACTIVATION_TANH:
        near = x < 0 ? -x : x;
        e = exp_minus(2.0f * near), s = 1.0f / (1.0f + e);
        return 4.0f * (e * s) * s;
    default:
        near = x < 0 ? -x : x;
        e = exp_minus(near), s = 1.0f / (1.0f + e);
        return s * (e * s);
    }
}

/* out[i] = f(x[i]), out may be x; and x[i] becomes f'(x[i]). `kind` is the same for a whole grid. */
template <int COUNT> static __device__ inline void activation_values(float *out, const float *x, int kind)
{
    switch (kind) {
#define ACTIVATION_VALUES(name)                                                                              \
    case name:                                                                                               \
        CUDA_EACH (i, 0, COUNT)                                                                              \
            out[i] = activation_value<name>(x[i]);                                                           \
        break;
        ACTIVATIONS(ACTIVATION_VALUES)
#undef ACTIVATION_VALUES
    }
}
template <int COUNT> static __device__ inline void activation_slopes(float *x, int kind)
{
    switch (kind) {
#define ACTIVATION_SLOPES(name)                                                                              \
    case name:                                                                                               \
        CUDA_EACH (i, 0, COUNT)                                                                              \
            x[i] = activation_slope<name>(x[i]);                                                             \
        break;
        ACTIVATIONS(ACTIVATION_SLOPES)
#undef ACTIVATION_SLOPES
    }
}

static inline int activation_unknown(const char *operation, int kind, struct muster_error *err)
{
    return error_set(err, MUSTER_E_INVALID, "%s: kind is %d; it must be 0 to %d", operation, kind,
                     ACTIVATION_KINDS - 1);
}

#endif
