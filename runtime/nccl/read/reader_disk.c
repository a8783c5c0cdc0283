/* reader_disk.c - the disk of logs and error files.
 *
 * A file is written there and removed, because a disk can have room and still be read-only, and because
 * its time stamp shows the clock of the file's keeper: on a shared file system the server's, which every
 * comparison of file ages depends on; on a local one the kernel's. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "proto/base/clock.h"
#include "proto/base/guard.h"
#include "runtime/nccl/read/reader.h"

static void cut_last(char *path)
{
    char *slash = strrchr(path, '/');
    if (!slash || slash == path)
        (void)snprintf(path, 2, slash ? "/" : ".");
    else
        *slash = 0;
}

/* The directory may not exist yet: then the nearest one above it counts. */
static bool find_room(struct reader_disk *disk)
{
    struct statvfs room;
    while (statvfs(disk->path, &room) < 0) {
        int code = errno;
        if ((code != ENOENT && code != ENOTDIR) || !strcmp(disk->path, "/") || !strcmp(disk->path, ".")) {
            (void)snprintf(disk->error, sizeof disk->error, "%s", strerror(code));
            return false;
        }
        cut_last(disk->path);
    }
    disk->free_bytes = (int64_t)(room.f_bavail * room.f_frsize);
    if (room.f_files) /* some file systems report no number of inodes */
        disk->free_inodes = (int64_t)room.f_favail;
    return true;
}

/* statx, not fstat: the time must be the file system's own, and a preloaded library that fakes the time
 * (libfaketime) fakes fstat too. */
static bool stamp_of(int fd, int64_t *ns)
{
    struct statx facts;
    if (statx(fd, "", AT_EMPTY_PATH, STATX_MTIME, &facts) < 0 || !(facts.stx_mask & STATX_MTIME))
        return false;
    *ns = facts.stx_mtime.tv_sec * NS_PER_S + facts.stx_mtime.tv_nsec;
    return true;
}

static void write_file(struct reader_disk *disk)
{
    char path[DESCRIPTION_TEXT + 32];
    int64_t stamp = 0;
    (void)snprintf(path, sizeof path, "%s/.muster-doctor-XXXXXX", disk->path);
    scope_close int fd = mkostemp(path, O_CLOEXEC);
    if (fd < 0) {
        (void)snprintf(disk->error, sizeof disk->error, "%s", strerror(errno));
        return;
    }
    int64_t before = clock_wall_ns();
    ssize_t written = write(fd, "?", 1);
    int code = errno;
    int64_t after = clock_wall_ns();
    if (written != 1)
        (void)snprintf(disk->error, sizeof disk->error, "%s", strerror(code));
    else if (stamp_of(fd, &stamp))
        disk->clock_offset_s = (double)((before + (after - before) / 2) - stamp) / NS_PER_S;
    if (unlink(path) < 0 && !*disk->error)
        (void)snprintf(disk->error, sizeof disk->error, "a file cannot be removed: %s", strerror(errno));
}

void reader_disk_read(const char *directory, struct reader_disk *disk)
{
    const char *temporary = getenv("TMPDIR");
    *disk = (struct reader_disk){.free_bytes = -1, .free_inodes = -1};
    (void)snprintf(disk->path, sizeof disk->path, "%s",
                   directory && *directory   ? directory
                   : temporary && *temporary ? temporary
                                             : "/tmp");
    if (find_room(disk))
        write_file(disk);
}

void reader_disk_keep(const struct reader_disk *disk, struct description *description)
{
    memcpy(description->disk_path, disk->path, sizeof description->disk_path);
    memcpy(description->disk_error, disk->error, sizeof description->disk_error);
    description->disk_free_bytes = disk->free_bytes;
    description->disk_free_inodes = disk->free_inodes;
    description->clock_offset_s = disk->clock_offset_s;
}
