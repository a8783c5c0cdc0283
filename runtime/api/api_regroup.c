/* api_regroup.c - muster_trainer.h: a trainer that goes on after ranks were lost. See muster_world_stay. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "runtime/api/api_trainer.h"
#include "runtime/config/train_settings.h"
#include "runtime/world/world.h"

/* A state that has outlived its trainer. */
struct muster_kept {
    struct recover_kept *state;
};

/* ---- staying ---- */

static void let_go(void *context)
{
    const struct muster_trainer *t = context;
    trainer_let_go(t->trainer);
}

/* A planned change costs no step where replicas have the state. Copies cost a few, which is more than saving
 * does, and less than beginning anew. */
static bool copies_are_all(const struct muster_trainer *t)
{
    return t->copies && (!t->config.checkpoint_dir || !*t->config.checkpoint_dir);
}

/* Whether ranks of other nodes have what this rank has. */
static bool moves(const struct muster_trainer *t, const struct muster_world *world)
{
    const int count = muster_world_local_size(world), first = t->rank - muster_world_local_rank(world);
    return trainer_has_replicas(t->trainer, first, count) || (copies_are_all(t) && count < t->world_size);
}

/* parts: world may be a part of one. */
static int stay(struct muster_trainer *t, struct muster_world *world, bool parts, struct muster_error *err)
{
    const int stays = parts ? world_stay(world, err) : muster_world_stay(world, err);
    if (stays <= 0 || world_hold(world, let_go, t, err) < 0)
        return stays > 0 ? -1 : stays;
    t->stays_in = world;
    world_ready(world);
    return moves(t, world) && world_stays_also(world, REGROUP_MOVES, err) < 0 ? -1 : 1;
}

static bool can_stay(const struct muster_trainer *t, const struct muster_world *world)
{
    return world && t->found.device.ops->mend && !t->comm.nccl;
}

int muster_trainer_stay(struct muster_trainer *t, struct muster_world *world, struct muster_error *err)
{
    /* ranks that are started anew may find another cut */
    return can_stay(t, world) && !api_cut_looks(t) ? stay(t, world, false, err) : 0;
}

int muster_trainer_stay_anywhere(struct muster_trainer *t, struct muster_world *world,
                                 struct muster_error *err)
{
    if (!can_stay(t, world) || !trainer_divides(t->trainer))
        return muster_trainer_stay(t, world, err);
    const int stays = stay(t, world, true, err);
    const bool grows =
        t->world_size == 1 || trainer_has_replicas(t->trainer, t->rank, 1) || copies_are_all(t);
    if (stays <= 0 || world_stays_also(world, REGROUP_RESIZES, err) < 0 ||
        (grows && world_stays_also(world, REGROUP_GROWS, err) < 0))
        return stays > 0 ? -1 : stays;
    return api_cut_looks(t) || world_is_part(world) ? 3 : 2;
}

void api_stay_end(struct muster_trainer *t)
{
    if (t->stays_in) {
        world_busy(t->stays_in);
        (void)world_hold(t->stays_in, NULL, t, NULL); /* removing does not fail */
    }
    t->stays_in = NULL;
}

/* A step that was cut off may have been completed. */
static void count_completed(struct muster_trainer *t, const struct trainer_counts *before)
{
    struct trainer_counts now;
    trainer_get_counts(t->trainer, &now);
    t->steps += now.steps - before->steps;
    t->taken += (now.steps - before->steps) * t->config.global_batch;
    t->updates += now.updates - before->updates;
}

int muster_trainer_rejoin(struct muster_trainer *t, struct muster_world *world, struct muster_error *err)
{
    struct muster_error local = {0};
    struct muster_error *e = err ? err : &local;
    char address[WORLD_ADDRESS];
    struct trainer_options options = {.rank = muster_world_rank(world),
                                      .world_size = muster_world_size(world),
                                      .local_rank = muster_world_local_rank(world),
                                      .local_world_size = muster_world_local_size(world),
                                      .store = world_store(world),
                                      .address = address,
                                      .timeout_ns = (int64_t)(t->config.timeout_s * (double)NS_PER_S)};
    api_stay_end(t); /* its comms are made anew */
    api_saving_end(t);
    int failed = world_address(world, address, e);
    if (!failed && (options.rank != t->rank || options.world_size != t->world_size))
        failed = error_set(e, MUSTER_E_STATE, "a trainer of rank %d of %d cannot go on as rank %d of %d",
                           t->rank, t->world_size, options.rank, options.world_size);
    struct trainer_counts before;
    trainer_get_counts(t->trainer, &before);
    const int made = muster_world_agree(world, failed, e) < 0 ||
                     api_device_choose(t, world, &options, e) < 0 ||
                     trainer_rejoin(t->trainer, &options, e) < 0;
    count_completed(t, &before);
    t->rejoined = true;
    if (made)
        return -1;
    t->announced.first = -1;
    t->cut.steps = 0; /* the new ranks time their layers, and all ranks sum the times */
    t->next_targets = NAN;
    t->wants_checkpoint = false;
    const int stays = muster_trainer_stay(t, world, e);
    world_ready(world);
    return stays < 0 ? -1 : 0;
}

/* ---- the state ---- */

/* The run's numbers, and its notes, each ended by a NUL. */
static int put_state(const struct muster_trainer *t, struct buffer *out)
{
    (void)buffer_printf(out, "%" PRId64 " %" PRId64 " %" PRId64 " %" PRId64, t->steps, t->updates, t->taken,
                        t->saved_step);
    (void)buffer_append(out, "", 1); /* out keeps its failure */
    for (size_t i = 0; t->notes && t->notes[i]; i++)
        (void)buffer_append(out, t->notes[i], strlen(t->notes[i]) + 1);
    return out->failed ? -1 : 0;
}

static int take_state_text(struct muster_trainer *t, const struct buffer *text, struct muster_error *err)
{
    struct manifest_run run = {0};
    size_t count = 0;
    for (size_t i = 0; i < text->length; i++)
        count += !text->data[i];
    scope_free const char **notes = mem_calloc(count + 1, sizeof *notes);
    if (!notes)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the notes of a state");
    if (!count || sscanf(text->data, "%" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64, &run.step, &run.updates,
                         &run.samples, &t->saved_step) != 4)
        return error_set(err, MUSTER_E_PROTOCOL, "a rank's state has no numbers");
    const char *at = text->data;
    for (size_t i = 0; i + 1 < count; i++)
        notes[i] = at += strlen(at) + 1;
    run.notes = notes;
    return api_take_run(t, &run, err);
}

/* What survivors have, ranks that were started anew do not. */
static int begin_anew(struct muster_trainer *t, struct muster_error *err)
{
    t->steps = t->updates = t->taken = 0;
    t->saved_step = -1;
    train_settings_free(take_pointer(&t->notes));
    if (api_begin(t, err) < 0 || trainer_restart(t->trainer, err) < 0)
        return -1;
    return t->stage.number < 0
               ? 0
               : muster_trainer_stage(t, t->stage.number, t->stage.follows ? t->stage.first_step : -1, err);
}

int muster_trainer_recover(struct muster_trainer *t, struct muster_error *err)
{
    struct muster_error local = {0};
    struct muster_error *e = err ? err : &local;
    scope_buffer mine = {.limit = RECOVER_TEXT_LIMIT}, theirs = {0};
    const struct instant begun = clock_now(NULL);
    if (put_state(t, &mine) < 0)
        mine.length = 0; /* the others must not wait, and refuse it */
    const int result = trainer_recover(t->trainer, t->copies, t->earlier ? t->earlier->state : NULL, &mine,
                                       &theirs, &t->recovered_bytes, e);
    if (result >= 0)
        muster_kept_free(take_pointer(&t->earlier));
    t->recovered_ns = instant_diff_ns(clock_now(NULL), begun);
    if (result > 0 && take_state_text(t, &theirs, e) < 0)
        return -1;
    if (!result && t->rejoined && begin_anew(t, e) < 0)
        return -1;
    t->rejoined = false;
    return result;
}

/* ---- a state that outlives its trainer ---- */

void muster_kept_free(struct muster_kept *kept)
{
    if (!kept)
        return;
    recover_kept_destroy(kept->state);
    mem_free(kept);
}
GUARD_DEFINE(muster_kept, struct muster_kept *, muster_kept_free);

static int keep(struct muster_trainer *t, struct muster_kept **out, struct muster_error *err)
{
    scope_buffer mine = {.limit = RECOVER_TEXT_LIMIT};
    GUARD(guard_muster_kept) struct muster_kept *kept = mem_calloc(1, sizeof *kept);
    struct trainer_counts before;
    trainer_get_counts(t->trainer, &before);
    trainer_stop(t->trainer);
    count_completed(t, &before);
    if (!kept || put_state(t, &mine) < 0)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the text of a state");
    const int has = recover_keep(t->trainer, t->copies, t->local_size, &mine, &kept->state, err);
    if (has > 0)
        *out = take_pointer(&kept);
    return has;
}

int32_t muster_kept_number(const struct muster_kept *kept)
{
    return kept ? recover_kept_number(kept->state) : -1;
}

int muster_trainer_keep(struct muster_trainer **trainer, struct muster_kept **kept, struct muster_error *err)
{
    struct muster_trainer *t = *trainer;
    *kept = NULL;
    if (!t)
        return 0;
    const struct muster_world *world = t->stays_in;
    api_stay_end(t); /* nothing ends its collectives any more but this */
    api_saving_end(t);
    *kept = take_pointer(&t->earlier); /* it was not used: its own is older, or nothing */
    /* after a loss a shard is of use with the others alone */
    const bool useful = t->world_size == 1 || t->copies || trainer_has_replicas(t->trainer, t->rank, 1);
    const int result = *kept ? 1 : useful ? keep(t, kept, err) : 0;
    muster_trainer_close(trainer);
    world_ready(world); /* it has no communicators until the next trainer is opened */
    return result;
}

void muster_trainer_take(struct muster_trainer *t, struct muster_kept **kept)
{
    muster_kept_free(t->earlier);
    t->earlier = take_pointer(kept);
}

/* ---- copies in memory ---- */

/* Ranks exchange images of one size. Collective. */
static int copies_fit_stages(const struct muster_trainer *t, struct muster_error *err)
{
    const struct plan *plan = trainer_plan(t->trainer);
    const double bytes = (double)plan->entries[plan->copies].bytes / t->plan.state_copies;
    double most[2] = {bytes, -bytes};
    if (plan->options.mesh.side[SIDE_PIPELINE] == 1)
        return 0;
    if (trainer_maximum(t->trainer, most, 2, err) < 0)
        return -1;
    return most[0] == -most[1]
               ? 0
               : error_set(
                     err, MUSTER_E_UNSUPPORTED,
                     "training.memory_copies: the ranks of mesh.pipeline %d have states of %.0f to %.0f "
                     "bytes, and a rank keeps a copy of its own size alone: leave it out; several ranks "
                     "of a stage keep its state as replicas (NO_SHARD, HYBRID_SHARD)",
                     plan->options.mesh.side[SIDE_PIPELINE], -most[1], most[0]);
}

int api_copies_open(struct muster_trainer *t, struct muster_error *err)
{
    if (!t->plan.state_copies)
        return 0;
    if (!t->found.device.ops->mend)
        return error_set(
            err, MUSTER_E_UNSUPPORTED,
            "training.memory_copies: device %s cannot go on after a loss: leave it out, or train "
            "with training.device: cpu",
            t->found.device.ops->name);
    if (copies_fit_stages(t, err) < 0)
        return -1;
    t->copies = recover_copies_create(t->trainer, t->local_size, err);
    return t->copies ? 0 : -1;
}

int api_copies_step(struct muster_trainer *t, struct muster_error *err)
{
    scope_buffer text = {.limit = RECOVER_TEXT_LIMIT};
    const struct instant begun = clock_now(NULL);
    if (!t->copies || t->steps % t->config.memory_copies)
        return 0;
    if (put_state(t, &text) < 0)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the text of a copy");
    const int result = recover_copies_make(t->copies, &text, err);
    t->copies_ns = instant_diff_ns(clock_now(NULL), begun);
    return result;
}
