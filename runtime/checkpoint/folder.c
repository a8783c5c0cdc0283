/* folder.c - see folder.h. */
#include "runtime/checkpoint/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "proto/base/text.h"
#include "runtime/checkpoint/disk_file.h"

static const char prefix[] = "step-";

static void close_dir(DIR *dir)
{
    if (dir)
        (void)closedir(dir); /* it was only read */
}
GUARD_DEFINE(dir, DIR *, close_dir);

/* ---- names ---- */

char *folder_step_path(const char *folder, int64_t step)
{
    return mem_printf("%s/%s%lld", folder, prefix, (long long)step);
}

char *folder_new_path(const char *folder, int64_t step)
{
    return mem_printf("%s/.%s%lld.new", folder, prefix, (long long)step);
}

static char *old_path(const char *folder, int64_t step)
{
    return mem_printf("%s/.%s%lld.old", folder, prefix, (long long)step);
}

char *folder_rank_name(int rank)
{
    return mem_printf("rank-%d.safetensors", rank);
}

int64_t folder_parse_step(const char *name)
{
    int64_t step;
    const char *digits = name + strlen(prefix);
    if (strncmp(name, prefix, strlen(prefix)) != 0 || *digits < '0' || *digits > '9' ||
        (*digits == '0' && digits[1]) || !text_int64(digits, &step))
        return -1;
    return step;
}

static char *spare_path(const char *folder)
{
    return mem_printf("%s/.spare", folder);
}

static int no_path(struct muster_error *err)
{
    return error_set(err, MUSTER_E_NOMEM, "no memory for the path of a checkpoint");
}

/* ---- reading ---- */

static int newest_first(const void *a, const void *b)
{
    int64_t first = *(const int64_t *)a, second = *(const int64_t *)b;
    return first < second ? 1 : first > second ? -1 : 0;
}

int folder_list(const char *folder, int64_t **steps, struct muster_error *err)
{
    GUARD(guard_dir) DIR *dir = opendir(folder);
    scope_free int64_t *found = NULL;
    int count = 0, room = 0;
    *steps = NULL;
    if (!dir)
        return errno == ENOENT ? 0 : error_errno(err, "cannot read folder %s", folder);
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(dir);
        if (!entry && errno)
            return error_errno(err, "cannot read folder %s", folder);
        if (!entry)
            break;
        int64_t step = folder_parse_step(entry->d_name);
        if (step < 0)
            continue;
        if (count == room) {
            int64_t *more = mem_realloc(found, (size_t)(room = room ? 2 * room : 16), sizeof *more);
            if (!more)
                return no_path(err);
            found = more;
        }
        found[count++] = step;
    }
    if (count)
        qsort(found, (size_t)count, sizeof *found, newest_first);
    *steps = take_pointer(&found);
    return count;
}

/* ---- removing ---- */

/* Removes a folder of files; a missing folder or file is no error. */
static int remove_tree(const char *path, struct muster_error *err)
{
    GUARD(guard_dir) DIR *dir = opendir(path);
    const struct dirent *entry;
    if (!dir)
        return errno == ENOENT ? 0 : error_errno(err, "cannot read %s", path);
    while ((entry = readdir(dir))) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
            continue;
        if (unlinkat(dirfd(dir), entry->d_name, 0) < 0 && errno != ENOENT)
            return error_errno(err, "cannot remove %s/%s", path, entry->d_name);
    }
    return rmdir(path) < 0 && errno != ENOENT ? error_errno(err, "cannot remove %s", path) : 0;
}

/* Hides step-N and then removes it; 0 if it does not exist. */
static int hide(const char *folder, int64_t step, const char *hidden, struct muster_error *err)
{
    scope_free char *path = folder_step_path(folder, step);
    if (!path)
        return no_path(err);
    if (remove_tree(hidden, err) < 0)
        return -1;
    return rename(path, hidden) < 0 && errno != ENOENT ? error_errno(err, "cannot rename %s", path) : 0;
}

int folder_remove(const char *folder, int64_t step, struct muster_error *err)
{
    scope_free char *hidden = old_path(folder, step);
    if (!hidden)
        return no_path(err);
    return hide(folder, step, hidden, err) < 0 ? -1 : remove_tree(hidden, err);
}

int folder_retain(const char *folder, int64_t step, struct muster_error *err)
{
    scope_free char *from = folder_step_path(folder, step), *to = spare_path(folder);
    if (!from || !to)
        return no_path(err);
    /* a spare folder that exists already has files, and stays */
    return rename(from, to) < 0 ? folder_remove(folder, step, err) : 0;
}

void folder_drop_spare(const char *folder)
{
    scope_free char *path = spare_path(folder);
    if (path)
        (void)remove_tree(path, NULL); /* the next run uses the remaining files */
}

void folder_clean(const char *folder, int64_t step)
{
    GUARD(guard_dir) DIR *dir = opendir(folder);
    scope_free char *kept = folder_new_path(folder, step);
    const struct dirent *entry;
    while (dir && (entry = readdir(dir))) {
        const char *name = entry->d_name, *end = strrchr(name, '.');
        if (strncmp(name, ".step-", 6) != 0 || (strcmp(end, ".new") != 0 && strcmp(end, ".old") != 0))
            continue;
        scope_free char *path = mem_printf("%s/%s", folder, name);
        if (path && kept && strcmp(path, kept) != 0)
            (void)remove_tree(path, NULL); /* it is tried again at the next checkpoint */
    }
}

/* ---- a commit ---- */

int folder_sync(const char *path, struct muster_error *err)
{
    scope_close int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 || fsync(fd) < 0 ? error_errno(err, "cannot sync folder %s", path) : 0;
}

int folder_make_new(const char *folder, int64_t step, struct muster_error *err)
{
    scope_free char *path = folder_new_path(folder, step), *spare = spare_path(folder);
    if (!path || !spare)
        return no_path(err);
    /* the rename fails if there is no spare folder, or another rank has put a file into the new folder */
    if (!rename(spare, path) || !mkdir(path, 0777) || errno == EEXIST)
        return 0;
    if (io_make_directories(folder, 0777, err) < 0)
        return -1;
    return mkdir(path, 0777) < 0 && errno != EEXIST ? error_errno(err, "cannot create folder %s", path) : 0;
}

/* Whether a name is "rank-3.safetensors" with a rank below `ranks`. */
static bool is_rank_file(const char *name, int ranks)
{
    int64_t rank;
    const size_t length = strcspn(name, ".");
    scope_free char *digits =
        !strncmp(name, "rank-", 5) && length > 5 ? mem_strndup(name + 5, length - 5) : NULL;
    if (!digits || !text_int64(digits, &rank) || rank < 0 || rank >= ranks)
        return false;
    scope_free char *whole = folder_rank_name((int)rank);
    return whole && !strcmp(whole, name);
}

int folder_clear_new(const char *folder, int64_t step, int ranks, struct muster_error *err)
{
    scope_free char *path = folder_new_path(folder, step);
    GUARD(guard_dir) DIR *dir = path ? opendir(path) : NULL;
    const struct dirent *entry;
    if (!path)
        return no_path(err);
    if (!dir)
        return error_errno(err, "cannot read %s", path);
    while ((entry = readdir(dir)))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
            strcmp(entry->d_name, MANIFEST_NAME) != 0 && !is_rank_file(entry->d_name, ranks) &&
            unlinkat(dirfd(dir), entry->d_name, 0) < 0)
            return error_errno(err, "cannot remove %s/%s", path, entry->d_name);
    return 0;
}

int folder_drop_new(const char *folder, int64_t step, struct muster_error *err)
{
    scope_free char *path = folder_new_path(folder, step);
    return path ? remove_tree(path, err) : no_path(err);
}

int folder_write(const char *path, const void *data, size_t length, struct muster_error *err)
{
    scope_close int fd = disk_file_open(path, -1, 0);
    if (fd < 0)
        return error_errno(err, "cannot create %s", path);
    if (io_write_all(fd, data, length, path, err) < 0)
        return -1;
    return ftruncate(fd, (off_t)length) < 0 || fdatasync(fd) < 0 ? error_errno(err, "cannot write %s", path)
                                                                 : 0;
}

int folder_retire(const char *folder, int64_t step, struct muster_error *err)
{
    scope_free char *hidden = old_path(folder, step);
    return hidden ? hide(folder, step, hidden, err) : no_path(err);
}

int folder_drop_retired(const char *folder, int64_t step, struct muster_error *err)
{
    scope_free char *hidden = old_path(folder, step);
    return hidden ? remove_tree(hidden, err) : no_path(err);
}

int folder_place(const char *folder, int64_t step, struct muster_error *err)
{
    scope_free char *from = folder_new_path(folder, step), *to = folder_step_path(folder, step);
    if (!from || !to)
        return no_path(err);
    return rename(from, to) < 0 ? error_errno(err, "cannot rename %s to %s", from, to) : 0;
}

int folder_probe(const char *folder, struct muster_error *err)
{
    scope_free char *path = mem_printf("%s/.step-0.%d.new", folder, (int)getpid());
    if (!path)
        return no_path(err);
    if (io_make_directories(folder, 0777, err) < 0)
        return -1;
    scope_close int fd = io_create_new(path, O_WRONLY, 0666);
    if (fd < 0 && (errno == ENOSPC || errno == EDQUOT)) /* the first checkpoint makes room (save.c) */
        return 0;
    if (fd < 0)
        return error_errno(err, "cannot write checkpoints in folder %s", folder);
    return unlink(path) < 0 && errno != ENOENT ? error_errno(err, "cannot remove %s", path) : 0;
}
