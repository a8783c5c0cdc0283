/* prepare.h - raw texts in, token shards out: what `muster-train prepare` does.
 *
 * Stages, in order: read (parts of the input: split, cleaned, measured, signed), decide (duplicates,
 * validation split, sample), train (the tokenizer), encode (tokens of parts), write (shards and index). What
 * a stage leaves in output_dir/.work is complete or not there, and carries a key of all that it follows from:
 * a run that was killed goes on there, and the result is a function of input and settings. */
#ifndef MUSTER_TRAINER_CORPUS_PREPARE_H
#define MUSTER_TRAINER_CORPUS_PREPARE_H

#include "proto/base/log.h"
#include "trainer/corpus/settings.h"

/* Errors: MUSTER_E_INVALID, MUSTER_E_NOT_FOUND and MUSTER_E_UNSUPPORTED are the user's to mend;
 * MUSTER_E_BUSY: another one writes to output_dir. log gets a line a stage; NULL: none. */
int prepare_run(const struct corpus_settings *settings, const struct log_sink *log, struct muster_error *err);

#endif
