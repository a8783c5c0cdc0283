/* divide.c - see divide.h. Every state of the world before is sent to all ranks, and each rank takes its
 * present elements, as from a checkpoint. Nothing is sent where all ranks have stayed and had equal states.
 */
#include "runtime/train/recover/divide.h"

#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "runtime/train/recover/recover.h"
#include "runtime/train/recover/share.h"
#include "runtime/train/recover/slices.h"
#include "runtime/train/trainer_state.h"

/* ---- who has what ---- */

void divide_describe(const struct trainer *trainer, const struct recover_copies *copies,
                     const struct recover_kept *kept, struct divide_rank *out)
{
    const struct plan_options *o = kept ? &kept->options : &trainer->plan.options;
    const uint64_t layout = kept ? kept->layout : trainer->plan.asked;
    *out = (struct divide_rank){.rank = o->rank,
                                .size = mesh_size(o->mesh),
                                .shift = kept ? kept->shift : copies_shift(copies),
                                .layout = {(double)(layout >> 32), (double)(layout & UINT32_MAX)},
                                .kept = kept != NULL};
    copies_describe_shift(copies, &out->agreed, &out->wanted);
    for (int i = 0; i < SIDE_COUNT; i++)
        out->side[i] = o->mesh.side[i];
    if (kept) {
        kept_steps(kept, &out->steps);
        return;
    }
    out->steps.live = (double)trainer_whole(trainer);
    out->steps.finishes = trainer_finishes(trainer) >= 0;
    copies_steps(copies, out->steps.own, out->steps.kept);
}

bool divide_is_needless(const struct divide_rank *ranks, int size)
{
    bool needless = true;
    for (int r = 0; r < size; r++)
        needless = needless && ranks[r].kept == 0;
    return needless;
}

/* The world before, by its ranks. */
struct before {
    int size, shift;
    struct recover_rank *ranks; /* [size] */
    int *replica_of, *from;     /* [size] of recover_choose */
    int *now;                   /* [size] the rank that it is now; -1: it was lost */
    struct recover_choice choice;
};

static void before_free(struct before *before)
{
    mem_free(before->ranks);
    mem_free(before->replica_of);
    mem_free(before->from);
    mem_free(before->now);
    *before = (struct before){0};
}

/* A rank that was started anew has a number, too, and no state. */
static bool is_of(const struct divide_rank *rank, const struct divide_rank *other)
{
    return recover_rank_has_any(&rank->steps) && rank->size == other->size &&
           !memcmp(rank->layout, other->layout, sizeof rank->layout);
}

/* The world of that rank's state, and the states of it that all ranks have. */
static int look_back(const struct trainer *trainer, const struct divide_rank *ranks, int one,
                     struct before *out, struct muster_error *err)
{
    const struct divide_rank *like = &ranks[one];
    struct mesh mesh;
    for (int i = 0; i < SIDE_COUNT; i++)
        mesh.side[i] = (int)like->side[i];
    const size_t size = (size_t)like->size;
    *out = (struct before){.size = (int)size,
                           .shift = (int)like->shift,
                           .ranks = mem_calloc(size, sizeof *out->ranks),
                           .replica_of = mem_calloc(size, sizeof *out->replica_of),
                           .from = mem_calloc(size, sizeof *out->from),
                           .now = mem_calloc(size, sizeof *out->now)};
    if (!out->ranks || !out->replica_of || !out->from || !out->now)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the states of %zu ranks", size);
    const enum mesh_axis axis =
        trainer->plan.options.strategy == STRATEGY_NO_SHARD ? AXIS_DATA : AXIS_REPLICATE;
    for (int r = 0; r < out->size; r++) {
        out->ranks[r] = (struct recover_rank){-1, {-1, -1}, {-1, -1}, 0};
        out->replica_of[r] = mesh_line(mesh, axis, r).color;
        out->now[r] = -1;
    }
    for (int r = 0; r < trainer->world_size; r++) {
        const int then = (int)ranks[r].rank;
        if (!is_of(&ranks[r], like) || out->now[then] >= 0)
            continue;
        out->ranks[then] = ranks[r].steps;
        out->now[then] = r;
    }
    return 0;
}

/* The world with the latest whole step: after a loss in the middle of this, ranks have states of several
 * worlds. 0: no step is whole. */
static int find_before(const struct trainer *trainer, const struct divide_rank *ranks, struct before *best,
                       struct muster_error *err)
{
    for (int r = 0; r < trainer->world_size; r++) {
        struct before found;
        const int failed = look_back(trainer, ranks, r, &found, err);
        if (failed ||
            !recover_choose(found.ranks, found.size, found.replica_of, found.shift, &found.choice,
                            found.from) ||
            (best->size && best->choice.step >= found.choice.step)) {
            before_free(&found);
            if (failed)
                return -1;
            continue;
        }
        before_free(best);
        *best = found;
    }
    return best->size > 0;
}

/* ---- the elements of this rank ---- */

/* Values are put in place together, and averages and moments after them: averages begin with values. */
struct taker {
    struct trainer *trainer;
    bool values;    /* the first pass: of values */
    char *held;     /* in the first pass: the values of this rank's elements, parameter after parameter */
    int64_t *at;    /* [param_count] where each begins */
    int64_t wanted; /* elements of this pass */
    int64_t got, moved;
};

static enum dtype value_dtype(const struct trainer *trainer, int param)
{
    struct trainer_part part;
    return trainer_part(trainer, param, TRAINER_VALUE, &part) ? part.dtype : DTYPE_F32;
}

static int begin_pass(struct taker *t, bool values, struct muster_error *err)
{
    const int params = t->trainer->model->param_count;
    int64_t bytes = 0;
    t->values = values;
    t->wanted = t->got = 0;
    for (int param = 0; param < params; param++) {
        struct trainer_part part;
        int64_t first, count;
        trainer_held(t->trainer, param, &first, &count);
        t->at[param] = bytes;
        bytes += values ? count * dtype_size(value_dtype(t->trainer, param)) : 0;
        t->wanted += values ? count : 0;
        for (int tensor = TRAINER_MOMENT1; !values && tensor <= TRAINER_AVERAGE; tensor++)
            if (trainer_part(t->trainer, param, (enum trainer_tensor)tensor, &part) && part.entry >= 0)
                t->wanted += part.count;
    }
    t->held = values ? mem_realloc(NULL, (size_t)bytes + 1, 1) : NULL; /* all of it is filled */
    return values && !t->held ? error_set(err, MUSTER_E_NOMEM, "no memory for the parameters of this rank")
                              : 0;
}

/* Takes this rank's elements out of a slice's, from `first` on. */
static int take_elements(struct taker *t, const struct slice *slice, int64_t first, int64_t count,
                         const char *bytes, struct muster_error *err)
{
    struct trainer_part part;
    if (!trainer_part(t->trainer, slice->param, (enum trainer_tensor)slice->tensor, &part) || part.entry < 0)
        return 0;
    if (part.dtype != (enum dtype)slice->dtype)
        return error_set(err, MUSTER_E_PROTOCOL, "%s is %s on one rank and %s on another",
                         t->trainer->model->params[slice->param].name, dtype_name(part.dtype),
                         dtype_name((enum dtype)slice->dtype));
    int64_t own = part.first, own_count = part.count;
    if (t->values)
        trainer_held(t->trainer, slice->param, &own, &own_count);
    const int64_t from = first > own ? first : own;
    const int64_t until = first + count < own + own_count ? first + count : own + own_count;
    if (from >= until)
        return 0;
    const int64_t size = dtype_size(part.dtype);
    t->got += until - from;
    bytes += (from - first) * size;
    if (!t->values)
        return trainer_write_part(t->trainer, &part, from, until - from, bytes, err);
    memcpy(t->held + t->at[slice->param] + (from - own) * size, bytes, (size_t)((until - from) * size));
    return 0;
}

static int give_values(void *context, int param, int64_t first, int64_t count, enum dtype dtype, void *out,
                       struct muster_error *err)
{
    const struct taker *t = context;
    const enum dtype from = value_dtype(t->trainer, param);
    int64_t own, own_count;
    (void)err;
    trainer_held(t->trainer, param, &own, &own_count);
    const char *values = t->held + t->at[param] + (first - own) * dtype_size(from);
    if (from == dtype)
        memcpy(out, values, (size_t)(count * dtype_size(dtype)));
    else
        kernels_ref_f64()->cast(out, dtype, values, from, count, NULL);
    return 0;
}

static int end_pass(struct taker *t, struct muster_error *err)
{
    int result = 0;
    if (t->got != t->wanted)
        result = error_set(err, MUSTER_E_STATE, "%lld of %lld elements of this rank were in the states",
                           (long long)t->got, (long long)t->wanted);
    else if (t->values)
        result = trainer_fill_params(t->trainer, give_values, t, err);
    mem_free(t->held);
    t->held = NULL;
    return result;
}

/* ---- moving them ---- */

enum { BLOCK = 4 << 20 }; /* bytes */

/* The image of the state that rank `then` of the world before had, on the rank that sends it. */
static const char *image_of(const struct before *b, const struct recover_kept *mine, int then)
{
    const struct copy *own = kept_own(mine, b->choice.step);
    const bool equal =
        mine->options.rank == then ||
        (b->replica_of[mine->options.rank] == b->replica_of[then] && kept_live(mine, b->choice.step));
    return equal && own ? own->image : kept_other(mine, b->choice.step)->image;
}

/* Sends or receives one slice, block by block. */
static int move_slice(struct taker *t, const struct slice *slice, int root, const char *image, char *block,
                      struct muster_error *err)
{
    const int64_t size = dtype_size((enum dtype)slice->dtype), most = BLOCK / size;
    for (int64_t done = 0; done < slice->count; done += most) {
        const int64_t count = slice->count - done < most ? slice->count - done : most;
        if (image)
            memcpy(block, image + slice->offset + done * size, (size_t)(count * size));
        if (share_bytes(t->trainer, COMM_BROADCAST, root, block, count * size, err) < 0 ||
            take_elements(t, slice, slice->first + done, count, block, err) < 0)
            return -1;
        t->moved += count * size;
    }
    return 0;
}

/* The state of one rank of the world before. */
static int move_state(struct taker *t, const struct before *b, const struct recover_kept *mine, int then,
                      char *block, struct muster_error *err)
{
    const int root = b->now[b->from[then]];
    const bool sends = t->trainer->rank == root;
    struct slices slices = {0};
    int result = 0;
    if (sends && slices_list(t->trainer, mine, then, t->values, false, &slices, err) < 0)
        slices.count = -1; /* the others must not wait */
    if (share_bytes(t->trainer, COMM_BROADCAST, root, &slices.count, sizeof slices.count, err) < 0)
        result = -1;
    else if (slices.count < 0)
        result = sends ? -1 : error_set(err, MUSTER_E_PEER, "rank %d cannot send a state", root);
    else if (!sends && !(slices.list = mem_calloc((size_t)slices.count + 1, sizeof *slices.list)))
        result = error_set(err, MUSTER_E_NOMEM, "no memory for the places of a state");
    if (!result && slices.count)
        result = share_bytes(t->trainer, COMM_BROADCAST, root, slices.list,
                             slices.count * (int64_t)sizeof *slices.list, err);
    for (int64_t i = 0; !result && i < slices.count; i++)
        result = move_slice(t, &slices.list[i], root, sends ? image_of(b, mine, then) : NULL, block, err);
    mem_free(slices.list);
    return result < 0 ? -1 : 0;
}

/* This rank has all of it. */
static int take_own(struct taker *t, const struct before *b, const struct recover_kept *mine,
                    struct muster_error *err)
{
    struct slices slices = {0};
    int result = slices_list(t->trainer, mine, mine->options.rank, t->values, true, &slices, err);
    for (int64_t i = 0; !result && i < slices.count; i++) {
        const struct slice *slice = &slices.list[i];
        result = take_elements(t, slice, slice->first, slice->count,
                               kept_own(mine, b->choice.step)->image + slice->offset, err);
    }
    mem_free(slices.list);
    return result;
}

/* Whether every rank has stayed with the whole state of that step. */
static bool all_have_all(const struct before *b, int world_size)
{
    int stayed = 0;
    for (int r = 0; r < b->size; r++) {
        if (b->replica_of[r] != b->replica_of[0])
            return false;
        stayed += b->now[r] >= 0 && (b->ranks[r].live == (double)b->choice.step ||
                                     recover_finishes(&b->ranks[r], b->choice.step));
    }
    return stayed == world_size;
}

static int take_all(struct taker *t, const struct before *b, const struct recover_kept *mine,
                    struct muster_error *err)
{
    const bool local = all_have_all(b, t->trainer->world_size);
    scope_free char *block = mem_realloc(NULL, BLOCK, 1);
    if (!block)
        return error_set(err, MUSTER_E_NOMEM, "no memory to move a state");
    for (int pass = 0; pass < 2; pass++) {
        int result = begin_pass(t, !pass, err);
        if (!result && local)
            result = take_own(t, b, mine, err);
        for (int then = 0; !result && !local && then < b->size; then++)
            result = move_state(t, b, mine, then, block, err);
        if (result < 0 || end_pass(t, err) < 0) {
            mem_free(t->held);
            return -1;
        }
    }
    return 0;
}

/* ---- all of it ---- */

static int share_step(struct trainer *trainer, const struct before *b, const struct recover_kept *mine,
                      struct buffer *theirs, struct muster_error *err)
{
    const int root = b->now[b->choice.text_from];
    const struct copy *own = trainer->rank == root ? kept_own(mine, b->choice.step) : NULL;
    return share_text(trainer, root, own ? &own->counts : NULL, own ? &own->text : NULL, theirs, err);
}

static int divide(struct trainer *trainer, const struct recover_kept *mine, const struct before *b,
                  struct buffer *theirs, int64_t *moved, struct muster_error *err)
{
    const int params = trainer->model->param_count;
    scope_free int64_t *at = mem_calloc((size_t)params + 1, sizeof *at);
    struct taker taker = {.trainer = trainer, .at = at};
    double nothing = 0;
    if (!at)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the places of %d parameters", params);
    trainer->whole = false;
    if (take_all(&taker, b, mine, err) < 0 || share_step(trainer, b, mine, theirs, err) < 0 ||
        trainer_reduce(trainer, &nothing, 1, err) < 0) /* all ranks have theirs: kept states may be dropped */
        return -1;
    *moved = taker.moved;
    trainer->whole = true;
    executor_forget(trainer->executor);
    return 1;
}

int divide_recover(struct trainer *trainer, struct recover_copies *copies, const struct recover_kept *kept,
                   const struct divide_rank *ranks, const struct buffer *mine, struct buffer *theirs,
                   int64_t *moved, struct muster_error *err)
{
    struct before before = {0};
    struct recover_kept *own = NULL;
    int result = find_before(trainer, ranks, &before, err);
    if (!result)
        trainer->whole = false;
    if (result > 0 && !kept && recover_keep(trainer, copies, 1, mine, &own, err) < 0)
        result = -1;
    if (result > 0)
        result = divide(trainer, kept ? kept : own, &before, theirs, moved, err);
    if (result > 0)
        copies_reset(copies, before.choice.step);
    recover_kept_destroy(own);
    before_free(&before);
    return result;
}
