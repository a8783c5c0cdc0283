/* gated.c - f(gate) up and its two gradients in one pass each, a loop an activation (formulas:
 * kernels/ref/activation.c). */
#include "kernels/cpu/activation.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/value.h"

#define GATED(X)                                                                                             \
    X(ACTIVATION_GELU_TANH, gelu_tanh)                                                                       \
    X(ACTIVATION_GELU_ERF, gelu_erf)                                                                         \
    X(ACTIVATION_RELU, relu)                                                                                 \
    X(ACTIVATION_TANH, tanh)                                                                                 \
    X(ACTIVATION_SIGMOID, sigmoid)

/* The betas are constants at every call. */
#define GATED_ARGUMENTS                                                                                      \
    VALUE *dgate, VALUE *dup, const VALUE *gate, const VALUE *up, const VALUE *dout, const int beta_gate,    \
        const int beta_up, int64_t n
#define GATED_INLINE static inline __attribute__((always_inline)) void

/* Outputs may be inputs, at the same index only, here and below. */
#define GATED_LOOPS(kind, name)                                                                              \
    static void gated_##name(VALUE *out, const VALUE *gate, const VALUE *up, int64_t n)                      \
    {                                                                                                        \
        CPU_PRAGMA(omp simd)                                                                                 \
        for (int64_t i = 0; i < n; i++)                                                                      \
            STORE(out[i], name##_value(LOAD(gate[i])) * LOAD(up[i]));                                        \
    }                                                                                                        \
    static void gated_##name##_backward(GATED_ARGUMENTS)                                                     \
    {                                                                                                        \
        CPU_PRAGMA(omp simd)                                                                                 \
        for (int64_t i = 0; i < n; i++) {                                                                    \
            float x = LOAD(gate[i]), dy = LOAD(dout[i]);                                                     \
            float dx = dy * LOAD(up[i]) * name##_slope(x), du = dy * name##_value(x);                        \
            STORE(dgate[i], beta_gate ? LOAD(dgate[i]) + dx : dx);                                           \
            STORE(dup[i], beta_up ? LOAD(dup[i]) + du : du);                                                 \
        }                                                                                                    \
    }
GATED(GATED_LOOPS)
#undef GATED_LOOPS

static void gated_silu(VALUE *out, const VALUE *gate, const VALUE *up, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        STORE(out[i], silu_value(LOAD(gate[i])) * LOAD(up[i]));
}

/* One exponential serves value and slope. */
GATED_INLINE gated_silu_backward(GATED_ARGUMENTS)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float x = LOAD(gate[i]), dy = LOAD(dout[i]), e = cpu_exp(-x), s = 1.0f / (1.0f + e);
        float dx = dy * LOAD(up[i]) * (s + x * (s * (e * s))), du = dy * (x * s);
        STORE(dgate[i], beta_gate ? LOAD(dgate[i]) + dx : dx);
        STORE(dup[i], beta_up ? LOAD(dup[i]) + du : du);
    }
}

static void gated_chunk(VALUE *out, const VALUE *gate, const VALUE *up, int kind, int64_t n)
{
    switch (kind) {
    case ACTIVATION_SILU:
        gated_silu(out, gate, up, n);
        break;
#define GATED_CASE(kind, name)                                                                               \
    case kind:                                                                                               \
        gated_##name(out, gate, up, n);                                                                      \
        break;
        GATED(GATED_CASE)
#undef GATED_CASE
    default:
        for (int64_t i = 0; i < n; i++)
            STORE(out[i], __builtin_nanf(""));
    }
}

GATED_INLINE gated_chunk_backward(GATED_ARGUMENTS, int kind)
{
    switch (kind) {
    case ACTIVATION_SILU:
        gated_silu_backward(dgate, dup, gate, up, dout, beta_gate, beta_up, n);
        break;
#define GATED_CASE(kind, name)                                                                               \
    case kind:                                                                                               \
        gated_##name##_backward(dgate, dup, gate, up, dout, beta_gate, beta_up, n);                          \
        break;
        GATED(GATED_CASE)
#undef GATED_CASE
    default:
        for (int64_t i = 0; i < n; i++)
            STORE(dgate[i], __builtin_nanf("")), STORE(dup[i], __builtin_nanf(""));
    }
}

void CPU(gated_forward)(void *out_, const void *gate_, const void *up_, int kind, int64_t n, void *stream)
{
    VALUE *out = out_;
    const VALUE *gate = gate_, *up = up_;
    (void)stream;
    CPU_PARALLEL_FOR(n >= CPU_PARALLEL_MIN)
    for (int64_t chunk = 0; chunk < cpu_chunks(n); chunk++) {
        int64_t at = chunk * CPU_CHUNK;
        gated_chunk(out + at, gate + at, up + at, kind, cpu_chunk_size(n, chunk));
    }
}

void CPU(gated_backward)(void *dgate_, void *dup_, const void *gate_, const void *up_, const void *dout_,
                         int kind, int beta_gate, int beta_up, int64_t n, void *stream)
{
    VALUE *dgate = dgate_, *dup = dup_;
    const VALUE *gate = gate_, *up = up_, *dout = dout_;
    (void)stream;
    CPU_PARALLEL_FOR(n >= CPU_PARALLEL_MIN)
    for (int64_t chunk = 0; chunk < cpu_chunks(n); chunk++) {
        int64_t at = chunk * CPU_CHUNK, size = cpu_chunk_size(n, chunk);
        if (beta_gate && beta_up)
            gated_chunk_backward(dgate + at, dup + at, gate + at, up + at, dout + at, 1, 1, size, kind);
        else if (beta_gate)
            gated_chunk_backward(dgate + at, dup + at, gate + at, up + at, dout + at, 1, 0, size, kind);
        else if (beta_up)
            gated_chunk_backward(dgate + at, dup + at, gate + at, up + at, dout + at, 0, 1, size, kind);
        else
            gated_chunk_backward(dgate + at, dup + at, gate + at, up + at, dout + at, 0, 0, size, kind);
    }
}
