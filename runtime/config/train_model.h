/* train_model.h - the model that a configuration describes: model.architecture and the keys beside it. */
#ifndef MUSTER_RUNTIME_CONFIG_TRAIN_MODEL_H
#define MUSTER_RUNTIME_CONFIG_TRAIN_MODEL_H

#include "runtime/config/train_config.h"
#include "runtime/files/architecture.h"

/* Its sizes; architecture_model checks them. */
struct architecture train_architecture(const struct train_config *config);

#endif
