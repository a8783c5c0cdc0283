/* activation.cu - the activations (activation.cuh), a thread 16 bytes of values. */
#include "kernels/cuda/activation.cuh"
#include "kernels/cuda/check.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/values.cuh"

template <typename V>
static __global__ void activation_kernel(V *out, const V *in, int kind, int64_t n, bool aligned)
{
    VALUES_EACH(V, first, n)
    {
        const int count = values_left<V>(n, first);
        float x[value_vector<V>::COUNT];
        values_load(x, in + first, count, aligned);
        activation_values<value_vector<V>::COUNT>(x, x, kind);
        values_store(out + first, x, count, aligned);
    }
}

/* din may be dout. */
template <typename V>
static __global__ void activation_gradient_kernel(V *din, const V *in, const V *dout, int kind, int beta,
                                                  int64_t n, bool aligned)
{
    VALUES_EACH(V, first, n)
    {
        const int count = values_left<V>(n, first);
        float x[value_vector<V>::COUNT], dy[value_vector<V>::COUNT], old[value_vector<V>::COUNT] = {};
        values_load(x, in + first, count, aligned);
        values_load(dy, dout + first, count, aligned);
        if (beta)
            values_load(old, din + first, count, aligned);
        activation_slopes<value_vector<V>::COUNT>(x, kind);
        CUDA_EACH (j, 0, value_vector<V>::COUNT)
            dy[j] = dy[j] * x[j] + old[j];
        values_store(din + first, dy, count, aligned);
    }
}

template <typename V>
static int activation_forward_of(void *out, const void *in, int kind, int64_t n, void *stream,
                                 struct muster_error *err)
{
    const struct cuda_grid grid = values_grid<V>(n);
    CUDA_CHECK_SIZE("activation_forward", n, err);
    if (kind < 0 || kind >= ACTIVATION_KINDS)
        return activation_unknown("activation_forward", kind, err);
    if (n == 0)
        return 0;
    CUDA_LAUNCH("activation_forward", err, activation_kernel<V>, grid.blocks, grid.threads, 0, stream,
                (V *)out, (const V *)in, kind, n, values_aligned(out, in));
    return 0;
}

template <typename V>
static int activation_backward_of(void *din, const void *in, const void *dout, int kind, int beta, int64_t n,
                                  void *stream, struct muster_error *err)
{
    const struct cuda_grid grid = values_grid<V>(n);
    CUDA_CHECK_SIZE("activation_backward", n, err);
    if (kind < 0 || kind >= ACTIVATION_KINDS)
        return activation_unknown("activation_backward", kind, err);
    if (n == 0)
        return 0;
    CUDA_LAUNCH("activation_backward", err, activation_gradient_kernel<V>, grid.blocks, grid.threads, 0,
                stream, (V *)din, (const V *)in, (const V *)dout, kind, beta, n,
                values_aligned(din, in, dout));
    return 0;
}

#define TYPED_activation_forward  ~,
#define TYPED_activation_backward ~,
#include "kernels/cuda/typed.inc"
#undef TYPED_activation_forward
#undef TYPED_activation_backward
