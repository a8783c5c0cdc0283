/* train_effects.h - keys that have an effect only with some values of another key: a table. Pure. */
#ifndef MUSTER_RUNTIME_CONFIG_TRAIN_EFFECTS_H
#define MUSTER_RUNTIME_CONFIG_TRAIN_EFFECTS_H

#include "runtime/config/train_config.h"

/* Refuses a key that was set and has no effect: MUSTER_E_INVALID names the key, the other key and the values
 * of it that help. program: the rows of muster-train, which the public API has not. name as
 * train_config_check's. */
int train_effects_check(const char *name, const struct train_config *config, bool program,
                        struct muster_error *err);

/* Whether a key has an effect with the other settings. */
bool train_config_has_effect(const struct train_config *config, const struct knob *knob);
/* Same as train_config_has_effect, in the program muster-train. */
bool train_config_is_used(const struct train_config *config, const struct knob *knob);

/* Whether a path ends as files of parameters alone do, which give neither sizes nor a state: .safetensors,
 * .pth, .pt. NULL: false. */
bool train_config_is_parameters(const char *path);
/* Whether there are evaluations whose steps follow when the data are counted. */
bool train_config_evaluates_in_parts(const struct train_config *config);

#endif
