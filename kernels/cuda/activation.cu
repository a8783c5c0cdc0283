/* activation.cu - the activations, one thread an element, one kernel a kind (activation.cuh). */
#include "kernels/cuda/activation.cuh"
#include "kernels/cuda/check.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/operations.h"

template <int kind> static __global__ void forward_kernel(float *out, const float *in, int64_t n)
{
    for (int64_t i = thread_first(); i < n; i += thread_stride())
        out[i] = activation_value<kind>(in[i]);
}

template <int kind>
static __global__ void backward_kernel(float *din, const float *in, const float *dout, int beta, int64_t n)
{
    for (int64_t i = thread_first(); i < n; i += thread_stride())
        din[i] = dout[i] * activation_slope<kind>(in[i]) + (beta ? din[i] : 0.0f);
}
extern "C" int cuda_activation_forward(void *out, const void *in, int kind, int64_t n, void *stream,
                                       struct muster_error *err)
{
    struct cuda_grid grid = cuda_grid_elements(n);
    CUDA_CHECK_SIZE("activation_forward", n, err);
    if (kind < 0 || kind >= ACTIVATION_KINDS)
        return activation_unknown("activation_forward", kind, err);
    if (n == 0)
        return 0;
    switch (kind) {
#define ACTIVATION_LAUNCH(name)                                                                              \
    case name:                                                                                               \
        CUDA_LAUNCH("activation_forward", err, forward_kernel<name>, grid.blocks, grid.threads, 0, stream,   \
                    (float *)out, (const float *)in, n);                                                     \
        break;
        ACTIVATIONS(ACTIVATION_LAUNCH)
#undef ACTIVATION_LAUNCH
    }
    return 0;
}

extern "C" int cuda_activation_backward(void *din, const void *in, const void *dout, int kind, int beta,
                                        int64_t n, void *stream, struct muster_error *err)
{
    struct cuda_grid grid = cuda_grid_elements(n);
    CUDA_CHECK_SIZE("activation_backward", n, err);
    if (kind < 0 || kind >= ACTIVATION_KINDS)
        return activation_unknown("activation_backward", kind, err);
    if (n == 0)
        return 0;
    switch (kind) {
#define ACTIVATION_LAUNCH(name)                                                                              \
    case name:                                                                                               \
        CUDA_LAUNCH("activation_backward", err, backward_kernel<name>, grid.blocks, grid.threads, 0, stream, \
                    (float *)din, (const float *)in, (const float *)dout, beta, n);                          \
        break;
        ACTIVATIONS(ACTIVATION_LAUNCH)
#undef ACTIVATION_LAUNCH
    }
    return 0;
}
