/* error_directory.c - see error_directory.h. */
#include "launcher/verdict/error_directory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/base/guard.h"
#include "proto/base/mem.h"

static const char prefix[] = "error_";

char *error_directory_make(const char *parent)
{
    scope_free char *path = mem_printf("%s/muster_errors_XXXXXX", parent && *parent ? parent : "/tmp");
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

void error_directory_discard(const char *directory, bool keep)
{
    if (rmdir(directory) == 0 || errno != ENOTEMPTY || keep)
        return;
    DIR *GUARD(guard_directory) entries = opendir(directory);
    for (struct dirent *entry; entries && (entry = readdir(entries));)
        if (!strncmp(entry->d_name, prefix, sizeof prefix - 1))
            (void)unlinkat(dirfd(entries), entry->d_name, 0); /* what cannot be removed stays */
    (void)rmdir(directory);
}
