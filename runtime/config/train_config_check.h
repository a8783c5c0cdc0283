/* train_config_check.h - which keys of a configuration fit each other. */
#ifndef MUSTER_RUNTIME_CONFIG_TRAIN_CONFIG_CHECK_H
#define MUSTER_RUNTIME_CONFIG_TRAIN_CONFIG_CHECK_H

#include "runtime/config/train_config.h"

/* Sections of the table, as bits. */
enum train_section { TRAIN_TRAINING = 1, TRAIN_MODEL = 2, TRAIN_DATA = 4, TRAIN_LOGGING = 8, TRAIN_ALL = 15 };

/* Refuses a key that was set and has no effect with the other settings (MUSTER_E_INVALID names the key, the
 * other key and the values of it that help), then values of these sections that do not fit each other. name
 * stands for the file, with a colon and a blank at its end; "": none. Pure. */
int train_config_check(const char *name, const struct train_config *config, unsigned sections,
                       struct muster_error *err);
/* train_config_check of the keys of precision alone. */
int train_precision_check(const char *name, const struct train_config *config, struct muster_error *err);
/* train_config_has_effect of a key of precision; true of any other. */
bool train_precision_has_effect(const struct train_config *config, const char *key);

#endif
