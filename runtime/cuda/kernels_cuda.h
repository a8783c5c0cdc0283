/* kernels_cuda.h - struct kernels of a CUDA device.
 *
 * `stream` of every slot is a struct cuda_stream_handle (cuda_stream.h), never NULL; pointers are device
 * memory unless kernels.h states otherwise. A slot enqueues and returns; an error of the enqueue goes to the
 * handle's `fail`. linear_* and norm_squared want a stream with products. */
#ifndef MUSTER_RUNTIME_CUDA_KERNELS_CUDA_H
#define MUSTER_RUNTIME_CUDA_KERNELS_CUDA_H

#include <stdbool.h>

#include "kernels/kernels.h"
#include "proto/include/muster_error.h"

#ifdef __cplusplus
extern "C" {
#endif

/* "cuda-f32", "cuda-tf32", "cuda-bf16" or "cuda-f16", by the type of values and weights; streams' products
 * are opened with the same tf32, which is of f32 alone. Static. */
const struct kernels *kernels_cuda(enum dtype values, bool tf32);

/* The table of 16 bits with attention by cuDNN for the shapes that `by` takes, which lives as long: into
 * *table. */
void kernels_cuda_with(struct kernels *table, enum dtype values, struct attention_by *by);

struct cuda_description;
/* muster_cuda_module.kernels (kernels_attention.c). */
const struct kernels *kernels_described(const struct cuda_description *described, enum dtype values,
                                        bool tf32, bool cudnn, struct muster_error *err);

#ifdef __cplusplus
}
#endif
#endif
