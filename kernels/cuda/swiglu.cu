/* swiglu.cu - silu(gate) up and its two gradients, one thread an element (formulas: kernels/ref/swiglu.c). */
#include "kernels/cuda/activation.cuh"
#include "kernels/cuda/check.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/operations.h"

static __global__ void forward_kernel(float *out, const float *gate, const float *up, int64_t n)
{
    for (int64_t i = thread_first(); i < n; i += thread_stride())
        out[i] = activation_value<ACTIVATION_SILU>(gate[i]) * up[i];
}

/* dout is read before either gradient is written: dgate or dup may be its memory. */
static __global__ void backward_kernel(float *dgate, float *dup, const float *gate, const float *up,
                                       const float *dout, int beta_gate, int beta_up, int64_t n)
{
    for (int64_t i = thread_first(); i < n; i += thread_stride()) {
        float dy = dout[i], dx = dy * up[i] * activation_slope<ACTIVATION_SILU>(gate[i]);
        float du = dy * activation_value<ACTIVATION_SILU>(gate[i]);
        dgate[i] = dx + (beta_gate ? dgate[i] : 0.0f);
        dup[i] = du + (beta_up ? dup[i] : 0.0f);
    }
}

extern "C" int cuda_swiglu_forward(void *out, const void *gate, const void *up, int64_t n, void *stream,
                                   struct muster_error *err)
{
    struct cuda_grid grid = cuda_grid_elements(n);
    CUDA_CHECK_SIZE("swiglu_forward", n, err);
    if (n == 0)
        return 0;
    CUDA_LAUNCH("swiglu_forward", err, forward_kernel, grid.blocks, grid.threads, 0, stream, (float *)out,
                (const float *)gate, (const float *)up, n);
    return 0;
}

extern "C" int cuda_swiglu_backward(void *dgate, void *dup, const void *gate, const void *up,
                                    const void *dout, int beta_gate, int beta_up, int64_t n, void *stream,
                                    struct muster_error *err)
{
    struct cuda_grid grid = cuda_grid_elements(n);
    CUDA_CHECK_SIZE("swiglu_backward", n, err);
    if (n == 0)
        return 0;
    CUDA_LAUNCH("swiglu_backward", err, backward_kernel, grid.blocks, grid.threads, 0, stream, (float *)dgate,
                (float *)dup, (const float *)gate, (const float *)up, (const float *)dout, beta_gate, beta_up,
                n);
    return 0;
}
