/* duplicates.h - which documents repeat an earlier one. Memory holds a byte a document, up to 32 for
 * each that is near to another one, and a table of the size that the caller gives; the documents are read in
 * passes instead. Pure but for the two functions of the source.
 *
 * Exact: the same text (128 bits of a hash). Near: the similarity of minhash.h to an earlier document that is
 * kept is at least the threshold; it is computed from both texts, signatures only find the pairs. A document
 * that is dropped therefore always has a kept one to which it is that similar. The other way round it is the
 * earliest similar one that counts: where that is dropped itself, the one that is kept in its place is
 * compared, and no third one. */
#ifndef MUSTER_TRAINER_CORPUS_DUPLICATES_H
#define MUSTER_TRAINER_CORPUS_DUPLICATES_H

#include <stdint.h>

#include "proto/include/muster_error.h"
#include "trainer/corpus/minhash.h"

enum duplicate { DUPLICATE_NONE, DUPLICATE_EXACT, DUPLICATE_NEAR };

struct duplicates_entry {
    uint64_t hash[2];
    const uint64_t *keys; /* (bands); NULL: a text without words, that is near to none */
};

struct duplicates_source {
    int64_t documents; /* below 2^32 - 1 */
    /* Calls each(call, n, entry) for every document in order; stops with -1 where it fails or each returns
     * -1. */
    int (*visit)(void *context,
                 int (*each)(void *call, int64_t document, const struct duplicates_entry *entry), void *call,
                 struct muster_error *err);
    /* The runs of words of one document. */
    int (*load)(void *context, int64_t document, struct shingles *out, struct muster_error *err);
    void *context;
};

struct duplicates_options {
    struct minhash_bands bands;
    double threshold; /* above 1: exact ones alone */
    int64_t memory;   /* bytes of the table */
};

/* Writes an enum duplicate for each document into out (documents), which is zeroed. */
int duplicates_find(const struct duplicates_source *source, const struct duplicates_options *options,
                    uint8_t *out, struct muster_error *err);

#endif
