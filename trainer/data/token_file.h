/* token_file.h - tokens in a file: llm.c's shards (.bin), and our own cache of a text that was tokenized.
 *
 * A shard is 256 int32 (magic, version, count) and the tokens: 20240520, version 1 with uint16 (GPT-2), and
 * 20240801, version 7 with uint32 (Llama 3).
 * A cache is struct token_file_header, `tokens` values of `width` bytes, zeros up to 8 bytes, and for each
 * document the number of tokens up to its end (uint64).
 * Beside a shard NAME.bin there may be an index NAME.idx of its documents: struct token_index_header, and the
 * ends as a cache has them. */
#ifndef MUSTER_TRAINER_DATA_TOKEN_FILE_H
#define MUSTER_TRAINER_DATA_TOKEN_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/include/muster_error.h"
#include "trainer/data/mapping.h"

#define TOKEN_FILE_MAGIC UINT64_C(0x314B544E4554534D) /* "MSTENTK1" */

struct token_file_header {
    uint64_t magic;
    uint64_t key; /* of what it was made from */
    uint32_t width, masked;
    uint64_t tokens, documents;
};

#define TOKEN_INDEX_MAGIC UINT64_C(0x315844494B54534D) /* "MSTKIDX1" */

struct token_index_header {
    uint64_t magic, tokens, documents;
};

/* Tokens in memory, mapped or not. */
struct token_file {
    struct mapping mapping; /* one of both, or neither: the memory is another's */
    struct mapping index;   /* of a shard that has one */
    void *memory, *memory_ends;
    const char *tokens; /* (count) values of width bytes: 1, 2 or 4 */
    int width;
    bool masked; /* the top bit of a value: its token is no target */
    int64_t count;
    const uint64_t *ends; /* (documents); NULL: not known */
    int64_t documents;
};

/* Whether a file that begins with these 4 bytes is one of llm.c. */
bool token_file_is_shard(const char *start);
/* Fills the header (256) of a shard of `count` tokens of `width` bytes, 2 or 4. */
void token_file_shard_header(int width, int32_t count, int32_t *header);
/* A shard of llm.c, with its index where there is one. Errors: MUSTER_E_INVALID with the byte that is wrong;
 * an index of another shard. */
int token_file_open_shard(struct token_file *file, const char *path, struct muster_error *err);
/* A cache with this key; 1: there is none, or it is another's or damaged. */
int token_file_open_cache(struct token_file *file, const char *path, uint64_t key, struct muster_error *err);
/* The bytes of a cache of that header. */
size_t token_file_bytes(const struct token_file_header *header);
/* A file's bytes as a cache with this key; the memory stays the caller's. 1: they are none. Pure. */
int token_file_parse_cache(struct token_file *file, const char *data, size_t length, uint64_t key);
int token_file_parse_shard(struct token_file *file, const char *name, const char *data, size_t length,
                           struct muster_error *err);
/* The bytes of an index as the ends of a shard's documents. Pure. */
int token_file_parse_index(struct token_file *file, const char *name, const char *data, size_t length,
                           struct muster_error *err);
void token_file_close(struct token_file *file); /* accepts NULL */

/* Tokens from..from + count - 1, all of them there. Values with the mask have TOKEN_MASK. */
enum { TOKEN_MASK = 1 << 30 };
void token_file_read(const struct token_file *file, int64_t from, int64_t count, int32_t *out);

#endif
