/* gated.cu - f(gate) up and its two gradients, a thread 16 bytes of values (formulas:
 * kernels/ref/activation.c). */
#include "kernels/cuda/activation.cuh"
#include "kernels/cuda/check.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/values.cuh"

template <typename V>
static __global__ void gated_kernel(V *out, const V *gate, const V *up, int kind, int64_t n, bool aligned)
{
    VALUES_EACH(V, first, n)
    {
        const int count = values_left<V>(n, first);
        float x[value_vector<V>::COUNT], u[value_vector<V>::COUNT];
        values_load(x, gate + first, count, aligned);
        values_load(u, up + first, count, aligned);
        activation_values<value_vector<V>::COUNT>(x, x, kind);
        CUDA_EACH (j, 0, value_vector<V>::COUNT)
            x[j] *= u[j];
        values_store(out + first, x, count, aligned);
    }
}

/* dout is read before either gradient is written: dgate or dup may be its memory. */
template <typename V>
static __global__ void gated_gradient_kernel(V *dgate, V *dup, const V *gate, const V *up, const V *dout,
                                             int kind, int beta_gate, int beta_up, int64_t n, bool aligned)
{
    VALUES_EACH(V, first, n)
    {
        const int count = values_left<V>(n, first);
        float x[value_vector<V>::COUNT], u[value_vector<V>::COUNT], dy[value_vector<V>::COUNT];
        float value[value_vector<V>::COUNT], old[value_vector<V>::COUNT] = {};
        values_load(x, gate + first, count, aligned);
        values_load(u, up + first, count, aligned);
        values_load(dy, dout + first, count, aligned);
        activation_values<value_vector<V>::COUNT>(value, x, kind);
        activation_slopes<value_vector<V>::COUNT>(x, kind);
        if (beta_gate)
            values_load(old, dgate + first, count, aligned);
        CUDA_EACH (j, 0, value_vector<V>::COUNT) {
            u[j] = dy[j] * u[j] * x[j] + old[j];
            dy[j] *= value[j];
        }
        if (beta_up) {
            values_load(old, dup + first, count, aligned);
            CUDA_EACH (j, 0, value_vector<V>::COUNT)
                dy[j] += old[j];
        }
        values_store(dgate + first, u, count, aligned);
        values_store(dup + first, dy, count, aligned);
    }
}

template <typename V>
static int gated_forward_of(void *out, const void *gate, const void *up, int kind, int64_t n, void *stream,
                            struct muster_error *err)
{
    const struct cuda_grid grid = values_grid<V>(n);
    CUDA_CHECK_SIZE("gated_forward", n, err);
    if (kind < 0 || kind >= ACTIVATION_KINDS)
        return activation_unknown("gated_forward", kind, err);
    if (n == 0)
        return 0;
    CUDA_LAUNCH("gated_forward", err, gated_kernel<V>, grid.blocks, grid.threads, 0, stream, (V *)out,
                (const V *)gate, (const V *)up, kind, n, values_aligned(out, gate, up));
    return 0;
}

template <typename V>
static int gated_backward_of(void *dgate, void *dup, const void *gate, const void *up, const void *dout,
                             int kind, int beta_gate, int beta_up, int64_t n, void *stream,
                             struct muster_error *err)
{
    const struct cuda_grid grid = values_grid<V>(n);
    CUDA_CHECK_SIZE("gated_backward", n, err);
    if (kind < 0 || kind >= ACTIVATION_KINDS)
        return activation_unknown("gated_backward", kind, err);
    if (n == 0)
        return 0;
    CUDA_LAUNCH("gated_backward", err, gated_gradient_kernel<V>, grid.blocks, grid.threads, 0, stream,
                (V *)dgate, (V *)dup, (const V *)gate, (const V *)up, (const V *)dout, kind, beta_gate,
                beta_up, n, values_aligned(dgate, dup, gate, up, dout));
    return 0;
}

#define TYPED_gated_forward  ~,
#define TYPED_gated_backward ~,
#include "kernels/cuda/typed.inc"
#undef TYPED_gated_forward
#undef TYPED_gated_backward
