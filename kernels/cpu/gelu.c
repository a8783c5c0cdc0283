/* gelu.c - GELU in its tanh form, written with the logistic function: 0.5 (1 + tanh u) = 1 / (1 + exp(-2u)) =
 * s. So y = x s, accurate relatively also where tanh has gone to -1, and y' = s + x s (1 - s) 2u' with 1 - s
 * = exp(-2u) s. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/exp.h"

#define TWO_SQRT_2_OVER_PI 1.5957691216f

void CPU(gelu_forward)(void *out_, const void *in_, int64_t n, void *stream)
{
    float *out = out_;
    const float *in = in_;
    (void)stream;
    CPU_PARALLEL_FOR(n >= CPU_PARALLEL_MIN)
    for (int64_t chunk = 0; chunk < cpu_chunks(n); chunk++) {
        const float *restrict x = in + chunk * CPU_CHUNK;
        float *restrict y = out + chunk * CPU_CHUNK;
        int64_t size = cpu_chunk_size(n, chunk);
        for (int64_t i = 0; i < size; i++) {
            float e = cpu_exp(-TWO_SQRT_2_OVER_PI * (x[i] + 0.044715f * x[i] * x[i] * x[i]));
            y[i] = x[i] / (1.0f + e);
        }
    }
}

void CPU(gelu_backward)(void *din_, const void *in_, const void *dout_, int64_t n, void *stream)
{
    float *din = din_;
    const float *in = in_, *dout = dout_;
    (void)stream;
    CPU_PARALLEL_FOR(n >= CPU_PARALLEL_MIN)
    for (int64_t chunk = 0; chunk < cpu_chunks(n); chunk++) {
        const float *x = in + chunk * CPU_CHUNK, *dy = dout + chunk * CPU_CHUNK;
        float *dx = din + chunk * CPU_CHUNK;
        int64_t size = cpu_chunk_size(n, chunk);
        /* din may be dout, at the same index only: lanes are independent. */
#pragma omp simd
        for (int64_t i = 0; i < size; i++) {
            float square = x[i] * x[i];
            float e = cpu_exp(-TWO_SQRT_2_OVER_PI * (x[i] + 0.044715f * x[i] * square));
            float s = 1.0f / (1.0f + e);
            float slope = TWO_SQRT_2_OVER_PI * (1.0f + 3.0f * 0.044715f * square);
            dx[i] = dy[i] * (s + x[i] * slope * (s * (e * s)));
        }
    }
}
