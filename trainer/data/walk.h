/* walk.h - the files of a data path: itself, or all in a folder and its sub-folders, in name order. */
#ifndef MUSTER_TRAINER_DATA_WALK_H
#define MUSTER_TRAINER_DATA_WALK_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/base/buffer.h"
#include "proto/include/muster_error.h"

enum walk_kind {
    WALK_TEXT,
    WALK_LINES,  /* a JSON object a line */
    WALK_TOKENS, /* .bin: llm.c's token shards */
    WALK_ARRAY,  /* a JSON array of objects, or of texts */
    WALK_COMMAS, /* .csv: a table whose first row names the columns */
    WALK_TABS,   /* .tsv: the same between tabs */
};

struct walk_file {
    char *path;
    enum walk_kind kind;
    int64_t bytes, mtime_ns;
    uint64_t ends; /* hash of its first and last bytes */
};

/* Files of a folder that are not read, and why. */
struct walk_left {
    char *path;
    char *why; /* "Parquet: write its rows ..." */
};

/* Zeroed: empty. */
struct walk {
    struct walk_file *file;
    int count, capacity;
    const char *name; /* of the setting that has the path, for errors; NULL: data.path */
    bool compressed;  /* files that end in .gz or .zst are taken too, by what their names end in before it */
    const char *text_key;   /* of records; NULL: only names that end in .jsonl, .ndjson or .json have them */
    struct walk_left *left; /* (left_count): what was left out */
    int left_count, left_capacity;
    int companions; /* programs and notes among the files */
};

/* Adds the files of path. A file's content decides, then its name (content.h): lines of JSON under any name,
 * arrays, tables, texts. In folders, symbolic links, hidden files and *.dat are passed over; empty and binary
 * files are left out, and programs and notes (.py, .md, ...) where there are other texts. A file that is
 * named itself and cannot be read is an error, with what can be done. Other errors: unreadable, neither file
 * nor folder. */
int walk_path(struct walk *walk, const char *path, struct muster_error *err);
/* Adds to out what was taken and what was left out, by reasons, in a line; nothing where nothing was left
 * out. -1: no memory. */
int walk_tell_left(const struct walk *walk, const char *path, struct buffer *out);
void walk_free(struct walk *walk); /* accepts NULL */

#endif
