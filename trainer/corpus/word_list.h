/* word_list.h - a file with a word a line, as a set of hashes. */
#ifndef MUSTER_TRAINER_CORPUS_WORD_LIST_H
#define MUSTER_TRAINER_CORPUS_WORD_LIST_H

#include "proto/include/muster_error.h"
#include "trainer/corpus/words.h"

/* Adds the words of the file at path; lines that begin with '#' are comments. *hash gets a hash of the file.
 * Errors: unreadable; a line with more than one word, or none, by its number. */
int word_list_read(const char *path, struct hash_set *out, uint64_t *hash, struct muster_error *err);

#endif
