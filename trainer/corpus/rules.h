/* rules.h - the quality rules: a measure of a document, and its limit. One table gives the flags, the help,
 * the decision and the counters of the report. Pure.
 *
 * A document that breaks rules is left out, and counted under the first rule that it breaks, in this order.
 */
#ifndef MUSTER_TRAINER_CORPUS_RULES_H
#define MUSTER_TRAINER_CORPUS_RULES_H

#include <stdbool.h>
#include <stdint.h>

/* RULE_id, name of its flag and counter, direction of the limit, default, least and largest value of the
 * limit, the help text */
#define CORPUS_RULES(X)                                                                                      \
    X(JSON, "max-broken-json", RULE_AT_MOST, "0", 0, 1,                                                      \
      "0 drops JSON lines without a text under --text_key. 1 makes an empty document of each, which "        \
      "min-chars drops.")                                                                                    \
    X(UTF8, "max-invalid-utf8", RULE_AT_MOST, "0", 0, 1,                                                     \
      "Largest share of bytes that are no UTF-8. Each becomes U+FFFD.")                                      \
    X(CHARS, "min-chars", RULE_AT_LEAST, "8", 0, 1e9, "Least number of characters.")                         \
    X(WORDS, "min-words", RULE_AT_LEAST, "2", 0, 1e9, "Least number of words.")                              \
    X(LETTERS, "min-letters", RULE_AT_LEAST, "0.5", 0, 1,                                                    \
      "Least share of letters among the characters that are no blanks.")                                     \
    X(SYMBOLS, "max-symbols", RULE_AT_MOST, "0.25", 0, 1,                                                    \
      "Largest share of symbols (no letter, number or usual punctuation) among the characters that are no "  \
      "blanks.")                                                                                             \
    X(WORD_LENGTH, "max-word-length", RULE_AT_MOST, "15", 1, 1e6,                                            \
      "Largest mean length of a word in characters.")                                                        \
    X(LINES, "max-repeated-lines", RULE_AT_MOST, "0.4", 0, 1,                                                \
      "Largest share of characters in repeated lines.")                                                      \
    X(NGRAMS, "max-repeated-ngrams", RULE_AT_MOST, "0.4", 0, 1,                                              \
      "Largest share of repeated runs of 4 words.")                                                          \
    X(BLOCKED, "max-blocked-words", RULE_AT_MOST, "0", 0, 1e9,                                               \
      "Largest number of words of --blocked_words.")                                                         \
    X(REQUIRED, "min-required-words", RULE_AT_LEAST, "2", 0, 1e9,                                            \
      "Least number of words of --required_words, where that is given.")                                     \
    X(LANGUAGE, "min-language", RULE_AT_LEAST, "1", 0, 1,                                                    \
      "With --languages: 1 drops documents in another language, 0 measures alone.")

enum rule {
#define RULE_ENUM(id, name, bound, limit, least, largest, help) RULE_##id,
    CORPUS_RULES(RULE_ENUM)
#undef RULE_ENUM
        RULE_COUNT
};
enum { RULE_PASSED = -1 };
enum rule_bound { RULE_AT_LEAST, RULE_AT_MOST };

struct rule_row {
    const char *name;
    enum rule_bound bound;
};
extern const struct rule_row corpus_rules[RULE_COUNT];

/* The measures of a document; NAN: not measured, which breaks no rule. */
struct measures {
    double value[RULE_COUNT];
};

/* measure.c: the first rule that is broken, or RULE_PASSED. */
int rules_check(const struct measures *measures, const double limits[RULE_COUNT]);

#endif
