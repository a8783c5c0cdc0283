/* gelu.cu - GELU in its tanh form, one thread an element (formulas: kernels/ref/gelu.c).
 *
 * 0.5 (1 + tanh u) is 1 / (1 + exp(-2u)) =: s, which has no cancellation where tanh is near -1. So y = x s
 * and y' = s + x s (1 - s) 2u', with 1 - s = exp(-2u) s. The exponential's argument is held at 80 and x in
 * 2u' within 10 of 0, so that infinity times 0 does not come about: beyond, that part of y' is less than
 * 1e-31. NaN goes through: the comparison keeps it in the exponential. */
#include "kernels/cuda/check.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/operations.h"

#define SQRT_2_OVER_PI 0.79788456080286535588f

static __device__ inline float exp_minus_2u(float x)
{
    float argument = -2.0f * SQRT_2_OVER_PI * (x + 0.044715f * x * x * x);
    return expf(argument > 80.0f ? 80.0f : argument);
}

static __global__ void gelu_forward_kernel(float *out, const float *in, int64_t n)
{
    for (int64_t i = thread_first(); i < n; i += thread_stride())
        out[i] = in[i] / (1.0f + exp_minus_2u(in[i]));
}

static __global__ void gelu_backward_kernel(float *din, const float *in, const float *dout, int64_t n)
{
    for (int64_t i = thread_first(); i < n; i += thread_stride()) {
        float x = in[i], e = exp_minus_2u(x), s = 1.0f / (1.0f + e);
        float near = fminf(fmaxf(x, -10.0f), 10.0f);
        float slope_2u = 2.0f * SQRT_2_OVER_PI * (1.0f + 3.0f * 0.044715f * near * near);
        din[i] = dout[i] * (s + near * s * (e * s) * slope_2u);
    }
}

extern "C" int cuda_gelu_forward(void *out, const void *in, int64_t n, void *stream, struct muster_error *err)
{
    struct cuda_grid grid = cuda_grid_elements(n);
    CUDA_CHECK_SIZE("gelu_forward", n, err);
    if (n == 0)
        return 0;
    gelu_forward_kernel<<<grid.blocks, grid.threads, 0, (cudaStream_t)stream>>>((float *)out,
                                                                                (const float *)in, n);
    CUDA_CHECK_LAUNCH("gelu_forward", err);
    return 0;
}

extern "C" int cuda_gelu_backward(void *din, const void *in, const void *dout, int64_t n, void *stream,
                                  struct muster_error *err)
{
    struct cuda_grid grid = cuda_grid_elements(n);
    CUDA_CHECK_SIZE("gelu_backward", n, err);
    if (n == 0)
        return 0;
    gelu_backward_kernel<<<grid.blocks, grid.threads, 0, (cudaStream_t)stream>>>(
        (float *)din, (const float *)in, (const float *)dout, n);
    CUDA_CHECK_LAUNCH("gelu_backward", err);
    return 0;
}
