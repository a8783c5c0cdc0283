/* save.c - what lives for one checkpoint: the states that all ranks go through by their votes.
 */
#include "runtime/checkpoint/save.h"

#include <math.h>
#include <stddef.h>

#include "proto/base/guard.h"
#include "proto/base/text_list.h"
#include "runtime/checkpoint/folder.h"

/* Interval of votes of a rank that waits for the end of its work: no collective reaches its time-out.
 */
#define VOTE_NS (NS_PER_S / 2)

/* ---- the facts of the checkpoint, which the writer copies ---- */

/* The fields of the run that the trainer knows. */
static void take_run(struct checkpoint_save *save)
{
    struct trainer_counts counts;
    const struct plan *plan = trainer_plan(save->trainer);
    trainer_get_counts(save->trainer, &counts);
    save->run.updates = counts.updates;
    save->run.scale = counts.scale;
    save->run.mesh = plan->options.mesh;
    save->run.world_size = mesh_size(plan->options.mesh);
}

static int writer_prepare(struct checkpoint_writer *w, const struct checkpoint_save *from)
{
    struct checkpoint_save *save = &w->save;
    scope_free char *hidden = folder_new_path(from->folder, from->run.step);
    *save = *from;
    save->run.settings = save->run.notes = NULL;
    save->run.numerics = NULL;
    save->local = NULL;
    save->folder = mem_strdup(from->folder);
    take_run(save);
    if (!hidden || !save->folder ||
        kept_texts(save->kept, save->trainer, from->run.settings, &save->run) < 0 ||
        copy_texts(from->run.notes, &save->run.notes) < 0 ||
        (from->local && !(save->local = mem_strdup(from->local))))
        return error_set(&w->err, MUSTER_E_NOMEM, "no memory to write a checkpoint");
    if (trainer_draw(save->trainer, &w->err) < 0) /* the writer's thread reads values by their address */
        return -1;
    w->file = kept_take_file(save->kept);
    if (w->file ? rank_file_renew(w->file, hidden, save->rank, &w->err) < 0
                : !(w->file = rank_file_create(save->trainer, hidden, save->rank, &w->err)))
        return -1;
    if (save->kept)
        rank_file_stage(w->file, save->kept->staging[0], save->kept->staging[1]);
    return 0;
}

static void release(struct checkpoint_writer *w)
{
    kept_put_file(w->save.kept, w->file);
    kept_drop_texts(w->save.kept, &w->save.run);
    text_list_free_items((char **)w->save.run.notes);
    mem_free((void *)w->save.folder);
    mem_free((void *)w->save.local);
}

/* ---- all ranks ---- */

static void writer_begin(struct checkpoint_writer *w, const struct checkpoint_save *save)
{
    *w = (struct checkpoint_writer){.thread = w->thread, .begun = clock_now(NULL), .given_up = -1};
    (void)writer_prepare(w, save); /* the writer keeps its error, and votes it */
    save_job_start(w);
    w->stall_ns = instant_diff_ns(clock_now(NULL), w->begun);
}

/* This rank's vote on the state; with `wait` it waits for its work up to VOTE_NS. */
static struct save_votes vote(struct checkpoint_writer *w, bool wait)
{
    struct save_votes votes = {0};
    if (!save_works(save_table, w->state, w->save.rank))
        return votes;
    if (wait)
        save_job_await(w, instant_add(clock_now(NULL), VOTE_NS));
    if (save_job_ended(w)) {
        votes.ended = 1;
        votes.failed = w->job.failed;
    }
    return votes;
}

enum { SUMS = 3 }; /* sums over the ranks: ended, failed, and the number of ranks that write copies */
/* Added to the vote of a failed job with `room` set: a fraction that the ranks' sum keeps. */
#define ROOM_VOTE (1.0 / (1 << 24))

static void put_votes(struct checkpoint_writer *w, bool wait, double *sums)
{
    const struct save_votes votes = vote(w, wait);
    sums[0] = votes.ended;
    sums[1] = votes.failed + (votes.failed > 0 && w->job.room ? ROOM_VOTE : 0);
    sums[2] = w->save.local != NULL;
}

/* Takes the next state by the votes of all ranks. `behind`: the checkpoint before it has not ended. */
static void take_votes(struct checkpoint_writer *w, const double *sums, bool behind)
{
    const struct save_votes votes = {sums[0], floor(sums[1])};
    enum save_state next = save_next(save_table, w->state, votes, w->save.run.world_size, behind);
    w->copies = sums[2] > 0;
    if (next == w->state)
        return;
    if (next == SAVE_COPY && !w->copies)
        next = save_table[SAVE_COPY].good;
    save_job_end(w);
    w->room = sums[1] > votes.failed;
    w->failed += votes.failed;
    w->state = next;
    save_job_start(w);
}

static void take_both(struct checkpoint_writer *w, struct checkpoint_writer *newer, const double *sums)
{
    take_votes(w, sums, false);
    if (newer && w->state == SAVE_DONE)
        newer->save.retention.good = w->save.run.step;
    if (newer) /* after a failure the caller first sets the best checkpoint */
        take_votes(newer, sums + SUMS, w->state != SAVE_DONE);
}

/* Sums the votes on both checkpoints at once. */
static int go_on(struct checkpoint_writer *w, struct checkpoint_writer *newer, bool wait)
{
    double sums[2 * SUMS];
    put_votes(w, wait, sums);
    if (newer)
        put_votes(newer, false, sums + SUMS);
    if (trainer_reduce(w->save.trainer, sums, newer ? 2 * SUMS : SUMS, &w->err) < 0)
        return -1;
    take_both(w, newer, sums);
    return 0;
}

/* ---- votes that steps sum ---- */

_Static_assert(SAVES_AT_ONCE *SUMS <= TRAINER_VOTES, "a step sums the votes on all that are on their way");

/* A thread of the trainer's calls it in a step: no checkpoint begins, changes its state or ends during the
 * call. */
static void vote_in_step(void *context, double *votes)
{
    const struct checkpoint_kept *kept = context;
    for (int i = 0; i < SAVES_AT_ONCE && kept->begun[i]; i++)
        put_votes(kept->begun[i], false, votes + (ptrdiff_t)i * SUMS);
}

/* Sets or removes the vote; sums on a former set of checkpoints are dropped. */
static void set_vote(struct checkpoint_kept *kept, struct trainer *trainer)
{
    trainer_set_vote(trainer, kept->begun[0] ? vote_in_step : NULL, kept);
}

static void put_begun(struct checkpoint_kept *kept, struct checkpoint_writer *w)
{
    int i = 0;
    while (kept->begun[i]) /* there are at most SAVES_AT_ONCE writers */
        i++;
    kept->begun[i] = w;
    set_vote(kept, w->save.trainer);
}

static void drop_begun(struct checkpoint_kept *kept, const struct checkpoint_writer *w)
{
    int to = 0;
    for (int i = 0; i < SAVES_AT_ONCE; i++)
        if (kept->begun[i] != w)
            kept->begun[to++] = kept->begun[i];
    while (to < SAVES_AT_ONCE)
        kept->begun[to++] = NULL;
    set_vote(kept, w->save.trainer);
}

/* Takes the votes that the last step has summed; returns whether it has. */
static bool go_on_by_step(struct checkpoint_writer *w, struct checkpoint_writer *newer)
{
    double sums[TRAINER_VOTES];
    const struct checkpoint_kept *kept = w->save.kept;
    if (!kept || kept->begun[0] != w || kept->begun[1] != newer || !trainer_take_votes(w->save.trainer, sums))
        return false;
    take_both(w, newer, sums);
    return true;
}

/* ---- the interface of checkpoint.h ---- */

struct checkpoint_writer *checkpoint_begin(const struct checkpoint_save *save)
{
    struct checkpoint_writer *w = kept_take_writer(save->kept);
    if (!w)
        return NULL;
    writer_begin(w, save);
    put_begun(save->kept, w);
    return w;
}

enum save_state checkpoint_state(const struct checkpoint_writer *w)
{
    return w->state;
}

void checkpoint_keep(struct checkpoint_writer *w, int64_t best)
{
    w->save.retention.best = best;
}

int checkpoint_poll(struct checkpoint_writer *w, struct checkpoint_writer *newer, bool wait,
                    struct muster_error *err)
{
    struct instant start = clock_now(NULL);
    int failed = 0;
    const bool summed = go_on_by_step(w, newer);
    while (!failed && !save_ended(w->state) && (wait || !summed)) {
        failed = go_on(w, newer, wait);
        if (!wait)
            break;
    }
    w->ended = clock_now(NULL);
    w->stall_ns += instant_diff_ns(w->ended, start);
    if (!failed && w->state != SAVE_FAILED)
        return w->state == SAVE_DONE;
    if (!w->err.code)
        (void)error_set(&w->err, MUSTER_E_PEER, "%.0f other ranks could not, see their errors", w->failed);
    if (err)
        *err = w->err;
    return -1;
}

static void writer_end(struct checkpoint_writer *w)
{
    if (w->file)
        rank_file_cancel(w->file);
    if (!save_ended(w->state))
        save_job_end(w);
    release(w);
}

void checkpoint_end(struct checkpoint_writer *w)
{
    if (!w)
        return;
    drop_begun(w->save.kept, w);
    writer_end(w);
    kept_put_writer(w->save.kept, w);
}

bool checkpoint_made_room(const struct checkpoint_writer *w)
{
    return w->state == SAVE_FAILED && w->room;
}

struct checkpoint_figures checkpoint_figures(const struct checkpoint_writer *w)
{
    const struct instant until = w->ended.ns ? w->ended : clock_now(NULL);
    return (struct checkpoint_figures){.bytes = w->file ? rank_file_bytes(w->file) : 0,
                                       .ns = instant_diff_ns(until, w->begun),
                                       .local = save_ended(w->state) ? w->no_copy : (struct muster_error){0},
                                       .given_up = w->given_up,
                                       .stall_ns =
                                           w->stall_ns + (w->file ? rank_file_waited_ns(w->file) : 0)};
}

int checkpoint_save(const struct checkpoint_save *save, struct checkpoint_figures *figures,
                    struct muster_error *err)
{
    struct save_thread thread = {0}; /* of its own, as the writer: kept writers may all be in use */
    struct checkpoint_writer writer = {.thread = &thread};
    writer_begin(&writer, save);
    int result = checkpoint_poll(&writer, NULL, true, err);
    if (figures)
        *figures = checkpoint_figures(&writer);
    writer_end(&writer);
    save_thread_stop(&thread);
    return result < 0 ? -1 : 0;
}
