/* walk.h - the files of a data path: itself, or all in a folder and its sub-folders, in name order. */
#ifndef MUSTER_RUNTIME_DATA_WALK_H
#define MUSTER_RUNTIME_DATA_WALK_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/include/muster_error.h"

enum walk_kind {
    WALK_TEXT,
    WALK_LINES,  /* .jsonl: a JSON object a line */
    WALK_TOKENS, /* .bin: llm.c's token shards */
};

struct walk_file {
    char *path;
    enum walk_kind kind;
    int64_t bytes, mtime_ns;
    uint64_t ends; /* hash of its first and last bytes */
};

/* Zeroed: empty. */
struct walk {
    struct walk_file *file;
    int count, capacity;
    const char *name; /* of the setting that has the path, for errors; NULL: data.path */
    bool compressed;  /* files that end in .gz or .zst are taken too, by what their names end in before it */
};

/* Adds the files of path. In folders, symbolic links, hidden ones, *.dat, empty files and binary ones (a NUL
 * among the first bytes; token shards aside) are left out. Errors: unreadable, neither file nor folder. */
int walk_path(struct walk *walk, const char *path, struct muster_error *err);
void walk_free(struct walk *walk); /* accepts NULL */

#endif
