/* train_file.h - the YAML file of muster-train: sections training, model, data, logging, read strictly.
 *
 * An unknown key, a duplicate or a value out of range is an error with file, line and column, and the nearest
 * known key. Values may be overridden by `--set key=value`. */
#ifndef MUSTER_RUNTIME_APP_TRAIN_FILE_H
#define MUSTER_RUNTIME_APP_TRAIN_FILE_H

#include <stddef.h>

#include "runtime/config/train_config.h"

/* Fills config with defaults, then with the file, then with overrides ("key=value"), and checks
 * constraints between keys. On failure config holds nothing. */
int train_config_read(const char *path, char *const *overrides, int override_count,
                      struct train_config *config, struct muster_error *err);
/* The same from text; name stands for the file in errors. */
int train_config_parse(const char *name, const char *text, size_t length, char *const *overrides,
                       int override_count, struct train_config *config, struct muster_error *err);

#endif
