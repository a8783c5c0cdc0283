/* shard_writer.h - documents of tokens as shards of a limited size: NAME.bin as llm.c has them, and NAME.idx
 * with the ends of the documents (data/token_file.h). A shard ends with a document. */
#ifndef MUSTER_TRAINER_CORPUS_SHARD_WRITER_H
#define MUSTER_TRAINER_CORPUS_SHARD_WRITER_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/base/guard.h"
#include "proto/include/muster_error.h"

struct shard {
    uint64_t tokens, documents;
};

struct shard_writer_options {
    const char *folder; /* exists; the files are shard-00000.bin, shard-00001.bin, ... */
    int width;          /* bytes of a token: 2 or 4 */
    uint64_t limit;     /* tokens of a shard; a longer document is one by itself */
};
struct shard_writer;

/* Whether the next document goes into a new shard. Pure. */
bool shard_is_full(const struct shard *shard, uint64_t tokens, uint64_t limit);

struct shard_writer *shard_writer_create(const struct shard_writer_options *options,
                                         struct muster_error *err);
void shard_writer_destroy(struct shard_writer *writer); /* accepts NULL */
GUARD_DEFINE(shard_writer, struct shard_writer *, shard_writer_destroy);

/* A document of `count` tokens of `width` bytes, all at once. Without a token it is none. */
int shard_writer_add(struct shard_writer *writer, const void *tokens, uint64_t count,
                     struct muster_error *err);
/* The last shard too is there under its name. */
int shard_writer_finish(struct shard_writer *writer, struct muster_error *err);
/* The shards so far (*count), the writer's. */
const struct shard *shard_writer_list(const struct shard_writer *writer, uint64_t *count);
/* Removes what such a writer left in a folder. */
int shard_writer_clear(const char *folder, struct muster_error *err);

#endif
