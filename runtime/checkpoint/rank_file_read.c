/* rank_file_read.c - rank_file.h: reads headers of written files. */
#include "runtime/checkpoint/rank_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/text.h"
#include "proto/json/json_text.h"
#include "runtime/checkpoint/folder.h"
#include "runtime/files/safetensors.h"

static int rank_file_no_memory(struct muster_error *err)
{
    return error_set(err, MUSTER_E_NOMEM, "no memory to read the header of a checkpoint's file");
}

/* Reads a file's start until `out` has `bytes` bytes. */
static int read_up_to(int fd, const char *path, size_t bytes, struct buffer *out, struct muster_error *err)
{
    if (bytes <= out->length)
        return 0;
    const size_t more = bytes - out->length;
    char *to = buffer_reserve(out, more);
    if (!to)
        return rank_file_no_memory(err);
    for (size_t done = 0; done < more;) {
        const ssize_t got = pread(fd, to + done, more - done, (off_t)(out->length + done));
        if (got < 0 && errno != EINTR)
            return error_errno(err, "cannot read %s", path);
        if (!got)
            return error_set(err, MUSTER_E_INVALID, "%s is damaged: it is cut off", path);
        done += got > 0 ? (size_t)got : 0;
    }
    out->length += more;
    return 0;
}

/* Reads a file's size, and the bytes before its first tensor, probably `likely` bytes. The file was written
 * past the page cache: no byte after them is read. */
static int read_header(const char *path, size_t likely, struct buffer *out, int64_t *bytes,
                       struct muster_error *err)
{
    struct stat status;
    scope_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &status) < 0)
        return error_errno(err, "cannot read %s", path);
    *bytes = status.st_size;
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM); /* a hint */
    const size_t first =
        likely > SAFETENSORS_LENGTH && (int64_t)likely <= *bytes ? likely : SAFETENSORS_LENGTH;
    if (read_up_to(fd, path, first, out, err) < 0)
        return -1;
    const int64_t length = safetensors_header_length(path, out->data, *bytes, err);
    if (length < 0 || read_up_to(fd, path, SAFETENSORS_LENGTH + (size_t)length, out, err) < 0)
        return -1;
    out->length = SAFETENSORS_LENGTH + (size_t)length;
    return 0;
}

static int find_param(const struct model *model, const char *name)
{
    for (int i = 0; i < model->param_count; i++)
        if (!strcmp(model->params[i].name, name))
            return i;
    return -1;
}

/* "moment1", or "feedback.2" with the replica's number. */
static enum trainer_tensor find_tensor(const char *text, size_t length, int *replica)
{
    for (int i = 0; i < TRAINER_TENSOR_COUNT; i++) {
        const char *name = manifest_tensor_name((enum trainer_tensor)i);
        const size_t own = strlen(name);
        if (strncmp(name, text, own < length ? own : length) != 0)
            continue;
        if (i != TRAINER_FEEDBACK && own == length)
            return (enum trainer_tensor)i;
        scope_free char *number =
            i == TRAINER_FEEDBACK && length > own + 1 ? mem_strndup(text + own + 1, length - own - 1) : NULL;
        int64_t value;
        if (number && text[own] == '.' && text_int64(number, &value) && value >= 0 && value <= INT_MAX) {
            *replica = (int)value;
            return TRAINER_FEEDBACK;
        }
    }
    return TRAINER_TENSOR_COUNT;
}

/* "moment1/wte.weight" with "4096 0a1b..." */
static int describe_tensor(const struct model *model, const struct file_tensor *tensor, const char *text,
                           int file, struct manifest_slice *out)
{
    struct manifest_slice slice = {
        .count = tensor->dim[0], .file = file, .offset = tensor->offset, .dtype = tensor->dtype};
    const char *space = text ? strchr(text, ' ') : NULL, *slash = strchr(tensor->name, '/');
    scope_free char *first = space ? mem_strndup(text, (size_t)(space - text)) : NULL;
    if (!first || !slash || !text_int64(first, &slice.first))
        return -1;
    slice.param = find_param(model, slash + 1);
    slice.tensor = find_tensor(tensor->name, (size_t)(slash - tensor->name), &slice.replica);
    slice.crc = space + 1;
    if (slice.param < 0 || slice.tensor == TRAINER_TENSOR_COUNT)
        return -1;
    *out = slice;
    return 0;
}

/* Notes the place of the digits of the slice in the writer's last row. If they are not found, the next header
 * is parsed as JSON too. */
static void learn(struct rank_header *known, const struct buffer *header, const struct file_tensor *tensor,
                  const char *text, const char *crc)
{
    struct rank_header_digits *digits = &known->digits[known->count];
    const struct rank_header_digits *before = known->count ? digits - 1 : NULL;
    const int64_t value =
        rank_header_find(header, before ? before->at + before->count : 0, tensor->name, text);
    if (value < 0) {
        rank_header_clear(known);
        return;
    }
    *digits = (struct rank_header_digits){.at = value + (crc - text), .count = (int64_t)strlen(crc)};
    known->count++;
}

/* Keeps the whole text, and makes room for the digits' places. */
static void begin_learning(struct rank_header *known, const struct buffer *header, int64_t bytes, int count)
{
    rank_header_clear(known);
    known->bytes = bytes;
    known->digits = count ? mem_calloc((size_t)count, sizeof *known->digits) : NULL;
    if (!known->digits || buffer_append(&known->text, header->data, header->length) < 0)
        rank_header_clear(known);
}

/* Keeps the rows of the slices, which are the writer's last rows. */
static void keep_rows(struct rank_header *known, const struct buffer *rows, size_t from)
{
    const size_t before = strlen(MANIFEST_ROW_CRC);
    int failed = rows->failed || buffer_append(&known->rows, rows->data + from, rows->length - from) < 0;
    const char *row = known->rows.data;
    for (int i = 0; !failed && i < known->count; i++) {
        const char *crc = strstr(row, MANIFEST_ROW_CRC);
        failed = !crc;
        if (failed)
            break;
        known->digits[i].in_rows = crc + before - known->rows.data;
        row = crc + before + known->digits[i].count;
    }
    if (failed)
        rank_header_clear(known);
}

static int describe_tensors(const struct model *model, const char *path, const struct buffer *header,
                            int64_t bytes, int rank, struct rank_header *known,
                            struct manifest_writer *writer, struct muster_error *err)
{
    const char *json = header->data + SAFETENSORS_LENGTH;
    const size_t length = header->length - SAFETENSORS_LENGTH, rows = writer->slices.length;
    struct file_tensors tensors = {0};
    GUARD(guard_json) json_t *root = json_text_parse(path, json, length, err);
    int result = root ? safetensors_parse(path, json, length, bytes, rank, &tensors, err) : -1;
    if (!result && known)
        begin_learning(known, header, bytes, tensors.count);
    for (int i = 0; !result && i < tensors.count; i++) {
        const json_t *value = json_object_get(json_object_get(root, "__metadata__"), tensors.item[i].name);
        const char *text = json_string_value(value);
        struct manifest_slice slice;
        if (describe_tensor(model, &tensors.item[i], text, rank, &slice) < 0) {
            result = error_set(err, MUSTER_E_INVALID, "%s is damaged: tensor '%s' has no checksums", path,
                               tensors.item[i].name);
            break;
        }
        manifest_add_slice(writer, &slice);
        if (known && known->digits)
            learn(known, header, &tensors.item[i], text, slice.crc);
    }
    if (!result && known && known->count)
        keep_rows(known, &writer->slices, rows);
    tensors_free(&tensors);
    return result;
}

/* Writes the known rows with the digits of this header. */
static void describe_known(struct rank_header *known, const struct buffer *header,
                           struct manifest_writer *writer)
{
    for (int i = 0; i < known->count; i++) {
        const struct rank_header_digits *digits = &known->digits[i];
        memcpy(known->rows.data + digits->in_rows, header->data + digits->at, (size_t)digits->count);
    }
    (void)buffer_append(&writer->slices, known->rows.data, known->rows.length); /* keeps its failure */
}

int rank_file_describe(const struct model *model, const char *folder, int rank, struct rank_header *known,
                       struct manifest_writer *writer, struct muster_error *err)
{
    scope_buffer header = {0};
    struct manifest_file file = {0};
    scope_free char *name = folder_rank_name(rank), *path = name ? mem_printf("%s/%s", folder, name) : NULL;
    if (!path)
        return rank_file_no_memory(err);
    if (read_header(path, known ? known->text.length : 0, &header, &file.bytes, err) < 0)
        return error_wrap(err,
                          "the file of rank %d (training.checkpoint_dir has to be one folder that all nodes "
                          "share)",
                          rank);
    file.name = name;
    file.header = (int64_t)header.length;
    file.header_crc = checksum_add(&writer->crc, 0, header.data, file.header);
    manifest_add_file(writer, &file);
    if (known && rank_header_same(known, &header, file.bytes)) {
        describe_known(known, &header, writer);
        return 0;
    }
    int result = describe_tensors(model, path, &header, file.bytes, rank, known, writer, err);
    if (known && result < 0)
        rank_header_clear(known);
    return result;
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
        return errno == ENOENT ? error_set(err, MUSTER_E_NOT_FOUND, "%s is missing", path)
                               : error_errno(err, "cannot read %s", path);
    if (status.st_size != file->bytes)
        return error_set(err, MUSTER_E_INVALID, "%s is damaged: it has %lld bytes, and was written with %lld",
                         path, (long long)status.st_size, (long long)file->bytes);
    if (!header)
        return 0;
    if (read_header(path, (size_t)file->header, &text, &bytes, err) < 0)
        return -1;
    checksum_make(&crc, true);
    if ((int64_t)text.length != file->header ||
        checksum_add(&crc, 0, text.data, file->header) != file->header_crc)
        return error_set(err, MUSTER_E_INVALID, "%s is damaged: its header's checksum differs", path);
    return 0;
}
