/* dropout_place.h - the mask of dropout as a function of seed, sample, layer and element.
 *
 * The mask is one bit of information an element: element e of a sample takes word e / 16 % 4 of block
 * e / 64 * 16 + e % 16 of Philox (proto/philox.h). So 16 neighbours are the same word of 16 blocks, and a
 * vector needs no shuffle. An element is dropped where its word is below p * 2^32. */
#ifndef MUSTER_KERNELS_DROPOUT_PLACE_H
#define MUSTER_KERNELS_DROPOUT_PLACE_H

#include <stdint.h>

#include "proto/philox.h"

enum {
    DROPOUT_LANES = 16,                /* neighbours that take the same word of their blocks */
    DROPOUT_GROUP = 4 * DROPOUT_LANES, /* elements of DROPOUT_LANES blocks */
};
/* In the counter's last word, above the sample's upper half: other uses of a seed have small numbers there.
 */
#define DROPOUT_DOMAIN 0x80000000u

/* All that a mask depends on besides the element. */
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
