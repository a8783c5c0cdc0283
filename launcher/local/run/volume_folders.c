/* volume_folders.c - see volume_folders.h. */
#include "launcher/local/run/volume_folders.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"

enum { FOLDER_MODE = 0755, SHARED_MODE = 0777 };

static char *no_path(struct muster_error *err)
{
    (void)error_set(err, MUSTER_E_NOMEM, "no memory for a path");
    return NULL;
}

/* The folder (or path) of a volume. */
static char *path_of(const struct volume_folders *f, int pod, int number, struct muster_error *err)
{
    const struct local_volume *volume = &f->job->volumes.list[number];
    char *path = NULL;
    switch (volume->type) {
    case LOCAL_VOLUME_FILES:
        path = mem_printf("%s/volumes/%d", f->folder, number);
        break;
    case LOCAL_VOLUME_CLAIM:
        path = f->claims ? mem_printf("%s/%s", f->claims, volume->source)
                         : mem_printf("%s/claims/%s", f->folder, volume->source);
        break;
    case LOCAL_VOLUME_HOST:
        path = mem_strdup(volume->source);
        break;
    default:
        path = mem_printf("%s/pods/%d/%d", f->folder, pod, number);
        break;
    }
    return path ? path : no_path(err);
}

/* --- files --- */

static int volume_file_write(const char *folder, const struct local_file *file, struct muster_error *err)
{
    scope_free char *path = mem_printf("%s/%s", folder, file->path), *parent = path ? mem_strdup(path) : NULL;
    if (!parent)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a path");
    *strrchr(parent, '/') = '\0';
    if (io_make_directories(parent, FOLDER_MODE, err) < 0)
        return -1;
    scope_close int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return error_errno(err, "cannot make %s", path);
    if (io_write_all(fd, file->data, file->length, path, err) < 0)
        return -1;
    return fchmod(fd, file->mode) < 0 ? error_errno(err, "cannot set the mode of %s", path) : 0;
}

static int make_one(const struct volume_folders *f, int number, struct muster_error *err)
{
    const struct local_volume *volume = &f->job->volumes.list[number];
    if (volume->type != LOCAL_VOLUME_FILES && volume->type != LOCAL_VOLUME_CLAIM)
        return 0;
    scope_free char *path = path_of(f, 0, number, err);
    if (!path || io_make_directories(path, FOLDER_MODE, err) < 0)
        return -1;
    for (size_t i = 0; i < volume->file_count; i++)
        if (volume_file_write(path, &volume->files[i], err) < 0)
            return -1;
    return 0;
}

int volume_folders_make(const struct volume_folders *f, struct muster_error *err)
{
    for (int i = 0; i < f->job->volumes.count; i++)
        if (make_one(f, i, err) < 0)
            return error_wrap(err, "volume %s", f->job->volumes.list[i].name);
    return 0;
}

/* --- a pod's own --- */

int volume_folders_rewrite(const struct volume_folders *f, int pod, int set_attempt, int job_attempt,
                           struct muster_error *err)
{
    const struct local_pod *spec = &f->job->pods[pod];
    for (int i = 0; i < spec->mount_count; i++) {
        const struct local_volume *volume = &f->job->volumes.list[spec->mounts[i].volume];
        scope_free char *folder = path_of(f, pod, spec->mounts[i].volume, err);
        if (!folder)
            return -1;
        for (size_t k = 0; k < volume->file_count; k++) {
            struct local_file file = volume->files[k];
            if (!file.varies)
                continue;
            scope_free char *text = local_attempt_text(file.data, set_attempt, job_attempt);
            scope_free char *path = mem_printf("%s/%s", folder, file.path);
            if (!text || !path)
                return error_set(err, MUSTER_E_NOMEM, "no memory for a volume's file");
            if (unlink(path) < 0 && errno != ENOENT)
                return error_errno(err, "cannot replace %s", path);
            file.data = text;
            file.length = strlen(text);
            if (volume_file_write(folder, &file, err) < 0)
                return -1;
        }
    }
    return 0;
}

int volume_folders_renew(const struct volume_folders *f, int pod, struct muster_error *err)
{
    const struct local_pod *spec = &f->job->pods[pod];
    for (int i = 0; i < spec->mount_count; i++) {
        if (f->job->volumes.list[spec->mounts[i].volume].type != LOCAL_VOLUME_EMPTY)
            continue;
        scope_free char *path = path_of(f, pod, spec->mounts[i].volume, err);
        if (!path)
            return -1;
        folder_remove_content(path);
        if (io_make_directories(path, FOLDER_MODE, err) < 0)
            return -1;
        if (chmod(path, SHARED_MODE) < 0)
            return error_errno(err, "cannot open %s to all", path);
    }
    return 0;
}

char *volume_folders_source(const struct volume_folders *f, int pod, const struct local_mount *mount,
                            struct muster_error *err)
{
    const struct local_volume *volume = &f->job->volumes.list[mount->volume];
    scope_free char *path = path_of(f, pod, mount->volume, err);
    if (!path || !mount->sub_path)
        return take_pointer(&path);
    char *inside = mem_printf("%s/%s", path, mount->sub_path);
    if (!inside)
        return no_path(err);
    bool missing = access(inside, F_OK) < 0 && errno == ENOENT;
    if (missing && volume->type != LOCAL_VOLUME_FILES && io_make_directories(inside, SHARED_MODE, err) < 0) {
        mem_free(inside);
        return NULL;
    }
    return inside;
}

/* --- removal --- */

enum { DEPTH_LIMIT = 100, ENTRIES_BYTES = 4096 };

/* As the kernel writes it. */
struct entry {
    uint64_t inode;
    int64_t offset;
    unsigned short length;
    unsigned char type;
    char name[];
};

static void remove_content(int folder, int depth);

static void remove_folder(int parent, const char *name, int depth)
{
    (void)fchmodat(parent, name, 0700, 0); /* a pod may have locked it */
    scope_close int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0 && depth < DEPTH_LIMIT)
        remove_content(fd, depth + 1);
    (void)unlinkat(parent, name, AT_REMOVEDIR);
}

/* One pass; whether anything was removed. */
static bool remove_some(int folder, int depth)
{
    char entries[ENTRIES_BYTES] __attribute__((aligned(8)));
    bool removed = false;
    if (lseek(folder, 0, SEEK_SET) < 0)
        return false;
    for (;;) {
        long length = syscall(SYS_getdents64, folder, entries, sizeof entries);
        if (length <= 0)
            return removed;
        for (long at = 0; at < length;) {
            const struct entry *entry = (const struct entry *)(entries + at);
            at += entry->length;
            if (!strcmp(entry->name, ".") || !strcmp(entry->name, ".."))
                continue;
            if (unlinkat(folder, entry->name, 0) < 0 && (errno == EISDIR || errno == EPERM))
                remove_folder(folder, entry->name, depth);
            removed = true;
        }
    }
}

static void remove_content(int folder, int depth)
{
    for (int pass = 0; pass < 2 && remove_some(folder, depth); pass++)
        ; /* a second look finds files that a file system skipped while its folder shrank */
}

void folder_remove_content(const char *path)
{
    scope_close int folder = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder >= 0)
        remove_content(folder, 0);
}
