/* texts.h - one text of the input: cleaned (clean.c), cut into words (words.c), measured for the rules
 * (measure.c), and signed for the search of near duplicates (minhash.c). Pure but for memory and the
 * libraries of clean_open and language_open. */
#ifndef MUSTER_TRAINER_CORPUS_TEXTS_H
#define MUSTER_TRAINER_CORPUS_TEXTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/buffer.h"
#include "proto/base/guard.h"
#include "proto/include/muster_error.h"
#include "trainer/corpus/rules.h"

/* ---- clean.c: UTF-8 in the composed form (NFC), newlines as line ends, no control characters ---- */

struct clean_room {
    struct buffer decoded;
};

/* Loads libunistring. Call it before clean_text. MUSTER_E_NOT_FOUND: the error names the package. */
int clean_open(struct muster_error *err);
/* Replaces out by the clean text, without blanks at its ends. *invalid: bytes that were no UTF-8; each
 * becomes U+FFFD. */
int clean_text(struct clean_room *room, const char *text, size_t length, struct buffer *out, size_t *invalid,
               struct muster_error *err);
void clean_room_free(struct clean_room *room); /* accepts NULL */

/* ---- words.c: a text as words, the unit of repeated runs and near duplicates ----
 *
 * A word is a run of letters, their marks and digits; the case of ASCII letters does not matter. In scripts
 * without blanks (Chinese, Japanese, Thai, ...) each character is a word. Punctuation and blanks separate
 * words. */

/* Hashes of words in the order of the text; the memory is reused for the next text. Zeroed: empty. */
struct words {
    uint64_t *hash; /* (count) */
    size_t count, capacity;
    size_t chars; /* characters of all words */
};

/* Whether a character belongs to the letter before it: accents, vowel signs. */
bool words_is_mark(uint32_t point);

/* Replaces words by the words of a text of UTF-8. -1: no memory. */
int words_split(struct words *words, const char *text, size_t length);
void words_free(struct words *words); /* accepts NULL */

/* A set of hashes. Zeroed: empty. */
struct hash_set {
    uint64_t *slot; /* (capacity), a power of 2; 0: free */
    size_t count, capacity;
};

/* 1: the set had the hash; 0: it is new; -1: no memory. */
int hash_set_add(struct hash_set *set, uint64_t hash);
bool hash_set_has(const struct hash_set *set, uint64_t hash);
/* Empties the set; frees a large table. */
void hash_set_clear(struct hash_set *set);
void hash_set_free(struct hash_set *set); /* accepts NULL */

/* Adds the words of the file at path, one a line; lines that begin with '#' are comments. *hash gets a hash
 * of the file. Errors: the file is unreadable; a line has several words or none, with its number. */
int word_list_read(const char *path, struct hash_set *out, uint64_t *hash, struct muster_error *err);

/* ---- measure.c: the values that the rules limit ---- */

/* Memory reused from text to text. Zeroed: empty. */
struct measure_room {
    struct hash_set seen;
};
void measure_room_free(struct measure_room *room); /* accepts NULL */

struct measure_lists {
    const struct hash_set *blocked, *required; /* hashes of words as in struct words; NULL: not measured */
};

/* Fills all values; RULE_JSON, RULE_UTF8 and RULE_LANGUAGE become NAN. text is UTF-8, words are its
 * words. -1: no memory. */
int measure_text(struct measure_room *room, const struct measure_lists *lists, const char *text,
                 size_t length, const struct words *words, struct measures *out);

/* The language of texts by n-grams of characters, by libexttextcat. Used by one thread at a time. */
struct language;

/* Loads the library. kept: "en,de", codes of the lines of folder/fpdb.conf. Errors: the library is missing,
 * with its package; the folder has no such language. */
struct language *language_open(const char *kept, const char *folder, struct muster_error *err);
void language_close(struct language *language); /* accepts NULL */
GUARD_DEFINE(language, struct language *, language_close);
/* 1: the text has a kept language; 0: another language; NAN: the text is too short to judge. */
double language_measure(struct language *language, const char *text, size_t length);

/* ---- minhash.c: the Jaccard similarity of two texts as sets of runs of SHINGLE_WORDS words ----
 *
 * Signatures find candidates. A signature has MINHASH_ROWS minima of hashes; each is equal in two texts with
 * a probability of their similarity. A key is a hash of a band of rows. Texts that share a key are compared.
 */

enum { SHINGLE_WORDS = 5, MINHASH_ROWS = 120, MINHASH_BANDS = 60 };

/* The runs of words of a text, ascending; a text of fewer words is one run. Zeroed: empty. */
struct shingles {
    uint64_t *hash; /* (count) */
    size_t count, capacity;
};

/* Replaces shingles by the runs of a text; empty where the text has no word. -1: no memory. */
int shingles_make(struct shingles *shingles, const struct words *words);
/* Common runs / all runs; 0 where both are empty. */
double shingles_jaccard(const struct shingles *a, const struct shingles *b);
void shingles_free(struct shingles *shingles); /* accepts NULL */

struct minhash_bands {
    int bands, rows; /* bands x rows is at most MINHASH_ROWS */
};

/* The bands with most rows by which at least 99.5% of the pairs of that similarity share a key. */
struct minhash_bands minhash_bands_for(double similarity);
/* The share of pairs of that similarity that share a key: 1 - (1 - s^rows)^bands. */
double minhash_found(struct minhash_bands bands, double similarity);
/* The keys (bands) of a set that is not empty. Keys of different bands differ. */
void minhash_keys(const struct shingles *shingles, struct minhash_bands bands, uint64_t *keys);

#endif
