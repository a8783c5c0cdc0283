/* comm_mirror.c - operations whose peers all hold this rank's data (comm_delay); a file apart, since sums
 * over ranks come with the kernels of the CPU. */
#include <string.h>

#include "runtime/comm/comm_internal.h"
#include "runtime/comm/comm_reduce.h"

void comm_copy(void *to, const void *from, int64_t bytes)
{
    if (to != from && bytes > 0)
        memcpy(to, from, (size_t)bytes);
}

static void mirror_reduce(const struct comm_op *op, int size, const void *from, void *recv)
{
    const void *sources[COMM_RANKS_MAX];
    for (int rank = 0; rank < size; rank++)
        sources[rank] = from;
    comm_reduce(op, size, recv, sources, op->count);
}

void comm_mirror(const struct comm_op *op, int rank, int size, const void *send, void *recv)
{
    int64_t bytes = comm_part_bytes(op);
    const char *mine = comm_sends_blocks(op->kind) ? (const char *)send + rank * bytes : send;
    switch (op->kind) {
    case COMM_ALL_GATHER:
    case COMM_ALL_TO_ALL:
        for (int peer = 0; peer < size; peer++)
            comm_copy((char *)recv + peer * bytes, mine, bytes);
        break;
    case COMM_REDUCE_SCATTER:
    case COMM_ALL_REDUCE:
        mirror_reduce(op, size, mine, recv);
        break;
    default: /* a root's data is here already, and an absent peer sends nothing */
        break;
    }
}
