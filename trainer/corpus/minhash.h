/* minhash.h - how alike two texts are: the Jaccard similarity of their sets of runs of SHINGLE_WORDS words,
 * and the signatures by which candidates are found. Pure.
 *
 * A signature has MINHASH_ROWS minima of hashes, each equal in two texts with the probability of their
 * similarity. Bands of rows are keys: texts that share one are compared. */
#ifndef MUSTER_TRAINER_CORPUS_MINHASH_H
#define MUSTER_TRAINER_CORPUS_MINHASH_H

#include <stddef.h>
#include <stdint.h>

#include "trainer/corpus/words.h"

enum { SHINGLE_WORDS = 5, MINHASH_ROWS = 120, MINHASH_BANDS = 60 };

/* The set of a text's runs of words, ascending; a shorter text is one run. Zeroed: empty. */
struct shingles {
    uint64_t *hash; /* (count) */
    size_t count, capacity;
};

/* In place of those before; empty where the text has no word. -1: no memory. */
int shingles_make(struct shingles *shingles, const struct words *words);
/* Common ones of all; 0 where both are empty. */
double shingles_jaccard(const struct shingles *a, const struct shingles *b);
void shingles_free(struct shingles *shingles); /* accepts NULL */

struct minhash_bands {
    int bands, rows; /* bands x rows is at most MINHASH_ROWS */
};

/* The bands of most rows by which at least 99.5% of the pairs of that similarity share a key. */
struct minhash_bands minhash_bands_for(double similarity);
/* The share of pairs of that similarity that share a key: 1 - (1 - s^rows)^bands. */
double minhash_found(struct minhash_bands bands, double similarity);
/* The keys (bands) of a set that is not empty. Keys of different bands differ. */
void minhash_keys(const struct shingles *shingles, struct minhash_bands bands, uint64_t *keys);

#endif
