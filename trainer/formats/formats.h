/* formats.h - the configuration of a run, read from files in any of the languages of the field.
 *
 *   sections    our own YAML: training, model, data, logging
 *   deepspeed   ds_config.json
 *   model       config.json of a model: sizes
 *   arguments   TrainingArguments of the Hugging Face Trainer, and the names that training scripts use
 *   ConfigMap   of Kubernetes: each of its files, as if it were one
 *
 * A file's language follows from its keys. Files are read one behind the other: a later value is taken in
 * place of an earlier one, which is noted; options of the command line come behind the files, and --set at
 * the end. Every key that is not honoured is named as one without effect, or is an error with file, line and
 * column. */
#ifndef MUSTER_TRAINER_FORMATS_FORMATS_H
#define MUSTER_TRAINER_FORMATS_FORMATS_H

#include <stddef.h>

#include "proto/base/buffer.h"
#include "runtime/config/train_config.h"

enum { FORMATS_FILES_LIMIT = 64 };

struct formats_request {
    char *const *paths; /* files, and folders of .json, .yaml and .yml files, which are read by name */
    int path_count;
    char *const *options; /* "batch_size_per_gpu=4", "fp16": see formats_option */
    int option_count;
    char *const *overrides; /* of --set: "training.steps=100" */
    int override_count;
    int world_size; /* ranks of the run: DeepSpeed's batch sizes follow from it */
    bool unchecked; /* whether settings may be returned that do not fit each other: see formats_check */
};

/* Settings and where each came from. */
struct formats_settings {
    struct train_config config;
    char *places[TRAIN_CONFIG_KEYS]; /* as the rows of the table; NULL: the default */
    struct buffer notes;             /* what the user should know, a line each */
};

/* On failure settings holds nothing but its notes. */
int formats_read(const struct formats_request *request, struct formats_settings *settings,
                 struct muster_error *err);
/* What formats_read checks at its end, but for data that are not named: what is printed needs none. */
int formats_check(struct formats_settings *settings, struct muster_error *err);
void formats_free(struct formats_settings *settings); /* accepts NULL */

/* Whether an option of the command line (without dashes) is a setting's name in another program, so that the
 * request may have it. */
bool formats_option(const char *name);
/* The nearest of them, without dashes; NULL: none is near. */
const char *formats_nearest_option(const char *name);

/* The settings as our own YAML, which can be read again and gives the same; each with where it came from.
 * Defaults are remarks. json: one object, {"training.steps": {"value": 100, "source": "--set"}, ...}. */
int formats_print(const struct formats_settings *settings, bool json, struct buffer *out);

/* All keys of other programs as a document of Markdown. */
int formats_markdown(struct buffer *out);

/* One text; name stands for the file in errors. */
int formats_parse(const char *name, const char *text, size_t length, char *const *overrides,
                  int override_count, int world_size, struct formats_settings *settings,
                  struct muster_error *err);

#endif
