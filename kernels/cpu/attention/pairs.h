/* pairs.h - tile.h of bf16 factors, with sums of float: c (M,N) = or += a (M,K) b (K,N) by the
 * processor's products of pairs (AVX512-BF16).
 *
 * An element here is a pair: two neighbours along K in one word, the first in the lower half. b has a row of
 * N words for each pair; `interleave` makes it of two rows. a is any matrix of pairs: bf16 in row-major order
 * is one, and so is what interleave makes of rows that are its columns. M is a multiple of 8, N of 16:
 * callers fill up with zeros. */
#ifndef MUSTER_KERNELS_CPU_ATTENTION_PAIRS_H
#define MUSTER_KERNELS_CPU_ATTENTION_PAIRS_H

#ifdef __AVX512BF16__

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

typedef uint32_t __attribute__((may_alias)) pair;

struct pairs {
    const pair *at;
    size_t row, column; /* distance of the next row and of the next pair along K, in words */
};

enum { NARROW_ROWS = 8, NARROW_LANES = 16 };

/* vectors and accumulate are constants at every call. */
static inline __attribute__((always_inline)) void narrow_block(float *c, size_t ldc, struct pairs a,
                                                               const pair *b, size_t ldb, int count,
                                                               const int vectors, const int accumulate)
{
    __m512 sum[NARROW_ROWS][2];
#pragma GCC unroll 8
    for (int i = 0; i < NARROW_ROWS; i++)
#pragma GCC unroll 2
        for (int j = 0; j < vectors; j++)
            sum[i][j] =
                accumulate ? _mm512_loadu_ps(c + (size_t)i * ldc + j * NARROW_LANES) : _mm512_setzero_ps();
    for (int k = 0; k < count; k++) {
        __m512i right[2];
#pragma GCC unroll 2
        for (int j = 0; j < vectors; j++)
            right[j] = _mm512_loadu_si512(b + (size_t)k * ldb + j * NARROW_LANES);
#pragma GCC unroll 8
        for (int i = 0; i < NARROW_ROWS; i++) {
            const __m512i left = _mm512_set1_epi32((int)a.at[(size_t)i * a.row + (size_t)k * a.column]);
#pragma GCC unroll 2
            for (int j = 0; j < vectors; j++)
                sum[i][j] = _mm512_dpbf16_ps(sum[i][j], (__m512bh)left, (__m512bh)right[j]);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < NARROW_ROWS; i++)
#pragma GCC unroll 2
        for (int j = 0; j < vectors; j++)
            _mm512_storeu_ps(c + (size_t)i * ldc + j * NARROW_LANES, sum[i][j]);
}

/* count: pairs along K */
static inline __attribute__((always_inline)) void narrow_product(float *c, size_t ldc, struct pairs a,
                                                                 const pair *b, size_t ldb, int M, int N,
                                                                 int count, const int accumulate)
{
    const int wide = N / (2 * NARROW_LANES) * (2 * NARROW_LANES);
    for (int i = 0; i < M; i += NARROW_ROWS) {
        const struct pairs strip = {a.at + (size_t)i * a.row, a.row, a.column};
        float *to = c + (size_t)i * ldc;
        for (int j = 0; j < wide; j += 2 * NARROW_LANES)
            narrow_block(to + j, ldc, strip, b + j, ldb, count, 2, accumulate);
        if (wide < N)
            narrow_block(to + wide, ldc, strip, b + wide, ldb, count, 1, accumulate);
    }
}

/* to (n) = pairs of the elements of two rows; n is a multiple of 16. */
static inline void interleave(pair *to, const void *first, const void *second, int n)
{
    for (int i = 0; i < n; i += NARROW_LANES) {
        const __m512i low =
            _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)((const char *)first + 2 * i)));
        const __m512i high =
            _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)((const char *)second + 2 * i)));
        _mm512_storeu_si512(to + i, _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
    }
}

/* 16 floats, rounded to bf16. */
static inline __m256i narrow_lanes(const float *from)
{
    return (__m256i)_mm512_cvtneps_pbh(_mm512_loadu_ps(from));
}

#endif
#endif
