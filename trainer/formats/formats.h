/* formats.h - the configuration of a run, read from files in the formats of several programs.
 *
 *   sections    muster-train's own YAML: training, model, data, logging
 *   deepspeed   ds_config.json
 *   model       config.json of a model: sizes
 *   arguments   TrainingArguments of the Hugging Face Trainer, and the names that training scripts use
 *   ConfigMap   of Kubernetes: each of its files
 *
 * The keys of a file give its format. Files are read in order; a later value replaces an earlier value, with
 * a note. Options of the command line come after the files, --set at the end. A key without effect is listed;
 * any other key that is not honoured is an error with file, line and column. */
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
    char *const *overrides; /* values of --set: "training.steps=100" */
    int override_count;
    int world_size; /* ranks of the run; DeepSpeed's batch sizes depend on it */
    bool unchecked; /* settings may contradict each other; see formats_check */
};

/* Settings and their sources. */
struct formats_settings {
    struct train_config config;
    char *places[TRAIN_CONFIG_KEYS]; /* source of each row of the table; NULL: the default */
    struct buffer notes;             /* notes for the user, a line each */
};

/* On failure settings holds nothing but its notes. */
int formats_read(const struct formats_request *request, struct formats_settings *settings,
                 struct muster_error *err);
/* The checks at the end of formats_read, except that data.path may be missing: printing needs no data. */
int formats_check(struct formats_settings *settings, struct muster_error *err);
void formats_free(struct formats_settings *settings); /* accepts NULL */

/* Whether an option of the command line (without dashes) is the name of a setting in another program; such an
 * option belongs to the request. */
bool formats_option(const char *name);
/* The nearest such option, without dashes; NULL: none is near. */
const char *formats_nearest_option(const char *name);

/* Prints the settings as YAML that gives the same settings when read, with the source of each; defaults are
 * remarks. json: an object, {"training.steps": {"value": 100, "source": "--set"}, ...}. */
int formats_print(const struct formats_settings *settings, bool json, struct buffer *out);

/* Prints all keys of other programs as a document of Markdown. */
int formats_markdown(struct buffer *out);

/* Reads a text; name is the file in errors. */
int formats_parse(const char *name, const char *text, size_t length, char *const *overrides,
                  int override_count, int world_size, struct formats_settings *settings,
                  struct muster_error *err);

#endif
