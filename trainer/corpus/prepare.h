/* prepare.h - `muster-train prepare`: raw texts in, token shards out.
 *
 * Stages, in order: read (split, clean, measure and sign the parts of the input), decide (duplicates,
 * validation split, sample), train (the tokenizer), encode (tokens of parts), write (shards and index). A
 * stage's result in output_dir/.work is complete or absent, and carries a key of all its inputs. A run that
 * was killed continues there, and the result is a function of input and settings. */
#ifndef MUSTER_TRAINER_CORPUS_PREPARE_H
#define MUSTER_TRAINER_CORPUS_PREPARE_H

#include "proto/base/knob.h"
#include "proto/base/log.h"
#include "trainer/corpus/rules.h"

/* ---- settings.c: one table for flags, help and checks ---- */

enum corpus_tokenizer { CORPUS_SENTENCEPIECE, CORPUS_BYTES };
enum corpus_model { CORPUS_UNIGRAM, CORPUS_BPE };

struct corpus_settings {
    char *input, *output;
    int64_t workers, part_bytes;
    bool keep_work, help;
    char *text_key, *separator, *chat_template;
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
/* Reads the words after `prepare`. settings are zeroed; free them in any case. With help set nothing else is
 * checked. MUSTER_E_INVALID: the error names the flag. */
int corpus_settings_parse(struct corpus_settings *settings, int argc, char *const argv[],
                          struct muster_error *err);
void corpus_settings_free(struct corpus_settings *settings); /* accepts NULL */

/* A hash of the settings that change the result. tokens: with the settings of the stages after read. */
uint64_t corpus_settings_hash(const struct corpus_settings *settings, bool tokens);

/* ---- the run ---- */

/* Errors that the user can mend: MUSTER_E_INVALID, MUSTER_E_NOT_FOUND, MUSTER_E_UNSUPPORTED, and
 * MUSTER_E_BUSY: another run writes to output_dir. log gets a line for each stage; NULL: none. */
int prepare_run(const struct corpus_settings *settings, const struct log_sink *log, struct muster_error *err);

#endif
