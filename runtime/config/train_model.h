/* train_model.h - the model that a configuration describes: model.architecture and the keys beside it. */
#ifndef MUSTER_RUNTIME_CONFIG_TRAIN_MODEL_H
#define MUSTER_RUNTIME_CONFIG_TRAIN_MODEL_H

#include "runtime/config/train_config.h"
#include "runtime/plan/model.h"

/* Owned by the caller (model_destroy). MUSTER_E_INVALID names a size and its bounds, or the sizes that do not
 * divide. */
struct model *train_model_create(const struct train_config *config, struct muster_error *err);

#endif
