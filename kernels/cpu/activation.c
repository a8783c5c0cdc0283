/* activation.c - the activations: one vectorised loop a kind and direction over chunks, activation.h. */
#include "kernels/cpu/activation.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/value.h"

/* Kind, and the start of its functions' names. */
#define ACTIVATIONS(X)                                                                                       \
    X(ACTIVATION_GELU_TANH, gelu_tanh)                                                                       \
    X(ACTIVATION_GELU_ERF, gelu_erf)                                                                         \
    X(ACTIVATION_SILU, silu)                                                                                 \
    X(ACTIVATION_RELU, relu)                                                                                 \
    X(ACTIVATION_TANH, tanh)                                                                                 \
    X(ACTIVATION_SIGMOID, sigmoid)

/* Outputs may be inputs, at the same index only: lanes are independent. */
#define ACTIVATION_LOOPS(kind, name)                                                                         \
    static void name##_forward(VALUE *y, const VALUE *x, int64_t n)                                          \
    {                                                                                                        \
        CPU_PRAGMA(omp simd)                                                                                 \
        for (int64_t i = 0; i < n; i++)                                                                      \
            STORE(y[i], name##_value(LOAD(x[i])));                                                           \
    }                                                                                                        \
    static void name##_backward(VALUE *dx, const VALUE *x, const VALUE *dy, int beta, int64_t n)             \
    {                                                                                                        \
        if (beta) {                                                                                          \
            CPU_PRAGMA(omp simd)                                                                             \
            for (int64_t i = 0; i < n; i++)                                                                  \
                STORE(dx[i], LOAD(dx[i]) + LOAD(dy[i]) * name##_slope(LOAD(x[i])));                          \
        } else {                                                                                             \
            CPU_PRAGMA(omp simd)                                                                             \
            for (int64_t i = 0; i < n; i++)                                                                  \
                STORE(dx[i], LOAD(dy[i]) * name##_slope(LOAD(x[i])));                                        \
        }                                                                                                    \
    }
ACTIVATIONS(ACTIVATION_LOOPS)
#undef ACTIVATION_LOOPS

static void forward_chunk(VALUE *y, const VALUE *x, int kind, int64_t n)
{
    switch (kind) {
#define ACTIVATION_CASE(kind, name)                                                                          \
    case kind:                                                                                               \
        name##_forward(y, x, n);                                                                             \
        break;
        ACTIVATIONS(ACTIVATION_CASE)
#undef ACTIVATION_CASE
    default:
        for (int64_t i = 0; i < n; i++)
            STORE(y[i], __builtin_nanf(""));
    }
}

static void backward_chunk(VALUE *dx, const VALUE *x, const VALUE *dy, int kind, int beta, int64_t n)
{
    switch (kind) {
#define ACTIVATION_CASE(kind, name)                                                                          \
    case kind:                                                                                               \
        name##_backward(dx, x, dy, beta, n);                                                                 \
        break;
        ACTIVATIONS(ACTIVATION_CASE)
#undef ACTIVATION_CASE
    default:
        for (int64_t i = 0; i < n; i++)
            STORE(dx[i], __builtin_nanf(""));
    }
}

void CPU(activation_forward)(void *out_, const void *in_, int kind, int64_t n, void *stream)
{
    VALUE *out = out_;
    const VALUE *in = in_;
    (void)stream;
    CPU_PARALLEL_FOR(n >= CPU_PARALLEL_MIN)
    for (int64_t chunk = 0; chunk < cpu_chunks(n); chunk++)
        forward_chunk(out + chunk * CPU_CHUNK, in + chunk * CPU_CHUNK, kind, cpu_chunk_size(n, chunk));
}

void CPU(activation_backward)(void *din_, const void *in_, const void *dout_, int kind, int beta, int64_t n,
                              void *stream)
{
    VALUE *din = din_;
    const VALUE *in = in_, *dout = dout_;
    (void)stream;
    CPU_PARALLEL_FOR(n >= CPU_PARALLEL_MIN)
    for (int64_t chunk = 0; chunk < cpu_chunks(n); chunk++) {
        int64_t at = chunk * CPU_CHUNK;
        backward_chunk(din + at, in + at, dout + at, kind, beta, cpu_chunk_size(n, chunk));
    }
}
