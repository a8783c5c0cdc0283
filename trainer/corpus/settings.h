/* settings.h - the settings of `muster-train prepare`: one table for flags, help and checks. */
#ifndef MUSTER_TRAINER_CORPUS_SETTINGS_H
#define MUSTER_TRAINER_CORPUS_SETTINGS_H

#include "proto/base/knob.h"
#include "trainer/corpus/rules.h"

enum corpus_tokenizer { CORPUS_SENTENCEPIECE, CORPUS_BYTES };
enum corpus_model { CORPUS_UNIGRAM, CORPUS_BPE };

struct corpus_settings {
    char *input, *output;
    int64_t workers, part_bytes;
    bool keep_work, help;
    char *text_key, *separator;
    int64_t max_document_bytes;
    char *blocked_words, *required_words, *languages, *language_data;
    double limits[RULE_COUNT];
    double near_threshold;
    int tokenizer_type, model_type; /* enum corpus_tokenizer, enum corpus_model */
    char *tokenizer;
    int64_t vocabulary, sample_bytes;
    double character_coverage;
    double validation_share;
    int64_t shard_tokens;
};

const struct knob_table *corpus_settings_table(void);
/* Reads the words behind `prepare`. settings are zeroed; free them in any case. With help set nothing else is
 * checked. Errors: MUSTER_E_INVALID naming the flag. */
int corpus_settings_parse(struct corpus_settings *settings, int argc, char *const argv[],
                          struct muster_error *err);
void corpus_settings_free(struct corpus_settings *settings); /* accepts NULL */

/* Of the settings that the result follows from; tokens: with those that begin where the texts are kept. */
uint64_t corpus_settings_hash(const struct corpus_settings *settings, bool tokens);

#endif
