/* token_file.h - tokens in a file: llm.c's shards (.bin), and muster's cache of a tokenized text.
 *
 * A shard is 256 int32 (magic, version, count) and the tokens: 20240520, version 1 with uint16 (GPT-2), and
 * 20240801, version 7 with uint32 (Llama 3).
 * A cache is struct token_file_header, `tokens` values of `width` bytes, zeros up to a multiple of 8 bytes,
 * and for each document the number of tokens up to its end (uint64).
 * Next to a shard NAME.bin there may be an index NAME.idx of its documents: struct token_index_header, then
 * the ends of documents as in a cache. A file NAME.mask has the tokens that are no targets: struct
 * token_mask_header, and a bit for each token, from the lowest bit of each byte on. Without it every token is
 * one. */
#ifndef MUSTER_TRAINER_DATA_TOKEN_FILE_H
#define MUSTER_TRAINER_DATA_TOKEN_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/include/muster_error.h"
#include "trainer/data/mapping.h"

#define TOKEN_FILE_MAGIC UINT64_C(0x314B544E4554534D) /* "MSTENTK1" */

/* Counts of the chats among the texts of a cache. */
struct token_file_chats {
    uint64_t chats;
    uint64_t empty_turns; /* turns of the assistant without a text */
    uint64_t unasked;     /* chats without a turn that is trained on */
    uint64_t
        in_parts; /* chats whose turns were tokenized one by one: their tokens do not give the text back */
};

struct token_file_header {
    uint64_t magic;
    uint64_t key; /* hash of the texts and settings */
    uint32_t width, masked;
    uint64_t tokens, documents;
    struct token_file_chats chats;
};

#define TOKEN_INDEX_MAGIC UINT64_C(0x315844494B54534D) /* "MSTKIDX1" */

struct token_index_header {
    uint64_t magic, tokens, documents;
};

#define TOKEN_MASK_MAGIC UINT64_C(0x314B53414D54534D) /* "MSTMASK1" */

struct token_mask_header {
    uint64_t magic, tokens, chats; /* chats: documents of the shard that are chats */
};

/* Tokens in memory, mapped or not. */
struct token_file {
    struct mapping mapping;     /* the file; empty where the tokens are in memory */
    struct mapping index;       /* a shard's index; empty: none */
    struct mapping mask_file;   /* a shard's mask; empty: none */
    const uint8_t *mask;        /* the bits of that file; NULL: none */
    void *memory, *memory_ends; /* owned; NULL with a mapping, or where the caller owns the memory */
    const char *tokens;         /* (count) values of width bytes: 1, 2 or 4 */
    int width;
    bool masked; /* a value with the top bit is no target */
    int64_t count;
    const uint64_t *ends; /* (documents); NULL: not known */
    int64_t documents;
    struct token_file_chats chats; /* counts in a cache */
};

/* Whether a file that begins with these 4 bytes is a shard of llm.c. */
bool token_file_is_shard(const char *start);
/* Fills the header (256) of a shard of `count` tokens of `width` bytes, 2 or 4. */
void token_file_shard_header(int width, int32_t count, int32_t *header);
/* Opens a shard of llm.c, with its index if there is a file. MUSTER_E_INVALID: a damaged shard, or the index
 * of another shard. */
int token_file_open_shard(struct token_file *file, const char *path, struct muster_error *err);
/* Opens a cache with this key. 1: there is no file, or it has another key or is damaged. */
int token_file_open_cache(struct token_file *file, const char *path, uint64_t key, struct muster_error *err);
/* Parses a cache with this key in the caller's memory. 1: the bytes are no such cache. Pure. */
int token_file_parse_cache(struct token_file *file, const char *data, size_t length, uint64_t key);
int token_file_parse_shard(struct token_file *file, const char *name, const char *data, size_t length,
                           struct muster_error *err);
void token_file_close(struct token_file *file); /* accepts NULL */

/* Reads tokens from..from + count - 1; the file has them all. Tokens that are no targets have TOKEN_MASK. */
enum { TOKEN_MASK = 1 << 30 };
void token_file_read(const struct token_file *file, int64_t from, int64_t count, int32_t *out);

#endif
