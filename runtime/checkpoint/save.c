/* save.c - writes a checkpoint while steps run: each rank's work in the states of commit.h's second table.
 */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/futex.h"
#include "proto/base/guard.h"
#include "proto/base/text_list.h"
#include "proto/base/thread.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/commit_walk.h"
#include "runtime/checkpoint/folder.h"
#include "runtime/checkpoint/local_copy.h"
#include "runtime/checkpoint/rank_file.h"

/* Interval of votes of a rank that waits for the end of its work: no collective reaches its time-out.
 */
#define VOTE_NS (NS_PER_S / 2)

/* A state's work on this rank; the thread owns it until the work has ended. */
struct job {
    bool at_once; /* the job ended without the thread */
    bool failed;
    bool room; /* SAVE_WRITE: it failed for lack of room; rank 0's work: an older checkpoint was removed to
                  make room */
    struct muster_error err;
};

/* The thread of a writer, which does one job after another: starting a thread takes 0.2 ms between two steps.
 */
struct hand {
    pthread_t thread;
    bool started, stops;
    struct futex_word ordered, done; /* number of jobs so far; equal: the thread has no job */
};

struct checkpoint_writer {
    struct hand hand;            /* stays from one checkpoint to the next */
    struct checkpoint_save save; /* its texts are owned by the writer */
    struct rank_file *file;
    struct job job;
    enum save_state state;
    struct muster_error err;     /* this rank's first error */
    struct muster_error no_copy; /* why the node has no copy; the thread's while it works */
    double failed;               /* number of failed ranks, in all states */
    bool copies;                 /* some rank writes a copy on its node: known with the votes on the files */
    bool room;                   /* some rank's job in the previous state has set `room` */
    int64_t given_up;            /* rank 0's: step of the removed checkpoint; -1: none */
    struct instant begun, ended;
    int64_t stall_ns; /* time in calls; the file counts the time of steps */
};

/* ---- the run's facts, which the writer copies ---- */

static int copy_texts(manifest_texts texts, manifest_texts *out)
{
    scope_text_list list = {0};
    *out = NULL;
    for (size_t i = 0; texts && texts[i]; i++)
        if (text_list_take(&list, mem_strdup(texts[i])) < 0)
            return -1;
    *out = (manifest_texts)take_pointer(&list.items);
    return 0;
}

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

static int format_numerics(const struct trainer *trainer, const char **out)
{
    struct fingerprint fingerprint;
    struct buffer numerics = {0};
    trainer_fingerprint(trainer, &fingerprint);
    if (fingerprint_format(&fingerprint, &numerics) < 0) {
        buffer_free(&numerics);
        return -1;
    }
    *out = numerics.data;
    return 0;
}

/* Settings and numerics are the same in all checkpoints of a trainer: the first checkpoint's are kept. */
static int take_texts(struct checkpoint_save *save, const struct manifest_run *from)
{
    struct checkpoint_kept *kept = save->kept;
    manifest_texts *settings = kept ? &kept->settings : &save->run.settings;
    const char **numerics = kept ? &kept->numerics : &save->run.numerics;
    if ((!*settings && copy_texts(from->settings, settings) < 0) ||
        (!*numerics && format_numerics(save->trainer, numerics) < 0) ||
        copy_texts(from->notes, &save->run.notes) < 0)
        return -1;
    save->run.settings = *settings;
    save->run.numerics = *numerics;
    return 0;
}

/* ---- objects kept from one checkpoint to the next ---- */

static struct rank_file *take_file(struct checkpoint_kept *kept)
{
    for (int i = 0; kept && i < SAVES_AT_ONCE; i++)
        if (kept->files[i])
            return take_pointer(&kept->files[i]);
    return NULL;
}

static void keep_file(struct checkpoint_kept *kept, struct rank_file *file)
{
    for (int i = 0; kept && file && i < SAVES_AT_ONCE; i++) {
        if (!kept->files[i]) {
            kept->files[i] = file;
            return;
        }
    }
    rank_file_destroy(file);
}

static void hand_stop(struct hand *hand)
{
    if (!hand->started)
        return;
    hand->stops = true;
    atomic_fetch_add(&hand->ordered.value, 1);
    futex_wake(&hand->ordered, FUTEX_PRIVATE);
    (void)pthread_join(hand->thread, NULL); /* cannot fail: ours, joined once */
    hand->started = false;
}

static void writer_free(struct checkpoint_writer *w)
{
    if (w)
        hand_stop(&w->hand);
    mem_free(w);
}

void checkpoint_kept_free(struct checkpoint_kept *kept)
{
    for (int i = 0; i < SAVES_AT_ONCE; i++)
        rank_file_destroy(take_pointer(&kept->files[i]));
    for (int i = 0; i < SAVES_AT_ONCE; i++)
        writer_free(take_pointer(&kept->writers[i]));
    if (kept->spare_in)
        folder_drop_spare(kept->spare_in);
    mem_free(take_pointer(&kept->spare_in));
    for (int i = 0; kept->headers && i < HEADERS_KEPT; i++)
        rank_header_clear(&kept->headers[i]);
    mem_free(take_pointer(&kept->headers));
    text_list_free_items((char **)take_pointer(&kept->settings));
    mem_free((void *)take_pointer(&kept->numerics));
}

int checkpoint_kept_make(struct checkpoint_kept *kept, struct muster_error *err)
{
    for (int i = 0; i < SAVES_AT_ONCE; i++)
        if (!kept->writers[i] && !(kept->writers[i] = mem_calloc(1, sizeof *kept->writers[i])))
            return error_set(err, MUSTER_E_NOMEM, "no memory to write checkpoints");
    return 0;
}

static struct checkpoint_writer *take_writer(struct checkpoint_kept *kept)
{
    for (int i = 0; i < SAVES_AT_ONCE; i++)
        if (kept->writers[i])
            return take_pointer(&kept->writers[i]);
    return NULL;
}

static void keep_writer(struct checkpoint_kept *kept, struct checkpoint_writer *w)
{
    int i = 0;
    while (i < SAVES_AT_ONCE && kept->writers[i])
        i++;
    if (i < SAVES_AT_ONCE)
        kept->writers[i] = w;
    else
        writer_free(w);
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
    if (!hidden || !save->folder || take_texts(save, &from->run) < 0)
        return error_set(&w->err, MUSTER_E_NOMEM, "no memory to write a checkpoint");
    if (from->local && !(save->local = mem_strdup(from->local)))
        return error_set(&w->err, MUSTER_E_NOMEM, "no memory to write a checkpoint");
    w->file = take_file(save->kept);
    if (w->file ? rank_file_renew(w->file, hidden, save->rank, &w->err) < 0
                : !(w->file = rank_file_create(save->trainer, hidden, save->rank, &w->err)))
        return -1;
    if (save->kept)
        rank_file_stage(w->file, save->kept->staging[0], save->kept->staging[1]);
    return 0;
}

static void release(struct checkpoint_writer *w)
{
    keep_file(w->save.kept, w->file);
    text_list_free_items((char **)w->save.run.notes);
    if (!w->save.kept) {
        text_list_free_items((char **)w->save.run.settings);
        mem_free((void *)w->save.run.numerics);
    }
    mem_free((void *)w->save.folder);
    mem_free((void *)w->save.local);
}

/* ---- work of a state ---- */

/* Makes the folder, on each rank's thread, so that no step waits for the file system. Rank 0 removes files
 * that an earlier run left. */
static int make_folder(const struct checkpoint_writer *w, struct muster_error *err)
{
    const struct checkpoint_save *save = &w->save;
    if (save->rank)
        return folder_make_new(save->folder, save->run.step, err);
    struct muster_error own = {0};
    const bool failed = commit_walk(save, rank_file_bytes(w->file), COMMIT_MAKE, &own) == COMMIT_FAILED;
    if (failed && err)
        *err = own;
    return failed ? -1 : 0;
}

/* Writes this rank's file, and its copy on the node. */
static int write_files(struct checkpoint_writer *w, struct muster_error *err)
{
    const struct checkpoint_save *save = &w->save;
    if (make_folder(w, err) < 0) {
        rank_file_release(w->file); /* nothing is read */
        return -1;
    }
    if (save->local) {
        char *path = local_copy_path(save->local, save->run.step, save->rank, &w->no_copy);
        if (path)
            rank_file_copy_to(w->file, path);
    }
    if (rank_file_write(w->file, err) < 0)
        return -1;
    if (save->local && !w->no_copy.code)
        w->no_copy = *rank_file_copy_error(w->file);
    if (save->local && !w->no_copy.code)
        local_copy_prune(save->local, save->run.step, save->rank, save->local_keep);
    return 0;
}

/* Rank 0 commits the checkpoint, or removes it again. If there was no room it removes an older checkpoint for
 * the next try. */
static void lead(struct checkpoint_writer *w)
{
    struct job *job = &w->job;
    const bool commits = w->state == SAVE_COMMIT;
    const int64_t bytes = w->file ? rank_file_bytes(w->file) : 0;
    job->failed = commit_walk(&w->save, bytes, commit_next(commit_table, COMMIT_WRITE, commits), &job->err) !=
                  COMMIT_DONE;
    if (commits ? job->failed && job->err.code == MUSTER_E_FULL : w->room) {
        w->given_up = commit_give_up(&w->save);
        job->room = w->given_up >= 0;
    }
}

static void work(struct checkpoint_writer *w)
{
    struct job *job = &w->job;
    if (w->state == SAVE_WRITE) {
        job->failed = write_files(w, &job->err) < 0;
        job->room = job->failed && job->err.code == MUSTER_E_FULL;
    } else if (w->state == SAVE_COPY) {
        if (w->save.local && !w->no_copy.code)
            (void)local_copy_manifest(w->save.local, w->save.folder, w->save.run.step,
                                      &w->no_copy); /* checkpoint_figures reports it */
    } else if (w->save.folder) { /* NULL: there was no memory for it, and this rank has made nothing */
        lead(w);
    }
}

static void *run_hand(void *argument)
{
    struct checkpoint_writer *w = argument;
    struct hand *hand = &w->hand;
    for (uint32_t done = 0;;) {
        while (atomic_load(&hand->ordered.value) == done)
            (void)futex_wait(&hand->ordered, done, INSTANT_NEVER, FUTEX_PRIVATE); /* never late */
        if (hand->stops)
            return NULL;
        work(w);
        atomic_store(&hand->done.value, ++done);
        futex_wake(&hand->done, FUTEX_PRIVATE);
    }
}

/* 0, or the number of the system's error. */
static int hand_order(struct checkpoint_writer *w)
{
    struct hand *hand = &w->hand;
    const int failed = hand->started ? 0 : thread_start(&hand->thread, 0, run_hand, w);
    if (failed)
        return failed;
    hand->started = true;
    atomic_fetch_add(&hand->ordered.value, 1);
    futex_wake(&hand->ordered, FUTEX_PRIVATE);
    return 0;
}

static bool job_ended(const struct checkpoint_writer *w)
{
    return w->job.at_once || atomic_load(&w->hand.done.value) == atomic_load(&w->hand.ordered.value);
}

/* Waits for the job until the deadline, or a little less. */
static void await_job(struct checkpoint_writer *w, struct instant deadline)
{
    const uint32_t done = atomic_load(&w->hand.done.value);
    if (!job_ended(w))
        (void)futex_wait(&w->hand.done, done, deadline, FUTEX_PRIVATE);
}

static void wait_for_group(void *context, int group)
{
    struct checkpoint_writer *w = context;
    rank_file_wait(w->file, group);
}

/* Whether the thread can write the state: if the host cannot read the trainer's memory, it is copied now.
 * Without memory for that the caller writes it at once. */
static bool reads_behind(struct checkpoint_writer *w)
{
    struct muster_error why = {0};
    if (w->state != SAVE_WRITE || trainer_host_reads(w->save.trainer))
        return true;
    const int taken = rank_file_take(w->file, &why);
    if (taken < 0)
        w->err = why; /* the run has failed, and the caller's write does, too */
    return taken > 0;
}

static void start_work(struct checkpoint_writer *w)
{
    struct job *job = &w->job;
    *job = (struct job){0};
    if (!save_works(save_table, w->state, w->save.rank))
        return;
    if (w->state == SAVE_WRITE && w->err.code) { /* it could not be prepared: the votes report it */
        job->failed = job->at_once = true;
        return;
    }
    if (!reads_behind(w)) {
        work(w);
        job->at_once = true;
        return;
    }
    if (w->state == SAVE_WRITE && trainer_host_reads(w->save.trainer))
        trainer_set_guard(w->save.trainer, wait_for_group, w);
    const int failed = hand_order(w);
    if (failed) {
        (void)thread_error(&job->err, failed,
                           "the thread that writes a checkpoint"); /* the votes report it */
        job->failed = job->at_once = true;
        rank_file_cancel(w->file);
        trainer_set_guard(w->save.trainer, NULL, NULL);
    }
}

static void end_work(struct checkpoint_writer *w)
{
    struct job *job = &w->job;
    while (!job_ended(w))
        await_job(w, INSTANT_NEVER);
    if (w->state == SAVE_WRITE)
        trainer_set_guard(w->save.trainer, NULL, NULL);
    if (job->failed && !w->err.code)
        w->err = job->err;
}

/* ---- all ranks ---- */

static void writer_begin(struct checkpoint_writer *w, const struct checkpoint_save *save)
{
    const size_t after = offsetof(struct checkpoint_writer, save);
    memset((char *)w + after, 0, sizeof *w - after); /* the writer's thread has no work */
    w->begun = clock_now(NULL);
    w->given_up = -1;
    (void)writer_prepare(w, save); /* the writer keeps its error, and votes it */
    start_work(w);
    w->stall_ns = instant_diff_ns(clock_now(NULL), w->begun);
}

/* This rank's vote on the state; with `wait` it waits for its work up to VOTE_NS. */
static struct save_votes vote(struct checkpoint_writer *w, bool wait)
{
    struct save_votes votes = {0};
    if (!save_works(save_table, w->state, w->save.rank))
        return votes;
    if (wait)
        await_job(w, instant_add(clock_now(NULL), VOTE_NS));
    if (job_ended(w)) {
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
    end_work(w);
    w->room = sums[1] > votes.failed;
    w->failed += votes.failed;
    w->state = next;
    start_work(w);
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

struct checkpoint_writer *checkpoint_begin(const struct checkpoint_save *save)
{
    struct checkpoint_writer *w = take_writer(save->kept);
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
        end_work(w);
    release(w);
}

void checkpoint_end(struct checkpoint_writer *w)
{
    if (!w)
        return;
    drop_begun(w->save.kept, w);
    writer_end(w);
    keep_writer(w->save.kept, w);
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
    struct checkpoint_writer writer = {0}; /* its own writer: kept writers may all be in use */
    writer_begin(&writer, save);
    int result = checkpoint_poll(&writer, NULL, true, err);
    if (figures)
        *figures = checkpoint_figures(&writer);
    writer_end(&writer);
    hand_stop(&writer.hand);
    return result < 0 ? -1 : 0;
}
