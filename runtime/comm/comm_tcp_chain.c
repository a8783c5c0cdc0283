/* comm_tcp_chain.c - large operations of large comms: data passes from rank to rank in pieces, and all
 * connections work at once. See comm_tcp_internal.h.
 *
 * A lane is a stream of pieces from one neighbour, through this rank, to the other. A reduction has two: sums
 * go up from rank 0, results come down from the last rank. They use the two directions of the same
 * connections, so neither waits for the other. A lane that is buffered keeps two pieces: one arrives while
 * the other leaves. */
#include <string.h>

#include "runtime/comm/comm_reduce.h"
#include "runtime/comm/comm_tcp_internal.h"

enum { LANE_BUFFERS = 2 };

/* How many pieces were asked for, have arrived and are ready, are on their way out, have left. */
struct lane {
    int from, to;    /* ranks; -1: begins here, ends here */
    int64_t in, out; /* pieces that arrive (or begin) here, and that go on */
    int64_t asked, got, given, sent;
};

struct chain {
    const struct tcp_run *run;
    struct lane up, down;
    int64_t most, per_block; /* elements of a piece, and pieces of a block */
    int64_t wide, size;      /* bytes of an element in a sum, and in the buffers */
    char *sums[LANE_BUFFERS], *results[LANE_BUFFERS];
};

/* Updates got and sent; true: got rose, and the piece got-1 has just arrived. */
static bool lane_hears(const struct tcp_run *run, struct lane *lane)
{
    if (lane->given > lane->sent && !tcp_gives(run, lane->to))
        lane->sent = lane->given;
    if (lane->from < 0 || lane->asked == lane->got || tcp_takes(run, lane->from))
        return false;
    lane->got++;
    return true;
}

/* Whether the buffer of the next piece to arrive is free. */
static bool lane_has_room(const struct lane *lane)
{
    const int64_t used = lane->sent < lane->out ? lane->sent : lane->got;
    return lane->asked < used + LANE_BUFFERS;
}

static bool lane_may_ask(const struct lane *lane)
{
    return lane->asked == lane->got && lane->asked < lane->in;
}

static bool lane_may_give(const struct lane *lane)
{
    return lane->given == lane->sent && lane->given < lane->got && lane->given < lane->out;
}

static bool lane_is_done(const struct lane *lane)
{
    return lane->got == lane->in && lane->sent == lane->out;
}

/* ---- reductions ---- */

/* Where a piece lies: its element in the send buffer, in the receive buffer of its block, and how many. */
struct piece {
    int64_t block, first, count;
};

static int64_t block_elements(const struct chain *c)
{
    return c->run->group ? c->run->group->count : c->run->call->op.count;
}

static struct piece piece_of(const struct chain *c, int64_t number)
{
    const int64_t count = block_elements(c), first = number % c->per_block * c->most;
    return (struct piece){number / c->per_block, first, count - first < c->most ? count - first : c->most};
}

static bool is_ours(const struct chain *c, const struct piece *piece)
{
    const int me = c->run->tcp->comm.rank;
    return c->run->call->op.kind == COMM_ALL_REDUCE ||
           (piece->block >= tcp_block(c->run, me) && piece->block < tcp_block(c->run, me + 1));
}

/* Results of an all_reduce pass as they are stored, so from one rank's receive buffer to the next one's; an
 * accumulating rank has other values there, and a reduce_scatter passes blocks of other ranks. */
static bool passes_stored(const struct chain *c)
{
    return c->run->call->op.kind == COMM_ALL_REDUCE && !c->run->call->op.accumulate && !c->run->group;
}

static char *result_place(const struct chain *c, int64_t number, int64_t *bytes)
{
    const struct piece piece = piece_of(c, number);
    *bytes = piece.count * (passes_stored(c) ? c->size : c->wide);
    return passes_stored(c) ? (char *)c->run->call->recv + piece.first * c->size
                            : c->results[number % LANE_BUFFERS];
}

/* The sum of a piece of ours is complete. */
static void keep_sum(const struct chain *c, const struct piece *piece, const void *sum)
{
    const struct comm_call *call = c->run->call;
    const struct tcp_group *group = c->run->group;
    if (!group) {
        comm_sum_put(&call->op, (char *)call->recv + piece->first * c->size, sum, piece->count);
        return;
    }
    const int64_t block =
        call->op.kind == COMM_ALL_REDUCE ? 0 : piece->block - tcp_block(c->run, c->run->tcp->comm.rank);
    memcpy(group->result + (block * group->count + piece->first) * c->wide, sum,
           (size_t)(piece->count * c->wide));
}

/* Adds the values of our ranks to the sum of the ranks before, or begins the sum. */
static void add_own(const struct chain *c, const struct piece *piece, void *sum, bool begins)
{
    const struct comm_call *call = c->run->call;
    const struct tcp_given alone = {call->send, call->op.count * c->size};
    const struct tcp_given *given = c->run->group ? c->run->group->given : &alone;
    const int me = c->run->tcp->comm.rank, count = tcp_block(c->run, me + 1) - tcp_block(c->run, me);
    const int64_t block = call->op.kind == COMM_ALL_REDUCE ? 0 : piece->block;
    for (int i = 0; i < count; i++) {
        const char *values = given[i].at + block * given[i].stride + piece->first * c->size;
        if (begins && i == 0)
            comm_sum_begin(&call->op, sum, values, piece->count);
        else
            comm_sum_add(&call->op, sum, values, piece->count);
    }
}

/* On the last rank a sum is complete. */
static void finish_sum(struct chain *c, int64_t number, char *sum)
{
    const struct comm_call *call = c->run->call;
    const struct piece piece = piece_of(c, number);
    int64_t bytes;
    char *place = result_place(c, number, &bytes);
    comm_sum_end(&call->op, tcp_block(c->run, c->run->tcp->comm.size), sum, piece.count);
    if (number < c->down.out && !passes_stored(c))
        memcpy(place, sum, (size_t)bytes);
    if (is_ours(c, &piece))
        keep_sum(c, &piece, sum);
    c->down.asked = c->down.got = number + 1;
}

static bool move_up(struct chain *c)
{
    struct lane *lane = &c->up;
    const bool last = lane->to < 0;
    const int64_t sent = lane->sent;
    bool moved = lane_hears(c->run, lane);
    if (moved) {
        const struct piece piece = piece_of(c, lane->got - 1);
        char *sum = c->sums[(lane->got - 1) % LANE_BUFFERS];
        add_own(c, &piece, sum, false);
        if (last)
            finish_sum(c, lane->got - 1, sum);
    }
    if (lane_may_ask(lane) && (last ? lane_has_room(&c->down) : lane_has_room(lane))) {
        const struct piece piece = piece_of(c, lane->asked);
        char *sum = c->sums[lane->asked++ % LANE_BUFFERS];
        if (lane->from >= 0) {
            tcp_take(c->run, lane->from, sum, piece.count * c->wide);
        } else {
            add_own(c, &piece, sum, true);
            lane->got = lane->asked;
        }
        moved = true;
    }
    if (lane_may_give(lane)) {
        const struct piece piece = piece_of(c, lane->given);
        tcp_give(c->run, lane->to, c->sums[lane->given++ % LANE_BUFFERS], piece.count * c->wide);
        moved = true;
    }
    return moved || lane->sent > sent;
}

static bool move_down(struct chain *c)
{
    struct lane *lane = &c->down;
    const int64_t sent = lane->sent;
    int64_t bytes;
    bool moved = lane_hears(c->run, lane);
    if (moved && !passes_stored(c)) {
        const struct piece piece = piece_of(c, lane->got - 1);
        const char *sum = result_place(c, lane->got - 1, &bytes);
        if (is_ours(c, &piece))
            keep_sum(c, &piece, sum);
    }
    if (lane->from >= 0 && lane_may_ask(lane) && (passes_stored(c) || lane_has_room(lane))) {
        char *place = result_place(c, lane->asked++, &bytes);
        tcp_take(c->run, lane->from, place, bytes);
        moved = true;
    }
    if (lane_may_give(lane)) {
        const char *place = result_place(c, lane->given++, &bytes);
        tcp_give(c->run, lane->to, place, bytes);
        moved = true;
    }
    return moved || lane->sent > sent;
}

int tcp_reduce_chain(const struct tcp_run *run, struct muster_error *err)
{
    const struct comm_op *op = &run->call->op;
    const int size = run->tcp->comm.size, me = run->tcp->comm.rank, last = size - 1;
    struct chain c = {
        .run = run, .size = dtype_size(op->dtype), .wide = dtype_size(comm_sum_dtype(op->dtype))};
    c.most = TCP_PIECE_BYTES / c.wide;
    c.per_block = (block_elements(&c) + c.most - 1) / c.most;
    for (int i = 0; i < LANE_BUFFERS; i++) {
        c.sums[i] = run->tcp->scratch + i * TCP_PIECE_BYTES;
        c.results[i] = run->tcp->scratch + (LANE_BUFFERS + i) * TCP_PIECE_BYTES;
    }
    const bool scatters = op->kind == COMM_REDUCE_SCATTER;
    const int64_t pieces = c.per_block * (scatters ? tcp_block(run, size) : 1);
    c.up = (struct lane){.from = me - 1, .to = me < last ? me + 1 : -1, .in = pieces};
    c.up.out = me < last ? pieces : 0;
    c.down = (struct lane){.from = me < last ? me + 1 : -1, .to = me - 1};
    c.down.in = scatters && me < last ? c.per_block * tcp_block(run, me + 1) : pieces;
    c.down.out = me == 0 ? 0 : scatters ? c.per_block * tcp_block(run, me) : pieces;
    while (!lane_is_done(&c.up) || !lane_is_done(&c.down)) {
        const bool up = move_up(&c), down = move_down(&c);
        if (!up && !down && tcp_drive(run, TCP_ONE, err))
            return -1;
    }
    return tcp_drive(run, TCP_ALL, err);
}

/* ---- data that only passes ---- */

/* Piece `number` of a stream of blocks. */
static char *passing_piece(const struct tcp_run *run, int64_t number, int64_t per_block, int64_t *bytes)
{
    const int64_t part = comm_part_bytes(&run->call->op), first = number % per_block * TCP_PIECE_BYTES;
    const bool gathers = run->call->op.kind == COMM_ALL_GATHER;
    *bytes = part - first < TCP_PIECE_BYTES ? part - first : TCP_PIECE_BYTES;
    return (char *)run->call->recv +
           (gathers ? tcp_rank_after(run->tcp, -(int)(number / per_block)) : 0) * part + first;
}

/* Every rank passes on its own pieces and then the pieces that arrive. `ahead` pieces of the stream are here
 * from the start; arriving pieces count from there. */
static int pass_pieces(const struct tcp_run *run, struct lane *lanes, int count, int64_t per_block,
                       int64_t ahead, struct muster_error *err)
{
    for (;;) {
        bool moved = false, done = true;
        for (int i = 0; i < count; i++) {
            struct lane *lane = &lanes[i];
            const int64_t sent = lane->sent;
            int64_t bytes;
            moved = lane_hears(run, lane) || lane->sent > sent || moved;
            if (lane->from >= 0 && lane_may_ask(lane)) {
                char *place = passing_piece(run, ahead + lane->asked++, per_block, &bytes);
                tcp_take(run, lane->from, place, bytes);
                moved = true;
            }
            if (lane->given == lane->sent && lane->given < lane->out && lane->given < ahead + lanes[0].got) {
                const char *place = passing_piece(run, lane->given++, per_block, &bytes);
                tcp_give(run, lane->to, place, bytes);
                moved = true;
            }
            done = done && lane_is_done(lane);
        }
        if (done)
            return tcp_drive(run, TCP_ALL, err);
        if (!moved && tcp_drive(run, TCP_ONE, err))
            return -1;
    }
}

/* A block goes round the ring until it comes to the rank before its owner. */
int tcp_gather_ring(const struct tcp_run *run, struct muster_error *err)
{
    const int64_t per_block = (comm_part_bytes(&run->call->op) + TCP_PIECE_BYTES - 1) / TCP_PIECE_BYTES;
    const int64_t pieces = per_block * (run->tcp->comm.size - 1);
    struct lane lane = {
        .from = tcp_rank_after(run->tcp, -1), .to = tcp_rank_after(run->tcp, 1), .in = pieces, .out = pieces};
    return pass_pieces(run, &lane, 1, per_block, per_block, err);
}

/* From the root to both ends of the chain. */
int tcp_broadcast_chain(const struct tcp_run *run, struct muster_error *err)
{
    const int root = run->call->op.root, me = run->tcp->comm.rank, last = run->tcp->comm.size - 1;
    const int64_t pieces = (comm_part_bytes(&run->call->op) + TCP_PIECE_BYTES - 1) / TCP_PIECE_BYTES;
    struct lane lanes[2] = {{.from = -1, .to = -1}, {.from = -1, .to = -1}};
    if (me != root) {
        lanes[0].from = me > root ? me - 1 : me + 1;
        lanes[0].in = pieces;
    }
    if (me >= root && me < last) {
        lanes[0].to = me + 1;
        lanes[0].out = pieces;
    }
    struct lane *down = &lanes[me == root];
    if (me <= root && me > 0) {
        down->to = me - 1;
        down->out = pieces;
    }
    return pass_pieces(run, lanes, 2, pieces, me == root ? pieces : 0, err);
}
