/* comm_tcp_gather.c - gathers over TCP, and the records that ranks exchange where a comm is made or split.
 * See comm_tcp_internal.h. There are no sums in this file: the CUDA module links it, and has no CPU kernels.
 */
#include <string.h>

#include "runtime/comm/comm_tcp_internal.h"

void tcp_begin_full(const struct tcp_run *run)
{
    tcp_begin(run, -1);
    for (int i = 0; i < run->tcp->link_count; i++) { /* headers to all and from all, data follows */
        tcp_give(run, run->tcp->links[i], NULL, 0);
        tcp_take(run, run->tcp->links[i], NULL, 0);
    }
}

void tcp_begin_sparse(const struct tcp_run *run)
{
    tcp_begin(run, -1);
    /* Every operation begins with the headers of neighbours, so that no mismatch waits for data. */
    tcp_give(run, tcp_rank_after(run->tcp, 1), NULL, 0);
    tcp_take(run, tcp_rank_after(run->tcp, -1), NULL, 0);
}

int tcp_gather_full(const struct tcp_run *run, struct muster_error *err)
{
    const struct comm_call *call = run->call;
    int me = run->tcp->comm.rank;
    int64_t part = comm_part_bytes(&call->op);
    bool blocks = call->op.kind == COMM_ALL_TO_ALL;
    char *recv = call->recv;
    for (int rank = 0; part && rank < run->tcp->comm.size; rank++) {
        const char *block = (const char *)call->send + (blocks ? rank * part : 0);
        if (rank == me) {
            if (recv + rank * part != block)
                memcpy(recv + rank * part, block, (size_t)part);
            continue;
        }
        tcp_give(run, rank, block, part);
        tcp_take(run, rank, recv + rank * part, part);
    }
    return tcp_drive(run, TCP_ALL, err);
}

int tcp_gather_doubling(const struct tcp_run *run, char *all, int64_t bytes, struct muster_error *err)
{
    const int size = run->tcp->comm.size, me = run->tcp->comm.rank;
    for (int have = 1; have < size; have *= 2) { /* blocks me-have+1..me, counted round the end */
        const int more = have < size - have ? have : size - have;
        tcp_give_blocks(run, tcp_rank_after(run->tcp, have), all, bytes, me - more + 1, more);
        tcp_take_blocks(run, tcp_rank_after(run->tcp, -have), all, bytes, me - have - more + 1, more);
        if (tcp_drive(run, TCP_RECEIVED, err))
            return -1;
    }
    return tcp_drive(run, TCP_ALL, err);
}

int tcp_gather_records(struct tcp_comm *tcp, void *all, int64_t bytes, struct muster_error *err)
{
    const struct comm_call call = {.comm = &tcp->comm,
                                   .op = {.kind = COMM_ALL_GATHER, .dtype = DTYPE_U8, .count = bytes},
                                   .send = (char *)all + tcp->comm.rank * bytes,
                                   .recv = all};
    const struct tcp_run run = {.tcp = tcp, .call = &call, .sequence = tcp->splits, .splits = true};
    if (tcp_is_sparse(tcp)) {
        tcp_begin_sparse(&run);
        return tcp_gather_doubling(&run, all, bytes, err);
    }
    tcp_begin_full(&run);
    return tcp_gather_full(&run, err);
}
