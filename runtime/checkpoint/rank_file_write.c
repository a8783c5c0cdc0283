/* rank_file_write.c - rank_file.h: writes a rank's file from the trainer's own memory. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "proto/base/futex.h"
#include "proto/base/guard.h"
#include "runtime/checkpoint/disk_file.h"
#include "runtime/checkpoint/folder.h"
#include "runtime/checkpoint/rank_file.h"
#include "runtime/files/safetensors.h"

/* A run of elements of one tensor. */
struct run {
    struct trainer_part part;
    int64_t first, count; /* elements of the parameter */
    int place;            /* place of its group in the order of writing */
    struct buffer crc;    /* "FIRST " and the checksums */
    int64_t in_head;      /* offset of this text in the head */
    int64_t in_taken;     /* offset of its elements in the copy */
};

struct rank_file {
    struct trainer *trainer;
    char *path;
    struct file_tensors tensors; /* run by run */
    struct run *runs;
    int count;
    int *order, *place;    /* groups in the order of writing; place of each group in it */
    const char **metadata; /* the header's metadata: pairs, NULL at the end */
    char numbers[2][32];   /* texts among them */
    struct checksum crc;
    struct buffer head;     /* the file up to its first tensor */
    _Atomic(int64_t) bytes; /* bytes so far; read while another thread writes */
    char *slice;            /* buffer for elements if the host cannot read the device's memory; else NULL */
    struct device_arena taken;    /* copies of all runs' elements, pinned; base NULL: none were made yet */
    bool is_taken;                /* of the present state */
    char *copy_path;              /* NULL: no copy */
    char *staging, *copy_staging; /* the caller's; NULL: none */
    /* fields that rank_file_write uses */
    struct disk_file *disk, *copy;
    char *block, *copy_block; /* blocks that are being filled */
    int64_t used;
    struct muster_error copy_err;
    struct futex_word copied; /* number of groups, in that order, that are no longer read */
    _Atomic(uint32_t) wanted; /* number of groups that steps need: writing is urgent while `copied` is less */
    _Atomic(int64_t) waited_ns; /* time that steps have waited */
    atomic_bool cancelled;
};

static int rank_file_no_memory(struct muster_error *err)
{
    return error_set(err, MUSTER_E_NOMEM, "no memory to write a checkpoint");
}

/* ---- the list of elements that a rank writes ---- */

/* Puts groups in the order in which a step changes them, then groups that no step changes. */
static void order_groups(struct rank_file *f)
{
    const struct plan *plan = trainer_plan(f->trainer);
    int count = 0;
    for (int g = 0; g < plan->group_count; g++)
        f->place[g] = -1;
    for (int o = 0; o < plan->op_count; o++) {
        const struct schedule_op *op = &plan->ops[o];
        if ((op->kind == OP_STEP || op->kind == OP_ENCODE) && f->place[op->group] < 0) {
            f->place[op->group] = count;
            f->order[count++] = op->group;
        }
    }
    for (int g = 0; g < plan->group_count; g++)
        if (f->place[g] < 0) {
            f->place[g] = count;
            f->order[count++] = g;
        }
}

/* Gives this rank its share of elements that several ranks hold. */
static void share(const struct trainer_part *part, int64_t *first, int64_t *count)
{
    int64_t begin = part->count * part->copy / part->copies,
            end = part->count * (part->copy + 1) / part->copies;
    *first = part->first + begin;
    *count = end - begin;
}

static int add_run(struct rank_file *f, int place, int param, enum trainer_tensor tensor,
                   struct muster_error *err)
{
    struct run run = {.place = place};
    if (model_is_base(trainer_model(f->trainer), param) ||
        !trainer_part(f->trainer, param, tensor, &run.part))
        return 0;
    share(&run.part, &run.first, &run.count);
    if (!run.count)
        return 0;
    const char *kind = manifest_tensor_name(tensor), *own = trainer_model(f->trainer)->params[param].name;
    scope_free char *name = tensor == TRAINER_FEEDBACK ? mem_printf("%s.%d/%s", kind, run.part.replica, own)
                                                       : mem_printf("%s/%s", kind, own);
    const struct file_tensor described = {.name = name,
                                          .dtype = run.part.dtype,
                                          .ndim = 1,
                                          .dim = {run.count},
                                          .bytes = run.count * dtype_size(run.part.dtype)};
    if (!name || tensors_add(&f->tensors, &described, err) < 0)
        return rank_file_no_memory(err);
    f->runs[f->count++] = run;
    return 0;
}

static int add_runs(struct rank_file *f, struct muster_error *err)
{
    const struct plan *plan = trainer_plan(f->trainer);
    for (int place = 0; place < plan->group_count; place++) {
        const struct param_group *group = &plan->groups[f->order[place]];
        for (int i = 0; i < group->param_count; i++)
            for (int tensor = 0; tensor < TRAINER_TENSOR_COUNT; tensor++)
                if (add_run(f, place, plan->group_params[group->first_param + i], (enum trainer_tensor)tensor,
                            err) < 0)
                    return -1;
    }
    return 0;
}

/* Makes room for the checksums, which get their values later: the text keeps its length. */
static int put_checksums(struct run *run)
{
    int64_t bytes = run->count * dtype_size(run->part.dtype);
    (void)buffer_printf(&run->crc, "%lld ", (long long)run->first);
    for (int64_t done = 0; done < bytes; done += MANIFEST_CHUNK)
        (void)manifest_put_crc(&run->crc, 0);
    return run->crc.failed ? -1 : 0;
}

static int list_metadata(struct rank_file *f, int rank, struct muster_error *err)
{
    int at = 0;
    (void)snprintf(f->numbers[0], sizeof f->numbers[0], "%d", rank); /* fits */
    f->metadata[at++] = "format";
    f->metadata[at++] = MANIFEST_FORMAT;
    f->metadata[at++] = "rank";
    f->metadata[at++] = f->numbers[0];
    for (int i = 0; i < f->count; i++) {
        if (put_checksums(&f->runs[i]) < 0)
            return rank_file_no_memory(err);
        f->metadata[at++] = f->tensors.item[i].name;
        f->metadata[at++] = f->runs[i].crc.data;
    }
    return 0;
}

/* Finds the offset of each run's text in the head. */
static int find_texts(struct rank_file *f, struct muster_error *err)
{
    int64_t at = 0;
    for (int i = 0; i < f->count; i++) {
        at = rank_header_find(&f->head, at, f->tensors.item[i].name, f->runs[i].crc.data);
        if (at < 0)
            return rank_file_no_memory(err); /* the texts were just put there */
        f->runs[i].in_head = at;
    }
    return 0;
}

/* Formats the head with the present checksums. Blanks at its end, which the format allows, make the head
 * whole sectors, or a small file as a whole. */
static int format_head(struct rank_file *f, struct muster_error *err)
{
    f->head.length = 0;
    int64_t bytes = safetensors_format(f->tensors.item, f->count, f->metadata, &f->head, err);
    if (bytes < 0)
        return -1;
    const int64_t formatted = (int64_t)f->head.length, state = bytes - formatted;
    const bool small = disk_file_is_small(bytes + DISK_ALIGNMENT);
    while (!f->head.failed && ((int64_t)f->head.length + (small ? state : 0)) % DISK_ALIGNMENT)
        (void)buffer_text(&f->head, " ");
    if (f->head.failed)
        return rank_file_no_memory(err);
    const uint64_t length = f->head.length - SAFETENSORS_LENGTH;
    for (int i = 0; i < SAFETENSORS_LENGTH; i++)
        f->head.data[i] = (char)(unsigned char)(length >> (8 * i));
    f->bytes = bytes + (int64_t)f->head.length - formatted;
    return find_texts(f, err);
}

/* Writes the present checksums into the head: nothing else in the head ever changes. */
static void fill_head(struct rank_file *f)
{
    for (int i = 0; i < f->count; i++)
        memcpy(f->head.data + f->runs[i].in_head, f->runs[i].crc.data, f->runs[i].crc.length);
}

GUARD_DEFINE(rank_file, struct rank_file *, rank_file_destroy);

struct rank_file *rank_file_create(struct trainer *trainer, const char *folder, int rank,
                                   struct muster_error *err)
{
    const size_t most = (size_t)trainer_model(trainer)->param_count * TRAINER_TENSOR_COUNT,
                 groups = (size_t)trainer_plan(trainer)->group_count;
    scope_free char *name = folder_rank_name(rank);
    GUARD(guard_rank_file) struct rank_file *f = mem_calloc(1, sizeof *f);
    if (f && name) {
        f->trainer = trainer;
        f->path = mem_printf("%s/%s", folder, name);
        f->runs = mem_calloc(most + 1, sizeof *f->runs);
        f->metadata = mem_calloc(2 * (most + 2) + 1, sizeof *f->metadata);
        f->order = mem_calloc(2 * groups + 1, sizeof *f->order);
    }
    if (!f || !name || !f->path || !f->runs || !f->metadata || !f->order) {
        (void)rank_file_no_memory(err);
        return NULL;
    }
    f->place = f->order + groups;
    checksum_make(&f->crc, true);
    order_groups(f);
    if (add_runs(f, err) < 0 || list_metadata(f, rank, err) < 0 || format_head(f, err) < 0)
        return NULL;
    if (f->count && !trainer_part_address(trainer, &f->runs[0].part, f->runs[0].first) &&
        !(f->slice = mem_calloc(MANIFEST_CHUNK, 1))) {
        (void)rank_file_no_memory(err);
        return NULL;
    }
    return take_pointer(&f);
}

int rank_file_renew(struct rank_file *f, const char *folder, int rank, struct muster_error *err)
{
    scope_free char *name = folder_rank_name(rank);
    char *path = name ? mem_printf("%s/%s", folder, name) : NULL;
    if (!path)
        return rank_file_no_memory(err);
    mem_free(f->path);
    mem_free(take_pointer(&f->copy_path));
    f->path = path;
    f->is_taken = false;
    f->staging = f->copy_staging = NULL;
    f->copy_err = (struct muster_error){0};
    f->block = f->copy_block = NULL;
    f->used = 0;
    atomic_store(&f->copied.value, 0);
    atomic_store(&f->wanted, 0);
    atomic_store(&f->waited_ns, 0);
    atomic_store(&f->cancelled, false);
    return 0;
}

void rank_file_copy_to(struct rank_file *f, char *path)
{
    f->copy_path = path;
}

void rank_file_stage(struct rank_file *f, char *staging, char *copy_staging)
{
    f->staging = staging;
    f->copy_staging = copy_staging;
}

const struct muster_error *rank_file_copy_error(const struct rank_file *f)
{
    return &f->copy_err;
}

void rank_file_destroy(struct rank_file *f)
{
    if (!f)
        return;
    for (int i = 0; i < f->count; i++)
        buffer_free(&f->runs[i].crc);
    disk_file_destroy(f->disk);
    tensors_free(&f->tensors);
    buffer_free(&f->head);
    mem_free(f->runs);
    mem_free((void *)f->metadata);
    mem_free(f->order);
    trainer_unpin(f->trainer, &f->taken);
    mem_free(f->slice);
    mem_free(f->copy_path);
    mem_free(f->path);
    mem_free(f);
}

/* ---- writing ---- */

/* ---- the copy, which may fail alone ---- */

static void drop_copy(struct rank_file *f)
{
    disk_file_destroy(take_pointer(&f->copy));
    f->copy_block = NULL;
    (void)unlink(f->copy_path); /* the copy is not whole */
}

static void begin_copy(struct rank_file *f)
{
    if (f->copy_path)
        f->copy =
            disk_file_create(f->copy_path, (int64_t)f->head.length, f->bytes, f->copy_staging, &f->copy_err);
}

static void copy_bytes(struct rank_file *f, const char *from, int64_t bytes)
{
    if (f->copy && !f->copy_block && !(f->copy_block = disk_file_block(f->copy, &f->copy_err)))
        drop_copy(f);
    if (f->copy)
        memcpy(f->copy_block + f->used, from, (size_t)bytes);
}

static void end_copy(struct rank_file *f)
{
    if (f->copy && disk_file_end(f->copy, f->head.data, &f->copy_err) < 0)
        drop_copy(f);
    disk_file_destroy(take_pointer(&f->copy));
}

/* ---- blocks ---- */

static void put_block(struct rank_file *f)
{
    if (f->block)
        disk_file_put(f->disk, f->used);
    if (f->copy_block)
        disk_file_put(f->copy, f->used);
    f->block = f->copy_block = NULL;
    f->used = 0;
}

/* Appends bytes; *crc continues over them. */
static int add_bytes(struct rank_file *f, const char *from, int64_t bytes, uint32_t *crc,
                     struct muster_error *err)
{
    enum { STAYS_IN_CACHE = 64 << 10 }; /* bytes; the second copy reads them from the cache */
    while (bytes) {
        if (!f->block && !(f->block = disk_file_block(f->disk, err)))
            return -1;
        int64_t now = DISK_BLOCK - f->used < bytes ? DISK_BLOCK - f->used : bytes;
        now = now < STAYS_IN_CACHE ? now : STAYS_IN_CACHE;
        *crc = checksum_copy(&f->crc, *crc, f->block + f->used, from, now);
        copy_bytes(f, from, now);
        f->used += now;
        from += now;
        bytes -= now;
        if (f->used == DISK_BLOCK)
            put_block(f);
    }
    return 0;
}

static int write_run(struct rank_file *f, struct run *run, struct muster_error *err)
{
    const int64_t size = dtype_size(run->part.dtype), chunk = MANIFEST_CHUNK / size;
    size_t digits = strcspn(run->crc.data, " ") + 1;
    for (int64_t done = 0; done < run->count; done += chunk, digits += 8) {
        int64_t count = run->count - done < chunk ? run->count - done : chunk;
        const char *from = f->is_taken ? (const char *)f->taken.base + run->in_taken + done * size
                                       : trainer_part_address(f->trainer, &run->part, run->first + done);
        char text[16];
        uint32_t crc = 0;
        if (atomic_load(&f->cancelled))
            return error_set(err, MUSTER_E_STATE, "the run ends: %s is not written", f->path);
        const bool hurry = atomic_load(&f->wanted) > (uint32_t)run->place;
        disk_file_hurry(f->disk, hurry);
        if (f->copy)
            disk_file_hurry(f->copy, hurry);
        if (!from && trainer_read_part(f->trainer, &run->part, run->first + done, count, f->slice, err) < 0)
            return -1;
        if (add_bytes(f, from ? from : f->slice, count * size, &crc, err) < 0)
            return -1;
        (void)snprintf(text, sizeof text, "%08x", crc); /* fits */
        memcpy(run->crc.data + digits, text, 8);
    }
    return 0;
}

/* Reports that groups before this place are no longer read. */
static void tell_copied(struct rank_file *f, int place)
{
    if ((uint32_t)place == atomic_load(&f->copied.value))
        return;
    atomic_store(&f->copied.value, (uint32_t)place);
    futex_wake(&f->copied, FUTEX_PRIVATE);
}

enum { TAKEN_ALIGNMENT = 64 };

static int64_t lay_out_taken(struct rank_file *f)
{
    int64_t bytes = 0;
    for (int i = 0; i < f->count; i++) {
        f->runs[i].in_taken = bytes;
        bytes += f->runs[i].count * dtype_size(f->runs[i].part.dtype);
        bytes = (bytes + TAKEN_ALIGNMENT - 1) / TAKEN_ALIGNMENT * TAKEN_ALIGNMENT;
    }
    return bytes;
}

int rank_file_take(struct rank_file *f, struct muster_error *err)
{
    const int64_t bytes = lay_out_taken(f);
    if (!f->count)
        return 1;
    if (!f->taken.base && trainer_pin(f->trainer, bytes, &f->taken, err) < 0)
        return err->code == MUSTER_E_NOMEM ? 0 : -1;
    for (int i = 0; i < f->count; i++) {
        const struct run *run = &f->runs[i];
        if (trainer_fetch(f->trainer, &run->part, run->first, run->count,
                          (char *)f->taken.base + run->in_taken, err) < 0)
            return -1;
    }
    if (trainer_fetched(f->trainer, err) < 0)
        return -1;
    f->is_taken = true;
    return 1;
}

static int write_runs(struct rank_file *f, struct muster_error *err)
{
    for (int i = 0; i < f->count; i++) {
        tell_copied(f, f->runs[i].place);
        if (write_run(f, &f->runs[i], err) < 0)
            return -1;
    }
    put_block(f);
    return 0;
}

static int write_file(struct rank_file *f, struct muster_error *err)
{
    f->disk = disk_file_create(f->path, (int64_t)f->head.length, f->bytes, f->staging, err);
    if (!f->disk)
        return -1;
    begin_copy(f);
    int result = write_runs(f, err);
    tell_copied(f, trainer_plan(f->trainer)->group_count);
    if (!result)
        fill_head(f);
    if (result < 0 && f->copy)
        drop_copy(f);
    end_copy(f);
    return result < 0 ? -1 : disk_file_end(f->disk, f->head.data, err);
}

void rank_file_release(struct rank_file *f)
{
    atomic_store(&f->copied.value, UINT32_MAX);
    futex_wake(&f->copied, FUTEX_PRIVATE);
}

int rank_file_write(struct rank_file *f, struct muster_error *err)
{
    int result = write_file(f, err);
    rank_file_release(f); /* after an error too */
    disk_file_destroy(take_pointer(&f->disk));
    return result;
}

void rank_file_wait(struct rank_file *f, int group)
{
    const uint32_t need = (uint32_t)f->place[group] + 1;
    uint32_t seen = atomic_load(&f->copied.value);
    if (seen >= need)
        return;
    struct instant start = clock_now(NULL);
    atomic_store(&f->wanted, need);
    while ((seen = atomic_load(&f->copied.value)) < need)
        (void)futex_wait(&f->copied, seen, INSTANT_NEVER, FUTEX_PRIVATE); /* never late */
    atomic_fetch_add(&f->waited_ns, instant_diff_ns(clock_now(NULL), start));
}

void rank_file_cancel(struct rank_file *f)
{
    atomic_store(&f->cancelled, true);
}

int64_t rank_file_bytes(const struct rank_file *f)
{
    return f->bytes;
}

int64_t rank_file_waited_ns(const struct rank_file *f)
{
    return atomic_load(&f->waited_ns);
}
