/* prediction.h - the text of `muster-train --plan --predict`: pure. */
#ifndef MUSTER_TRAINER_RUN_PREDICTION_H
#define MUSTER_TRAINER_RUN_PREDICTION_H

#include <stdbool.h>

#include "proto/base/buffer.h"
#include "runtime/include/muster.h"

/* The plan's text, with what a step takes and from what that follows; prediction NULL: the plan alone.
 * json: the plan is one object, which gets the key "prediction". */
int prediction_text(const char *plan, const struct muster_prediction *prediction, int world_size, bool json,
                    struct buffer *out);

#endif
