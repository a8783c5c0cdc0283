/* readers.h - the readers of formats.h, one a language; internal. */
#ifndef MUSTER_TRAINER_FORMATS_READERS_H
#define MUSTER_TRAINER_FORMATS_READERS_H

#include "trainer/formats/keys.h"

/* Each takes the root of a file, a mapping. Errors name file, line and column. */
int sections_read(struct key_walk *walk, const struct tree_node *root);  /* training, model, data, logging */
int deepspeed_read(struct key_walk *walk, const struct tree_node *root); /* ds_config.json */
int model_read(struct key_walk *walk, const struct tree_node *root);     /* config.json of a model */
/* TrainingArguments of the Hugging Face Trainer, and the names that training scripts use. */
int arguments_read(struct key_walk *walk, const struct tree_node *root);
/* The same as one option of the command line: name without dashes, NULL for a switch. */
int arguments_option(struct key_walk *walk, const char *name, const char *value);

bool sections_recognise(const struct tree_node *root);
bool deepspeed_recognise(const struct tree_node *root);
bool model_recognise(const struct tree_node *root);
bool arguments_recognise(const struct tree_node *root);

/* What the Trainer does where its arguments are not given, as weak values. */
int arguments_defaults(struct assign *assign);

/* For documentation and tests. */
extern const struct key_table deepspeed_keys, model_keys, arguments_keys;
extern const struct key_table *const deepspeed_params;
extern const struct key_table sections_aliases;

#endif
