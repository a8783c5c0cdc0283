/* load.c - reads the newest whole checkpoint; every rank reads the elements that it holds. */
#include <assert.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "proto/json/json_text.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/chunk_reader.h"
#include "runtime/checkpoint/folder.h"
#include "runtime/checkpoint/local_copy.h"
#include "runtime/checkpoint/rank_file.h"
#include "runtime/checkpoint/refusal.h"

/* ---- bytes of slices ---- */

/* A checkpoint that is being read. The same functions first list the chunks (`lists`) and then read them, so
 * that chunks are read ahead from the disk. */
struct source {
    struct checkpoint_load *load;
    bool lists;
    struct chunk *chunks; /* in the order of reading; the next elements often begin in the previous chunk */
    int64_t count, room, next;
    struct chunk_reader *reader;
    const char *bytes; /* bytes of the chunk before `next` */
};

static void source_close(struct source *s)
{
    chunk_reader_destroy(s->reader);
    mem_free(s->chunks);
}

static int list_chunk(struct source *s, struct chunk chunk, struct muster_error *err)
{
    if (s->count == s->room) {
        struct chunk *more =
            mem_realloc(s->chunks, (size_t)(s->room = s->room ? 2 * s->room : 64), sizeof *more);
        if (!more)
            return error_set(err, MUSTER_E_NOMEM, "no memory to read a checkpoint");
        s->chunks = more;
    }
    s->chunks[s->count++] = chunk;
    return 0;
}

static bool is_chunk(const struct source *s, int64_t at, struct chunk chunk)
{
    return at >= 0 && at < s->count && s->chunks[at].slice == chunk.slice &&
           s->chunks[at].number == chunk.number;
}

static int hold_chunk(struct source *s, struct chunk chunk, struct muster_error *err)
{
    if (is_chunk(s, (s->lists ? s->count : s->next) - 1, chunk))
        return 0;
    if (s->lists)
        return list_chunk(s, chunk, err);
    assert(is_chunk(s, s->next, chunk));
    s->next++;
    s->bytes = chunk_reader_next(s->reader, err);
    return s->bytes ? 0 : -1;
}

/* Destination of elements: host memory, with conversion to dtype, or a part of the trainer, without
 * conversion. */
struct target {
    enum dtype dtype;
    char *out; /* next element in host memory; NULL: write to the part */
    const struct trainer_part *part;
};

static void convert(const void *from, enum dtype dtype_from, int64_t count, enum dtype dtype_to, void *to)
{
    if (dtype_from == dtype_to)
        memcpy(to, from, (size_t)(count * dtype_size(dtype_to)));
    else
        kernels_ref_f64()->cast(to, dtype_to, from, dtype_from, count, NULL);
}

static int give(const struct source *s, struct target *to, const char *from, enum dtype dtype, int64_t first,
                int64_t count, struct muster_error *err)
{
    if (!to->out)
        return trainer_write_part(s->load->trainer, to->part, first, count, from, err);
    convert(from, dtype, count, to->dtype, to->out);
    to->out += count * dtype_size(to->dtype);
    return 0;
}

/* Reads elements of a slice; `first` counts from the parameter's first element. to: not used by a source that
 * lists. */
static int read_slice(struct source *s, const struct manifest_slice *slice, int64_t first, int64_t count,
                      struct target *to, struct muster_error *err)
{
    const int64_t size = dtype_size(slice->dtype), per_chunk = MANIFEST_CHUNK / size;
    while (count) {
        int64_t at = first - slice->first, inside = at % per_chunk;
        int64_t now = per_chunk - inside < count ? per_chunk - inside : count;
        if (hold_chunk(s, (struct chunk){slice, at / per_chunk}, err) < 0 ||
            (!s->lists && give(s, to, s->bytes + inside * size, slice->dtype, first, now, err) < 0))
            return -1;
        first += now;
        count -= now;
    }
    return 0;
}

/* Reads elements of one replica's tensor from its slices, which are in the order of elements. */
static int read_of(struct source *s, enum trainer_tensor tensor, int param, int replica, int64_t first,
                   int64_t count, struct target to, struct muster_error *err)
{
    const struct manifest_slice *slices;
    int slice_count = manifest_slices(&s->load->manifest, tensor, param, &slices);
    const int64_t end = first + count;
    for (int i = 0; i < slice_count; i++) {
        if (slices[i].replica != replica)
            continue;
        int64_t from = slices[i].first > first ? slices[i].first : first;
        int64_t until = slices[i].first + slices[i].count < end ? slices[i].first + slices[i].count : end;
        if (from < until && read_slice(s, &slices[i], from, until - from, &to, err) < 0)
            return -1;
    }
    return 0;
}

static int read_elements(struct source *s, enum trainer_tensor tensor, int param, int64_t first,
                         int64_t count, struct target to, struct muster_error *err)
{
    return read_of(s, tensor, param, 0, first, count, to, err);
}

/* ---- tensors of a rank ---- */

static int read_values(void *context, int param, int64_t first, int64_t count, enum dtype dtype, void *out,
                       struct muster_error *err)
{
    const struct source *s = context;
    if (model_is_base(trainer_model(s->load->trainer), param))
        return 1; /* the checkpoint has adapters alone */
    return read_elements(context, TRAINER_VALUE, param, first, count, (struct target){dtype, out, NULL}, err);
}

/* Whether all slices of a tensor were written in the tensor's type in this run. */
static bool has_dtype(const struct manifest_slice *slices, int count, enum dtype dtype)
{
    for (int i = 0; i < count; i++)
        if (slices[i].dtype != dtype)
            return false;
    return true;
}

/* Adds values to those of a part, or with `adds` false puts them there. */
static int add_to_part(const struct source *s, const struct trainer_part *part, int64_t first, int64_t count,
                       bool adds, double *values, double *sum, struct muster_error *err)
{
    struct trainer *trainer = s->load->trainer;
    if (adds && trainer_read_part(trainer, part, first, count, sum, err) < 0)
        return -1;
    for (int64_t i = 0; adds && i < count; i++) {
        if (part->dtype == DTYPE_F64)
            values[i] += sum[i];
        else
            ((float *)values)[i] += ((float *)sum)[i];
    }
    return trainer_write_part(trainer, part, first, count, values, err);
}

/* The replicas of this run take the feedback of as many or more replicas in turn, and one that gets several
 * adds them in their order: the sum over all replicas, which is what is still to be sent, stays. */
static int load_feedback(struct source *s, int param, const struct trainer_part *part, char *block,
                         int64_t most, struct muster_error *err)
{
    const struct manifest_slice *slices;
    const int count = manifest_slices(&s->load->manifest, TRAINER_FEEDBACK, param, &slices);
    const int replicas = count ? slices[count - 1].replica + 1 : 0;
    for (int r = part->replica; r == part->replica || r < replicas; r += part->replicas)
        for (int64_t done = 0; done < part->count; done += most) {
            const int64_t now = part->count - done < most ? part->count - done : most;
            struct target to = {part->dtype, block, NULL};
            if (!s->lists)
                memset(block, 0, (size_t)(now * dtype_size(part->dtype)));
            if (read_of(s, TRAINER_FEEDBACK, param, r, part->first + done, now, to, err) < 0 ||
                (!s->lists &&
                 add_to_part(s, part, part->first + done, now, r > part->replica, (double *)block,
                             (double *)(block + most * dtype_size(DTYPE_F64)), err) < 0))
                return -1;
        }
    return 0;
}

/* A tensor that was not written stays as filling the values has left it. So averages begin with the values.
 */
static int load_tensor(struct source *s, int param, enum trainer_tensor tensor, char *block, int64_t most,
                       struct muster_error *err)
{
    struct trainer *trainer = s->load->trainer;
    const struct manifest_slice *slices;
    struct trainer_part part;
    if (!trainer_part(trainer, param, tensor, &part))
        return 0;
    const int slice_count = manifest_slices(&s->load->manifest, tensor, param, &slices);
    struct target to = {.dtype = part.dtype, .part = &part};
    if (tensor == TRAINER_FEEDBACK)
        return load_feedback(s, param, &part, block, most, err);
    if (!slice_count || (tensor == TRAINER_FACTOR &&
                         slices[slice_count - 1].first + slices[slice_count - 1].count != part.count))
        return 0;
    if (s->lists || has_dtype(slices, slice_count, part.dtype))
        return read_elements(s, tensor, param, part.first, part.count, to, err);
    to.out = block;
    for (int64_t done = 0; done < part.count; done += most) {
        int64_t count = part.count - done < most ? part.count - done : most;
        if (read_elements(s, tensor, param, part.first + done, count, to, err) < 0 ||
            trainer_write_part(trainer, &part, part.first + done, count, block, err) < 0)
            return -1;
    }
    return 0;
}

static int load_values(struct source *s, struct muster_error *err)
{
    struct trainer *trainer = s->load->trainer;
    if (!s->lists)
        return trainer_fill_params(trainer, read_values, s, err);
    for (int param = 0; param < trainer_model(trainer)->param_count; param++) {
        int64_t first, count;
        if (model_is_base(trainer_model(trainer), param))
            continue;
        trainer_held(trainer, param, &first, &count);
        if (read_elements(s, TRAINER_VALUE, param, first, count, (struct target){.dtype = DTYPE_F32}, err) <
            0)
            return -1;
    }
    return 0;
}

static bool is_taken(const struct checkpoint_load *load, enum trainer_tensor tensor)
{
    return load->taken & (tensor == TRAINER_AVERAGE ? CHECKPOINT_AVERAGES : CHECKPOINT_MOMENTS);
}

static int load_tensors(struct source *s, char *block, struct muster_error *err)
{
    enum { MOST = MANIFEST_CHUNK / 16 }; /* elements of any type, twice */
    if (load_values(s, err) < 0)
        return -1;
    for (int param = 0; param < trainer_model(s->load->trainer)->param_count; param++)
        for (int tensor = TRAINER_MOMENT1; tensor < TRAINER_TENSOR_COUNT; tensor++)
            if (is_taken(s->load, (enum trainer_tensor)tensor) &&
                load_tensor(s, param, (enum trainer_tensor)tensor, block, MOST, err) < 0)
                return -1;
    return 0;
}

static int read_tensors(struct source *s, const char *folder, struct muster_error *err)
{
    struct checkpoint_load *load = s->load;
    scope_free char *block = mem_realloc(NULL, MANIFEST_CHUNK, 1); /* not zeroed: reads fill it */
    scope_free char *local = load->local ? folder_step_path(load->local, load->manifest.run.step) : NULL;
    if (!block || (load->local && !local))
        return error_set(err, MUSTER_E_NOMEM, "no memory to read a checkpoint");
    s->lists = true;
    if (load_tensors(s, NULL, err) < 0)
        return -1;
    s->lists = false;
    s->reader = chunk_reader_create(&load->manifest, trainer_model(load->trainer), folder, local, s->chunks,
                                    s->count, err);
    if (!s->reader)
        return -1;
    chunk_reader_files(s->reader, &load->files, &load->local_files);
    const int result = load_tensors(s, block, err);
    if (!load->local_err.code)
        load->local_err = *chunk_reader_copy_error(s->reader);
    return result;
}

/* ---- one checkpoint ---- */

/* Checks that the checkpoint's optimizer has the same moments as this run's. */
static int check_moments(const struct checkpoint_load *load, const char *folder, struct muster_error *err)
{
    const struct model *model = trainer_model(load->trainer);
    for (int param = 0; param < model->param_count; param++)
        for (int t = TRAINER_MOMENT1; t <= TRAINER_MOMENT2; t++) {
            const struct manifest_slice *slices;
            struct trainer_part part;
            bool wanted = trainer_part(load->trainer, param, (enum trainer_tensor)t, &part);
            bool there = manifest_slices(&load->manifest, (enum trainer_tensor)t, param, &slices) > 0;
            if (wanted != there && !(there && load->taken & CHECKPOINT_FROZEN))
                return error_set(
                    err, MUSTER_E_REFUSED,
                    "%s %s %s of %s, and this run's optimizer %s: training.optimizer, momentum or "
                    "frozen parameters differ",
                    folder, there ? "has a" : "has no", manifest_tensor_name((enum trainer_tensor)t),
                    model->params[param].name, wanted ? "needs it" : "keeps none");
        }
    return 0;
}

/* Averages may be turned on or off between two runs. */
static void compare_averages(const struct checkpoint_load *load, struct buffer *notes)
{
    const int params = trainer_model(load->trainer)->param_count;
    const struct manifest_slice *slices;
    struct trainer_part part;
    bool wanted = false, there = false;
    for (int param = 0; param < params; param++) {
        wanted |= trainer_part(load->trainer, param, TRAINER_AVERAGE, &part);
        there |= manifest_slices(&load->manifest, TRAINER_AVERAGE, param, &slices) > 0;
    }
    if (wanted && !there)
        (void)buffer_text(notes,
                          "the checkpoint has no average of the parameters: it begins with theirs now\n");
    if (there && !wanted)
        (void)buffer_text(
            notes, "the checkpoint's average of the parameters is not used: training.ema_decay is 0\n");
}

/* Compression may be turned on or off between two runs. */
static void compare_feedback(const struct checkpoint_load *load, struct buffer *notes)
{
    const int params = trainer_model(load->trainer)->param_count;
    const struct manifest_slice *slices;
    bool there = false;
    for (int param = 0; param < params; param++)
        there |= manifest_slices(&load->manifest, TRAINER_FEEDBACK, param, &slices) > 0;
    const struct compression_options *o = &trainer_plan(load->trainer)->options.compression;
    const bool wanted = o->kind != COMPRESSION_NONE && !o->forgets;
    if (there && !wanted)
        (void)buffer_text(notes, "what replicas had not sent of their gradients is dropped: "
                                 "this run has no training.compression with feedback\n");
}

static int read_manifest(struct checkpoint_load *load, const char *folder, struct muster_error *err)
{
    scope_free char *path = mem_printf("%s/%s", folder, MANIFEST_NAME);
    scope_buffer text = {0};
    if (!path)
        return error_set(err, MUSTER_E_NOMEM, "no memory to read a checkpoint");
    manifest_free(&load->manifest);
    return io_read_file(path, JSON_TEXT_LIMIT, &text, err) < 0
               ? -1
               : manifest_parse(path, text.data ? text.data : "", text.length, trainer_model(load->trainer),
                                &load->manifest, err);
}

/* Reads the node's copy of the manifest if it has the stamp of the shared manifest. An error in the copy is
 * found in the shared manifest too, or does not matter. */
static bool read_copy(struct checkpoint_load *load, int64_t step, struct manifest_stamp stamp)
{
    scope_free char *copy = load->local ? folder_step_path(load->local, step) : NULL;
    struct muster_error err = {0};
    const int has = copy && stamp.bytes ? local_copy_has(load->local, step, stamp, &err) : 0;
    if (has > 0 && !read_manifest(load, copy, &err))
        return true;
    if (err.code && err.code != MUSTER_E_INVALID && err.code != MUSTER_E_NOT_FOUND)
        load->local_err = err;
    return false;
}

/* If the manifest was read from the node's copy, each reader checks its files instead. */
static int check_files(const struct checkpoint_load *load, const char *folder, struct muster_error *err)
{
    for (int i = 0; i < load->manifest.file_count && !load->local_manifest; i++)
        if (rank_file_check(folder, &load->manifest.files[i], i % load->world_size == load->rank, err) < 0)
            return -1;
    return 0;
}

/* Does all checks that need no tensors. stamp: stamp of the shared manifest; zeros: not known. */
static int open_checkpoint(struct checkpoint_load *load, const char *folder, struct manifest_stamp stamp,
                           struct buffer *notes, struct muster_error *err)
{
    const char *name = strrchr(folder, '/') ? strrchr(folder, '/') + 1 : folder;
    load->local_manifest = read_copy(load, folder_parse_step(name), stamp);
    if (!load->local_manifest && read_manifest(load, folder, err) < 0)
        return -1;
    load->taken = load->parts ? load->parts(load->context, &load->manifest.run) : CHECKPOINT_ALL;
    if (load->taken & CHECKPOINT_MOMENTS && check_moments(load, folder, err) < 0)
        return -1;
    if (!load->one && folder_parse_step(name) != load->manifest.run.step)
        return error_set(err, MUSTER_E_INVALID, "%s/%s is damaged: it is of step %lld", folder, MANIFEST_NAME,
                         (long long)load->manifest.run.step);
    if (check_files(load, folder, err) < 0)
        return -1;
    if (load->taken & CHECKPOINT_AVERAGES)
        compare_averages(load, notes);
    if (load->taken & CHECKPOINT_MOMENTS)
        compare_feedback(load, notes);
    return load->accept ? load->accept(load->context, &load->manifest, notes, err) : 0;
}

static int read_checkpoint(struct checkpoint_load *load, const char *folder, struct muster_error *err)
{
    struct source source = {.load = load};
    const struct manifest_run *run = &load->manifest.run;
    struct trainer_counts counts = {.steps = run->step, .updates = run->updates, .scale = run->scale};
    const bool fresh = (load->taken & CHECKPOINT_ALL) != CHECKPOINT_ALL;
    int result = fresh && trainer_restart(load->trainer, err) < 0 ? -1 : read_tensors(&source, folder, err);
    if (!(load->taken & CHECKPOINT_COUNTS)) {
        trainer_get_counts(load->trainer, &counts);
        counts.steps = run->step;
    }
    if (!result)
        trainer_set_counts(load->trainer, &counts);
    source_close(&source);
    return result;
}

/* Collective. 1: loaded; 0: refused, with its reason on every rank; -1: the ranks cannot go on together. */
static int try_checkpoint(struct checkpoint_load *load, const char *folder, struct manifest_stamp stamp,
                          enum refusal *kind, struct muster_error *refused, struct muster_error *err)
{
    scope_buffer notes = {0};
    error_clear(refused);
    error_clear(&load->local_err);
    for (int part = 0; part < 2; part++) {
        const int failed = part == 0 ? open_checkpoint(load, folder, stamp, &notes, refused)
                                     : read_checkpoint(load, folder, refused);
        if (!failed)
            error_clear(refused);
        if (refusal_share(load->trainer, load->rank, load->world_size, refused, kind, err) < 0)
            return -1;
        if (*kind)
            return 0;
    }
    if (load->local_err.code)
        (void)buffer_printf(load->report,
                            "rank %d: a copy on this node is not used, the shared folder is read: %s\n",
                            load->rank, load->local_err.text);
    if (notes.length)
        (void)buffer_append(load->report, notes.data, notes.length);
    return 1;
}

/* ---- which one ---- */

/* Gives rank 0's step, and time and size of its manifest, to every rank. If the nodes have copies, the shared
 * folder is read for nothing else. */
static int broadcast(const struct checkpoint_load *load, int64_t *step, struct manifest_stamp *stamp,
                     struct muster_error *err)
{
    double values[4] = {0};
    if (!load->rank) {
        *stamp = *step >= 0 ? local_copy_stamp(load->folder, *step) : (struct manifest_stamp){0};
        values[0] = (double)*step;
        values[1] = (double)stamp->bytes;
        values[2] = (double)stamp->seconds;
        values[3] = (double)stamp->nanoseconds;
    }
    if (trainer_reduce(load->trainer, values, 4, err) < 0)
        return -1;
    *step = (int64_t)values[0];
    *stamp = (struct manifest_stamp){(int64_t)values[1], (int64_t)values[2], (int64_t)values[3]};
    return 0;
}

static int load_one(struct checkpoint_load *load, struct muster_error *err)
{
    struct muster_error refused;
    enum refusal kind;
    const int result = try_checkpoint(load, load->folder, (struct manifest_stamp){0}, &kind, &refused, err);
    if (!result && err)
        *err = refused;
    return result > 0 ? 1 : -1;
}

/* Checkpoints refused so far, the same on every rank. */
struct refused {
    int count;
    /* error of the newest whole checkpoint that is not of this run; code 0: none */
    struct muster_error unfit;
};

/* The result after all were refused: if all are damaged, a new run may begin. */
static int end_without(struct checkpoint_load *load, const struct refused *all, struct muster_error *err)
{
    if (all->unfit.code && err)
        *err = all->unfit;
    if (all->unfit.code)
        return -1;
    return all->count ? trainer_restart(load->trainer, err) : 0;
}

/* 0: the previous checkpoint may be tried. An unreadable checkpoint ends the search: an older checkpoint
 * would take its place. */
static int take_refusal(struct checkpoint_load *load, const char *folder, enum refusal kind,
                        const struct muster_error *why, struct refused *all, struct muster_error *err)
{
    if (kind == REFUSAL_UNREADABLE)
        return error_set(
            err, (enum muster_error_code)why->code,
            "checkpoint %s cannot be read, and no older one takes its place (that would lose the "
            "steps since; move it away if that is wanted): %s",
            folder, why->text);
    if (!load->rank)
        (void)buffer_printf(load->report, "refused %s: %s\n", folder, why->text);
    if (kind == REFUSAL_UNFIT && !all->unfit.code)
        all->unfit = *why;
    all->count++;
    return 0;
}

static int load_newest(struct checkpoint_load *load, struct muster_error *err)
{
    scope_free int64_t *steps = NULL;
    struct muster_error why = {0};
    struct refused all = {0};
    enum refusal kind;
    const int count = load->rank ? 0 : folder_list(load->folder, &steps, &why);
    if (refusal_share(load->trainer, load->rank, load->world_size, &why, &kind, err) < 0)
        return -1;
    if (kind && err)
        *err = why;
    for (int i = 0; !kind; i++) {
        int64_t step = i < count ? steps[i] : -1; /* rank 0's; other ranks receive it */
        struct manifest_stamp stamp;
        if (broadcast(load, &step, &stamp, err) < 0)
            return -1;
        if (step < 0)
            return end_without(load, &all, err);
        scope_free char *folder = folder_step_path(load->folder, step);
        if (!folder)
            return error_set(err, MUSTER_E_NOMEM, "no memory to read a checkpoint");
        const int result = try_checkpoint(load, folder, stamp, &kind, &why, err);
        if (result || take_refusal(load, folder, kind, &why, &all, err) < 0)
            return result > 0 ? 1 : -1;
        kind = REFUSAL_NONE;
    }
    return -1;
}

int checkpoint_load(struct checkpoint_load *load, struct muster_error *err)
{
    struct muster_error local = {0};
    struct muster_error *e = err ? err : &local;
    return load->one ? load_one(load, e) : load_newest(load, e);
}
