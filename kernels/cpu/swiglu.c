/* swiglu.c - silu(gate) up and its two gradients in one pass each (formulas: kernels/ref/swiglu.c). */
#include "kernels/cpu/activation.h"
#include "kernels/cpu/cpu.h"

void CPU(swiglu_forward)(void *out_, const void *gate_, const void *up_, int64_t n, void *stream)
{
    float *out = out_;
    const float *gate = gate_, *up = up_;
    (void)stream;
    CPU_PARALLEL_FOR(n >= CPU_PARALLEL_MIN)
    for (int64_t chunk = 0; chunk < cpu_chunks(n); chunk++) {
        int64_t end = chunk * CPU_CHUNK + cpu_chunk_size(n, chunk);
        /* Outputs may be inputs, at the same index only, here and below. */
#pragma omp simd
        for (int64_t i = chunk * CPU_CHUNK; i < end; i++)
            out[i] = silu_value(gate[i]) * up[i];
    }
}

/* The betas are constants at every call. */
static inline __attribute__((always_inline)) void backward_chunk(float *dgate, float *dup, const float *gate,
                                                                 const float *up, const float *dout,
                                                                 const int beta_gate, const int beta_up,
                                                                 int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float x = gate[i], dy = dout[i], e = cpu_exp(-x), s = 1.0f / (1.0f + e);
        float dx = dy * up[i] * (s + x * (s * (e * s))), du = dy * (x * s);
        dgate[i] = beta_gate ? dgate[i] + dx : dx;
        dup[i] = beta_up ? dup[i] + du : du;
    }
}

void CPU(swiglu_backward)(void *dgate_, void *dup_, const void *gate_, const void *up_, const void *dout_,
                          int beta_gate, int beta_up, int64_t n, void *stream)
{
    float *dgate = dgate_, *dup = dup_;
    const float *gate = gate_, *up = up_, *dout = dout_;
    (void)stream;
    CPU_PARALLEL_FOR(n >= CPU_PARALLEL_MIN)
    for (int64_t chunk = 0; chunk < cpu_chunks(n); chunk++) {
        int64_t at = chunk * CPU_CHUNK, size = cpu_chunk_size(n, chunk);
        if (beta_gate && beta_up)
            backward_chunk(dgate + at, dup + at, gate + at, up + at, dout + at, 1, 1, size);
        else if (beta_gate)
            backward_chunk(dgate + at, dup + at, gate + at, up + at, dout + at, 1, 0, size);
        else if (beta_up)
            backward_chunk(dgate + at, dup + at, gate + at, up + at, dout + at, 0, 1, size);
        else
            backward_chunk(dgate + at, dup + at, gate + at, up + at, dout + at, 0, 0, size);
    }
}
