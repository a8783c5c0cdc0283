/* recover.c - the exchange after a loss. See recover.h. */
#include "runtime/train/recover/recover.h"

#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "runtime/train/recover/choose.h"
#include "runtime/train/recover/copies.h"
#include "runtime/train/recover/image.h"
#include "runtime/train/trainer_state.h"

enum { FIELDS = 1 + 2 * RECOVER_GENERATIONS, NONE = -1 };
_Static_assert(sizeof(struct recover_rank) == FIELDS * sizeof(double), "ranks sum them as numbers");

/* What all ranks know after their first sum. */
struct recover {
    struct trainer *trainer;
    struct recover_copies *copies;
    struct recover_rank *ranks;
    int *replica_of, *from;
    struct recover_choice choice;
    int64_t moved;
};

/* ---- where states are ---- */

/* Replicas with feedback of their own have different states. */
static void find_replicas(const struct recover *r)
{
    const struct plan_options *o = &r->trainer->plan.options;
    const enum mesh_axis axis = o->strategy == STRATEGY_NO_SHARD ? AXIS_DATA : AXIS_REPLICATE;
    for (int rank = 0; rank < r->trainer->world_size; rank++)
        r->replica_of[rank] =
            o->compression.kind == COMPRESSION_NONE ? mesh_line(o->mesh, axis, rank).color : rank;
}

bool trainer_has_replicas(const struct trainer *trainer)
{
    const struct plan_options *o = &trainer->plan.options;
    const enum mesh_axis axis = o->strategy == STRATEGY_NO_SHARD ? AXIS_DATA : AXIS_REPLICATE;
    return o->compression.kind == COMPRESSION_NONE && mesh_line(o->mesh, axis, trainer->rank).size > 1;
}

static int share_states(struct recover *r, struct muster_error *err)
{
    const int size = r->trainer->world_size;
    struct recover_rank *mine = &r->ranks[r->trainer->rank];
    *mine = (struct recover_rank){.live = (double)trainer_whole(r->trainer)};
    copies_steps(r->copies, mine->own, mine->kept);
    /* the sum with zeros has each rank's numbers */
    return trainer_reduce(r->trainer, (double *)r->ranks, (int64_t)size * FIELDS, err);
}

/* ---- moving them ---- */

static int run(struct recover *r, enum comm_kind kind, int root, void *bytes, int64_t count,
               struct muster_error *err)
{
    struct trainer *trainer = r->trainer;
    const struct comm_op op = {.kind = kind, .dtype = DTYPE_U8, .root = root, .count = count};
    return trainer->comms.ops->run(trainer->comms.control, &op, bytes, bytes, err);
}

/* One piece of an image to or from a peer. */
struct mover {
    struct recover *recover;
    enum comm_kind kind;
    int peer;
    struct muster_error *err;
};

static int move_piece(void *context, char *bytes, int64_t count)
{
    struct mover *m = context;
    m->recover->moved += count;
    return run(m->recover, m->kind, m->peer, bytes, count, m->err);
}

/* This rank's part of the move of rank `to`'s state. */
static int move_state(struct recover *r, int to, struct muster_error *err)
{
    const int me = r->trainer->rank, from = r->from[to];
    const struct recover_rank *sender = &r->ranks[from];
    struct mover m = {.recover = r, .err = err};
    if (from == to) {
        if (me == to && (int64_t)sender->live != r->choice.step)
            copies_restore(r->copies, r->choice.step);
        return 0;
    }
    if (me == to) {
        m.kind = COMM_RECV;
        m.peer = from;
        return image_walk(r->trainer, move_piece, &m);
    }
    if (me != from)
        return 0;
    m.kind = COMM_SEND;
    m.peer = to;
    const bool replica = r->replica_of[from] == r->replica_of[to] && (int64_t)sender->live == r->choice.step;
    return replica ? image_walk(r->trainer, move_piece, &m)
                   : copies_walk_kept(r->copies, r->choice.step, move_piece, &m);
}

/* States that are sent from memory that another move is to change go first: a rank whose own state changes
 * sends none, so the order of ranks does. */
static int move_all(struct recover *r, struct muster_error *err)
{
    for (int to = 0; to < r->trainer->world_size; to++)
        if (move_state(r, to, err) < 0)
            return -1;
    return 0;
}

/* ---- text and counts ---- */

struct heading {
    struct trainer_counts counts;
    int64_t length;
};

static int share_text(struct recover *r, const struct buffer *mine, struct buffer *theirs,
                      struct muster_error *err)
{
    struct trainer *trainer = r->trainer;
    const int root = r->choice.text_from;
    struct heading heading = {0};
    const struct buffer *text = mine;
    if (trainer->rank == root && (int64_t)r->ranks[root].live == r->choice.step)
        trainer_get_counts(trainer, &heading.counts);
    else if (trainer->rank == root)
        text = copies_text(r->copies, r->choice.step, &heading.counts);
    heading.length = (int64_t)text->length;
    if (run(r, COMM_BROADCAST, root, &heading, sizeof heading, err) < 0)
        return -1;
    if (heading.length < 0 || heading.length > RECOVER_TEXT_LIMIT)
        return error_set(err, MUSTER_E_PROTOCOL, "rank %d has a text of %lld bytes about its state", root,
                         (long long)heading.length);
    scope_free char *bytes = mem_calloc((size_t)heading.length + 1, 1);
    if (!bytes)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the text of a state");
    if (trainer->rank == root && heading.length)
        memcpy(bytes, text->data, (size_t)heading.length);
    if (heading.length && run(r, COMM_BROADCAST, root, bytes, heading.length, err) < 0)
        return -1;
    trainer_set_counts(trainer, &heading.counts);
    theirs->length = 0;
    return buffer_append(theirs, bytes, (size_t)heading.length) < 0
               ? error_set(err, MUSTER_E_NOMEM, "no memory for the text of a state")
               : 0;
}

/* ---- all of it ---- */

static int take_state(struct recover *r, const struct buffer *mine, struct buffer *theirs,
                      struct muster_error *err)
{
    struct trainer *trainer = r->trainer;
    trainer->whole = false;
    if (move_all(r, err) < 0 || share_text(r, mine, theirs, err) < 0)
        return -1;
    copies_reset(r->copies, r->choice.step);
    trainer->whole = true;
    executor_forget(trainer->executor);
    return 1;
}

int trainer_recover(struct trainer *trainer, struct recover_copies *copies, const struct buffer *mine,
                    struct buffer *theirs, int64_t *moved, struct muster_error *err)
{
    struct muster_error local = {0};
    struct muster_error *e = err ? err : &local;
    const size_t size = (size_t)trainer->world_size;
    *moved = 0;
    if (!trainer->comms.control || !trainer->ops->host_memory)
        return 0;
    scope_free struct recover_rank *ranks = mem_calloc(size, sizeof *ranks);
    scope_free int *replica_of = mem_calloc(size, sizeof *replica_of), *from = mem_calloc(size, sizeof *from);
    struct recover r = {
        .trainer = trainer, .copies = copies, .ranks = ranks, .replica_of = replica_of, .from = from};
    if (!ranks || !replica_of || !from) {
        (void)error_set(e, MUSTER_E_NOMEM, "no memory for the states of %d ranks", trainer->world_size);
        return trainer_break(trainer, e, "recovering the state"); /* the others must not wait */
    }
    find_replicas(&r);
    if (share_states(&r, e) < 0)
        return -1;
    if (!recover_choose(ranks, trainer->world_size, replica_of, copies_shift(copies), &r.choice, from)) {
        trainer->whole = false;
        return 0;
    }
    if (trainer_settle(trainer, e) || take_state(&r, mine, theirs, e) < 0)
        return trainer_break(trainer, e, "recovering the state");
    *moved = r.moved;
    /* The copies that a lost rank has kept are gone: another loss may come before the next ones are due. */
    return copies && recover_copies_make(copies, theirs, e) < 0 ? -1 : 1;
}
