/* folder.h - a test's folder below /tmp: made, and removed with its contents. */
#ifndef MUSTER_TESTS_SUPPORT_FOLDER_H
#define MUSTER_TESTS_SUPPORT_FOLDER_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FOLDER_PATH = 40 };

/* path becomes /tmp/muster-NAME-, and six letters. Returns 0, or -1 with errno. */
static inline int folder_make(char path[FOLDER_PATH], const char *name)
{
    (void)snprintf(path, FOLDER_PATH, "/tmp/muster-%s-XXXXXX", name);
    return mkdtemp(path) ? 0 : -1;
}

/* Links are removed, not followed. Returns 0, or -1 with errno if the folder is still there. */
static inline int folder_remove(const char *path)
{
    DIR *open = opendir(path);
    for (const struct dirent *entry; open && (entry = readdir(open));) {
        char inside[500];
        if (snprintf(inside, sizeof inside, "%s/%s", path, entry->d_name) >= (int)sizeof inside)
            continue; /* the folder stays, which the caller is told */
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 && unlink(inside))
            (void)folder_remove(inside);
    }
    if (open)
        (void)closedir(open);
    return rmdir(path);
}

#endif
