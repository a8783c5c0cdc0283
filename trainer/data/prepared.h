/* prepared.h - the folder that `muster-train prepare` writes: index.json names its token shards, those that
 * are held out, and the tokenizer. The index is written last: where it is, all of them are there. */
#ifndef MUSTER_TRAINER_DATA_PREPARED_H
#define MUSTER_TRAINER_DATA_PREPARED_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/include/muster_error.h"

#define PREPARED_INDEX  "index.json"
#define PREPARED_FORMAT "muster-corpus"
enum { PREPARED_VERSION = 1 };

/* Paths are owned (prepared_free). */
struct prepared {
    char *train, *validation; /* folders; validation NULL: none */
    char *tokenizer;          /* for tokenizer_open */
    uint64_t key;             /* of what it was made from */
};

/* 0: path is such a folder; 1: it is none. Errors: the index is damaged or of another version, or a shard is
 * missing or of another size. */
int prepared_open(struct prepared *prepared, const char *path, struct muster_error *err);
void prepared_free(struct prepared *prepared); /* accepts NULL and a zeroed one */
/* Whether the folder is there as a whole and made with this key. Errors: it cannot be read. */
int prepared_is(const char *path, uint64_t key, bool *is, struct muster_error *err);

#endif
