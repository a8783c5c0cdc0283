/* philox.h - Philox4x32-10, a counter-based random number generator (Salmon, Moraes, Dror, Shaw: "Parallel
 * random numbers: as easy as 1, 2, 3", SC 2011): 128 random bits of a counter and a key.
 *
 * The mask of dropout is one bit of information an element: element e of a sample takes word e / 16 % 4 of
 * block e / 64 * 16 + e % 16, so that 16 neighbours are the same word of 16 blocks and a vector needs no
 * shuffle, and is dropped where the word is below p * 2^32. */
#ifndef MUSTER_KERNELS_PHILOX_H
#define MUSTER_KERNELS_PHILOX_H

#include <stdint.h>

#ifdef __CUDACC__
#define PHILOX_FUNCTION static inline __host__ __device__
#else
#define PHILOX_FUNCTION static inline
#endif

enum {
    PHILOX_ROUNDS = 10,
    DROPOUT_LANES = 16,                /* neighbours that take the same word of their blocks */
    DROPOUT_GROUP = 4 * DROPOUT_LANES, /* elements of DROPOUT_LANES blocks */
};
#define PHILOX_MULTIPLIER0 0xD2511F53u
#define PHILOX_MULTIPLIER1 0xCD9E8D57u
#define PHILOX_WEYL0       0x9E3779B9u /* the golden ratio and sqrt(3)-1 as fractions of 2^32 */
#define PHILOX_WEYL1       0xBB67AE85u
/* In the counter's last word, above the sample's upper half: other uses of a seed have small numbers there.
 */
#define DROPOUT_DOMAIN 0x80000000u

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

/* What a mask depends on beside the element. */
struct dropout_place {
    uint32_t key[2], sample[2], layer;
    uint32_t threshold; /* words below it are dropped */
    double factor;      /* 1 / (1 - p); 0 where everything is dropped */
};

PHILOX_FUNCTION struct dropout_place dropout_place(uint64_t seed, uint64_t sample, uint32_t layer, double p)
{
    double words = p * 4294967296.0;
    struct dropout_place place;
    place.key[0] = (uint32_t)seed, place.key[1] = (uint32_t)(seed >> 32);
    place.sample[0] = (uint32_t)sample, place.sample[1] = (uint32_t)(sample >> 32) | DROPOUT_DOMAIN;
    place.layer = layer;
    place.threshold = words >= 4294967295.0 ? 0xffffffffu : (uint32_t)words;
    place.factor = p < 1.0 ? 1.0 / (1.0 - p) : 0.0;
    return place;
}

#endif
