/* train_resume.h - compares the settings of a run that goes on from a checkpoint with the settings that are
 * written in the checkpoint. Pure. */
#ifndef MUSTER_RUNTIME_CONFIG_TRAIN_RESUME_H
#define MUSTER_RUNTIME_CONFIG_TRAIN_RESUME_H

#include "runtime/config/train_config.h"

/* The texts of all values of section training that a checkpoint keeps, "training.seed=42", NULL at the end;
 * owned by the caller (train_settings_free). NULL: no memory. */
char **train_resume_texts(const struct train_config *config);

/* Compares the texts of a checkpoint with the texts of this run. MUSTER_E_REFUSED names a setting that would
 * change the order of the samples. Each other difference is a line in the report: the run goes on with its
 * own value. A setting that only one side has is of another version, and is left out. */
int train_resume_compare(const char *const *written, const char *const *now, struct buffer *report,
                         struct muster_error *err);

#endif
