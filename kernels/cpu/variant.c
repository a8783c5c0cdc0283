/* variant.c - the table of one instruction set. It is data and no code, so that a processor may hold the
 * tables of all sets and run its own alone. */
#include "kernels/cpu/cpu.h"
#include "kernels/ref/real.h"

/* Operations that touch only a few numbers a step are the reference's. */
#define CPU_REFERENCE_squared_error     ~,
#define CPU_REFERENCE_correct_sum       ~,
#define CPU_REFERENCE_batch_norm_change ~,
#define CPU_REFERENCE_batch_norm_step   ~,
#define CPU_REFERENCE_loss_sum          ~,
#define CPU_REFERENCE_clip_factor       ~,

const struct kernels CPU(table) = {
    .abi = KERNELS_ABI,
    .size = sizeof(struct kernels),
    .name = CPU_TABLE_NAME,
    .value = DTYPE_F32,
    .weight = DTYPE_F32,
    .statistic = DTYPE_F32,
    .gradient = DTYPE_F32,
    .row_multiple = 1,
#define OPERATION(operation, parameters, arguments)                                                          \
    .operation = KERNELS_PICK(CPU_REFERENCE_##operation, REF(operation), CPU(operation)),
#define PRODUCT(operation, parameters, arguments)                                                            \
    .operation = CPU(operation), .by[KERNELS_ONEDNN].operation = CPU(operation##_onednn),                    \
    .by[KERNELS_BF16].operation = CPU(operation##_bf16),                                                     \
    .by[KERNELS_AUTO].operation = CPU(operation##_auto),
#define WORK(operation, parameters, arguments) .operation = CPU(operation),
#include "kernels/operations.inc"
};
