/* stage_override.h - a key of one stage from the command line: --set training.stages.1.learning_rate=0.001.
 * Stages are numbered from 0, as messages name them; keys are those that a stage has in a file, as
 * data.path. */
#ifndef MUSTER_TRAINER_FORMATS_STAGE_OVERRIDE_H
#define MUSTER_TRAINER_FORMATS_STAGE_OVERRIDE_H

#include <stdbool.h>

#include "trainer/formats/assign.h"

/* Whether the text "key=value" is such a one. */
bool stage_is_override(const char *text);
/* Behind the files: the key takes the place of the stage's own, or is added to it. */
int stage_override(struct assign *assign, const char *text);

#endif
