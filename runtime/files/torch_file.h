/* torch_file.h - the state dict in a file of torch.save (the archive of PyTorch since 1.6). */
#ifndef MUSTER_RUNTIME_FILES_TORCH_FILE_H
#define MUSTER_RUNTIME_FILES_TORCH_FILE_H

#include "proto/archive/zip.h"
#include "runtime/files/tensors.h"

/* Whether a file's first bytes are an archive's. Other files that hold parameters (a pickle of PyTorch
 * before 1.6, GGUF, HDF5) give an error with the way out; the rest gives 0. */
bool torch_file_begins(const void *start, size_t bytes);
int torch_file_refuse(const char *name, const void *start, size_t bytes, struct muster_error *err);

/* Appends the tensors of the state dict. The state dict is the saved object itself, or the value of one of
 * its keys state_dict, model_state_dict, model, module, net. file: copied into each. Errors name the tensor
 * or the member. */
int torch_file_parse(const struct zip_source *source, int file, struct file_tensors *tensors,
                     struct muster_error *err);

#endif
