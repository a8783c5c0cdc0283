/* stages.h - training.stages: parts of a training that follow each other, each with settings of its own.
 *
 *     training:
 *       stages:
 *         - {name: short, tokens: 1e9, sequence_length: 512}
 *         - {name: long, steps: 500, sequence_length: 4096, learning_rate: 1.0e-5, data: {path: books}}
 *
 * A stage is a mapping with keys of section training, a name, and a mapping data with keys of that section;
 * everything else is as it is beside the list. In the configuration each is kept as one text, of JSON. */
#ifndef MUSTER_TRAINER_FORMATS_STAGES_H
#define MUSTER_TRAINER_FORMATS_STAGES_H

#include "trainer/formats/keys.h"

enum { STAGES_LIMIT = 64 };

/* The list in a file. Errors name file, line and column. */
int stages_read(struct key_walk *walk, const struct tree_node *list);

/* 0: the training has no stages. */
int stages_count(const struct train_config *config);
/* The settings of the stage of that number, from 0: those of the training with its own in their place. A
 * length (steps, tokens, epochs) takes the place of any other; what has no effect beside the stage's own
 * settings is left out. out: the caller's (train_config_free); nothing on failure. name: NULL: it is not
 * wanted, else mem_free; *name NULL: it has none. */
int stages_settings(const struct train_config *config, int number, struct train_config *out, char **name,
                    struct muster_error *err);
/* For a command that takes no step: what is beside the list has an effect in a stage, if not without them. */
int stages_leave_idle(struct train_config *config, struct muster_error *err);
/* The longest sequence of any stage, or of a training without them. -1. */
int64_t stages_positions(const struct train_config *config, struct muster_error *err);
/* train_config_check of each stage; name: as there. */
int stages_check(const char *name, const struct train_config *config, struct muster_error *err);

#endif
