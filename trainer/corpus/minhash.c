/* minhash.c - see texts.h. */
#include "trainer/corpus/texts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "proto/base/mem.h"

/* ---- sets of runs of words ---- */

static int compare_hashes(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

int shingles_make(struct shingles *s, const struct words *words)
{
    const size_t run = words->count < SHINGLE_WORDS ? words->count : SHINGLE_WORDS;
    const size_t count = run ? words->count - run + 1 : 0;
    s->count = 0;
    if (count > s->capacity) {
        uint64_t *grown = mem_realloc(s->hash, count, sizeof *grown);
        if (!grown)
            return -1;
        s->hash = grown;
        s->capacity = count;
    }
    for (size_t i = 0; i < count; i++)
        s->hash[i] = XXH3_64bits(words->hash + i, run * sizeof *words->hash);
    if (count)
        qsort(s->hash, count, sizeof *s->hash, compare_hashes);
    for (size_t i = 0; i < count; i++)
        if (!s->count || s->hash[s->count - 1] != s->hash[i])
            s->hash[s->count++] = s->hash[i];
    return 0;
}

double shingles_jaccard(const struct shingles *a, const struct shingles *b)
{
    size_t i = 0, j = 0, common = 0;
    while (i < a->count && j < b->count) {
        const uint64_t x = a->hash[i], y = b->hash[j];
        common += x == y;
        i += x <= y;
        j += y <= x;
    }
    const size_t all = a->count + b->count - common;
    return all ? (double)common / (double)all : 0;
}

void shingles_free(struct shingles *s)
{
    if (!s)
        return;
    mem_free(s->hash);
    memset(s, 0, sizeof *s);
}

/* ---- signatures ---- */

/* splitmix64; gives the multipliers and masks of the rows, equal in every run. */
static uint64_t mix(uint64_t x)
{
    x += UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    return x ^ (x >> 31);
}

/* Two products with a fold between them: a single product keeps the order of hashes that are close together.
 */
static inline uint32_t row_hash(uint32_t hash, uint32_t mask, uint32_t factor)
{
    uint32_t x = (hash ^ mask) * factor;
    x ^= x >> 15;
    return x * UINT32_C(0x2C1B3C6D);
}

static void sign(const struct shingles *s, uint32_t *minima)
{
    uint32_t mask[MINHASH_ROWS], factor[MINHASH_ROWS];
    for (int k = 0; k < MINHASH_ROWS; k++) {
        const uint64_t random = mix((uint64_t)k);
        mask[k] = (uint32_t)random;
        factor[k] = (uint32_t)(random >> 32) | 1;
        minima[k] = UINT32_MAX;
    }
    for (size_t i = 0; i < s->count; i++) {
        const uint32_t hash = (uint32_t)(s->hash[i] >> 32) ^ (uint32_t)s->hash[i];
        for (int k = 0; k < MINHASH_ROWS; k++) {
            const uint32_t value = row_hash(hash, mask[k], factor[k]);
            minima[k] = value < minima[k] ? value : minima[k];
        }
    }
}

double minhash_found(struct minhash_bands bands, double similarity)
{
    return 1 - pow(1 - pow(similarity, bands.rows), bands.bands);
}

struct minhash_bands minhash_bands_for(double similarity)
{
    struct minhash_bands best = {MINHASH_BANDS, MINHASH_ROWS / MINHASH_BANDS};
    for (int rows = best.rows; rows <= MINHASH_ROWS; rows++) {
        const struct minhash_bands bands = {MINHASH_ROWS / rows, rows};
        if (minhash_found(bands, similarity) >= 0.995)
            best = bands;
    }
    return best;
}

void minhash_keys(const struct shingles *s, struct minhash_bands bands, uint64_t *keys)
{
    uint32_t minima[MINHASH_ROWS];
    sign(s, minima);
    for (int b = 0; b < bands.bands; b++)
        keys[b] = XXH3_64bits_withSeed(minima + (size_t)b * (size_t)bands.rows,
                                       (size_t)bands.rows * sizeof *minima, (uint64_t)b + 1);
}
