/* output.c - see output.h. */
#include "runtime/files/output.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"

/* The disk begins to write so many bytes while the next ones are formed: the sync at the end finds little
 * left. */
enum { FLUSH_BYTES = 8 << 20 };

int output_open(struct output *output, const char *path, struct muster_error *err)
{
    *output = (struct output){.path = mem_strdup(path), .fd = -1};
    if (!output->path)
        return error_set(err, MUSTER_E_NOMEM, "no memory to write %s", path);
    output->fd = io_create_beside(path, 0666, &output->beside, err);
    if (output->fd >= 0)
        return 0;
    output_close(output);
    return -1;
}

int output_write(struct output *output, int64_t offset, const void *data, int64_t bytes,
                 struct muster_error *err)
{
    for (int64_t done = 0; done < bytes;) {
        ssize_t put = pwrite(output->fd, (const char *)data + done, (size_t)(bytes - done), offset + done);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return error_errno(err, "cannot write %s", output->beside);
        done += put;
    }
    if (offset + bytes >= output->flushed + FLUSH_BYTES) {
        /* A hint: where the file system does not know it, the sync does all the work. */
        (void)sync_file_range(output->fd, output->flushed, offset + bytes - output->flushed,
                              SYNC_FILE_RANGE_WRITE);
        output->flushed = offset + bytes;
    }
    return 0;
}

int output_sync(struct output *output, struct muster_error *err)
{
    if (fsync(output->fd) < 0 || close(take_fd(&output->fd)) < 0)
        return error_errno(err, "cannot write %s", output->beside);
    return 0;
}

int output_place(struct output *output, struct muster_error *err)
{
    if (rename(output->beside, output->path) < 0)
        return error_errno(err, "cannot put %s in place", output->path);
    mem_free(take_pointer(&output->beside)); /* renamed: nothing to remove */
    return 0;
}

void output_close(struct output *output)
{
    if (output->path && output->fd >= 0)
        (void)close(output->fd);
    if (output->beside && output->path)
        (void)unlink(output->beside);
    mem_free(output->path);
    mem_free(output->beside);
    *output = (struct output){.fd = -1};
}

int output_probe(const char *path, struct muster_error *err)
{
    struct stat status;
    struct output output;
    if (!stat(path, &status) && S_ISDIR(status.st_mode))
        return error_set(err, MUSTER_E_INVALID, "cannot write %s: it is a folder; name a file in it", path);
    if (output_open(&output, path, err))
        return -1;
    output_close(&output);
    return 0;
}
