/* variant.c - the table of one instruction set: data and no code, so that a processor may hold the tables of
 * all of them and run what is in its own alone. What this folder does not improve (loss_sum, clip_factor)
 * is the reference's: it touches a few numbers a step. */
#include "kernels/cpu/cpu.h"
#include "kernels/ref/real.h"

const struct kernels CPU(table) = {
    .abi = KERNELS_ABI,
    .size = sizeof(struct kernels),
    .name = CPU_TABLE_NAME,
    .dtype = DTYPE_F32,
    .linear_forward = CPU(linear_forward),
    .linear_backward_input = CPU(linear_backward_input),
    .linear_backward_weight = CPU(linear_backward_weight),
    .embedding_forward = CPU(embedding_forward),
    .embedding_backward = CPU(embedding_backward),
    .layernorm_forward = CPU(layernorm_forward),
    .layernorm_backward = CPU(layernorm_backward),
    .layernorm_backward_work = CPU(layernorm_backward_work),
    .rms_norm_forward = CPU(rms_norm_forward),
    .rms_norm_backward = CPU(rms_norm_backward),
    .rms_norm_backward_work = CPU(rms_norm_backward_work),
    .rotary = CPU(rotary),
    .attention_forward = CPU(attention_forward),
    .attention_backward = CPU(attention_backward),
    .attention_work = CPU(attention_work),
    .activation_forward = CPU(activation_forward),
    .activation_backward = CPU(activation_backward),
    .swiglu_forward = CPU(swiglu_forward),
    .swiglu_backward = CPU(swiglu_backward),
    .dropout = CPU(dropout),
    .add = CPU(add),
    .accumulate = CPU(accumulate),
    .cross_entropy = CPU(cross_entropy),
    .loss_sum = REF(loss_sum),
    .norm_squared = CPU(norm_squared),
    .clip_factor = REF(clip_factor),
    .adamw = CPU(adamw),
    .adam = CPU(adam),
    .sgd = CPU(sgd),
    .scale = CPU(scale),
    .cast = CPU(cast),
    .widen = CPU(widen),
};
