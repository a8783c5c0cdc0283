/* train_settings.h - settings as texts, "training.steps=100": read, and made of a configuration. */
#ifndef MUSTER_RUNTIME_CONFIG_TRAIN_SETTINGS_H
#define MUSTER_RUNTIME_CONFIG_TRAIN_SETTINGS_H

#include "runtime/config/train_config.h"

/* Fills config with defaults, then with the texts (NULL at the end; NULL: none), and checks the section of
 * that name. MUSTER_E_INVALID names a key that is unknown, of another section, out of range or without
 * effect. On failure config holds nothing. Section model takes the texts of section lora, too, and section
 * training the texts of section mesh. */
int train_settings_read(const char *const *texts, const char *section, struct train_config *config,
                        struct muster_error *err);

/* The same of section model for an architecture, which the texts may not change. model.positions 0 becomes
 * TRAIN_POSITIONS. */
enum { TRAIN_POSITIONS = 1024 };
int train_settings_model(const char *architecture, const char *const *texts, struct train_config *config,
                         struct muster_error *err);

/* The texts of a model whose files give its sizes, as they were set: its page and its labels. Owned as
 * below. */
char **train_settings_of_files(const struct train_config *config);
/* The first that such a model does not take; NULL: there is none. */
const char *train_settings_other(const char *const *texts);

/* The texts of all values of a section (training: and of mesh) that were set, NULL at the end, owned by the
 * caller (train_settings_free). NULL: no memory. */
char **train_settings_texts(const struct train_config *config, const char *section);
/* The settings of two sections; first may be NULL. */
char **train_settings_joined(const struct train_config *config, const char *first, const char *second);
void train_settings_free(char **texts); /* accepts NULL */

#endif
