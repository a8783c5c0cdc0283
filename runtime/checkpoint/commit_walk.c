/* commit_walk.c - see save.h. */
#include "runtime/checkpoint/save.h"

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "runtime/checkpoint/disk_file.h"
#include "runtime/checkpoint/folder.h"
#include "runtime/checkpoint/hook.h"
#include "runtime/checkpoint/rank_file.h"

/* Header of a rank's file, kept from one checkpoint to the next; NULL: not kept. */
static struct rank_header *known_header(const struct checkpoint_save *save, int rank)
{
    struct checkpoint_kept *kept = save->kept;
    if (!kept || rank >= HEADERS_KEPT)
        return NULL;
    if (!kept->headers)
        kept->headers = mem_calloc(HEADERS_KEPT, sizeof *kept->headers);
    return kept->headers ? &kept->headers[rank] : NULL;
}

static int write_manifest(const struct checkpoint_save *save, struct muster_error *err)
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
        result = rank_file_describe(model, folder, rank, known_header(save, rank), &writer, err);
    if (!result)
        result = manifest_format(&writer, &save->run, model, &text, err);
    manifest_writer_free(&writer);
    return result < 0 ? -1 : folder_write(path, text.data, text.length, err);
}

/* The next checkpoint reuses small files of a removed checkpoint: that costs the disk little. */
static int remove_one(const struct checkpoint_save *save, int64_t bytes, int64_t step)
{
    struct checkpoint_kept *kept = save->kept;
    if (!kept || !disk_file_is_small(bytes))
        return folder_remove(save->folder, step, NULL);
    if (!kept->spare_in)
        kept->spare_in = mem_strdup(save->folder);
    return kept->spare_in ? folder_retain(save->folder, step, NULL) : folder_remove(save->folder, step, NULL);
}

/* The rule of retention, limited to the number of checkpoints that fit on the disk. */
static struct retention retention_now(const struct checkpoint_save *save)
{
    struct retention retention = save->retention;
    const int64_t fits = save->kept ? save->kept->fits : 0;
    if (fits && fits < retention.last)
        retention.last = fits;
    return retention;
}

static int prune(const struct checkpoint_save *save, int64_t bytes)
{
    const struct retention retention = retention_now(save);
    scope_free int64_t *steps = NULL;
    (void)folder_drop_retired(save->folder, save->run.step, NULL); /* folder_clean tries it again */
    int count = folder_list(save->folder, &steps, NULL), failed = count < 0;
    scope_free bool *remove = mem_calloc((size_t)(count > 0 ? count : 1), sizeof *remove);
    if (failed || !remove)
        return -1;
    retention_choose(&retention, save->run.step, steps, count, remove);
    for (int i = 0; i < count; i++)
        if (remove[i] && !hook_holds(save->hook, steps[i]) && remove_one(save, bytes, steps[i]) < 0)
            failed = -1;
    return failed;
}

int64_t commit_give_up(const struct checkpoint_save *save)
{
    scope_free int64_t *steps = NULL;
    const int count = folder_list(save->folder, &steps, NULL);
    scope_free bool *held = mem_calloc((size_t)(count > 0 ? count : 1), sizeof *held);
    for (int i = 0; held && i < count; i++)
        held[i] = hook_holds(save->hook, steps[i]);
    const int chosen = held && count > 0 ? retention_give_up(&save->retention, steps, held, count) : -1;
    if (chosen < 0 || folder_remove(save->folder, steps[chosen], NULL) < 0)
        return -1;
    if (save->kept)
        save->kept->fits = count - 1; /* and room for the checkpoint that is being written */
    return steps[chosen];
}

static int work(const struct checkpoint_save *save, int64_t bytes, enum commit_state state,
                struct muster_error *err)
{
    const char *folder = save->folder;
    const int64_t step = save->run.step;
    scope_free char *hidden = folder_new_path(folder, step);
    if (!hidden)
        return error_set(err, MUSTER_E_NOMEM, "no memory to write a checkpoint");
    switch (state) {
    case COMMIT_MAKE:
        if (!save->beside)
            folder_clean(folder, step);
        return folder_make_new(folder, step, err);
    case COMMIT_MANIFEST:
        return folder_clear_new(folder, step, save->run.world_size, err) < 0 ? -1 : write_manifest(save, err);
    case COMMIT_SYNC_INSIDE:
        return folder_sync(hidden, err);
    case COMMIT_RETIRE:
        return folder_retire(folder, step, err);
    case COMMIT_PLACE:
        return folder_place(folder, step, err);
    case COMMIT_SYNC_OUTSIDE:
        return folder_sync(folder, err);
    case COMMIT_PRUNE:
        return prune(save, bytes);
    case COMMIT_CLEAN:
        return folder_drop_new(folder, step, NULL);
    default:
        return 0;
    }
}

enum commit_state commit_walk(const struct checkpoint_save *save, int64_t bytes, enum commit_state state,
                              struct muster_error *err)
{
    while (!commit_ended(state) && state != COMMIT_WRITE) {
        struct muster_error own = {0};
        int failed = work(save, bytes, state, &own);
        if (failed && state != COMMIT_PRUNE && !err->code)
            *err = own;
        state = commit_next(commit_table, state, !failed);
    }
    return state;
}
