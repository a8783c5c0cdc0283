/* table.c - the table of the reference, once for float and once for double. */
#include "kernels/ref/real.h"

static const struct kernels table = {
    .abi = KERNELS_ABI,
    .size = sizeof(struct kernels),
    .name = REF_TABLE_NAME,
    .dtype = REF_DTYPE,
    .row_multiple = 1,
#define OPERATION(operation, parameters, arguments) .operation = REF(operation),
#define WORK                                        OPERATION
#include "kernels/operations.inc"
};

const struct kernels *REF_TABLE(void)
{
    return &table;
}
