/* variant.c - the slots that this folder improves, compiled once for each instruction set. What is not named
 * here (loss_sum, clip_factor) stays the reference's: it touches a few numbers a step. */
#include "kernels/cpu/cpu.h"

#define CPU_SLOT(operation) table->operation = CPU(operation);

void CPU(fill)(struct kernels *table)
{
    CPU_SLOT(linear_forward)
    CPU_SLOT(linear_backward_input)
    CPU_SLOT(linear_backward_weight)
    CPU_SLOT(embedding_forward)
    CPU_SLOT(embedding_backward)
    CPU_SLOT(layernorm_forward)
    CPU_SLOT(layernorm_backward)
    CPU_SLOT(layernorm_backward_work)
    CPU_SLOT(attention_forward)
    CPU_SLOT(attention_backward)
    CPU_SLOT(attention_work)
    CPU_SLOT(gelu_forward)
    CPU_SLOT(gelu_backward)
    CPU_SLOT(add)
    CPU_SLOT(cross_entropy)
    CPU_SLOT(norm_squared)
    CPU_SLOT(adamw)
    CPU_SLOT(scale)
    CPU_SLOT(cast)
}
