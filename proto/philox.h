/* philox.h - Philox4x32-10, a counter-based random number generator (Salmon, Moraes, Dror, Shaw: "Parallel
 * random numbers: as easy as 1, 2, 3", SC 2011): 128 random bits of a counter and a key. */
#ifndef MUSTER_PROTO_PHILOX_H
#define MUSTER_PROTO_PHILOX_H

#include <stdint.h>

#ifdef __CUDACC__
#define PHILOX_FUNCTION static inline __host__ __device__
#else
#define PHILOX_FUNCTION static inline
#endif

enum { PHILOX_ROUNDS = 10 };
#define PHILOX_MULTIPLIER0 0xD2511F53u
#define PHILOX_MULTIPLIER1 0xCD9E8D57u
#define PHILOX_WEYL0       0x9E3779B9u /* the golden ratio and sqrt(3)-1 as fractions of 2^32 */
#define PHILOX_WEYL1       0xBB67AE85u

PHILOX_FUNCTION void philox4x32_10(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < PHILOX_ROUNDS; round++) {
        uint64_t a = (uint64_t)c0 * PHILOX_MULTIPLIER0, b = (uint64_t)c2 * PHILOX_MULTIPLIER1;
        uint32_t n0 = (uint32_t)(b >> 32) ^ c1 ^ k0, n2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)b;
        c3 = (uint32_t)a;
        c0 = n0;
        c2 = n2;
        k0 += PHILOX_WEYL0;
        k1 += PHILOX_WEYL1;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

#endif
