/* walk.h - the files of a data path: the file itself, or all files of a folder and its sub-folders, in name
 * order. */
#ifndef MUSTER_TRAINER_DATA_WALK_H
#define MUSTER_TRAINER_DATA_WALK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/buffer.h"
#include "proto/include/muster_error.h"

enum walk_kind {
    WALK_TEXT,
    WALK_LINES,  /* one JSON object a line */
    WALK_TOKENS, /* .bin: llm.c's token shards */
    WALK_ARRAY,  /* a JSON array of objects or texts */
    WALK_COMMAS, /* .csv: a table whose first row names the columns */
    WALK_TABS,   /* .tsv: the same, with tabs */
    WALK_PARQUET,
    WALK_ARROW, /* a file or a stream */
};

struct walk_file {
    char *path;
    enum walk_kind kind;
    bool packed; /* by gzip or zstd; the kind is that of the content */
    int64_t bytes, mtime_ns;
    uint64_t ends; /* hash of its first and last bytes */
};

/* A file of a folder that is left out, and the reason. */
struct walk_left {
    char *path;
    char *why; /* "Parquet: write its rows ..." */
};

/* Zeroed: empty. */
struct walk {
    struct walk_file *file;
    int count, capacity;
    const char *name;       /* setting that has the path, for errors; NULL: data.path */
    const char *text_key;   /* key of a record's text; NULL: only .jsonl, .ndjson and .json have records */
    struct walk_left *left; /* (left_count): files that were left out */
    int left_count, left_capacity;
    int companions; /* programs and notes among the files */
};

/* Adds the files of path. A file's content decides its kind, then its name: lines of JSON under any name,
 * arrays, tables, texts. In folders, symbolic links, hidden files and *.dat are skipped; empty and binary
 * files are left out. Programs and notes (.py, .md, ...) are left out if there are other texts. Errors: a
 * file that the user named cannot be used, with advice; a path is unreadable, or neither a file nor a folder.
 */
int walk_path(struct walk *walk, const char *path, struct muster_error *err);
/* Adds a line to out: the number of files taken, and the files left out, by reasons. Adds nothing where no
 * file was left out. -1: no memory. */
int walk_list_left(const struct walk *walk, const char *path, struct buffer *out);
void walk_free(struct walk *walk); /* accepts NULL */

/* ---- content.c: the kind of a file by its first bytes, not by its name. Pure. ---- */

enum { CONTENT_BYTES = 8192 }; /* bytes of the beginning that decide the kind */

#define CONTENT_PACKED "compressed by" /* begins the name of gzip and zstd */

enum content_kind {
    CONTENT_TEXT,
    CONTENT_LINES,  /* a JSON object in the first line */
    CONTENT_OBJECT, /* a JSON object over several lines */
    CONTENT_ARRAY,  /* a JSON array of objects or texts */
    CONTENT_SHARD,  /* llm.c's tokens */
    CONTENT_PARQUET,
    CONTENT_ARROW,
    CONTENT_OTHER, /* any other kind; see what and advice */
};

struct content {
    enum content_kind kind;
    const char *what;   /* CONTENT_OTHER and the two before: "Parquet", "compressed by gzip", ... */
    const char *advice; /* a clause for the user; NULL: none */
};

/* whole: `length` bytes are the whole file. */
struct content content_of(const char *start, size_t length, bool whole);

/* Whether the first line of a file of JSON lines has a text under text_key, turns of a chat, or a prompt and
 * a completion. */
bool content_has_text(const char *start, size_t length, const char *text_key);

#endif
