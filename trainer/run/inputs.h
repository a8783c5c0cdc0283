/* inputs.h - the samples of a run, by its settings: texts, pictures or labelled texts, their tokenizer, and
 * their batches. Other parts see a batch source. */
#ifndef MUSTER_TRAINER_RUN_INPUTS_H
#define MUSTER_TRAINER_RUN_INPUTS_H

#include "runtime/config/train_config.h"
#include "runtime/include/muster.h"
#include "trainer/run/batches.h"
#include "trainer/tokens/tokenizer.h"

struct inputs;

/* Opens the inputs of the settings. The settings change where the inputs decide them: training.steps by
 * training.epochs, data.path by the index of a prepared folder. rank: of its warnings; 0 prints them. NULL on
 * error, of this rank alone. */
struct inputs *inputs_open(struct train_config *config, int rank, struct muster_error *err);
/* The tokenizer alone, for a run that reads no data. */
struct inputs *inputs_open_tokenizer(const struct train_config *config, struct muster_error *err);
void inputs_close(struct inputs **inputs); /* accepts NULL in it, and sets it to NULL */

/* The samples to train on, and those held out (samples 0: none). Both live as long as the inputs. */
struct batch_source inputs_source(const struct inputs *inputs);
struct batch_source inputs_held_out(const struct inputs *inputs);
const char *inputs_identity(const struct inputs *inputs); /* see data.h */
/* Whether samples have a class, and the name of samples: "pictures", "texts", else "tokens". */
bool inputs_classify(const struct inputs *inputs);
const char *inputs_unit(const struct inputs *inputs);
/* Whether the length of a sample is its own, and a step computes as many positions as its samples have. */
bool inputs_vary(const struct inputs *inputs);
/* Share of the positions of samples to train on that come after the ends of documents; 0: none, or samples
 * are cut from a stream. */
double inputs_padding(const struct inputs *inputs);

/* The batches of a training: starts the thread that makes them, and takes the batch of the step whose first
 * sample is `first`. *waited_ns: time of this call. */
int inputs_begin(struct inputs *inputs, const struct train_batch *batch, struct muster_error *err);
int inputs_take(struct inputs *inputs, int64_t first, struct step_batch *out, int64_t *waited_ns,
                struct muster_error *err);

/* The tokenizer, opened again: it takes memory, and is needed at the beginning and at the end. The caller
 * owns it. *vocabulary may be NULL. MUSTER_E_NOT_FOUND: the data are numbers, and no tokenizer is named. */
struct tokenizer *inputs_tokenizer(const struct inputs *inputs, int32_t *vocabulary,
                                   struct muster_error *err);
/* Whether there is such a tokenizer. */
bool inputs_have_text(const struct inputs *inputs);
/* Copies the tokenizer's files into a folder. Nothing where samples are no text. */
int inputs_copy_tokenizer(const struct inputs *inputs, const char *folder, struct muster_error *err);

/* Prints files and sizes; trainer NULL: no training follows. */
void inputs_show(const struct inputs *inputs, const struct train_config *config,
                 const struct muster_trainer *trainer);
/* One object of JSON with sizes and classes. */
int inputs_info(const struct inputs *inputs, struct buffer *out);

#endif
