/* safetensors.c - see safetensors.h. */
#include "runtime/model/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"

struct safetensors_writer {
    char *path, *beside;
    int fd, count, next;
    int64_t *bytes; /* of each tensor */
};

static const char *format_name(enum dtype dtype)
{
    switch (dtype) {
    case DTYPE_F32:
        return "F32";
    case DTYPE_F64:
        return "F64";
    case DTYPE_BF16:
        return "BF16";
    case DTYPE_F16:
        return "F16";
    case DTYPE_I32:
        return "I32";
    case DTYPE_U8:
        return "U8";
    default:
        return NULL;
    }
}

static int64_t tensor_bytes(const struct safetensors_tensor *tensor)
{
    int64_t bytes = dtype_size(tensor->dtype);
    for (int i = 0; i < tensor->ndim; i++)
        bytes *= tensor->dim[i];
    return bytes;
}

static void header_tensor(struct buffer *out, const struct safetensors_tensor *tensor, int64_t from,
                          int64_t to)
{
    buffer_json_string(out, tensor->name);
    buffer_printf(out, ":{\"dtype\":\"%s\",\"shape\":[", format_name(tensor->dtype));
    for (int i = 0; i < tensor->ndim; i++)
        buffer_printf(out, "%s%lld", i ? "," : "", (long long)tensor->dim[i]);
    buffer_printf(out, "],\"data_offsets\":[%lld,%lld]}", (long long)from, (long long)to);
}

static int write_header(struct safetensors_writer *w, const struct safetensors_tensor *tensors,
                        const char *const *metadata, struct muster_error *err)
{
    scope_buffer header = {0};
    buffer_text(&header, "{");
    if (metadata && metadata[0]) {
        buffer_text(&header, "\"__metadata__\":{");
        for (int i = 0; metadata[i]; i += 2) {
            buffer_text(&header, i ? "," : "");
            buffer_json_string(&header, metadata[i]);
            buffer_text(&header, ":");
            buffer_json_string(&header, metadata[i + 1]);
        }
        buffer_text(&header, w->count ? "}," : "}");
    }
    int64_t offset = 0;
    for (int i = 0; i < w->count; i++) {
        if (i)
            buffer_text(&header, ",");
        header_tensor(&header, &tensors[i], offset, offset + w->bytes[i]);
        offset += w->bytes[i];
    }
    buffer_text(&header, "}");
    while (!header.failed && header.length % 8) /* tensors start aligned */
        buffer_text(&header, " ");
    if (header.failed)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the header of %s", w->path);
    unsigned char length[8];
    for (int i = 0; i < 8; i++)
        length[i] = (unsigned char)((uint64_t)header.length >> (8 * i));
    if (io_write_all(w->fd, length, sizeof length, w->beside, err) < 0)
        return -1;
    return io_write_all(w->fd, header.data, header.length, w->beside, err);
}

static char *path_beside(const char *path)
{
    return mem_printf("%s.new.%d", path, (int)getpid());
}

static int open_beside(const char *beside, struct muster_error *err)
{
    int fd = open(beside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    return fd < 0 ? error_errno(err, "cannot create %s", beside) : fd;
}

int safetensors_probe(const char *path, struct muster_error *err)
{
    struct stat status;
    scope_free char *beside = path_beside(path);
    if (!beside)
        return error_set(err, MUSTER_E_NOMEM, "no memory to check %s", path);
    if (!stat(path, &status) && S_ISDIR(status.st_mode))
        return error_set(err, MUSTER_E_INVALID, "cannot write %s: it is a folder; name a file in it", path);
    scope_close int fd = open_beside(beside, err);
    if (fd < 0)
        return -1;
    if (unlink(beside))
        return error_errno(err, "cannot remove %s", beside);
    return 0;
}

struct safetensors_writer *safetensors_create(const char *path, const struct safetensors_tensor *tensors,
                                              int count, const char *const *metadata,
                                              struct muster_error *err)
{
    struct safetensors_writer *w = mem_calloc(1, sizeof *w);
    if (!w) {
        error_set(err, MUSTER_E_NOMEM, "no memory to write %s", path);
        return NULL;
    }
    w->fd = -1;
    w->count = count;
    w->path = mem_strdup(path);
    w->beside = path_beside(path);
    w->bytes = mem_calloc((size_t)count, sizeof *w->bytes);
    int result = 0;
    if (!w->path || !w->beside || !w->bytes)
        result = error_set(err, MUSTER_E_NOMEM, "no memory to write %s", path);
    for (int i = 0; !result && i < count; i++) {
        w->bytes[i] = tensor_bytes(&tensors[i]);
        if (!format_name(tensors[i].dtype))
            result = error_set(err, MUSTER_E_UNSUPPORTED,
                               "%s: tensor %s has a type that safetensors does not support", path,
                               tensors[i].name);
    }
    if (!result && (w->fd = open_beside(w->beside, err)) < 0)
        result = -1;
    if (!result)
        result = write_header(w, tensors, metadata, err);
    if (result < 0) {
        safetensors_destroy(w);
        return NULL;
    }
    return w;
}

int safetensors_write(struct safetensors_writer *w, const void *data, int64_t bytes, struct muster_error *err)
{
    if (w->next >= w->count || w->bytes[w->next] != bytes)
        return error_set(err, MUSTER_E_INVALID, "%s: tensor %d of %d was announced with %lld bytes, not %lld",
                         w->path, w->next, w->count, w->next < w->count ? (long long)w->bytes[w->next] : 0LL,
                         (long long)bytes);
    if (io_write_all(w->fd, data, (size_t)bytes, w->beside, err) < 0)
        return -1;
    w->next++;
    return 0;
}

int safetensors_finish(struct safetensors_writer *w, struct muster_error *err)
{
    int result = 0;
    if (w->next != w->count)
        result =
            error_set(err, MUSTER_E_STATE, "%s: %d of %d tensors were written", w->path, w->next, w->count);
    else if (fsync(w->fd) < 0 || rename(w->beside, w->path) < 0)
        result = error_errno(err, "cannot put %s in place", w->path);
    else
        mem_free(take_pointer(&w->beside)); /* renamed: nothing to remove */
    safetensors_destroy(w);
    return result;
}

void safetensors_destroy(struct safetensors_writer *w)
{
    if (!w)
        return;
    if (w->fd >= 0) {
        (void)close(w->fd);
        if (w->beside)
            (void)unlink(w->beside);
    }
    mem_free(w->path);
    mem_free(w->beside);
    mem_free(w->bytes);
    mem_free(w);
}
