/* token_cache.h - the file in which the tokens of a source are kept: found, or to be made by one process of
 * the machine while the others wait. */
#ifndef MUSTER_TRAINER_DATA_TOKEN_CACHE_H
#define MUSTER_TRAINER_DATA_TOKEN_CACHE_H

#include "trainer/data/corpus.h"
#include "trainer/data/token_file.h"
#include "trainer/data/walk.h"

struct token_cache {
    char *path; /* of the file to be made; NULL: no folder for it, the tokens stay in memory */
    uint64_t key;
    int lock; /* held until token_cache_close; -1: none */
};
#define TOKEN_CACHE_NONE                                                                                     \
    {                                                                                                        \
        NULL, 0, -1                                                                                          \
    }

/* 0: *out has the tokens. 1: they are to be made, into a file with cache->path and cache->key. The name of
 * the file follows from the source's path and the settings, the key from its files too: their sizes and
 * times, and hashes of their first and last bytes. Errors: a folder that was named, and cannot be written. */
int token_cache_open(struct token_cache *cache, const struct corpus_options *options, const struct walk *walk,
                     struct token_file *out, struct muster_error *err);
void token_cache_close(struct token_cache *cache); /* accepts NULL */

#endif
