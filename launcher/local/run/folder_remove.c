/* folder_remove.c - see folder_remove.h. */
#include "launcher/local/run/folder_remove.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "proto/base/guard.h"

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
        ; /* a second look finds what a file system skipped while its folder shrank */
}

void folder_remove_content(const char *path)
{
    scope_close int folder = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder >= 0)
        remove_content(folder, 0);
}
