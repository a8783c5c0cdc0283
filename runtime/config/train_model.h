/* train_model.h - the model that a configuration describes: model.architecture and the related keys. */
#ifndef MUSTER_RUNTIME_CONFIG_TRAIN_MODEL_H
#define MUSTER_RUNTIME_CONFIG_TRAIN_MODEL_H

#include "runtime/config/train_config.h"
#include "runtime/files/architecture.h"

/* The sizes of model.architecture; architecture_model checks them. */
struct architecture train_architecture(const struct train_config *config);
/* Fills architecture.lora, for an architecture that is known; rank 0 where there are no adapters.
 * Reads adapter_config.json in lora.path. */
int train_adapters(const struct train_config *config, struct architecture *architecture,
                   struct muster_error *err);

#endif
