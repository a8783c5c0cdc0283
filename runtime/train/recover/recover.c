/* recover.c - the exchange after a loss. See recover.h. */
#include "runtime/train/recover/recover.h"

#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "runtime/train/recover/choose.h"
#include "runtime/train/recover/copies.h"
#include "runtime/train/recover/divide.h"
#include "runtime/train/recover/image.h"
#include "runtime/train/recover/share.h"
#include "runtime/train/trainer_state.h"

enum { FIELDS = sizeof(struct divide_rank) / sizeof(double) };
_Static_assert(sizeof(struct divide_rank) == (14 + SIDE_COUNT) * sizeof(double), "ranks sum them as numbers");

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

bool trainer_has_replicas(const struct trainer *trainer, int first, int count)
{
    const struct plan_options *o = &trainer->plan.options;
    const enum mesh_axis axis = o->strategy == STRATEGY_NO_SHARD ? AXIS_DATA : AXIS_REPLICATE;
    const int size = mesh_line(o->mesh, axis, trainer->rank).size;
    bool has = false;
    for (int i = 0; i < size && o->compression.kind == COMPRESSION_NONE; i++) {
        const int rank = mesh_line_rank(o->mesh, axis, trainer->rank, i);
        has = has || rank < first || rank >= first + count;
    }
    return has;
}

/* all: [world_size], zeros. */
static int share_states(struct recover *r, const struct recover_kept *kept, struct divide_rank *all,
                        struct muster_error *err)
{
    const int size = r->trainer->world_size;
    divide_describe(r->trainer, r->copies, kept, &all[r->trainer->rank]);
    /* the sum with zeros has each rank's numbers */
    if (trainer_reduce(r->trainer, (double *)all, (int64_t)size * FIELDS, err) < 0)
        return -1;
    int agreed = 0, wanted = 0;
    for (int rank = 0; rank < size; rank++) {
        r->ranks[rank] = all[rank].steps;
        agreed = all[rank].agreed > agreed ? (int)all[rank].agreed : agreed;
        wanted = all[rank].wanted > wanted ? (int)all[rank].wanted : wanted;
    }
    copies_agree(r->copies, agreed ? agreed : wanted); /* ranks that stayed have copies, so theirs holds */
    return 0;
}

/* ---- moving them ---- */

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
    return share_bytes(m->recover->trainer, m->kind, m->peer, bytes, count, m->err);
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

/* ---- all of it ---- */

static int share_step(struct recover *r, const struct buffer *mine, struct buffer *theirs,
                      struct muster_error *err)
{
    const int root = r->choice.text_from;
    struct trainer_counts counts;
    trainer_get_counts(r->trainer, &counts);
    if (r->trainer->rank == root && (int64_t)r->ranks[root].live != r->choice.step)
        mine = copies_text(r->copies, r->choice.step, &counts);
    return share_text(r->trainer, root, &counts, mine, theirs, err);
}

/* Ranks that can finish the step do, before they send it. */
static int finish_step(struct recover *r, struct muster_error *err)
{
    const int64_t step = r->choice.step;
    for (int rank = 0; rank < r->trainer->world_size; rank++) {
        if (!recover_finishes(&r->ranks[rank], step))
            continue;
        if (rank == r->trainer->rank && trainer_finish(r->trainer) < 0)
            return error_set(err, MUSTER_E_STATE, "step %lld cannot be finished", (long long)step);
        r->ranks[rank].live = (double)step;
    }
    return 0;
}

static int take_state(struct recover *r, const struct buffer *mine, struct buffer *theirs,
                      struct muster_error *err)
{
    struct trainer *trainer = r->trainer;
    if (finish_step(r, err) < 0)
        return -1;
    trainer->whole = false;
    if (move_all(r, err) < 0 || share_step(r, mine, theirs, err) < 0)
        return -1;
    copies_reset(r->copies, r->choice.step);
    trainer->whole = true;
    trainer->draw = NULL;
    executor_forget(trainer->executor);
    return 1;
}

static int recover_in_place(struct recover *r, const struct buffer *mine, struct buffer *theirs,
                            struct muster_error *err)
{
    struct trainer *trainer = r->trainer;
    find_replicas(r);
    if (recover_choose(r->ranks, trainer->world_size, r->replica_of, copies_shift(r->copies), &r->choice,
                       r->from))
        return take_state(r, mine, theirs, err);
    trainer->whole = false;
    return 0;
}

int trainer_recover(struct trainer *trainer, struct recover_copies *copies, const struct recover_kept *kept,
                    const struct buffer *mine, struct buffer *theirs, int64_t *moved,
                    struct muster_error *err)
{
    struct muster_error local = {0};
    struct muster_error *e = err ? err : &local;
    const size_t size = (size_t)trainer->world_size;
    *moved = 0;
    if ((!trainer->comms.control && !kept) || !trainer->ops->host_memory)
        return 0;
    scope_free struct divide_rank *all = mem_calloc(size, sizeof *all);
    scope_free struct recover_rank *ranks = mem_calloc(size, sizeof *ranks);
    scope_free int *replica_of = mem_calloc(size, sizeof *replica_of), *from = mem_calloc(size, sizeof *from);
    struct recover r = {
        .trainer = trainer, .copies = copies, .ranks = ranks, .replica_of = replica_of, .from = from};
    if (!all || !ranks || !replica_of || !from) {
        (void)error_set(e, MUSTER_E_NOMEM, "no memory for the states of %d ranks", trainer->world_size);
        return trainer_break(trainer, e, "recovering the state"); /* the others must not wait */
    }
    if (share_states(&r, kept, all, e) < 0)
        return -1;
    const bool here = divide_is_needless(all, (int)size);
    const int result = trainer_settle(trainer, e) ? -1
                       : here                     ? recover_in_place(&r, mine, theirs, e)
                              : divide_recover(trainer, copies, kept, all, mine, theirs, &r.moved, e);
    trainer->able = false;
    if (result < 0)
        return trainer_break(trainer, e, "recovering the state");
    if (!result)
        copies_reset(copies, -1);
    /* The copies that a lost rank has kept are gone: another loss may come before the next ones are due. */
    int made = 0;
    if (result && copies)
        made = here ? copies_complete(copies, ranks, r.choice.step, theirs, &r.moved, e)
                    : recover_copies_make(copies, theirs, e);
    *moved = r.moved;
    return made < 0 ? -1 : result;
}
