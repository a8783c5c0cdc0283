/* save.c - a checkpoint is written: rank 0 walks the table of commit.h, every rank takes part in one step of
 * it. */
#include "runtime/checkpoint/checkpoint.h"

#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "runtime/checkpoint/folder.h"
#include "runtime/checkpoint/rank_file.h"

/* Whether all ranks have succeeded. A rank that has not keeps its own error. */
static int all_succeed(struct trainer *trainer, int failed, struct muster_error *err)
{
    double sum = failed != 0;
    if (trainer_reduce(trainer, &sum, 1, failed ? NULL : err) < 0 || failed)
        return -1;
    return sum > 0 ? error_set(err, MUSTER_E_PEER, "%.0f other ranks could not, see their errors", sum) : 0;
}

/* ---- rank 0 ---- */

static int write_manifest(struct checkpoint_save *save, struct muster_error *err)
{
    scope_free char *folder = folder_new_path(save->folder, save->run.step),
                    *path = folder ? mem_printf("%s/%s", folder, MANIFEST_NAME) : NULL;
    const struct model *model = trainer_model(save->trainer);
    struct manifest_writer writer;
    scope_buffer text = {0};
    if (!path)
        return error_set(err, MUSTER_E_NOMEM, "no memory to write a checkpoint");
    manifest_writer_begin(&writer);
    int result = 0;
    for (int rank = 0; !result && rank < save->run.world_size; rank++)
        result = rank_file_describe(model, folder, rank, &writer, err);
    if (!result)
        result = manifest_format(&writer, &save->run, model, &text, err);
    manifest_writer_free(&writer);
    return result < 0 ? -1 : io_write_file_atomic(path, text.data, text.length, 0666, err);
}

static int prune(const struct checkpoint_save *save)
{
    scope_free int64_t *steps = NULL;
    int count = folder_list(save->folder, &steps, NULL), failed = count < 0;
    scope_free bool *remove = mem_calloc((size_t)(count > 0 ? count : 1), sizeof *remove);
    if (failed || !remove)
        return -1;
    retention_choose(&save->retention, save->run.step, steps, count, remove);
    for (int i = 0; i < count; i++)
        if (remove[i] && folder_remove(save->folder, steps[i], NULL) < 0)
            failed = -1;
    return failed;
}

static int work(struct checkpoint_save *save, enum commit_state state, struct muster_error *err)
{
    const char *folder = save->folder;
    const int64_t step = save->run.step;
    scope_free char *hidden = folder_new_path(folder, step);
    if (!hidden)
        return error_set(err, MUSTER_E_NOMEM, "no memory to write a checkpoint");
    switch (state) {
    case COMMIT_MAKE:
        return folder_make_new(folder, step, err);
    case COMMIT_MANIFEST:
        return write_manifest(save, err);
    case COMMIT_SYNC_INSIDE:
        return folder_sync(hidden, err);
    case COMMIT_RETIRE:
        return folder_retire(folder, step, err);
    case COMMIT_PLACE:
        return folder_place(folder, step, err);
    case COMMIT_SYNC_OUTSIDE:
        return folder_sync(folder, err);
    case COMMIT_PRUNE:
        return prune(save);
    case COMMIT_CLEAN:
        folder_clean(folder);
        return 0;
    default:
        return 0;
    }
}

/* ---- all ranks ---- */

static int write_own(struct checkpoint_save *save, struct muster_error *err)
{
    scope_free char *hidden = folder_new_path(save->folder, save->run.step);
    if (!hidden)
        return error_set(err, MUSTER_E_NOMEM, "no memory to write a checkpoint");
    return rank_file_write(save->trainer, hidden, save->rank, &save->bytes, err);
}

/* Rank 0 works until a state in which others take part, or the end. err keeps the first error. */
static enum commit_state work_on(struct checkpoint_save *save, enum commit_state state,
                                 struct muster_error *err)
{
    while (!commit_ended(state) && state != COMMIT_WRITE) {
        struct muster_error own = {0};
        int failed = work(save, state, &own);
        if (failed && state != COMMIT_PRUNE && !err->code)
            *err = own;
        state = commit_next(commit_table, state, !failed);
    }
    return state;
}

/* The fields of the run that the trainer knows. */
static void take_counts(struct checkpoint_save *save)
{
    struct trainer_counts counts;
    const struct plan *plan = trainer_plan(save->trainer);
    trainer_get_counts(save->trainer, &counts);
    save->run.updates = counts.updates;
    save->run.scale = counts.scale;
    save->run.mesh = plan->options.mesh;
    save->run.world_size = mesh_size(plan->options.mesh);
}

int checkpoint_save(struct checkpoint_save *save, struct muster_error *err)
{
    struct muster_error local = {0};
    struct muster_error *e = err ? err : &local;
    struct fingerprint fingerprint;
    scope_buffer numerics = {0};
    const bool leads = save->rank == 0;
    error_clear(e);
    trainer_fingerprint(save->trainer, &fingerprint);
    int failed = fingerprint_format(&fingerprint, &numerics)
                     ? error_set(e, MUSTER_E_NOMEM, "no memory to write a checkpoint")
                     : 0;
    take_counts(save);
    save->run.numerics = numerics.data;
    enum commit_state state = leads && !failed ? work_on(save, COMMIT_MAKE, e) : COMMIT_WRITE;
    if (all_succeed(save->trainer, failed || state == COMMIT_FAILED, e) < 0) {
        if (leads)
            folder_clean(save->folder);
        return -1;
    }
    failed = write_own(save, e);
    failed = all_succeed(save->trainer, failed, e);
    if (leads)
        state = work_on(save, commit_next(commit_table, COMMIT_WRITE, !failed), e);
    if (failed)
        return -1;
    return all_succeed(save->trainer, leads && state != COMMIT_DONE, e);
}
