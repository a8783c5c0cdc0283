/* temporary.h - the folder for temporary files: TMPDIR, or another one where this machine lacks it. */
#ifndef MUSTER_PROTO_BASE_TEMPORARY_H
#define MUSTER_PROTO_BASE_TEMPORARY_H

#include <limits.h>

struct temporary_folder {
    char path[PATH_MAX]; /* absolute */
    char warning[256];   /* TMPDIR is set and cannot be used: a sentence for the log; "": none */
};

/* The first of TMPDIR, /tmp, /var/tmp and the working directory in which this process can create files, as
 * Python's tempfile chooses. If there is none: TMPDIR or /tmp, whose use fails with the kernel's reason. A
 * folder is never created. May block where TMPDIR is on a network file system. */
void temporary_folder_find(struct temporary_folder *folder);

/* The same decision (pure): usable returns 0, or an errno. tmpdir and
 * cwd may be NULL. */
void temporary_folder_choose(const char *tmpdir, const char *cwd, int (*usable)(const char *path),
                             struct temporary_folder *folder);

#endif
