/* tensor_text.h - a tensor as PyTorch's repr() prints it with its usual options: four digits, at most 1,000
 * elements whole and else three at each end of each dimension, lines of 80. Hashes of scripts are formed of
 * it. Pure. */
#ifndef MUSTER_RUNTIME_HASH_TENSOR_TEXT_H
#define MUSTER_RUNTIME_HASH_TENSOR_TEXT_H

#include "proto/base/buffer.h"
#include "runtime/files/tensors.h"

/* values: float, row-major, of a tensor of the dtype (f32, or bf16: values are rounded already). An
 * int64 tensor (tensor->integer) has a single whole number. -1: no memory, out->failed. */
int tensor_text(struct buffer *out, const struct file_tensor *tensor, const float *values);

#endif
