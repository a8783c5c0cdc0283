/* gated.cu - f(gate) up and its two gradients, one thread an element (formulas: kernels/ref/activation.c). */
#include "kernels/cuda/activation.cuh"
#include "kernels/cuda/check.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/operations.h"

template <int kind>
static __global__ void gated_kernel(float *out, const float *gate, const float *up, int64_t n)
{
    for (int64_t i = thread_first(); i < n; i += thread_stride())
        out[i] = activation_value<kind>(gate[i]) * up[i];
}

/* dout is read before either gradient is written: dgate or dup may be its memory. */
template <int kind>
static __global__ void gated_gradient_kernel(float *dgate, float *dup, const float *gate, const float *up,
                                             const float *dout, int beta_gate, int beta_up, int64_t n)
{
    for (int64_t i = thread_first(); i < n; i += thread_stride()) {
        float dy = dout[i], dx = dy * up[i] * activation_slope<kind>(gate[i]);
        float du = dy * activation_value<kind>(gate[i]);
        dgate[i] = dx + (beta_gate ? dgate[i] : 0.0f);
        dup[i] = du + (beta_up ? dup[i] : 0.0f);
    }
}

extern "C" int cuda_gated_forward(void *out, const void *gate, const void *up, int kind, int64_t n,
                                  void *stream, struct muster_error *err)
{
    struct cuda_grid grid = cuda_grid_elements(n);
    CUDA_CHECK_SIZE("gated_forward", n, err);
    if (kind < 0 || kind >= ACTIVATION_KINDS)
        return activation_unknown("gated_forward", kind, err);
    if (n == 0)
        return 0;
    switch (kind) {
#define GATED_LAUNCH(name)                                                                                   \
    case name:                                                                                               \
        CUDA_LAUNCH("gated_forward", err, gated_kernel<name>, grid.blocks, grid.threads, 0, stream,          \
                    (float *)out, (const float *)gate, (const float *)up, n);                                \
        break;
        ACTIVATIONS(GATED_LAUNCH)
#undef GATED_LAUNCH
    }
    return 0;
}

extern "C" int cuda_gated_backward(void *dgate, void *dup, const void *gate, const void *up, const void *dout,
                                   int kind, int beta_gate, int beta_up, int64_t n, void *stream,
                                   struct muster_error *err)
{
    struct cuda_grid grid = cuda_grid_elements(n);
    CUDA_CHECK_SIZE("gated_backward", n, err);
    if (kind < 0 || kind >= ACTIVATION_KINDS)
        return activation_unknown("gated_backward", kind, err);
    if (n == 0)
        return 0;
    switch (kind) {
#define GATED_LAUNCH(name)                                                                                   \
    case name:                                                                                               \
        CUDA_LAUNCH("gated_backward", err, gated_gradient_kernel<name>, grid.blocks, grid.threads, 0,        \
                    stream, (float *)dgate, (float *)dup, (const float *)gate, (const float *)up,            \
                    (const float *)dout, beta_gate, beta_up, n);                                             \
        break;
        ACTIVATIONS(GATED_LAUNCH)
#undef GATED_LAUNCH
    }
    return 0;
}
