/* rank_file.c - see rank_file.h. */
#include "runtime/checkpoint/rank_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/text.h"
#include "runtime/checkpoint/folder.h"
#include "runtime/files/json_text.h"
#include "runtime/files/output.h"
#include "runtime/files/safetensors.h"

/* ---- what a rank writes ---- */

/* A run of elements of one tensor. */
struct run {
    struct trainer_part part;
    int64_t first, count; /* of the parameter's elements */
    struct buffer crc;    /* "FIRST " and the checksums */
};

struct rank_file {
    struct trainer *trainer;
    struct file_tensors tensors; /* run by run */
    struct run *runs;
    int count;
    const char **metadata; /* of the header: pairs, NULL at the end */
    char numbers[2][32];   /* texts among them */
    struct checksum crc;
    struct output output;
};

static int rank_file_no_memory(struct muster_error *err)
{
    return error_set(err, MUSTER_E_NOMEM, "no memory to write a checkpoint");
}

/* Ranks that hold the same elements share the work. */
static void share(const struct trainer_part *part, int64_t *first, int64_t *count)
{
    int64_t begin = part->count * part->copy / part->copies,
            end = part->count * (part->copy + 1) / part->copies;
    *first = part->first + begin;
    *count = end - begin;
}

static int add_run(struct rank_file *f, int param, enum trainer_tensor tensor, struct muster_error *err)
{
    struct run run = {.crc = {0}};
    if (!trainer_part(f->trainer, param, tensor, &run.part))
        return 0;
    share(&run.part, &run.first, &run.count);
    if (!run.count)
        return 0;
    scope_free char *name =
        mem_printf("%s/%s", manifest_tensor_name(tensor), trainer_model(f->trainer)->params[param].name);
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

/* Of each run: its checksums, of which `known` says whether they have their values yet. The length of the
 * texts is the same. */
static int put_checksums(struct run *run)
{
    int64_t bytes = run->count * dtype_size(run->part.dtype);
    (void)buffer_printf(&run->crc, "%lld ", (long long)run->first);
    for (int64_t done = 0; done < bytes; done += MANIFEST_CHUNK)
        (void)manifest_put_crc(&run->crc, 0);
    return run->crc.failed ? -1 : 0;
}

static int open_runs(struct rank_file *f, int rank, struct muster_error *err)
{
    const int most = trainer_model(f->trainer)->param_count * TRAINER_TENSOR_COUNT;
    f->runs = mem_calloc((size_t)most + 1, sizeof *f->runs);
    f->metadata = mem_calloc(2 * ((size_t)most + 2) + 1, sizeof *f->metadata);
    if (!f->runs || !f->metadata)
        return rank_file_no_memory(err);
    for (int param = 0; param < trainer_model(f->trainer)->param_count; param++)
        for (int tensor = 0; tensor < TRAINER_TENSOR_COUNT; tensor++)
            if (add_run(f, param, (enum trainer_tensor)tensor, err) < 0)
                return -1;
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

static void close_file(struct rank_file *f)
{
    for (int i = 0; i < f->count; i++)
        buffer_free(&f->runs[i].crc);
    mem_free(f->runs);
    mem_free((void *)f->metadata);
    tensors_free(&f->tensors);
    output_close(&f->output);
}

/* ---- writing ---- */

/* Small tensors of the file go out together: a write each would cost more than the bytes. */
enum { STAGE = 4 * MANIFEST_CHUNK };
struct stage {
    char *data;
    int64_t used, at; /* at: in the file */
};

static int flush(struct rank_file *f, struct stage *stage, struct muster_error *err)
{
    int result = stage->used ? output_write(&f->output, stage->at, stage->data, stage->used, err) : 0;
    stage->at += stage->used;
    stage->used = 0;
    return result;
}

static int write_run(struct rank_file *f, struct run *run, struct stage *stage, struct muster_error *err)
{
    const int64_t size = dtype_size(run->part.dtype), chunk = MANIFEST_CHUNK / size;
    size_t digits = strcspn(run->crc.data, " ") + 1;
    for (int64_t done = 0; done < run->count; done += chunk, digits += 8) {
        int64_t count = run->count - done < chunk ? run->count - done : chunk;
        char text[16];
        if (stage->used + count * size > STAGE && flush(f, stage, err) < 0)
            return -1;
        char *to = stage->data + stage->used;
        if (trainer_read_part(f->trainer, &run->part, run->first + done, count, to, err) < 0)
            return -1;
        (void)snprintf(text, sizeof text, "%08x", checksum_add(&f->crc, 0, to, count * size)); /* fits */
        memcpy(run->crc.data + digits, text, 8);
        stage->used += count * size;
    }
    return 0;
}

static int write_runs(struct rank_file *f, int64_t header, struct muster_error *err)
{
    scope_free char *data = mem_calloc(STAGE, 1);
    struct stage stage = {.data = data, .at = header};
    if (!data)
        return rank_file_no_memory(err);
    for (int i = 0; i < f->count; i++)
        if (write_run(f, &f->runs[i], &stage, err) < 0)
            return -1;
    return flush(f, &stage, err);
}

static int write_file(struct rank_file *f, const char *path, int64_t *bytes, struct muster_error *err)
{
    scope_buffer before = {0}, header = {0};
    *bytes = safetensors_format(f->tensors.item, f->count, f->metadata, &before, err);
    if (*bytes < 0 || output_open(&f->output, path, err) < 0 ||
        write_runs(f, (int64_t)before.length, err) < 0)
        return -1;
    if (safetensors_format(f->tensors.item, f->count, f->metadata, &header, err) < 0 ||
        output_write(&f->output, 0, header.data, (int64_t)header.length, err) < 0)
        return -1;
    return output_sync(&f->output, err) || output_place(&f->output, err) ? -1 : 0;
}

int rank_file_write(struct trainer *trainer, const char *folder, int rank, int64_t *bytes,
                    struct muster_error *err)
{
    struct rank_file f = {.trainer = trainer, .output = {.fd = -1}};
    scope_free char *name = folder_rank_name(rank), *path = name ? mem_printf("%s/%s", folder, name) : NULL;
    checksum_make(&f.crc, true);
    int result = path ? open_runs(&f, rank, err) : rank_file_no_memory(err);
    if (!result)
        result = write_file(&f, path, bytes, err);
    close_file(&f);
    return result;
}

/* ---- headers of files ---- */

/* A file's size, and the bytes before its first tensor. */
static int read_header(const char *path, struct buffer *out, int64_t *bytes, struct muster_error *err)
{
    char start[SAFETENSORS_LENGTH];
    struct stat status;
    scope_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &status) < 0)
        return error_errno(err, "cannot read %s", path);
    *bytes = status.st_size;
    int64_t length = pread(fd, start, sizeof start, 0) == (ssize_t)sizeof start
                         ? safetensors_header_length(path, start, *bytes, err)
                         : error_set(err, MUSTER_E_INVALID, "%s is damaged: it is cut off", path);
    if (length < 0)
        return -1;
    size_t want = sizeof start + (size_t)length;
    char *to = buffer_reserve(out, want);
    if (!to)
        return rank_file_no_memory(err);
    if (pread(fd, to, want, 0) != (ssize_t)want)
        return error_set(err, MUSTER_E_INVALID, "%s is damaged: it is cut off", path);
    out->length += want;
    return 0;
}

static int find_param(const struct model *model, const char *name)
{
    for (int i = 0; i < model->param_count; i++)
        if (!strcmp(model->params[i].name, name))
            return i;
    return -1;
}

/* "moment1/wte.weight" with "4096 0a1b..." */
static int describe_tensor(const struct model *model, const struct file_tensor *tensor, const char *text,
                           int file, struct manifest_writer *writer)
{
    struct manifest_slice slice = {
        .count = tensor->dim[0], .file = file, .offset = tensor->offset, .dtype = tensor->dtype};
    const char *space = text ? strchr(text, ' ') : NULL, *slash = strchr(tensor->name, '/');
    scope_free char *first = space ? mem_strndup(text, (size_t)(space - text)) : NULL;
    if (!first || !slash || !text_int64(first, &slice.first))
        return -1;
    slice.param = find_param(model, slash + 1);
    slice.tensor = TRAINER_TENSOR_COUNT;
    for (int i = 0; i < TRAINER_TENSOR_COUNT; i++) {
        const char *name = manifest_tensor_name((enum trainer_tensor)i);
        if (strlen(name) == (size_t)(slash - tensor->name) && !strncmp(name, tensor->name, strlen(name)))
            slice.tensor = (enum trainer_tensor)i;
    }
    slice.crc = space + 1;
    if (slice.param < 0 || slice.tensor == TRAINER_TENSOR_COUNT)
        return -1;
    manifest_add_slice(writer, &slice);
    return 0;
}

static int describe_tensors(const struct model *model, const char *path, const struct buffer *header,
                            int64_t bytes, int rank, struct manifest_writer *writer, struct muster_error *err)
{
    const char *json = header->data + SAFETENSORS_LENGTH;
    const size_t length = header->length - SAFETENSORS_LENGTH;
    struct file_tensors tensors = {0};
    GUARD(guard_json) json_t *root = json_text_parse(path, json, length, err);
    int result = root ? safetensors_parse(path, json, length, bytes, rank, &tensors, err) : -1;
    for (int i = 0; !result && i < tensors.count; i++) {
        const json_t *text = json_object_get(json_object_get(root, "__metadata__"), tensors.item[i].name);
        if (describe_tensor(model, &tensors.item[i], json_string_value(text), rank, writer) < 0)
            result = error_set(err, MUSTER_E_INVALID, "%s is damaged: tensor '%s' has no checksums", path,
                               tensors.item[i].name);
    }
    tensors_free(&tensors);
    return result;
}

int rank_file_describe(const struct model *model, const char *folder, int rank,
                       struct manifest_writer *writer, struct muster_error *err)
{
    scope_buffer header = {0};
    struct manifest_file file = {0};
    scope_free char *name = folder_rank_name(rank), *path = name ? mem_printf("%s/%s", folder, name) : NULL;
    if (!path)
        return rank_file_no_memory(err);
    if (read_header(path, &header, &file.bytes, err) < 0)
        return error_wrap(err,
                          "the file of rank %d (training.checkpoint_dir has to be one folder that all nodes "
                          "share)",
                          rank);
    file.name = name;
    file.header = (int64_t)header.length;
    file.header_crc = checksum_add(&writer->crc, 0, header.data, file.header);
    manifest_add_file(writer, &file);
    return describe_tensors(model, path, &header, file.bytes, rank, writer, err);
}

int rank_file_check(const char *folder, const struct manifest_file *file, bool header,
                    struct muster_error *err)
{
    scope_free char *path = mem_printf("%s/%s", folder, file->name);
    scope_buffer text = {0};
    struct stat status;
    struct checksum crc;
    int64_t bytes;
    if (!path)
        return rank_file_no_memory(err);
    if (stat(path, &status) < 0)
        return error_errno(err, "%s is missing", path);
    if (status.st_size != file->bytes)
        return error_set(err, MUSTER_E_INVALID, "%s is damaged: it has %lld bytes, and was written with %lld",
                         path, (long long)status.st_size, (long long)file->bytes);
    if (!header)
        return 0;
    if (read_header(path, &text, &bytes, err) < 0)
        return -1;
    checksum_make(&crc, true);
    if ((int64_t)text.length != file->header ||
        checksum_add(&crc, 0, text.data, file->header) != file->header_crc)
        return error_set(err, MUSTER_E_INVALID, "%s is damaged: its header's checksum differs", path);
    return 0;
}
