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

void CPU(slice_forward)(void *out_, const void *in_, int64_t rows, int row, int first, int width,
                        void *stream)
{
    float *out = out_;
    const float *in = in_;
    (void)stream;
    CPU_PARALLEL_FOR(rows * width >= CPU_PARALLEL_MIN)
    for (int64_t n = 0; n < rows; n++)
        memcpy(out + n * width, in + n * row + first, (size_t)width * sizeof *out);
}

void CPU(slice_backward)(void *din_, const void *dout_, int64_t rows, int row, int first, int width, int beta,
                         void *stream)
{
    float *din = din_;
    const float *dout = dout_;
    (void)stream;
    CPU_PARALLEL_FOR(rows * row >= CPU_PARALLEL_MIN)
    for (int64_t n = 0; n < rows; n++) {
        float *restrict to = din + n * row;
        const float *restrict from = dout + n * width;
        if (!beta) {
            memset(to, 0, (size_t)row * sizeof *to);
            memcpy(to + first, from, (size_t)width * sizeof *to);
        } else {
            for (int i = 0; i < width; i++)
                to[first + i] += from[i];
        }
    }
}
