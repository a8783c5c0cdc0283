/* variant.c - the table of one instruction set. It is data and no code, so that a processor may hold the
 * tables of all sets and run its own alone. */
#include "kernels/cpu/cpu.h"
#ifdef CPU_BF16
#define REF_BF16
#endif
#include "kernels/ref/real.h"

/* Operations that touch only a few numbers a step are the reference's. */
#define CPU_REFERENCE_squared_error     ~,
#define CPU_REFERENCE_correct_sum       ~,
#define CPU_REFERENCE_batch_norm_change ~,
#define CPU_REFERENCE_batch_norm_step   ~,
#define CPU_REFERENCE_loss_sum          ~,
#define CPU_REFERENCE_clip_factor       ~,

#ifdef CPU_BF16
/* Operations without values are the float variant's. */
#define CPU_FIXED(operation) cpu_##operation##_avx512
#define OPERATION(name, parameters, arguments)
#define FIXED(name, parameters, arguments) void CPU_FIXED(name)(KERNELS_EACH parameters, void *stream);
#include "kernels/operations.inc"
#define CPU_DTYPE DTYPE_BF16
#else
#define CPU_FIXED CPU
#define CPU_DTYPE DTYPE_F32
#endif

const struct kernels CPU(table) = {
    .abi = KERNELS_ABI,
    .size = sizeof(struct kernels),
    .name = CPU_TABLE_NAME,
    .value = CPU_DTYPE,
    .weight = CPU_DTYPE,
    .statistic = DTYPE_F32,
    .gradient = DTYPE_F32,
    .row_multiple = 1,
#define OPERATION(operation, parameters, arguments)                                                          \
    .operation = KERNELS_PICK(CPU_REFERENCE_##operation, REF(operation), CPU(operation)),
#define FIXED(operation, parameters, arguments)                                                              \
    .operation = KERNELS_PICK(CPU_REFERENCE_##operation, REF(operation), CPU_FIXED(operation)),
#ifndef CPU_BF16
#define PRODUCT(operation, parameters, arguments)                                                            \
    .operation = CPU(operation), .by[KERNELS_ONEDNN].operation = CPU(operation##_onednn),                    \
    .by[KERNELS_BF16].operation = CPU(operation##_bf16),                                                     \
    .by[KERNELS_AUTO].operation = CPU(operation##_auto),
#endif
#define WORK(operation, parameters, arguments)                                                               \
    .operation = KERNELS_PICK(CPU_REFERENCE_##operation, REF(operation), CPU(operation)),
#include "kernels/operations.inc"
};
