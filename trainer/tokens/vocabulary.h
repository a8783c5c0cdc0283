/* vocabulary.h - texts of tokens and their ids: found by text and by id. */
#ifndef MUSTER_TRAINER_TOKENS_VOCABULARY_H
#define MUSTER_TRAINER_TOKENS_VOCABULARY_H

#include <stdint.h>

#include "proto/base/buffer.h"
#include "proto/include/muster_error.h"

enum { VOCABULARY_LIMIT = 1 << 22 }; /* ids */

struct vocabulary_entry {
    uint64_t at; /* of its text in texts */
    int32_t length;
    int32_t id;
};

/* Zeroed: empty. */
struct vocabulary {
    struct buffer texts;
    struct vocabulary_entry *by_id; /* (size); length -1: no token has the id */
    int64_t size, by_id_capacity;
    int32_t *table; /* (table_size), a power of two: ids by hash of the text; -1: empty */
    int64_t table_size, count;
};

/* A text that is there already gets the new id as well: the later one is found by text. Errors: memory, an id
 * outside of 0 .. VOCABULARY_LIMIT - 1, an id that has another text. */
int vocabulary_add(struct vocabulary *vocabulary, const char *text, size_t length, int64_t id,
                   struct muster_error *err);
/* -1: not there. */
int32_t vocabulary_find(const struct vocabulary *vocabulary, const char *text, size_t length);
/* The text of an id, not ended by NUL; NULL: no token has the id. */
const char *vocabulary_text(const struct vocabulary *vocabulary, int64_t id, size_t *length);
void vocabulary_free(struct vocabulary *vocabulary);

/* A hash of short texts, for tables in memory. */
uint64_t vocabulary_hash(const char *text, size_t length);

#endif
