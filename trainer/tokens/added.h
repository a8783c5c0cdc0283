/* added.h - tokens that are found in a text as they stand, before anything else cuts it: "<|endoftext|>". */
#ifndef MUSTER_TRAINER_TOKENS_ADDED_H
#define MUSTER_TRAINER_TOKENS_ADDED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/include/muster_error.h"

struct added_token {
    char *text;
    size_t length;
    int32_t id;
    bool takes_before, takes_behind; /* blanks beside it are part of it: lstrip, rstrip */
};

/* Zeroed: none. */
struct added_tokens {
    struct added_token *item; /* (count); sorted by added_finish */
    size_t count;
    uint32_t first[257]; /* items that begin with byte b: first[b] .. first[b + 1] - 1, the longest first */
    int only;            /* the byte that all begin with; -1: several, or there are none */
};

int added_add(struct added_tokens *added, const char *text, size_t length, const struct added_token *like,
              struct muster_error *err);
/* Whether one of them has the id. */
bool added_has(const struct added_tokens *added, int32_t id);
/* After the last one; before the first added_find. It may be called again. */
void added_finish(struct added_tokens *added);
void added_free(struct added_tokens *added);

/* The first of them in text from `from` on, the longest at its place. *begin and *end: what it takes of the
 * text, not before `from`. NULL: none. */
const struct added_token *added_find(const struct added_tokens *added, const char *text, size_t from,
                                     size_t length, size_t *begin, size_t *end);

#endif
