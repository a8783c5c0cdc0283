/* pickle.h - a state dict as PyTorch pickles it: an OrderedDict of tensors whose storages are members of the
 * archive. Pure.
 *
 * Only what torch.load(weights_only=True) accepts: protocol 2, the globals collections.OrderedDict,
 * torch._utils._rebuild_tensor_v2 and the storage types. Format: torch/serialization.py of PyTorch 2. */
#ifndef MUSTER_RUNTIME_FILES_PICKLE_H
#define MUSTER_RUNTIME_FILES_PICKLE_H

#include "runtime/files/tensors.h"

/* Tensor i is storage number i ("data/i" in the archive). alias: another name of tensor number alias_of,
 * which shares its storage; NULL: none. MUSTER_E_UNSUPPORTED for a type, MUSTER_E_NOMEM. */
int pickle_state_dict(const struct file_tensor *tensors, int count, const char *alias, int alias_of,
                      struct buffer *out, struct muster_error *err);

#endif
