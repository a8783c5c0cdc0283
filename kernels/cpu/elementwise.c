/* elementwise.c - residual add, sum of gradients, scaling: bound by memory, so they are plain loops in
 * chunks. */
#include "kernels/cpu/cpu.h"

#include <string.h>

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

void CPU(accumulate)(void *out_, const void *in_, int beta, int64_t n, void *stream)
{
    float *restrict out = out_;
    const float *restrict in = in_;
    (void)stream;
    CPU_PARALLEL_FOR(n >= CPU_PARALLEL_MIN)
    for (int64_t chunk = 0; chunk < cpu_chunks(n); chunk++) {
        int64_t first = chunk * CPU_CHUNK, end = first + cpu_chunk_size(n, chunk);
        if (!beta)
            memcpy(out + first, in + first, (size_t)(end - first) * sizeof(float));
        else
            for (int64_t i = first; i < end; i++)
                out[i] += in[i];
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
