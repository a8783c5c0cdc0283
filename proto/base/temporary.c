/* temporary.c - see temporary.h. */
#include "proto/base/temporary.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void temporary_folder_choose(const char *tmpdir, const char *cwd, int (*usable)(const char *path),
                             struct temporary_folder *folder)
{
    const char *given = tmpdir && *tmpdir ? tmpdir : NULL;
    const char *const candidates[] = {given, "/tmp", "/var/tmp", cwd};
    const char *found = NULL;
    int reason = given ? usable(given) : 0;
    for (size_t i = 0; i < sizeof candidates / sizeof *candidates && !found; i++)
        if (candidates[i] && (candidates[i] == given ? reason : usable(candidates[i])) == 0)
            found = candidates[i];
    const char *chosen = found ? found : given ? given : "/tmp";
    (void)snprintf(folder->path, sizeof folder->path, "%s%s%s", *chosen == '/' || !cwd ? "" : cwd,
                   *chosen == '/' || !cwd ? "" : "/", chosen);
    folder->warning[0] = '\0';
    if (found && reason)
        (void)snprintf(folder->warning, sizeof folder->warning,
                       "TMPDIR=%.100s cannot be used on this machine (%s): temporary files go to %.80s",
                       given, strerror(reason), folder->path);
}

static int folder_usable(const char *path)
{
    struct stat status;
    if (stat(path, &status) < 0)
        return errno;
    if (!S_ISDIR(status.st_mode))
        return ENOTDIR;
    return access(path, W_OK | X_OK) < 0 ? errno : 0;
}

void temporary_folder_find(struct temporary_folder *folder)
{
    char cwd[PATH_MAX];
    temporary_folder_choose(getenv("TMPDIR"), getcwd(cwd, sizeof cwd), folder_usable, folder);
}
