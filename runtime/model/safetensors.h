/* safetensors.h - writing a safetensors file: an 8-byte little-endian header length, a JSON header, then
 * the tensors' bytes. Format: github.com/huggingface/safetensors, README. The file is written under a
 * temporary name, synced and renamed. */
#ifndef MUSTER_RUNTIME_MODEL_SAFETENSORS_H
#define MUSTER_RUNTIME_MODEL_SAFETENSORS_H

#include <stdint.h>

#include "kernels/kernels.h"
#include "proto/include/muster_error.h"

struct safetensors_tensor {
    const char *name;
    enum dtype dtype;
    int ndim;
    int64_t dim[4];
};

struct safetensors_writer;

/* Whether a file can be written at path: creates the temporary file and removes it again, hours before it
 * is needed. */
int safetensors_probe(const char *path, struct muster_error *err);
/* Announces all tensors in their order in the file. metadata: pairs of texts ("key", "value", ..., NULL), may
 * be NULL. */
struct safetensors_writer *safetensors_create(const char *path, const struct safetensors_tensor *tensors,
                                              int count, const char *const *metadata,
                                              struct muster_error *err);
/* The bytes of the next tensor, whole. */
int safetensors_write(struct safetensors_writer *writer, const void *data, int64_t bytes,
                      struct muster_error *err);
/* All tensors must have been written: syncs the file and renames it into place. The writer is destroyed in
 * any case. */
int safetensors_finish(struct safetensors_writer *writer, struct muster_error *err);
/* Removes the file written so far. Accepts NULL. */
void safetensors_destroy(struct safetensors_writer *writer);

#endif
