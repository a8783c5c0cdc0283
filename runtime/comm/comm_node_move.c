/* comm_node_move.c - operations of a comm over nodes, chunk by chunk: see comm_node.h. */
#include <string.h>

#include "proto/base/error.h"
#include "runtime/comm/comm_node.h"
#include "runtime/comm/comm_reduce.h"

/* The time-outs of three waits differ by this: a group's ranks wait for each other's values, rails for other
 * groups, a group's ranks for their rails. So the error names the missing rank, not a rank that waits for it.
 */
#define NODE_GRACE_NS (2 * NS_PER_S)

/* One chunk: elements at..at+count-1 of each block. */
struct chunk {
    struct node_comm *node;
    const struct comm_call *call;
    struct host_run meeting;
    int64_t at, count, size; /* size: bytes of an element */
    int rails;
    bool gathers; /* a small all_reduce: every rank sums the values of all ranks by itself */
};

/* ---- sizes ---- */

static int64_t chunk_elements(const struct node_comm *node, const struct comm_op *op)
{
    const int64_t size = dtype_size(op->dtype), wide = dtype_size(comm_sum_dtype(op->dtype));
    const int64_t ranks = node->comm.size;
    int64_t most;
    if (op->kind == COMM_ALL_GATHER)
        most = NODE_RESULT_BYTES / (size * ranks);
    else if (op->kind == COMM_REDUCE_SCATTER)
        most = NODE_RESULT_BYTES / (wide * ranks);
    else
        most = NODE_RESULT_BYTES / wide;
    return most > 0 ? most : 1;
}

/* The elements of a chunk that a rail moves. */
static int64_t slice_of(const struct chunk *c, int rail, int64_t *from)
{
    enum { SLICE_ELEMENTS = 16 };
    const int64_t step =
        ((c->count + c->rails - 1) / c->rails + SLICE_ELEMENTS - 1) / SLICE_ELEMENTS * SLICE_ELEMENTS;
    *from = rail * step < c->count ? rail * step : c->count;
    return c->count - *from < step ? c->count - *from : step;
}

/* ---- showing values ---- */

static char *stage_of(const struct node_comm *node)
{
    return (char *)node->home->arena.base + (int64_t)node->stage * (NODE_SHOWN_BYTES + NODE_RESULT_BYTES);
}

static char *result_of(const struct node_comm *node)
{
    return stage_of(node) + NODE_SHOWN_BYTES;
}

/* Our values of the chunk: where they begin, how many blocks there are. NULL: none. */
static const char *own_values(const struct chunk *c, int *blocks)
{
    const struct comm_call *call = c->call;
    const bool root = call->op.kind == COMM_BROADCAST && call->op.root == c->node->comm.rank;
    *blocks = call->op.kind == COMM_REDUCE_SCATTER ? c->node->comm.size : 1;
    if (!c->count || call->op.kind == COMM_BARRIER || (call->op.kind == COMM_BROADCAST && !root))
        return NULL;
    return (const char *)(root ? call->recv : call->send) + c->at * c->size;
}

/* Writes our record of the next phase. */
static void show_values(const struct chunk *c)
{
    const struct node_comm *node = c->node;
    struct host_comm *inside = host_comm_of(node->inside);
    const struct host_channel *channel = &c->meeting.channel;
    struct host_record *record =
        &channel->members[channel->me].record[(host_channel_phase(channel, channel->me) + 1) & 1];
    int blocks;
    const char *values = own_values(c, &blocks);
    *record = (struct host_record){
        .op = c->call->op, .sequence = c->meeting.sequence, .direct = true, .send = {.arena = -1}};
    host_link_place(inside->link, result_of(node), NODE_RESULT_BYTES, &record->recv);
    if (!values)
        return;
    const int64_t bytes = c->count * c->size, stride = c->call->op.count * c->size;
    host_link_place(inside->link, values, (blocks - 1) * stride + bytes, &record->send);
    if (record->send.arena >= 0)
        return;
    record->direct = false;
    for (int block = 0; block < blocks; block++)
        memcpy(stage_of(node) + block * bytes, values + block * stride, (size_t)bytes);
    host_link_place(inside->link, stage_of(node), blocks * bytes, &record->send);
}

/* Finds the values that the members of our group show. */
static int look_at_values(const struct chunk *c, struct muster_error *err)
{
    struct node_comm *node = c->node;
    const struct host_comm *inside = host_comm_of(node->inside);
    const struct host_channel *channel = &c->meeting.channel;
    const int parity = (int)(host_channel_phase(channel, channel->me) & 1);
    const int64_t bytes = c->count * c->size, stride = c->call->op.count * c->size;
    const int blocks = c->call->op.kind == COMM_REDUCE_SCATTER ? node->comm.size : 1;
    for (int i = 0; i < channel->count; i++) {
        const struct host_record *record = &channel->members[i].record[parity];
        const int64_t apart = record->direct ? stride : bytes;
        const char *values = NULL, *results = host_link_at(inside->link, inside->link_ranks[i], &record->recv,
                                                           NODE_RESULT_BYTES);
        if (record->send.arena >= 0)
            values = host_link_at(inside->link, inside->link_ranks[i], &record->send,
                                  (blocks - 1) * apart + bytes);
        if (!results || (record->send.arena >= 0 && !values))
            return error_set(err, MUSTER_E_PROTOCOL, "rank %d names bytes outside its arenas in comm %s",
                             comm_named(node->inside, i), node->comm.name);
        node->given[i] = (struct tcp_given){values, apart};
        if (i < node->rails)
            node->results[i] = results;
    }
    return 0;
}

/* The group meets, waiting this much longer than its time-out. */
static int meet_inside(const struct chunk *c, int64_t grace_ns, struct muster_error *err)
{
    if (c->node->inside->size == 1)
        return 0;
    c->node->inside->timeout_ns = c->node->comm.timeout_ns + grace_ns;
    return host_meet(&c->meeting, err);
}

/* All of our group have come and their values can be read. */
static int open_values(const struct chunk *c, struct muster_error *err)
{
    struct node_comm *node = c->node;
    if (node->inside->size > 1) {
        show_values(c);
        return meet_inside(c, 0, err) || host_match(&c->meeting, err) || look_at_values(c, err) ? -1 : 0;
    }
    int blocks;
    node->given[0] = (struct tcp_given){own_values(c, &blocks), c->call->op.count * c->size};
    node->results[0] = result_of(node);
    return 0;
}

/* ---- over TCP ---- */

static int node_group_of(const struct node_comm *node, int rank)
{
    int group = 0;
    while (node->first[group + 1] <= rank)
        group++;
    return group;
}

static int run_rail(const struct chunk *c, int rail, int64_t grace_ns, struct muster_error *err)
{
    struct node_comm *node = c->node;
    const struct comm_op *op = &c->call->op;
    struct comm_call call = *c->call;
    int64_t from;
    const int64_t count = slice_of(c, rail, &from);
    const int ours = node_group_size(node);
    struct tcp_group group = {.shown = c->call,
                              .first = node->first,
                              .given = node->given,
                              .count = count,
                              .gathers = c->gathers,
                              .result = result_of(node)};
    for (int i = 0; i < ours; i++)
        node->given[i].at = node->given[i].at ? node->given[i].at + from * c->size : NULL;
    if (op->kind == COMM_BROADCAST) {
        call.op.root = node_group_of(node, op->root);
        call.op.count = count;
        call.recv = group.result;
        const int place = op->root - node->first[node->group];
        if (call.op.root == node->group && count)
            memcpy(group.result, node->given[place].at, (size_t)(count * c->size));
    }
    node->rail->timeout_ns = node->comm.timeout_ns + grace_ns;
    return tcp_run_group(tcp_comm_of(node->rail), &call, c->meeting.sequence, &group, err);
}

/* ---- results ---- */

static void take_gathered(const struct chunk *c, const char *results, int64_t from, int64_t count)
{
    const struct comm_call *call = c->call;
    for (int rank = 0; rank < c->node->comm.size; rank++)
        comm_copy((char *)call->recv + (rank * call->op.count + c->at + from) * c->size,
                  results + rank * count * c->size, count * c->size);
}

static void sum_gathered(const struct chunk *c)
{
    const struct comm_call *call = c->call;
    const void **sources = tcp_comm_of(c->node->wide)->sources; /* no operation of that comm runs */
    for (int rank = 0; rank < c->node->comm.size; rank++)
        sources[rank] = c->node->results[0] + rank * c->count * c->size;
    comm_reduce(&call->op, c->node->comm.size, (char *)call->recv + c->at * c->size, sources, c->count);
}

static void take_results(const struct chunk *c)
{
    const struct node_comm *node = c->node;
    const struct comm_call *call = c->call;
    const int64_t wide = dtype_size(comm_sum_dtype(call->op.dtype));
    const int place = node->comm.rank - node->first[node->group];
    if (c->gathers) {
        sum_gathered(c);
        return;
    }
    for (int i = 0; i < c->rails; i++) {
        const int rail = (place + i) % c->rails; /* so that not all ranks read from the same rank at once */
        int64_t from;
        const int64_t count = slice_of(c, rail, &from);
        char *to = (char *)call->recv + (c->at + from) * c->size;
        if (!count)
            continue;
        if (call->op.kind == COMM_ALL_GATHER)
            take_gathered(c, node->results[rail], from, count);
        else if (call->op.kind == COMM_ALL_REDUCE)
            comm_sum_put(&call->op, to, node->results[rail], count);
        else if (call->op.kind == COMM_REDUCE_SCATTER)
            comm_sum_put(&call->op, to, node->results[rail] + place * count * wide, count);
        else if (call->op.kind == COMM_BROADCAST && call->op.root != node->comm.rank)
            memcpy(to, node->results[rail], (size_t)(count * c->size));
    }
}

/* ---- operations ---- */

static int run_chunk(struct chunk *c, struct muster_error *err)
{
    struct node_comm *node = c->node;
    const int64_t limit = node->comm.timeout_ns,
                  grace = limit / 8 < NODE_GRACE_NS ? limit / 8 : NODE_GRACE_NS;
    const int place = node->comm.rank - node->first[node->group];
    c->gathers =
        c->call->op.kind == COMM_ALL_REDUCE && c->count * c->size <= TCP_GROUP_BYTES / node->comm.size;
    int64_t from;
    c->rails = c->gathers ? 1 : node->rails;
    if (node->inside->size > 1)
        c->meeting.channel =
            host_channel_of(host_comm_of(node->inside)->page, node->inside->size, node->inside->rank, -1);
    if (open_values(c, err))
        return -1;
    /* Rail 0 runs in any case: ranks whose operations differ find out there. */
    const bool runs = place < c->rails && (place == 0 || slice_of(c, place, &from));
    if ((runs && run_rail(c, place, grace, err)) || meet_inside(c, 3 * grace, err))
        return -1;
    take_results(c);
    return 0;
}

static int run_chunks(struct node_comm *node, const struct comm_call *call, struct muster_error *err)
{
    const bool barrier = call->op.kind == COMM_BARRIER;
    const int64_t total = barrier ? 0 : call->op.count, size = barrier ? 1 : dtype_size(call->op.dtype);
    const int64_t most = barrier ? 1 : chunk_elements(node, &call->op);
    struct chunk c = {.node = node, .call = call, .size = size};
    c.meeting =
        (struct host_run){.comm = host_comm_of(node->inside), .call = call, .sequence = ++node->sequence};
    do {
        c.count = total - c.at < most ? total - c.at : most;
        if (run_chunk(&c, err))
            return -1;
        c.at += c.count;
    } while (c.at < total);
    return 0;
}

static int run_inner(struct comm *inner, const struct comm_call *call, int root, struct muster_error *err)
{
    struct comm_call copy = *call;
    copy.comm = inner;
    copy.op.root = root;
    inner->timeout_ns = call->comm->timeout_ns;
    return inner->run(inner, &copy, err);
}

int node_run_call(struct comm *comm, const struct comm_call *call, struct muster_error *err)
{
    struct node_comm *node = node_comm_of(comm);
    const int first = node->first[node->group], root = call->op.root;
    const bool rooted = comm_is_pair(call->op.kind) || call->op.kind == COMM_BROADCAST;
    const bool ours = comm_is_pair(call->op.kind) && root >= first && root < node->first[node->group + 1];
    const bool flat = comm_is_pair(call->op.kind) || call->op.kind == COMM_ALL_TO_ALL;
    int failed;
    if (comm->size == 1) {
        comm_mirror(&call->op, 0, 1, call->send, call->recv);
        return 0;
    }
    if (node->groups == 1 || ours)
        failed = run_inner(node->inside, call, rooted ? root - first : root, err);
    else if (flat || node->groups == comm->size)
        failed = run_inner(node->wide, call, root, err);
    else
        failed = run_chunks(node, call, err);
    if (!failed)
        return 0;
    if (err->code != MUSTER_E_CANCELLED && host_comm_of(node->inside)->page)
        host_page_fail(host_comm_of(node->inside)->page, err);
    if (node->rail)
        tcp_tell(tcp_comm_of(node->rail), err);
    tcp_tell(tcp_comm_of(node->wide), err);
    return -1;
}
