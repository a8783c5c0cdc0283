/* comm_tcp_doubling.c - small operations of large comms: each step doubles the data that a rank has. See
 * comm_tcp_internal.h. */
#include <string.h>

#include "runtime/comm/comm_reduce.h"
#include "runtime/comm/comm_tcp_internal.h"

int tcp_all_reduce_doubling(const struct tcp_run *run, struct muster_error *err)
{
    const struct comm_call *call = run->call;
    const int size = run->tcp->comm.size;
    const int64_t part = comm_part_bytes(&call->op);
    char *all = run->tcp->scratch;
    if (part)
        memcpy(all + run->tcp->comm.rank * part, call->send, (size_t)part);
    if (tcp_gather_doubling(run, all, part, err))
        return -1;
    for (int rank = 0; rank < size; rank++)
        run->tcp->sources[rank] = all + rank * part;
    comm_reduce(&call->op, size, call->recv, run->tcp->sources, call->op.count);
    return 0;
}

/* Ranks count from the root here: in step k those below 2^k pass the data on by 2^k. */
int tcp_broadcast_doubling(const struct tcp_run *run, struct muster_error *err)
{
    const struct comm_call *call = run->call;
    const int size = run->tcp->comm.size, place = (run->tcp->comm.rank - call->op.root + size) % size;
    const int64_t part = comm_part_bytes(&call->op);
    int step = 1;
    for (; step <= place; step *= 2)
        ;
    if (place) {
        tcp_take(run, tcp_rank_after(run->tcp, -step / 2), call->recv, part);
        if (tcp_drive(run, TCP_RECEIVED, err))
            return -1;
    }
    for (; place + step < size; step *= 2)
        tcp_give(run, tcp_rank_after(run->tcp, step), call->recv, part);
    return tcp_drive(run, TCP_ALL, err);
}

/* `blocks` has blocks for the ranks 0, 1, ... places after ours. The blocks that the ranks 0, 1, ... places
 * before ours have for us take their place. In step k the blocks for ranks whose distance has bit k go there.
 * out and in have room for half of the blocks. */
static int exchange_blocks(const struct tcp_run *run, char *blocks, char *out, char *in, int64_t bytes,
                           struct muster_error *err)
{
    const int size = run->tcp->comm.size;
    for (int bit = 1; bit < size; bit *= 2) {
        int64_t count = 0;
        for (int i = 0; i < size; i++) {
            if (i & bit)
                memcpy(out + count++ * bytes, blocks + i * bytes, (size_t)bytes);
        }
        tcp_give(run, tcp_rank_after(run->tcp, bit), out, count * bytes);
        tcp_take(run, tcp_rank_after(run->tcp, -bit), in, count * bytes);
        if (tcp_drive(run, TCP_ALL, err))
            return -1;
        count = 0;
        for (int i = 0; i < size; i++) {
            if (i & bit)
                memcpy(blocks + i * bytes, in + count++ * bytes, (size_t)bytes);
        }
    }
    return 0;
}

/* Elements first..first+n-1 of every block: blocks[i] has the elements of the rank i places before ours. */
static void use_blocks(const struct tcp_run *run, const char *blocks, int64_t first, int64_t n)
{
    const struct comm_call *call = run->call;
    const int64_t size = dtype_size(call->op.dtype);
    const int ranks = run->tcp->comm.size;
    char *recv = call->recv;
    for (int i = 0; i < ranks; i++)
        run->tcp->sources[tcp_rank_after(run->tcp, -i)] = blocks + i * n * size;
    if (call->op.kind == COMM_REDUCE_SCATTER)
        comm_reduce(&call->op, ranks, recv + first * size, run->tcp->sources, n);
    for (int rank = 0; call->op.kind == COMM_ALL_TO_ALL && rank < ranks; rank++)
        memcpy(recv + (rank * call->op.count + first) * size, run->tcp->sources[rank], (size_t)(n * size));
}

int tcp_blocks_doubling(const struct tcp_run *run, struct muster_error *err)
{
    const struct comm_call *call = run->call;
    const int ranks = run->tcp->comm.size;
    const int64_t size = dtype_size(call->op.dtype), count = call->op.count;
    const int64_t most = run->tcp->scratch_bytes / (2 * ranks + 2) / size;
    char *blocks = run->tcp->scratch;
    int64_t first = 0;
    do { /* with no elements the headers alone */
        const int64_t n = count - first < most ? count - first : most;
        const int64_t room = n * size * ((ranks + 1) / 2);
        char *out = blocks + ranks * n * size;
        for (int i = 0; n && i < ranks; i++)
            memcpy(blocks + i * n * size,
                   (const char *)call->send + (tcp_rank_after(run->tcp, i) * count + first) * size,
                   (size_t)(n * size));
        if (exchange_blocks(run, blocks, out, out + room, n * size, err))
            return -1;
        if (n)
            use_blocks(run, blocks, first, n);
        first += n;
    } while (first < count);
    return tcp_drive(run, TCP_ALL, err);
}
