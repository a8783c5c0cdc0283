/* tile.h - small matrix products for attention: c (M,N) = or += a (M,K) b (K,N), on tiles that are in a
 * cache.
 *
 * A micro-kernel keeps up to 6 rows by 2 vectors of c in registers, broadcasts a and streams b, so b and c
 * need unit stride along N, while a may have any strides (a transposed a costs nothing). N that is no
 * multiple of the vector is finished by one vector, then one column at a time. The sum over K runs in order,
 * in float. */
#ifndef MUSTER_KERNELS_CPU_ATTENTION_TILE_H
#define MUSTER_KERNELS_CPU_ATTENTION_TILE_H

#include <stddef.h>

#include "kernels/cpu/cpu.h"

/* A vector that may stand anywhere. */
typedef float tile_vector __attribute__((vector_size(CPU_LANES * sizeof(float)), aligned(4), may_alias));

struct tile_a {
    const float *at;
    size_t row, column; /* distance of the next row and of the next k, in floats */
};

/* 8 rows with 32 vector registers: 8 divides attention's 32 queries. */
enum { TILE_ROWS = CPU_LANES == 16 ? 8 : 6 };

/* rows and vectors are constants at every call, so that the accumulators are registers. */
static inline __attribute__((always_inline)) void tile_block(float *c, size_t ldc, struct tile_a a,
                                                             const float *b, size_t ldb, int K,
                                                             const int rows, const int vectors,
                                                             int accumulate)
{
    tile_vector sum[TILE_ROWS][2];
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int j = 0; j < vectors; j++)
            sum[i][j] =
                accumulate ? *(const tile_vector *)(c + (size_t)i * ldc + j * CPU_LANES) : (tile_vector){0};
    for (int k = 0; k < K; k++) {
        tile_vector right[2];
#pragma GCC unroll 2
        for (int j = 0; j < vectors; j++)
            right[j] = *(const tile_vector *)(b + (size_t)k * ldb + j * CPU_LANES);
#pragma GCC unroll 8
        for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
            for (int j = 0; j < vectors; j++)
                sum[i][j] += a.at[(size_t)i * a.row + (size_t)k * a.column] * right[j];
    }
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int j = 0; j < vectors; j++)
            *(tile_vector *)(c + (size_t)i * ldc + j * CPU_LANES) = sum[i][j];
}

static inline __attribute__((always_inline)) void tile_rows(float *c, size_t ldc, struct tile_a a,
                                                            const float *b, size_t ldb, int rows, int K,
                                                            const int vectors, int accumulate)
{
    switch (rows) {
    case 1:
        tile_block(c, ldc, a, b, ldb, K, 1, vectors, accumulate);
        break;
    case 2:
        tile_block(c, ldc, a, b, ldb, K, 2, vectors, accumulate);
        break;
    case 3:
        tile_block(c, ldc, a, b, ldb, K, 3, vectors, accumulate);
        break;
    case 4:
        tile_block(c, ldc, a, b, ldb, K, 4, vectors, accumulate);
        break;
    case 5:
        tile_block(c, ldc, a, b, ldb, K, 5, vectors, accumulate);
        break;
    case 6:
        tile_block(c, ldc, a, b, ldb, K, 6, vectors, accumulate);
        break;
    case 7:
        tile_block(c, ldc, a, b, ldb, K, 7 < TILE_ROWS ? 7 : TILE_ROWS, vectors, accumulate);
        break;
    default:
        tile_block(c, ldc, a, b, ldb, K, TILE_ROWS, vectors, accumulate);
        break;
    }
}

static inline void tile_columns(float *c, size_t ldc, struct tile_a a, const float *b, size_t ldb, int M,
                                int from, int N, int K, int accumulate)
{
    for (int i = 0; i < M; i++)
        for (int j = from; j < N; j++) {
            float sum = accumulate ? c[(size_t)i * ldc + j] : 0.0f;
            for (int k = 0; k < K; k++)
                sum += a.at[(size_t)i * a.row + (size_t)k * a.column] * b[(size_t)k * ldb + j];
            c[(size_t)i * ldc + j] = sum;
        }
}

static inline void tile_product(float *c, size_t ldc, struct tile_a a, const float *b, size_t ldb, int M,
                                int N, int K, int accumulate)
{
    int i = 0, wide = N / (2 * CPU_LANES) * (2 * CPU_LANES), narrow = N / CPU_LANES * CPU_LANES;
    for (; i < M; i += TILE_ROWS) {
        struct tile_a strip = {a.at + (size_t)i * a.row, a.row, a.column};
        float *to = c + (size_t)i * ldc;
        int rows = M - i < TILE_ROWS ? M - i : TILE_ROWS;
        for (int j = 0; j < wide; j += 2 * CPU_LANES)
            tile_rows(to + j, ldc, strip, b + j, ldb, rows, K, 2, accumulate);
        if (narrow > wide)
            tile_rows(to + wide, ldc, strip, b + wide, ldb, rows, K, 1, accumulate);
    }
    tile_columns(c, ldc, a, b, ldb, M, narrow, N, K, accumulate);
}

#endif
