/* rng.c - see rng.h. */
#include "runtime/model/rng.h"

#include <math.h>

#include "proto/philox.h"

/* The counter's words: index (64 bits), site, domain. */
static void block(uint64_t seed, enum rng_domain domain, uint32_t site, uint64_t index, uint32_t out[4])
{
    const uint32_t counter[4] = {(uint32_t)index, (uint32_t)(index >> 32), site, (uint32_t)domain};
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    philox4x32_10(counter, key, out);
}

uint64_t rng_bits(uint64_t seed, enum rng_domain domain, uint32_t site, uint64_t index)
{
    uint32_t word[4];
    block(seed, domain, site, index, word);
    return ((uint64_t)word[1] << 32) | word[0];
}

double rng_uniform(uint64_t seed, enum rng_domain domain, uint32_t site, uint64_t index)
{
    return (double)(rng_bits(seed, domain, site, index) >> 11) * 0x1p-53;
}

/* Block j gives the values 4j..4j+3: two pairs, each from two words. */
static void normal_block(uint64_t seed, enum rng_domain domain, uint32_t site, uint64_t j, double out[4])
{
    uint32_t word[4];
    block(seed, domain, site, j, word);
    for (int pair = 0; pair < 2; pair++) {
        /* (0,1]: the logarithm never sees zero */
        double radius = sqrt(-2.0 * log(((double)word[2 * pair] + 1.0) * 0x1p-32));
        double angle = 2.0 * M_PI * 0x1p-32 * (double)word[2 * pair + 1];
        out[2 * pair] = radius * cos(angle);
        out[2 * pair + 1] = radius * sin(angle);
    }
}

void rng_normal_fill(uint64_t seed, enum rng_domain domain, uint32_t site, uint64_t first, int64_t count,
                     double *out)
{
    double value[4] = {0};
    uint64_t held = UINT64_MAX;
    for (int64_t i = 0; i < count; i++) {
        uint64_t index = first + (uint64_t)i;
        if (index / 4 != held) {
            held = index / 4;
            normal_block(seed, domain, site, held, value);
        }
        out[i] = value[index % 4];
    }
}
