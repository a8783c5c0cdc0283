/* comm_tcp_move.c - which data passes between which ranks where all have connections to each other, and the
 * choice between that and the ways of larger comms: see comm_tcp_internal.h. */
#include "runtime/comm/comm_reduce.h"
#include "runtime/comm/comm_tcp_internal.h"

static int64_t element_bytes(const struct tcp_run *run)
{
    return dtype_size(run->call->op.dtype);
}

static char *chunk_of(const struct tcp_run *run, int rank)
{
    return run->tcp->scratch + rank * run->tcp->chunk_bytes;
}

/* Sums elements that lie in the chunks of the others and at `mine`. */
static void reduce(const struct tcp_run *run, const void *mine, char *out, int64_t count)
{
    const void **sources = run->tcp->sources;
    for (int rank = 0; rank < run->tcp->comm.size; rank++)
        sources[rank] = rank == run->tcp->comm.rank ? mine : chunk_of(run, rank);
    comm_reduce(&run->call->op, run->tcp->comm.size, out, sources, count);
}

static int64_t chunk_elements(const struct tcp_run *run)
{
    return run->tcp->chunk_bytes / element_bytes(run);
}

static void take_chunks(const struct tcp_run *run, int64_t elements)
{
    for (int rank = 0; rank < run->tcp->comm.size; rank++) {
        if (rank != run->tcp->comm.rank)
            tcp_take(run, rank, chunk_of(run, rank), elements * element_bytes(run));
    }
}

/* `count` elements of every rank, ours at `mine`, chunk by chunk as they arrive; our sends are queued
 * already. */
static int sum_chunks(const struct tcp_run *run, const char *mine, char *out, int64_t count,
                      struct muster_error *err)
{
    int64_t most = chunk_elements(run), size = element_bytes(run);
    for (int64_t first = 0; first < count; first += most) {
        int64_t n = count - first < most ? count - first : most;
        take_chunks(run, n);
        if (tcp_drive(run, TCP_RECEIVED, err))
            return -1;
        reduce(run, mine + first * size, out + first * size, n);
    }
    return tcp_drive(run, TCP_ALL, err);
}

static int reduce_scatter(const struct tcp_run *run, struct muster_error *err)
{
    const char *send = run->call->send;
    int me = run->tcp->comm.rank;
    int64_t part = comm_part_bytes(&run->call->op);
    for (int rank = 0; part && rank < run->tcp->comm.size; rank++) {
        if (rank != me)
            tcp_give(run, rank, send + rank * part, part);
    }
    return sum_chunks(run, part ? send + me * part : send, run->call->recv, run->call->op.count, err);
}

/* Every rank sends everything to all: a chunk must have been sent before the result may overwrite it. */
static int all_reduce_whole(const struct tcp_run *run, struct muster_error *err)
{
    const struct comm_call *call = run->call;
    int64_t count = call->op.count, most = chunk_elements(run), size = element_bytes(run);
    for (int64_t first = 0; first < count; first += most) {
        int64_t n = count - first < most ? count - first : most;
        const char *mine = (const char *)call->send + first * size;
        for (int rank = 0; rank < run->tcp->comm.size; rank++) {
            if (rank != run->tcp->comm.rank)
                tcp_give(run, rank, mine, n * size);
        }
        take_chunks(run, n);
        if (tcp_drive(run, TCP_ALL, err))
            return -1;
        reduce(run, mine, (char *)call->recv + first * size, n);
    }
    return tcp_drive(run, TCP_ALL, err); /* the headers, if there was no data */
}

/* Every rank sums one slice, then all exchange their slices. */
static int all_reduce_sliced(const struct tcp_run *run, struct muster_error *err)
{
    const struct comm_call *call = run->call;
    int ranks = run->tcp->comm.size, me = run->tcp->comm.rank;
    int64_t count = call->op.count, size = element_bytes(run), slice = (count + ranks - 1) / ranks;
    int64_t from[TCP_FULL_RANKS] = {0}, length[TCP_FULL_RANKS] = {0};
    const char *send = call->send;
    char *recv = call->recv;
    for (int rank = 0; rank < ranks; rank++) {
        from[rank] = rank * slice < count ? rank * slice : count;
        length[rank] = count - from[rank] < slice ? count - from[rank] : slice;
        if (rank != me)
            tcp_give(run, rank, send + from[rank] * size, length[rank] * size);
    }
    if (sum_chunks(run, send + from[me] * size, recv + from[me] * size, length[me], err))
        return -1;
    for (int rank = 0; rank < ranks; rank++) {
        if (rank == me)
            continue;
        tcp_give(run, rank, recv + from[me] * size, length[me] * size);
        tcp_take(run, rank, recv + from[rank] * size, length[rank] * size);
    }
    return tcp_drive(run, TCP_ALL, err);
}

static int broadcast(const struct tcp_run *run, struct muster_error *err)
{
    const struct comm_call *call = run->call;
    int me = run->tcp->comm.rank;
    int64_t part = comm_part_bytes(&call->op);
    if (me != call->op.root)
        tcp_take(run, call->op.root, call->recv, part);
    for (int rank = 0; me == call->op.root && rank < run->tcp->comm.size; rank++) {
        if (rank != me)
            tcp_give(run, rank, call->recv, part);
    }
    return tcp_drive(run, TCP_ALL, err);
}

static int move_full(const struct tcp_run *run, struct muster_error *err)
{
    const struct comm_op *op = &run->call->op;
    tcp_begin_full(run);
    switch (op->kind) {
    case COMM_ALL_GATHER:
    case COMM_ALL_TO_ALL:
        return tcp_gather_full(run, err);
    case COMM_REDUCE_SCATTER:
        return reduce_scatter(run, err);
    case COMM_ALL_REDUCE:
        return op->accumulate || comm_part_bytes(op) <= TCP_EAGER_BYTES ? all_reduce_whole(run, err)
                                                                        : all_reduce_sliced(run, err);
    case COMM_BROADCAST:
        return broadcast(run, err);
    default: /* a barrier is its headers */
        return tcp_drive(run, TCP_ALL, err);
    }
}

static int gather_sparse(const struct tcp_run *run, bool small, struct muster_error *err)
{
    int64_t part = comm_part_bytes(&run->call->op);
    char *recv = run->call->recv;
    if (part)
        comm_copy(recv + run->tcp->comm.rank * part, run->call->send, part);
    return small ? tcp_gather_doubling(run, recv, part, err) : tcp_gather_ring(run, err);
}

static int move_sparse(const struct tcp_run *run, struct muster_error *err)
{
    const struct comm_op *op = &run->call->op;
    const int64_t most = op->kind == COMM_ALL_REDUCE ? TCP_SUMMED_BYTES : TCP_DOUBLING_BYTES;
    const bool small = comm_part_bytes(op) <= most / run->tcp->comm.size;
    tcp_begin_sparse(run);
    switch (op->kind) {
    case COMM_ALL_GATHER:
        return gather_sparse(run, small, err);
    case COMM_REDUCE_SCATTER:
        return small ? tcp_blocks_doubling(run, err) : tcp_reduce_chain(run, err);
    case COMM_ALL_REDUCE:
        return small ? tcp_all_reduce_doubling(run, err) : tcp_reduce_chain(run, err);
    case COMM_BROADCAST:
        return small ? tcp_broadcast_doubling(run, err) : tcp_broadcast_chain(run, err);
    case COMM_ALL_TO_ALL:
        return tcp_blocks_doubling(run, err);
    default:
        return tcp_gather_doubling(run, run->tcp->scratch, 0, err);
    }
}

/* Puts our run's blocks into their places among all blocks. */
static void pack_blocks(const struct tcp_run *run, int64_t bytes)
{
    const struct tcp_group *group = run->group;
    const int me = run->tcp->comm.rank, first = group->first[me], count = group->first[me + 1] - first;
    for (int i = 0; bytes && i < count; i++)
        comm_copy(group->result + (first + i) * bytes, group->given[i].at, bytes);
}

int tcp_run_group(struct tcp_comm *tcp, const struct comm_call *call, uint64_t sequence,
                  const struct tcp_group *group, struct muster_error *err)
{
    const struct tcp_run run = {.tcp = tcp, .call = call, .sequence = sequence, .group = group};
    const int64_t bytes = group->count * dtype_size(call->op.dtype);
    tcp_begin(&run, -1);
    tcp_give(&run, tcp_rank_after(tcp, 1), NULL, 0);
    tcp_take(&run, tcp_rank_after(tcp, -1), NULL, 0);
    switch (call->op.kind) {
    case COMM_ALL_REDUCE:
        if (!group->gathers)
            return tcp_reduce_chain(&run, err);
        pack_blocks(&run, bytes);
        return tcp_gather_doubling(&run, group->result, bytes, err);
    case COMM_ALL_GATHER:
        pack_blocks(&run, bytes);
        return tcp_gather_doubling(&run, group->result, bytes, err);
    case COMM_REDUCE_SCATTER:
        return tcp_reduce_chain(&run, err);
    case COMM_BROADCAST:
        return tcp_broadcast_doubling(&run, err);
    default:
        return tcp_gather_doubling(&run, tcp->scratch, 0, err);
    }
}

static int move_pair(const struct tcp_run *run, struct muster_error *err)
{
    const struct comm_call *call = run->call;
    int peer = call->op.root;
    bool sends = call->op.kind == COMM_SEND;
    int64_t bytes = comm_part_bytes(&call->op);
    if (tcp_reach(run, peer, err))
        return -1;
    tcp_begin(run, peer);
    tcp_give(run, peer, call->send, sends ? bytes : 0);
    tcp_take(run, peer, call->recv, sends ? 0 : bytes);
    return tcp_drive(run, TCP_ALL, err);
}

int tcp_run_call(struct comm *comm, const struct comm_call *call, struct muster_error *err)
{
    struct tcp_comm *tcp = tcp_comm_of(comm);
    struct tcp_run run = {.tcp = tcp, .call = call};
    if (comm->size == 1) {
        comm_mirror(&call->op, 0, 1, call->send, call->recv);
        return 0;
    }
    if (comm_is_pair(call->op.kind)) {
        run.sequence = ++tcp->peers[call->op.root].sequence;
        return move_pair(&run, err);
    }
    run.sequence = ++tcp->sequence;
    return tcp_is_sparse(tcp) ? move_sparse(&run, err) : move_full(&run, err);
}
