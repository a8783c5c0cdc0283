/* random_values.h - the same values in every run. */
#ifndef MUSTER_TESTS_RANDOM_VALUES_H
#define MUSTER_TESTS_RANDOM_VALUES_H

#include <stdint.h>

/* A linear congruential generator (Knuth's MMIX); its high bits are used. */
static inline uint32_t random_bits(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 32);
}

/* Between -1 and 1. */
static inline float random_value(uint64_t *state)
{
    return (float)((double)random_bits(state) / 2147483648.0 - 1.0);
}

#endif
