/* stages.h - training.stages: consecutive parts of a training, each with its own settings.
 *
 *     training:
 *       stages:
 *         - {name: short, tokens: 1e9, sequence_length: 512}
 *         - {name: long, steps: 500, sequence_length: 4096, learning_rate: 1.0e-5, data: {path: books}}
 *
 * A stage is a mapping with keys of section training, a name, and a mapping data with keys of section data.
 * Other settings are those next to the list. The configuration keeps a stage as a text of JSON. */
#ifndef MUSTER_TRAINER_FORMATS_STAGES_H
#define MUSTER_TRAINER_FORMATS_STAGES_H

#include <stdbool.h>

#include "trainer/formats/assign.h"
#include "trainer/formats/keys.h"

enum { STAGES_LIMIT = 64 };

/* Reads the list of a file. Errors name file, line and column. */
int stages_read(struct key_walk *walk, const struct tree_node *list);

/* 0: the training has no stages. */
int stages_count(const struct train_config *config);
/* The settings of stage `number`, from 0: the training's, replaced by the stage's own. A length (steps,
 * tokens, epochs) replaces any other length. A setting of the training without effect in the stage is
 * dropped. out: for the caller to free (train_config_free); empty on failure. *name: for the caller to free
 * (mem_free), NULL: the stage has none; name may be NULL. */
int stages_settings(const struct train_config *config, int number, struct train_config *out, char **name,
                    struct muster_error *err);
/* For a command that takes no step: drops settings next to the list that have an effect in stages alone. */
int stages_leave_idle(struct train_config *config, struct muster_error *err);
/* The longest sequence of any stage, or of a training without stages; -1: an error. */
int64_t stages_positions(const struct train_config *config, struct muster_error *err);
/* Calls train_config_check for each stage; name: see train_config_check. */
int stages_check(const char *name, const struct train_config *config, struct muster_error *err);

/* stage_override.c: a key of a stage from the command line, --set training.stages.1.learning_rate=0.001.
 * Stages are numbered from 0, as in messages. Keys are written as in a file, such as data.path. */

/* Whether the text "key=value" is a key of a stage. */
bool stage_is_override(const char *text);
/* Called after the files: replaces the stage's value, or adds the key. */
int stage_override(struct assign *assign, const char *text);

#endif
