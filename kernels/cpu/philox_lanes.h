/* philox_lanes.h - Philox4x32-10 of 16 neighbouring blocks at once, for dropout (kernels/dropout_place.h).
 *
 * The product of two 32-bit numbers into 64 bits is one instruction on x86, for every second lane of a
 * vector, and compilers do not find it. Blocks with even and with odd numbers are therefore two vectors of
 * 64-bit lanes. The upper halves hold leftovers and are not read until the end. */
#ifndef MUSTER_KERNELS_CPU_PHILOX_LANES_H
#define MUSTER_KERNELS_CPU_PHILOX_LANES_H

#include "kernels/cpu/cpu.h"
#include "kernels/dropout_place.h"

#ifdef __SSE2__
#include <immintrin.h>
#include <string.h>

enum { PHILOX_LANES = CPU_LANES >= 8 ? CPU_LANES / 2 : 2 };
typedef uint64_t philox_vector __attribute__((vector_size(PHILOX_LANES * sizeof(uint64_t)), may_alias));

static inline __attribute__((always_inline)) philox_vector philox_product(philox_vector a, philox_vector b)
{
#if defined(__AVX512F__)
    return (philox_vector)_mm512_mul_epu32((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
    return (philox_vector)_mm256_mul_epu32((__m256i)a, (__m256i)b);
#else
    return (philox_vector)_mm_mul_epu32((__m128i)a, (__m128i)b);
#endif
}

/* word[w][lane] = word w of block first + lane; word is aligned for the widest vector. */
static inline void philox_lanes(uint32_t word[4][DROPOUT_LANES], const struct dropout_place *place,
                                uint32_t first)
{
    const philox_vector zero = {0}, m0 = zero + PHILOX_MULTIPLIER0, m1 = zero + PHILOX_MULTIPLIER1;
    for (int from = 0; from < DROPOUT_LANES; from += 2 * PHILOX_LANES) {
        philox_vector c[2][4]; /* even blocks, odd blocks */
        uint32_t k0 = place->key[0], k1 = place->key[1];
        for (int odd = 0; odd < 2; odd++) {
            uint64_t block[PHILOX_LANES];
            for (int lane = 0; lane < PHILOX_LANES; lane++)
                block[lane] = first + (uint32_t)(from + 2 * lane + odd);
            memcpy(&c[odd][0], block, sizeof block);
            c[odd][1] = zero + place->layer;
            c[odd][2] = zero + place->sample[0];
            c[odd][3] = zero + place->sample[1];
        }
        for (int round = 0; round < PHILOX_ROUNDS; round++) {
#pragma GCC unroll 2
            for (int odd = 0; odd < 2; odd++) {
                philox_vector a = philox_product(c[odd][0], m0), b = philox_product(c[odd][2], m1);
                c[odd][0] = (b >> 32) ^ c[odd][1] ^ k0;
                c[odd][2] = (a >> 32) ^ c[odd][3] ^ k1;
                c[odd][1] = b;
                c[odd][3] = a;
            }
            k0 += PHILOX_WEYL0;
            k1 += PHILOX_WEYL1;
        }
        for (int w = 0; w < 4; w++)
            *(philox_vector *)&word[w][from] = (c[0][w] & UINT32_MAX) | (c[1][w] << 32);
    }
}
#else
static inline void philox_lanes(uint32_t word[4][DROPOUT_LANES], const struct dropout_place *place,
                                uint32_t first)
{
    for (int lane = 0; lane < DROPOUT_LANES; lane++) {
        const uint32_t counter[4] = {first + (uint32_t)lane, place->layer, place->sample[0],
                                     place->sample[1]};
        uint32_t out[4];
        philox4x32_10(counter, place->key, out);
        for (int w = 0; w < 4; w++)
            word[w][lane] = out[w];
    }
}
#endif

#endif
