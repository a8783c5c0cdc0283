/* formats_internal.h - private header of this folder: a reader for each format, and the rules after them. */
#ifndef MUSTER_TRAINER_FORMATS_FORMATS_INTERNAL_H
#define MUSTER_TRAINER_FORMATS_FORMATS_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/include/muster_error.h"
#include "proto/tree/tree.h"
#include "trainer/formats/assign.h"
#include "trainer/formats/keys.h"

/* ---- readers: sections.c, deepspeed.c, model.c, arguments.c ---- */

/* A reader takes the root of a file, a mapping. Errors name file, line and column. */
int sections_read(struct key_walk *walk, const struct tree_node *root);  /* training, model, data, logging */
int deepspeed_read(struct key_walk *walk, const struct tree_node *root); /* ds_config.json */
int model_read(struct key_walk *walk, const struct tree_node *root);     /* config.json of a model */
/* TrainingArguments of the Hugging Face Trainer, and the names that training scripts use. */
int arguments_read(struct key_walk *walk, const struct tree_node *root);
/* Reads an option of the command line: name without dashes; value NULL: a switch. */
int arguments_option(struct key_walk *walk, const char *name, const char *value);
/* The name of an option without the section that torchtitan's have: parallelism.pipeline_parallel_degree. */
const char *arguments_inner(const char *name);

bool sections_recognise(const struct tree_node *root);
bool deepspeed_recognise(const struct tree_node *root);
bool model_recognise(const struct tree_node *root);
bool arguments_recognise(const struct tree_node *root);

/* Adds the defaults of the Trainer as weak values. */
int arguments_defaults(struct assign *assign);

/* Tables for documentation and tests. */
extern const struct key_table deepspeed_keys, model_keys, arguments_keys;
extern const struct key_table *const deepspeed_params;
extern const struct key_table sections_aliases;

/* ---- foreign.c: recognises files that no reader takes, with advice in the error. Pure. ---- */

/* Recognises a text before it is parsed: TOML, a hostfile, a program, an archive. 0: not recognised; else
 * MUSTER_E_UNSUPPORTED. */
int foreign_text(const char *name, const char *text, size_t length, struct muster_error *err);
/* Refuses a value with a tag of another program (!env, !include, !!python/tuple): tags are never applied. */
int foreign_tags(const char *name, const struct tree_node *node, struct muster_error *err);
/* Recognises a file by its keys. 0: not recognised; else MUSTER_E_UNSUPPORTED. */
int foreign_tree(const char *name, const struct tree_node *root, struct muster_error *err);
/* Not pure: a folder with a model's parameters, or with adapters. */
int foreign_folder(const char *folder, struct muster_error *err);

/* ---- finish.c: settings that depend on all files: batches, defaults, shares of other values ---- */

/* Called after the last file, option and --set. */
int finish_settings(struct assign *assign);
/* Called after the checks: sets values that are still open. */
int finish_checked(struct assign *assign);

/* The three sizes of a batch, of which two give the third, by DeepSpeed's rules (runtime/config.py,
 * _configure_train_batch_size, 0.19): total = micro x accumulation x ranks. 0: not given. */
struct batch_sizes {
    int64_t total, micro, accumulation;
};

/* Fills missing sizes as DeepSpeed does. strict: refuses sizes that DeepSpeed refuses. Otherwise an
 * accumulation that does not fit total and micro becomes total / (micro x ranks), rounded up; *changed: it
 * was given. Pure. MUSTER_E_INVALID: the error has the sizes and the ranks. */
int batch_complete(struct batch_sizes *sizes, int ranks, bool strict, bool *changed,
                   struct muster_error *err);

#endif
