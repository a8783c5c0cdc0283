/* files.h - which files a set of labelled texts is made of, by its path. */
#ifndef MUSTER_TRAINER_LABELLED_FILES_H
#define MUSTER_TRAINER_LABELLED_FILES_H

#include "trainer/data/walk.h"

enum labelled_part { LABELLED_TRAIN, LABELLED_TEST };

struct labelled_files {
    char *path;       /* of what was read: inside of the one that was named where that has both parts */
    struct walk walk; /* its walk.name is the caller's */
    bool folders;     /* by label, with a text a file */
    bool has_test;    /* the path that was named has a folder "test" */
};

/* setting: that has the path, for errors. The caller frees the files, after an error too. */
int labelled_find(struct labelled_files *files, const char *path, enum labelled_part part,
                  const char *setting, struct muster_error *err);
void labelled_files_free(struct labelled_files *files); /* accepts NULL and a zeroed one */

#endif
