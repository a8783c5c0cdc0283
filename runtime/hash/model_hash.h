/* model_hash.h - hashes of a model's parameters, that identify its versions. */
#ifndef MUSTER_RUNTIME_HASH_MODEL_HASH_H
#define MUSTER_RUNTIME_HASH_MODEL_HASH_H

#include "runtime/files/architecture.h"
#include "runtime/train/trainer.h"

struct model_hash {
    char exact[17];  /* hash of names and every bit */
    char printed[9]; /* hash of PyTorch's print of the state dict, sorted by name */
};

/* Collective; rank 0 gets the hashes of the parameters rounded to the dtype (f32 or bf16), the other ranks
 * "". architecture: as for an export, may be NULL. MUSTER_E_UNSUPPORTED: a state dict whose names or shapes
 * differ from the parameters'. */
int model_hash_form(struct trainer *trainer, const struct architecture *architecture, enum dtype dtype,
                    struct model_hash *hash, struct muster_error *err);

#endif
