/* folder.h - removes a test's folder with all that is in it. */
#ifndef MUSTER_TESTS_SUPPORT_FOLDER_H
#define MUSTER_TESTS_SUPPORT_FOLDER_H

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Links are removed, not followed. A path that cannot be removed stays. */
static inline void folder_remove(const char *path)
{
    DIR *open = opendir(path);
    for (const struct dirent *entry; open && (entry = readdir(open));) {
        char inside[500];
        (void)snprintf(inside, sizeof inside, "%s/%s", path, entry->d_name);
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 && unlink(inside))
            folder_remove(inside);
    }
    if (open)
        (void)closedir(open);
    (void)rmdir(path);
}

#endif
