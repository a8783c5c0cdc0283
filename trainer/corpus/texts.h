/* words.h - a text as words: what repeated runs and near duplicates are counted in. Pure.
 *
 * A word is a run of letters, their marks and numbers, without regard to the case of ASCII letters; of a
 * script that writes no blanks (Chinese, Japanese, Thai, ...) each character is one. Punctuation and blanks
 * are none. */
#ifndef MUSTER_TRAINER_CORPUS_WORDS_H
#define MUSTER_TRAINER_CORPUS_WORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Hashes of words in the order of the text; memory is kept from text to text. Zeroed: empty. */
struct words {
    uint64_t *hash; /* (count) */
    size_t count, capacity;
    size_t chars; /* of all words */
};

/* Whether a character that is no letter of its own belongs to the one before: accents, vowel signs. */
bool words_is_mark(uint32_t point);

/* The words of a text of UTF-8, in place of those before. -1: no memory. */
int words_split(struct words *words, const char *text, size_t length);
/* The hash that words_split gives one word. */
uint64_t words_hash(const char *word, size_t length);
void words_free(struct words *words); /* accepts NULL */

/* A set of hashes. Zeroed: empty. */
struct hash_set {
    uint64_t *slot; /* (capacity), a power of 2; 0: free */
    size_t count, capacity;
};

/* 1: it was there; 0: it is new; -1: no memory. */
int hash_set_add(struct hash_set *set, uint64_t hash);
bool hash_set_has(const struct hash_set *set, uint64_t hash);
/* Empties it; a large table that held little is cut. */
void hash_set_clear(struct hash_set *set);
void hash_set_free(struct hash_set *set); /* accepts NULL */

#endif
