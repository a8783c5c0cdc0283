/* train_config_check.h - which keys of a configuration fit each other. */
#ifndef MUSTER_RUNTIME_CONFIG_TRAIN_CONFIG_CHECK_H
#define MUSTER_RUNTIME_CONFIG_TRAIN_CONFIG_CHECK_H

#include <stdint.h>

#include "runtime/config/train_config.h"

/* Refuses a key that was set and has no effect beside the others (MUSTER_E_INVALID names the key, the other
 * one and the values of it that help), then values that do not fit each other. name stands for the file;
 * sources has an entry for each row of train_config_table(). Pure. */
int train_config_check(const char *name, const struct train_config *config, const uint8_t *sources,
                       struct muster_error *err);
/* The same of the keys of precision alone. */
int train_precision_check(const char *name, const struct train_config *config, const uint8_t *sources,
                          struct muster_error *err);

#endif
