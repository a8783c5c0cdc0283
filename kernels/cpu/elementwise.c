/* elementwise.c - residual add and scaling: bound by memory, so they are plain loops in chunks. */
#include "kernels/cpu/cpu.h"

void CPU(add)(void *out_, const void *a_, const void *b_, int64_t n, void *stream)
{
    float *out = out_;
    const float *a = a_, *b = b_;
    (void)stream;
    CPU_PARALLEL_FOR(n >= CPU_PARALLEL_MIN)
    for (int64_t chunk = 0; chunk < cpu_chunks(n); chunk++) {
        int64_t end = chunk * CPU_CHUNK + cpu_chunk_size(n, chunk);
        /* out may be a or b, at the same index only. */
#pragma omp simd
        for (int64_t i = chunk * CPU_CHUNK; i < end; i++)
            out[i] = a[i] + b[i];
    }
}

void CPU(scale)(void *values_, double factor, int64_t n, void *stream)
{
    float *values = values_, by = (float)factor;
    (void)stream;
    CPU_PARALLEL_FOR(n >= CPU_PARALLEL_MIN)
    for (int64_t chunk = 0; chunk < cpu_chunks(n); chunk++) {
        int64_t end = chunk * CPU_CHUNK + cpu_chunk_size(n, chunk);
        for (int64_t i = chunk * CPU_CHUNK; i < end; i++)
            values[i] *= by;
    }
}
