/* prepared.h - the folder that `muster-train prepare` writes. index.json names the token shards, the shards
 * held out, and the tokenizer. The index is written last: a folder with an index is complete. */
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
    uint64_t key;             /* hash of the inputs and settings of prepare */
};

/* 0: path is such a folder; 1: it is not. Errors: the index is damaged or has another version, or a shard is
 * missing or has another size. */
int prepared_open(struct prepared *prepared, const char *path, struct muster_error *err);
void prepared_free(struct prepared *prepared); /* accepts NULL and a zeroed struct */
/* Sets *is: whether the folder is complete and was made with this key. Error: no memory. */
int prepared_is(const char *path, uint64_t key, bool *is, struct muster_error *err);

#endif
