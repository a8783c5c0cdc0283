/* model_hash_internal.h - the text and the sum of which model_hash.c forms a script's hash. Pure. */
#ifndef MUSTER_RUNTIME_HASH_MODEL_HASH_INTERNAL_H
#define MUSTER_RUNTIME_HASH_MODEL_HASH_INTERNAL_H

#include <stddef.h>
#include <stdint.h>

#include "proto/base/buffer.h"
#include "runtime/files/tensors.h"

/* ---- md5.c ---- */

/* MD5 (RFC 1321), for hashes that other programs form so; it protects nothing. */

enum { MD5_BYTES = 16 };
void md5(const void *data, size_t length, uint8_t out[MD5_BYTES]);

/* ---- tensor_text.c ---- */

/* A tensor as PyTorch's repr() prints it with its usual options: four digits, at most 1,000
 * elements whole and else three at each end of each dimension, lines of 80. Hashes of scripts are formed of
 * it. Pure. */

/* values: float, a tensor of the dtype (f32, or bf16: they are rounded already), row-major. For an
 * int64 (tensor->integer) one whole number. -1: no memory, out->failed. */
int tensor_text(struct buffer *out, const struct file_tensor *tensor, const float *values);

#endif
