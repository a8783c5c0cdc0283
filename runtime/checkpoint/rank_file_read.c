/* rank_file_read.c - rank_file.h: headers of files that were written. */
#include "runtime/checkpoint/rank_file.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/text.h"
#include "runtime/checkpoint/folder.h"
#include "runtime/files/json_text.h"
#include "runtime/files/safetensors.h"

static int rank_file_no_memory(struct muster_error *err)
{
    return error_set(err, MUSTER_E_NOMEM, "no memory to read the header of a checkpoint's file");
}

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
