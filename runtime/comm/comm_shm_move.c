/* comm_shm_move.c - data movement of each operation: straight between arenas, or through the slots. */
#include <string.h>

#include "proto/base/error.h"
#include "runtime/comm/comm_reduce.h"
#include "runtime/comm/comm_shm_internal.h"

static int64_t element_bytes(const struct host_run *run)
{
    return dtype_size(run->call->op.dtype);
}

static void reduce(const struct host_run *run, char *out, const void *const *sources, int64_t count)
{
    comm_reduce(&run->call->op, run->channel.count, out, sources, count);
}

/* ---- through the slots ---- */

/* Elements of a block that pass in one phase. */
static int64_t chunk_elements(const struct host_run *run)
{
    int64_t blocks = comm_sends_blocks(run->call->op.kind) ? run->channel.count : 1;
    return run->channel.slot_bytes / (element_bytes(run) * blocks);
}

/* Copies elements first..first+n of this rank's contribution into its slot of the next phase. */
static void stage(const struct host_run *run, int64_t first, int64_t n)
{
    const struct host_channel *channel = &run->channel;
    const struct comm_call *call = run->call;
    int64_t size = element_bytes(run), part = comm_part_bytes(&call->op), at = first * size, bytes = n * size;
    char *slot = host_channel_slot(channel, channel->me, host_channel_phase(channel, channel->me) + 1);
    switch (call->op.kind) {
    case COMM_ALL_GATHER:
    case COMM_ALL_REDUCE:
    case COMM_SEND:
        comm_copy(slot, (const char *)call->send + at, bytes);
        break;
    case COMM_BROADCAST:
        if (call->op.root == channel->me)
            comm_copy(slot, (const char *)call->recv + at, bytes);
        break;
    case COMM_REDUCE_SCATTER:
    case COMM_ALL_TO_ALL:
        for (int member = 0; member < channel->count; member++)
            comm_copy(slot + member * bytes, (const char *)call->send + member * part + at, bytes);
        break;
    default: /* a receiver and a barrier contribute nothing */
        break;
    }
}

/* Copies elements first..first+n of the result out of the slots of the phase that was passed. */
static void take(const struct host_run *run, int64_t first, int64_t n)
{
    const struct host_channel *channel = &run->channel;
    const struct comm_call *call = run->call;
    int64_t size = element_bytes(run), part = comm_part_bytes(&call->op), at = first * size, bytes = n * size;
    uint32_t phase = host_channel_phase(channel, channel->me);
    const void *sources[HOST_RANKS_MAX];
    char *recv = call->recv;
    for (int member = 0; member < channel->count; member++)
        sources[member] = host_channel_slot(channel, member, phase) +
                          (comm_sends_blocks(call->op.kind) ? channel->me * bytes : 0);
    switch (call->op.kind) {
    case COMM_ALL_GATHER: /* in place this rank's part is there, and peers may still read it */
        for (int member = 0; member < channel->count; member++)
            if (member != channel->me || recv + member * part != call->send)
                comm_copy(recv + member * part + at, sources[member], bytes);
        break;
    case COMM_ALL_TO_ALL:
        for (int member = 0; member < channel->count; member++)
            comm_copy(recv + member * part + at, sources[member], bytes);
        break;
    case COMM_REDUCE_SCATTER:
    case COMM_ALL_REDUCE:
        reduce(run, recv + at, sources, n);
        break;
    case COMM_BROADCAST:
        if (call->op.root != channel->me)
            comm_copy(recv + at, sources[call->op.root], bytes);
        break;
    case COMM_RECV:
        comm_copy(recv + at, sources[!channel->me], bytes);
        break;
    default:
        break;
    }
}

static int move_staged(const struct host_run *run, struct muster_error *err)
{
    int64_t count = run->call->op.count, chunk = chunk_elements(run);
    for (int64_t first = 0; first < count; first += chunk) {
        int64_t n = count - first < chunk ? count - first : chunk;
        stage(run, first, n);
        if (host_meet(run, err))
            return -1;
        take(run, first, n);
    }
    return 0;
}

/* ---- straight between arenas ---- */

/* Where a member's buffer is here, from `offset` bytes on; the bytes were checked to lie inside. */
static const char *at_member(const struct host_run *run, int member, bool recv, int64_t offset)
{
    const struct host_channel *channel = &run->channel;
    if (member == channel->me)
        return (const char *)(recv ? run->call->recv : run->call->send) + offset;
    int parity = (int)(host_channel_phase(channel, channel->me) & 1);
    const struct host_record *record = &channel->members[member].record[parity];
    struct host_place place = recv ? record->recv : record->send;
    place.offset += offset;
    return host_link_at(run->comm->link, run->comm->link_ranks[host_channel_rank(channel, member)], &place,
                        0);
}

static void gather_direct(const struct host_run *run)
{
    const struct host_channel *channel = &run->channel;
    int64_t part = comm_part_bytes(&run->call->op);
    bool blocks = comm_sends_blocks(run->call->op.kind);
    for (int i = 0; i < channel->count; i++) { /* so that not all ranks read from the same rank at once */
        int member = (channel->me + i) % channel->count;
        comm_copy((char *)run->call->recv + member * part,
                  at_member(run, member, false, blocks ? channel->me * part : 0), part);
    }
}

static void reduce_direct(const struct host_run *run, int64_t offset, char *out, int64_t count)
{
    const void *sources[HOST_RANKS_MAX];
    for (int member = 0; member < run->channel.count; member++)
        sources[member] = at_member(run, member, false, offset);
    reduce(run, out, sources, count);
}

/* Every rank reduces a slice of its own, then all fetch each other's slices. */
static int all_reduce_direct(const struct host_run *run, struct muster_error *err)
{
    enum { SLICE_ELEMENTS = 16 }; /* slices begin at cache lines where buffers do */
    const struct host_channel *channel = &run->channel;
    int64_t count = run->call->op.count, size = element_bytes(run);
    int64_t slice = (count / channel->count / SLICE_ELEMENTS + 1) * SLICE_ELEMENTS;
    char *recv = run->call->recv;
    const char *results[HOST_RANKS_MAX];
    int64_t from[HOST_RANKS_MAX] = {0}, length[HOST_RANKS_MAX] = {0};
    for (int member = 0; member < channel->count; member++) {
        from[member] = member * slice < count ? member * slice : count;
        length[member] = count - from[member] < slice ? count - from[member] : slice;
        results[member] = at_member(run, member, true, from[member] * size); /* before the records change */
    }
    int me = channel->me;
    reduce_direct(run, from[me] * size, recv + from[me] * size, length[me]);
    if (host_meet(run, err))
        return -1;
    for (int i = 1; i < channel->count; i++) {
        int member = (me + i) % channel->count;
        comm_copy(recv + from[member] * size, results[member], length[member] * size);
    }
    return 0;
}

static int move_direct(const struct host_run *run, struct muster_error *err)
{
    const struct comm_call *call = run->call;
    int64_t part = comm_part_bytes(&call->op);
    int me = run->channel.me;
    switch (call->op.kind) {
    case COMM_ALL_GATHER:
    case COMM_ALL_TO_ALL:
        gather_direct(run);
        break;
    case COMM_REDUCE_SCATTER:
        reduce_direct(run, me * part, call->recv, call->op.count);
        break;
    case COMM_ALL_REDUCE:
        if (all_reduce_direct(run, err))
            return -1;
        break;
    case COMM_BROADCAST:
        if (me != call->op.root)
            comm_copy(call->recv, at_member(run, call->op.root, true, 0), part);
        break;
    case COMM_RECV:
        comm_copy(call->recv, at_member(run, !me, false, 0), part);
        break;
    default:
        break;
    }
    return host_meet(run, err); /* after this, no rank reads our buffers */
}

/* ---- which way ---- */

/* Bytes that peers read of a member's send and recv buffers in the direct way; 0: none. */
static void direct_bytes(const struct comm_op *op, int count, bool root, int64_t *send, int64_t *recv)
{
    int64_t part = comm_part_bytes(op);
    bool blocks = comm_sends_blocks(op->kind);
    *send = op->kind == COMM_ALL_GATHER || op->kind == COMM_ALL_REDUCE || op->kind == COMM_SEND ? part : 0;
    *send = blocks ? count * part : *send;
    *recv = op->kind == COMM_ALL_REDUCE || (op->kind == COMM_BROADCAST && root) ? part : 0;
}

/* Writes this rank's record for the next phase. */
static void publish(const struct host_run *run)
{
    const struct host_channel *channel = &run->channel;
    const struct comm_call *call = run->call;
    struct host_member *me = &channel->members[channel->me];
    struct host_record *record = &me->record[(host_channel_phase(channel, channel->me) + 1) & 1];
    int64_t send, recv;
    direct_bytes(&call->op, channel->count, call->op.root == channel->me, &send, &recv);
    *record = (struct host_record){.op = call->op, .sequence = run->sequence};
    host_link_place(run->comm->link, call->send, send, &record->send);
    host_link_place(run->comm->link, call->recv, recv, &record->recv);
    /* An accumulating all_reduce may not show its peers a result that is mixed with earlier values. */
    record->direct = (!send || record->send.arena >= 0) && (!recv || record->recv.arena >= 0) &&
                     !(call->op.kind == COMM_ALL_REDUCE && call->op.accumulate);
}

/* Whether all members can be read directly; *direct is the same on every rank. */
static int choose(const struct host_run *run, bool *direct, struct muster_error *err)
{
    const struct host_channel *channel = &run->channel;
    int parity = (int)(host_channel_phase(channel, channel->me) & 1);
    *direct = true;
    for (int member = 0; member < channel->count; member++)
        *direct = *direct && channel->members[member].record[parity].direct;
    for (int member = 0; *direct && member < channel->count; member++) {
        const struct host_record *record = &channel->members[member].record[parity];
        int rank = host_channel_rank(channel, member), peer = run->comm->link_ranks[rank];
        int64_t send, recv;
        direct_bytes(&record->op, channel->count, record->op.root == member, &send, &recv);
        if (member != channel->me && ((send && !host_link_at(run->comm->link, peer, &record->send, send)) ||
                                      (recv && !host_link_at(run->comm->link, peer, &record->recv, recv)))) {
            struct muster_error error;
            (void)error_set(&error, MUSTER_E_PROTOCOL, "rank %d names bytes outside its arenas in comm %s",
                            rank, run->comm->comm.name);
            return host_break(run, &error, err);
        }
    }
    return 0;
}

static bool is_eager(const struct host_run *run)
{
    int64_t bytes =
        comm_part_bytes(&run->call->op) * (comm_sends_blocks(run->call->op.kind) ? run->channel.count : 1);
    return run->call->op.kind == COMM_BARRIER || bytes <= HOST_EAGER_BYTES;
}

static int move(const struct host_run *run, struct muster_error *err)
{
    bool eager = is_eager(run), direct;
    int64_t count = run->call->op.kind == COMM_BARRIER ? 0 : run->call->op.count;
    publish(run);
    if (eager)
        stage(run, 0, count);
    if (host_meet(run, err) || host_match(run, err))
        return -1;
    if (eager) {
        take(run, 0, count);
        return 0;
    }
    if (choose(run, &direct, err))
        return -1;
    return direct ? move_direct(run, err) : move_staged(run, err);
}

int host_run_call(struct comm *comm, const struct comm_call *call, struct muster_error *err)
{
    struct host_comm *host = host_comm_of(comm);
    if (comm->size == 1) {
        comm_mirror(&call->op, 0, 1, call->send, call->recv);
        return 0;
    }
    bool pair = comm_is_pair(call->op.kind);
    struct host_run run = {
        .comm = host,
        .call = call,
        .channel = host_channel_of(host->page, comm->size, comm->rank, pair ? call->op.root : -1)};
    run.sequence = atomic_fetch_add(&run.channel.members[run.channel.me].sequence, 1) + 1;
    return move(&run, err);
}
