/* safetensors.h - the header of a safetensors file, read and written. Pure.
 *
 * A file is an 8-byte little-endian length, a JSON header of that length, padded with blanks to a multiple of
 * 8, then the tensors' bytes without holes. Format: github.com/huggingface/safetensors, README. */
#ifndef MUSTER_RUNTIME_FILES_SAFETENSORS_H
#define MUSTER_RUNTIME_FILES_SAFETENSORS_H

#include "runtime/files/tensors.h"

enum { SAFETENSORS_LENGTH = 8 }; /* bytes before the header */

/* Bytes of the header, from a file's first SAFETENSORS_LENGTH bytes and its size. MUSTER_E_INVALID where it
 * is not a safetensors file or is cut off. */
int64_t safetensors_header_length(const char *name, const void *start, int64_t file_bytes,
                                  struct muster_error *err);
/* Appends the tensors that a header describes; offsets count from the file's start, file is copied into each.
 * Every tensor's bytes are inside of the file, as many as its shape and type need, and none overlap: tensors
 * must fill the file, as the format demands. MUSTER_E_INVALID names the tensor. */
int safetensors_parse(const char *name, const char *header, size_t length, int64_t file_bytes, int file,
                      struct file_tensors *tensors, struct muster_error *err);

/* The start of a file up to its first tensor, for tensors in the order of the list, whose offsets it sets.
 * A tensor of DTYPE_COUNT has the type that its `type` names.
 * metadata: pairs of texts ("key", "value", ..., NULL), may be NULL. Returns the size of the file, or -1:
 * MUSTER_E_NOMEM, MUSTER_E_UNSUPPORTED for a type. */
int64_t safetensors_format(struct file_tensor *tensors, int count, const char *const *metadata,
                           struct buffer *out, struct muster_error *err);

#endif
