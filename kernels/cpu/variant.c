/* variant.c - the table of one instruction set. It is data and no code, so that a processor may hold the
 * tables of all sets and run its own alone. squared_error, correct_sum, batch_norm_change and _step, loss_sum
 * and clip_factor are the reference's, since they touch only a few numbers a step. */
#include "kernels/cpu/cpu.h"
#include "kernels/ref/real.h"

#define SLOTS_BY(suffix)                                                                                     \
    {                                                                                                        \
        CPU(linear_forward##suffix), CPU(linear_backward_input##suffix),                                     \
            CPU(linear_backward_weight##suffix), CPU(conv2d_forward##suffix),                                \
            CPU(conv2d_backward_input##suffix), CPU(conv2d_backward_weight##suffix)                          \
    }

const struct kernels CPU(table) = {
    .abi = KERNELS_ABI,
    .size = sizeof(struct kernels),
    .name = CPU_TABLE_NAME,
    .dtype = DTYPE_F32,
    .row_multiple = 1,
    .linear_forward = CPU(linear_forward),
    .linear_backward_input = CPU(linear_backward_input),
    .linear_backward_weight = CPU(linear_backward_weight),
    .embedding_forward = CPU(embedding_forward),
    .embedding_backward = CPU(embedding_backward),
    .rows_add = CPU(rows_add),
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
    .conv2d_forward = CPU(conv2d_forward),
    .conv2d_backward_input = CPU(conv2d_backward_input),
    .conv2d_backward_weight = CPU(conv2d_backward_weight),
    .conv2d_work = CPU(conv2d_work),
    .max_pool2d_forward = CPU(max_pool2d_forward),
    .max_pool2d_backward = CPU(max_pool2d_backward),
    .avg_pool2d_forward = CPU(avg_pool2d_forward),
    .avg_pool2d_backward = CPU(avg_pool2d_backward),
    .mean_forward = CPU(mean_forward),
    .mean_backward = CPU(mean_backward),
    .batch_norm_forward = CPU(batch_norm_forward),
    .batch_norm_fixed = CPU(batch_norm_fixed),
    .batch_norm_backward = CPU(batch_norm_backward),
    .batch_norm_change = REF(batch_norm_change),
    .batch_norm_step = REF(batch_norm_step),
    .activation_forward = CPU(activation_forward),
    .activation_backward = CPU(activation_backward),
    .gated_forward = CPU(gated_forward),
    .gated_backward = CPU(gated_backward),
    .slice_forward = CPU(slice_forward),
    .slice_backward = CPU(slice_backward),
    .dropout = CPU(dropout),
    .add = CPU(add),
    .accumulate = CPU(accumulate),
    .cross_entropy = CPU(cross_entropy),
    .squared_error = REF(squared_error),
    .correct_sum = REF(correct_sum),
    .loss_sum = REF(loss_sum),
    .norm_squared = CPU(norm_squared),
    .clip_factor = REF(clip_factor),
    .adamw = CPU(adamw),
    .adam = CPU(adam),
    .sgd = CPU(sgd),
    .average = CPU(average),
    .scale = CPU(scale),
    .cast = CPU(cast),
    .widen = CPU(widen),
    .by = {[KERNELS_ONEDNN] = SLOTS_BY(_onednn),
           [KERNELS_BF16] = SLOTS_BY(_bf16),
           [KERNELS_AUTO] = SLOTS_BY(_auto)},
};
