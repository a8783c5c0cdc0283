/* error_directory.c - see error_directory.h. */
#include "launcher/verdict/error_directory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "proto/base/guard.h"
#include "proto/base/mem.h"

static const char prefix[] = "error_", in_memory[] = "/dev/shm";

/* Whether what is made there stays in memory: a folder on a disk costs two journal entries and, where the
 * disk is told of freed blocks, a wait for it. */
static bool is_memory(const char *folder)
{
    struct statfs status;
    return statfs(folder, &status) == 0 && status.f_type == TMPFS_MAGIC && access(folder, W_OK | X_OK) == 0;
}

/* TMPDIR, or the usual folder; NULL: one has to be looked for. */
static const char *wanted_folder(void)
{
    const char *given = getenv("TMPDIR");
    return given && *given ? given : is_memory(in_memory) ? in_memory : NULL;
}

/* By what the kernel has in its caches: a look-up that must ask a server is refused, and so is the question
 * for attributes. */
bool error_directory_is_prompt(void)
{
    struct open_how how = {.flags = O_PATH | O_DIRECTORY | O_CLOEXEC, .resolve = RESOLVE_CACHED};
    struct statx folder, root;
    const char *wanted = wanted_folder(), *path = wanted ? wanted : "/tmp";
    if (path == in_memory)
        return true;
    scope_close int fd = (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how); /* Linux 5.12 */
    if (fd < 0 || statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &folder) < 0 ||
        statx(AT_FDCWD, "/", AT_STATX_DONT_SYNC, STATX_TYPE, &root) < 0)
        return false;
    bool on_root = folder.stx_dev_major == root.stx_dev_major && folder.stx_dev_minor == root.stx_dev_minor;
    return on_root || folder.stx_dev_major != 0; /* 0: no device, as of NFS, FUSE and also of tmpfs */
}

char *error_directory_make(struct temporary_folder *temporary)
{
    const char *parent = wanted_folder();
    temporary->warning[0] = '\0';
    if (parent != in_memory) {
        temporary_folder_find(temporary);
        parent = temporary->path;
    }
    scope_free char *path = mem_printf("%s/muster_errors_XXXXXX", parent);
    return path && mkdtemp(path) ? take_pointer(&path) : NULL;
}

char *error_directory_file(const char *directory, uint32_t attempt, int local_rank)
{
    return mem_printf("%s/%s%u_%d.json", directory, prefix, attempt, local_rank);
}

static inline void guard_directory(DIR **directory)
{
    if (*directory)
        (void)closedir(*directory);
}

void error_directory_discard(const char *directory)
{
    if (rmdir(directory) == 0 || errno != ENOTEMPTY)
        return;
    DIR *GUARD(guard_directory) entries = opendir(directory);
    for (struct dirent *entry; entries && (entry = readdir(entries));)
        if (!strncmp(entry->d_name, prefix, sizeof prefix - 1))
            (void)unlinkat(dirfd(entries), entry->d_name, 0); /* files that cannot be removed stay */
    (void)rmdir(directory);
}
