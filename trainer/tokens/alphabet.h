/* alphabet.h - the 256 characters in which GPT-2's files write bytes: printable ones stand for themselves,
 * the others for U+0100 and up. Pure. */
#ifndef MUSTER_TRAINER_TOKENS_ALPHABET_H
#define MUSTER_TRAINER_TOKENS_ALPHABET_H

#include <stdbool.h>
#include <stddef.h>

#include "proto/base/buffer.h"

/* Adds the bytes that a text of that alphabet stands for; false, with nothing added, where a character is not
 * in it. */
bool alphabet_bytes(const char *text, size_t length, struct buffer *out);

#endif
