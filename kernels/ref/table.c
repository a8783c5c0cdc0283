/* table.c - the table of the reference, once for each type of values. */
#include "kernels/ref/real.h"

#define REF_NAME2(type) "ref-" #type
#define REF_NAME(type)  REF_NAME2(type)

static const struct kernels table = {
    .abi = KERNELS_ABI,
    .size = sizeof(struct kernels),
    .name = REF_NAME(REF_TYPE),
    .value = REF_VALUE_DTYPE,
    .weight = REF_VALUE_DTYPE,
    .statistic = REF_STATISTIC,
    .gradient = REF_STATISTIC,
    .row_multiple = 1,
#define OPERATION(operation, parameters, arguments) .operation = REF(operation),
#define WORK                                        OPERATION
#include "kernels/operations.inc"
};

#define REF_TABLE2(type) kernels_ref_##type
#define REF_TABLE(type)  REF_TABLE2(type)
const struct kernels *REF_TABLE(REF_TYPE)(void)
{
    return &table;
}
