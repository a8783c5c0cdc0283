/* plan_check_world.c - runs the plans of all ranks together, without doing any work: every stream is a queue,
 * an operation begins when it heads its queue and its waits are finished, and a collective, send or receive
 * finishes only when all its members head theirs. An operation that cannot finish is a deadlock.
 *
 * Grouped plans: operations of comms begin in the order of the array, and a group of transfers heads its
 * queue until all of it is finished. */
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "runtime/plan/plan_internal.h"
#include "tests/support/plan_check/plan_check.h"

struct world {
    const struct plan *const *plans;
    int count;
    int *head;   /* [rank * STREAM_COUNT + stream] next op of that queue; op_count: none */
    bool **done; /* [rank][op] */
    int *comms;  /* [rank] no operation of a comm before this one is unfinished */
    struct muster_error *err;
};

static int next_of_stream(const struct plan *plan, enum stream_id stream, int from)
{
    while (from < plan->op_count && plan->ops[from].stream != stream)
        from++;
    return from;
}

static int *head_of(const struct world *w, int rank, enum stream_id stream)
{
    return &w->head[rank * STREAM_COUNT + (int)stream];
}

static void finish(struct world *w, int rank, enum stream_id stream)
{
    int *head = head_of(w, rank, stream);
    w->done[rank][*head] = true;
    *head = next_of_stream(w->plans[rank], stream, *head + 1);
}

static int end_of_group(const struct plan *plan, int first)
{
    int end = first + 1;
    while (end < plan->op_count && plan->ops[end].joins)
        end++;
    return end;
}

static bool is_its_turn(const struct world *w, int rank, int head)
{
    const struct plan *plan = w->plans[rank];
    int *next = &w->comms[rank];
    if (!plan->options.grouped || plan->ops[head].kind != OP_COMM)
        return true;
    while (*next < plan->op_count && (plan->ops[*next].kind != OP_COMM || w->done[rank][*next]))
        ++*next;
    return *next >= head;
}

/* The op that heads a queue and may begin; NULL: none. */
static const struct schedule_op *ready(const struct world *w, int rank, enum stream_id stream)
{
    int head = *head_of(w, rank, stream);
    const struct plan *plan = w->plans[rank];
    if (head == plan->op_count || !is_its_turn(w, rank, head))
        return NULL;
    for (int o = head; o < end_of_group(plan, head); o++)
        for (int i = 0; i < plan->ops[o].wait_count; i++)
            if (plan->ops[o].wait[i] < o &&
                !w->done[rank][plan->ops[o].wait[i]]) /* a later one is of the step before: finished */
                return NULL;
    return &plan->ops[head];
}

/* Whether a rank belongs to the communicator of another one's operation. */
static bool same_comm(const struct world *w, int rank, const struct schedule_op *op, int other)
{
    const struct mesh mesh = w->plans[rank]->options.mesh;
    const bool along = mesh_line(mesh, op->axis, rank).color == mesh_line(mesh, op->axis, other).color;
    return along && (op->axis != AXIS_TIED ||
                     plan_tie_line(mesh, w->plans[rank]->groups[op->group].stages, other).size > 0);
}

static int check_signature(const struct world *w, int left, const struct schedule_op *a, int right,
                           const struct schedule_op *b)
{
    if (a->comm.kind == b->comm.kind && a->comm.dtype == b->comm.dtype && a->comm.count == b->comm.count &&
        a->comm.reduction == b->comm.reduction && a->comm.root == b->comm.root)
        return 0;
    return error_set(
        w->err, MUSTER_E_STATE,
        "ranks %d and %d differ on axis %s: op %d is kind %d of %lld elements, op %d is kind %d of %lld",
        left, right, axis_name(a->axis), (int)(a - w->plans[left]->ops), (int)a->comm.kind,
        (long long)a->comm.count, (int)(b - w->plans[right]->ops), (int)b->comm.kind,
        (long long)b->comm.count);
}

static bool is_pair(const struct schedule_op *op)
{
    return op->comm.kind == COMM_SEND || op->comm.kind == COMM_RECV;
}

/* 1: finished on all members, 0: not all are there, -1: they differ. */
static int try_collective(struct world *w, int rank, const struct schedule_op *op)
{
    for (int other = 0; other < w->count; other++) {
        if (!same_comm(w, rank, op, other))
            continue;
        const struct schedule_op *theirs = ready(w, other, op->stream);
        if (!theirs || theirs->kind != OP_COMM || theirs->axis != op->axis || is_pair(theirs))
            return 0;
        if (check_signature(w, rank, op, other, theirs) < 0)
            return -1;
    }
    for (int other = 0; other < w->count; other++)
        if (same_comm(w, rank, op, other))
            finish(w, other, op->stream);
    return 1;
}

static int differ(const struct world *w, int rank, const struct schedule_op *op, int peer,
                  const struct schedule_op *theirs)
{
    return error_set(
        w->err, MUSTER_E_STATE,
        "rank %d op %d (layer %d, micro-batch %d) meets rank %d op %d (layer %d, micro-batch %d)", rank,
        (int)(op - w->plans[rank]->ops), op->layer, op->micro, peer, (int)(theirs - w->plans[peer]->ops),
        theirs->layer, theirs->micro);
}

static bool fits(const struct schedule_op *op, const struct schedule_op *theirs)
{
    return is_pair(theirs) && theirs->comm.kind != op->comm.kind && theirs->comm.count == op->comm.count &&
           theirs->comm.dtype == op->comm.dtype && theirs->layer == op->layer && theirs->micro == op->micro &&
           theirs->back == op->back;
}

/* The first unfinished transfer of the group with a stage, of a kind; NULL: none. */
static const struct schedule_op *open_one(const struct world *w, int rank, const struct schedule_op *first,
                                          enum comm_kind kind, int stage)
{
    const struct plan *plan = w->plans[rank];
    const int begin = (int)(first - plan->ops);
    for (int o = begin; o < end_of_group(plan, begin); o++)
        if (!w->done[rank][o] && plan->ops[o].comm.kind == kind && plan->ops[o].comm.root == stage)
            return &plan->ops[o];
    return NULL;
}

/* 1: something moved, 0: nothing can, -1: the transfers differ. */
static int try_group(struct world *w, int rank, const struct schedule_op *first)
{
    const struct plan *plan = w->plans[rank];
    const struct mesh_place place = mesh_place_of(plan->options.mesh, rank);
    const int begin = (int)(first - plan->ops), stage = place.at[SIDE_PIPELINE];
    int moved = 0, open = 0;
    for (int o = begin; o < end_of_group(plan, begin); o++) {
        const struct schedule_op *op = &plan->ops[o];
        struct mesh_place there = place;
        there.at[SIDE_PIPELINE] = op->comm.root;
        const int peer = mesh_rank_of(plan->options.mesh, there);
        const struct schedule_op *group = ready(w, peer, op->stream);
        if (w->done[rank][o])
            continue;
        const struct schedule_op *theirs =
            group ? open_one(w, peer, group, op->comm.kind == COMM_SEND ? COMM_RECV : COMM_SEND, stage)
                  : NULL;
        open++;
        if (!theirs || open_one(w, rank, first, op->comm.kind, op->comm.root) != op)
            continue;
        if (!fits(op, theirs))
            return differ(w, rank, op, peer, theirs);
        w->done[rank][o] = w->done[peer][theirs - w->plans[peer]->ops] = true;
        open--;
        moved = 1;
    }
    if (open)
        return moved;
    *head_of(w, rank, first->stream) = next_of_stream(plan, first->stream, end_of_group(plan, begin));
    return 1;
}

static int try_pair(struct world *w, int rank, const struct schedule_op *op)
{
    struct mesh mesh = w->plans[rank]->options.mesh;
    struct mesh_place place = mesh_place_of(mesh, rank), peer_place = place;
    peer_place.at[SIDE_PIPELINE] = op->comm.root;
    if (op->axis != AXIS_PIPELINE || peer_place.at[SIDE_PIPELINE] < 0 ||
        peer_place.at[SIDE_PIPELINE] >= mesh.side[SIDE_PIPELINE] ||
        peer_place.at[SIDE_PIPELINE] == place.at[SIDE_PIPELINE])
        return error_set(w->err, MUSTER_E_STATE, "rank %d sends to or receives from stage %d of %d", rank,
                         peer_place.at[SIDE_PIPELINE], mesh.side[SIDE_PIPELINE]);
    int peer = mesh_rank_of(mesh, peer_place);
    const struct schedule_op *theirs = ready(w, peer, op->stream);
    if (!theirs || theirs->kind != OP_COMM || theirs->axis != op->axis ||
        theirs->comm.root != place.at[SIDE_PIPELINE])
        return 0;
    if (!fits(op, theirs))
        return differ(w, rank, op, peer, theirs);
    finish(w, rank, op->stream);
    finish(w, peer, op->stream);
    return 1;
}

/* Runs one queue as far as it goes. 1: moved, 0: stuck or empty, -1: wrong. */
static int advance(struct world *w, int rank, enum stream_id stream)
{
    int moved = 0;
    for (const struct schedule_op *op; (op = ready(w, rank, stream)); moved = 1) {
        int result = 1;
        if (op->kind != OP_COMM)
            finish(w, rank, stream);
        else if (is_pair(op) && w->plans[rank]->options.grouped)
            result = try_group(w, rank, op);
        else if (is_pair(op))
            result = try_pair(w, rank, op);
        else
            result = try_collective(w, rank, op);
        if (result < 0)
            return -1;
        if (result == 0)
            break;
        if (stream == STREAM_TRANSFERS && *head_of(w, rank, stream) == (int)(op - w->plans[rank]->ops))
            return 1; /* a part of the group */
    }
    return moved;
}

static int run_all(struct world *w)
{
    for (bool moved = true; moved;) {
        moved = false;
        for (int rank = 0; rank < w->count; rank++)
            for (int stream = 0; stream < STREAM_COUNT; stream++) {
                int result = advance(w, rank, (enum stream_id)stream);
                if (result < 0)
                    return -1;
                moved |= result > 0;
            }
    }
    for (int rank = 0; rank < w->count; rank++)
        for (int stream = 0; stream < STREAM_COUNT; stream++) {
            int head = *head_of(w, rank, (enum stream_id)stream);
            if (head < w->plans[rank]->op_count)
                return error_set(w->err, MUSTER_E_STATE, "rank %d waits for ever in op %d (%s, %s)", rank,
                                 head, stream_name((enum stream_id)stream),
                                 op_kind_name(w->plans[rank]->ops[head].kind));
        }
    return 0;
}

/* All ranks of a stage have to agree on their schedule. */
static int check_hashes(const struct world *w)
{
    struct mesh mesh = w->plans[0]->options.mesh;
    for (int rank = 0; rank < w->count; rank++) {
        int first = mesh_rank_of(mesh, (struct mesh_place){{mesh_place_of(mesh, rank).at[SIDE_PIPELINE]}});
        if (w->plans[rank]->options.rank != rank || w->plans[rank]->hash != w->plans[first]->hash)
            return error_set(w->err, MUSTER_E_STATE, "ranks %d and %d of one stage have different schedules",
                             first, rank);
    }
    return 0;
}

int plan_check_world(const struct plan *const *plans, int count, struct muster_error *err)
{
    size_t ops = 0;
    for (int rank = 0; rank < count; rank++)
        ops += (size_t)plans[rank]->op_count;
    if (count < 1 || mesh_size(plans[0]->options.mesh) != count)
        return error_set(err, MUSTER_E_INVALID, "%d plans for a mesh of %d ranks", count,
                         count < 1 ? 0 : mesh_size(plans[0]->options.mesh));
    scope_free int *head = mem_calloc((size_t)count * STREAM_COUNT, sizeof *head);
    scope_free bool **done = mem_calloc((size_t)count, sizeof *done);
    scope_free bool *flags = mem_calloc(ops, sizeof *flags);
    scope_free int *comms = mem_calloc((size_t)count, sizeof *comms);
    if (!head || !done || !flags || !comms)
        return error_set(err, MUSTER_E_NOMEM, "no memory to check the plans of %d ranks", count);
    struct world w = {.plans = plans, .count = count, .head = head, .done = done, .comms = comms, .err = err};
    bool *next = flags;
    for (int rank = 0; rank < count; rank++) {
        done[rank] = next;
        next += plans[rank]->op_count;
        for (int stream = 0; stream < STREAM_COUNT; stream++)
            *head_of(&w, rank, (enum stream_id)stream) =
                next_of_stream(plans[rank], (enum stream_id)stream, 0);
    }
    return check_hashes(&w) < 0 ? -1 : run_all(&w);
}
