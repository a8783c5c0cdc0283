/* split.h - pre-tokenizers: where a text is cut before its words become tokens. Pure.
 *
 * A splitter gives the length of the first word of a text; calling it again behind that word gives the next
 * one, and all words together are the text. Regular expressions are not interpreted: those of the tokenizers
 * in use are written out here, by name. */
#ifndef MUSTER_TRAINER_TOKENS_SPLIT_H
#define MUSTER_TRAINER_TOKENS_SPLIT_H

#include <stddef.h>

/* The bytes of the first word, 1 to length; length is 1 or more. The text ends at text + length: what a
 * pattern looks ahead to is not beyond. */
typedef size_t (*splitter)(const char *text, size_t length);

/* GPT-2's: 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ */
size_t split_gpt2(const char *text, size_t length);
/* Each number a word of its own, and what is between numbers: Digits with individual_digits. */
size_t split_digits(const char *text, size_t length);
/* Runs of numbers, and what is between them: Digits without. */
size_t split_numbers(const char *text, size_t length);

/* A word begins at each U+2581: Metaspace with split. */
size_t split_marks(const char *text, size_t length);

/* The splitter of a regular expression as tokenizer.json has it (GPT-2, Llama 3, Qwen 2); NULL: not
 * one of them. */
splitter split_by_pattern(const char *pattern);

#endif
