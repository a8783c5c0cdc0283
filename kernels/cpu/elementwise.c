/* elementwise.c - residual add, sum of gradients, scaling: bound by memory, so they are plain loops in
 * chunks. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/value.h"

#include <string.h>

void CPU(add)(void *out_, const void *a_, const void *b_, int64_t n, void *stream)
{
    VALUE *out = out_;
    const VALUE *a = a_, *b = b_;
    (void)stream;
    CPU_PARALLEL_FOR(n >= CPU_PARALLEL_MIN)
    for (int64_t chunk = 0; chunk < cpu_chunks(n); chunk++) {
        int64_t end = chunk * CPU_CHUNK + cpu_chunk_size(n, chunk);
        /* out may be a or b, at the same index only. */
#pragma omp simd
        for (int64_t i = chunk * CPU_CHUNK; i < end; i++)
            STORE(out[i], LOAD(a[i]) + LOAD(b[i]));
    }
}

void CPU(accumulate)(void *out_, const void *in_, int beta, int64_t n, void *stream)
{
    VALUE *restrict out = out_;
    const VALUE *restrict in = in_;
    (void)stream;
    CPU_PARALLEL_FOR(n >= CPU_PARALLEL_MIN)
    for (int64_t chunk = 0; chunk < cpu_chunks(n); chunk++) {
        int64_t first = chunk * CPU_CHUNK, end = first + cpu_chunk_size(n, chunk);
        if (!beta)
            memcpy(out + first, in + first, (size_t)(end - first) * sizeof *out);
        else
            for (int64_t i = first; i < end; i++)
                STORE(out[i], LOAD(out[i]) + LOAD(in[i]));
    }
}

void CPU(scale)(void *values_, double factor, int64_t n, void *stream)
{
    VALUE *values = values_;
    const float by = (float)factor;
    (void)stream;
    CPU_PARALLEL_FOR(n >= CPU_PARALLEL_MIN)
    for (int64_t chunk = 0; chunk < cpu_chunks(n); chunk++) {
        int64_t end = chunk * CPU_CHUNK + cpu_chunk_size(n, chunk);
        for (int64_t i = chunk * CPU_CHUNK; i < end; i++)
            STORE(values[i], LOAD(values[i]) * by);
    }
}

void CPU(slice_forward)(void *out_, const void *in_, int64_t rows, int row, int first, int width,
                        void *stream)
{
    VALUE *out = out_;
    const VALUE *in = in_;
    (void)stream;
    CPU_PARALLEL_FOR(rows * width >= CPU_PARALLEL_MIN)
    for (int64_t n = 0; n < rows; n++)
        memcpy(out + n * width, in + n * row + first, (size_t)width * sizeof *out);
}

void CPU(slice_backward)(void *din_, const void *dout_, int64_t rows, int row, int first, int width, int beta,
                         void *stream)
{
    VALUE *din = din_;
    const VALUE *dout = dout_;
    (void)stream;
    CPU_PARALLEL_FOR(rows * row >= CPU_PARALLEL_MIN)
    for (int64_t n = 0; n < rows; n++) {
        VALUE *restrict to = din + n * row;
        const VALUE *restrict from = dout + n * width;
        if (!beta) {
            memset(to, 0, (size_t)row * sizeof *to);
            memcpy(to + first, from, (size_t)width * sizeof *to);
        } else {
            for (int i = 0; i < width; i++)
                STORE(to[first + i], LOAD(to[first + i]) + LOAD(from[i]));
        }
    }
}
