/* kernels_attention.h - attention over values of 16 bits: by cuDNN where struct attention names it and it
 * takes the shape (cudnn/attention.h), else by kernels/cuda. The log-sum-exp is the same, so that the two
 * directions may differ. */
#ifndef MUSTER_RUNTIME_CUDA_KERNELS_ATTENTION_H
#define MUSTER_RUNTIME_CUDA_KERNELS_ATTENTION_H

#include "kernels/cuda/operations.h"

extern __typeof__(cuda_attention_forward_bf16) chosen_attention_forward_bf16, chosen_attention_forward_f16;
extern __typeof__(cuda_attention_backward_bf16) chosen_attention_backward_bf16, chosen_attention_backward_f16;
size_t chosen_attention_work(const struct attention *a, int backward);

#endif
