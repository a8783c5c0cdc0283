/* norm.c - the sum of squares: a fixed number of pieces, each summed in double over lanes, added in order. */
#include "kernels/cpu/cpu.h"

enum { NORM_PIECES = 64 };

void CPU(norm_squared)(double *out, const void *values_, int64_t n, int beta, void *stream)
{
    const float *values = values_;
    double partial[NORM_PIECES];
    (void)stream;
    CPU_PARALLEL_FOR(n >= CPU_PARALLEL_MIN)
    for (int piece = 0; piece < NORM_PIECES; piece++) {
        int64_t first = n / NORM_PIECES * piece;
        int64_t end = piece == NORM_PIECES - 1 ? n : n / NORM_PIECES * (piece + 1);
        double sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t i = first; i < end; i++)
            sum += (double)values[i] * (double)values[i];
        partial[piece] = sum;
    }
    double total = 0;
    for (int piece = 0; piece < NORM_PIECES; piece++)
        total += partial[piece];
    *out = total + (beta ? *out : 0.0);
}
