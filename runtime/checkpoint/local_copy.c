/* local_copy.c - see local_copy.h. */
#include "runtime/checkpoint/local_copy.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "proto/json/json_text.h"
#include "runtime/checkpoint/folder.h"

char *local_copy_path(const char *dir, int64_t step, int rank, struct muster_error *err)
{
    scope_free char *folder = folder_step_path(dir, step), *name = folder_rank_name(rank),
                    *path = folder && name ? mem_printf("%s/%s", folder, name) : NULL;
    if (!path) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for the path of a checkpoint's copy");
        return NULL;
    }
    return io_make_directories(folder, 0777, err) < 0 ? NULL : take_pointer(&path);
}

/* ---- the manifest ---- */

static char *manifest_path(const char *folder, int64_t step)
{
    scope_free char *of_step = folder_step_path(folder, step);
    return of_step ? mem_printf("%s/%s", of_step, MANIFEST_NAME) : NULL;
}

static int stamp_of(const char *folder, int64_t step, struct manifest_stamp *stamp, struct muster_error *err)
{
    scope_free char *path = manifest_path(folder, step);
    struct stat status;
    *stamp = (struct manifest_stamp){0};
    if (!path)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the path of a checkpoint's copy");
    if (stat(path, &status) < 0)
        return errno == ENOENT || errno == ENOTDIR ? 0 : error_errno(err, "cannot read %s", path);
    *stamp = (struct manifest_stamp){status.st_size, status.st_mtim.tv_sec, status.st_mtim.tv_nsec};
    return 0;
}

struct manifest_stamp local_copy_stamp(const char *folder, int64_t step)
{
    struct manifest_stamp stamp;
    (void)stamp_of(folder, step, &stamp, NULL); /* zeros */
    return stamp;
}

int local_copy_has(const char *dir, int64_t step, struct manifest_stamp stamp, struct muster_error *err)
{
    struct manifest_stamp copy;
    if (stamp_of(dir, step, &copy, err) < 0)
        return -1;
    return stamp.bytes && copy.bytes == stamp.bytes && copy.seconds == stamp.seconds &&
           copy.nanoseconds == stamp.nanoseconds;
}

/* Copies the bytes and the time. Several ranks of a node may do it at once, with the same result. */
int local_copy_manifest(const char *dir, const char *shared, int64_t step, struct muster_error *err)
{
    scope_free char *from = manifest_path(shared, step), *to = manifest_path(dir, step);
    scope_buffer text = {0};
    if (!from || !to)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the path of a checkpoint's copy");
    const struct manifest_stamp stamp = local_copy_stamp(shared, step);
    const struct timespec times[2] = {{.tv_nsec = UTIME_NOW}, {stamp.seconds, stamp.nanoseconds}};
    if (local_copy_has(dir, step, stamp, NULL) > 0)
        return 0;
    if (io_read_file(from, JSON_TEXT_LIMIT, &text, err) < 0 ||
        io_write_file_atomic(to, text.data, text.length, 0666, err) < 0)
        return -1;
    return utimensat(AT_FDCWD, to, times, 0) < 0 ? error_errno(err, "cannot set the time of %s", to) : 0;
}

/* ---- removing ---- */

/* The last rank that removes its copy of a step removes the manifest too. */
static void remove_manifest(const char *dir, int64_t step, const char *folder)
{
    scope_free char *path = manifest_path(dir, step);
    int files = 0;
    DIR *open = opendir(folder);
    const struct dirent *entry;
    while (open && (entry = readdir(open)))
        files += !strncmp(entry->d_name, "rank-", 5);
    if (open)
        (void)closedir(open); /* it was only read */
    if (open && !files && path)
        (void)unlink(path); /* tried again at the next checkpoint */
}

static void remove_copy(const char *dir, int64_t step, int rank)
{
    scope_free char *folder = folder_step_path(dir, step), *name = folder_rank_name(rank),
                    *path = folder && name ? mem_printf("%s/%s", folder, name) : NULL;
    if (!path)
        return;
    (void)unlink(path); /* tried again at the next checkpoint */
    remove_manifest(dir, step, folder);
    (void)rmdir(folder); /* fails while another rank has a file there */
}

void local_copy_prune(const char *dir, int64_t step, int rank, int64_t keep)
{
    scope_free int64_t *steps = NULL;
    int count = folder_list(dir, &steps, NULL); /* newest first */
    int64_t kept = 0;
    for (int i = 0; i < count; i++)
        if (steps[i] != step && (steps[i] > step || kept++ >= keep))
            remove_copy(dir, steps[i], rank);
}
