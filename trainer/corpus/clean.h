/* clean.h - a document's bytes as the text that is kept: UTF-8 in the composed form (NFC), lines that end in
 * a newline, without control characters and blanks at its ends. */
#ifndef MUSTER_TRAINER_CORPUS_CLEAN_H
#define MUSTER_TRAINER_CORPUS_CLEAN_H

#include <stddef.h>

#include "proto/base/buffer.h"
#include "proto/include/muster_error.h"

struct clean_room {
    struct buffer decoded;
};

/* Loads libunistring; MUSTER_E_NOT_FOUND with its package. Before clean_text. */
int clean_open(struct muster_error *err);
/* Replaces out. *invalid: bytes that were no UTF-8, each of which became U+FFFD. */
int clean_text(struct clean_room *room, const char *text, size_t length, struct buffer *out, size_t *invalid,
               struct muster_error *err);
void clean_room_free(struct clean_room *room); /* accepts NULL */

#endif
