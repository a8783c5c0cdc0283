/* narrow.h - attention over values of 16 bits. cuda_attention_forward_bf16 and its like (operations.h) are by
 * tensor cores, with sums in float, for heads of up to 128 columns without a cap, and without a window on
 * both sides. For the others they call these, which have no tensor cores (plain_forward.cu,
 * plain_backward.cu). bf16 by tensor cores needs sm_80, f16 sm_75. */
#ifndef MUSTER_KERNELS_CUDA_ATTENTION_NARROW_H
#define MUSTER_KERNELS_CUDA_ATTENTION_NARROW_H

#include "kernels/cuda/operations.h"

#ifdef __cplusplus
extern "C" {
#endif

extern __typeof__(cuda_attention_forward) cuda_attention_forward_plain_bf16, cuda_attention_forward_plain_f16;
extern __typeof__(cuda_attention_backward) cuda_attention_backward_plain_bf16,
    cuda_attention_backward_plain_f16;

#ifdef __cplusplus
}
#endif
#endif
