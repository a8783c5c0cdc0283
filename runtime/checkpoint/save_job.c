/* save_job.c - what lives for one state of a checkpoint: this rank's work, which the writer's thread does.
 */
#include "proto/base/guard.h"
#include "proto/base/thread.h"
#include "runtime/checkpoint/folder.h"
#include "runtime/checkpoint/local_copy.h"
#include "runtime/checkpoint/save.h"

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
    struct save_job *job = &w->job;
    const bool commits = w->state == SAVE_COMMIT;
    const int64_t bytes = w->file ? rank_file_bytes(w->file) : 0;
    job->failed = commit_walk(&w->save, bytes, commit_next(commit_table, COMMIT_WRITE, commits), &job->err) !=
                  COMMIT_DONE;
    if (commits ? job->failed && job->err.code == MUSTER_E_FULL : w->room) {
        w->given_up = commit_give_up(&w->save);
        job->room = w->given_up >= 0;
    }
}

static void work(void *context)
{
    struct checkpoint_writer *w = context;
    struct save_job *job = &w->job;
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

bool save_job_ended(const struct checkpoint_writer *w)
{
    return w->job.at_once || save_thread_idle(w->thread);
}

void save_job_await(struct checkpoint_writer *w, struct instant deadline)
{
    if (!w->job.at_once)
        save_thread_await(w->thread, deadline);
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

void save_job_start(struct checkpoint_writer *w)
{
    struct save_job *job = &w->job;
    *job = (struct save_job){0};
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
    const int failed = save_thread_order(w->thread, work, w);
    if (failed) {
        (void)thread_error(&job->err, failed,
                           "the thread that writes a checkpoint"); /* the votes report it */
        job->failed = job->at_once = true;
        rank_file_cancel(w->file);
        trainer_set_guard(w->save.trainer, NULL, NULL);
    }
}

void save_job_end(struct checkpoint_writer *w)
{
    struct save_job *job = &w->job;
    while (!save_job_ended(w))
        save_job_await(w, INSTANT_NEVER);
    if (w->state == SAVE_WRITE)
        trainer_set_guard(w->save.trainer, NULL, NULL);
    if (job->failed && !w->err.code)
        w->err = job->err;
}
