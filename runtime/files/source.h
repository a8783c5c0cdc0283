/* source.h - the inside of opened files, for source.c and load.c. */
#ifndef MUSTER_RUNTIME_FILES_SOURCE_H
#define MUSTER_RUNTIME_FILES_SOURCE_H

#include "runtime/files/config_json.h"
#include "runtime/files/files.h"
#include "runtime/files/match.h"
#include "runtime/files/tensors.h"

enum { SOURCE_FILES = 512 }; /* shards of one model: all are open at once */

struct source_file {
    char *path;
    int fd;
    int64_t bytes;
};

struct files {
    char *path;
    bool folder;
    struct source_file *file;
    int file_count;
    struct architecture architecture;
    bool has_architecture;
    struct config_notes notes;
    bool adapters;               /* the files are PEFT's: they hold adapters alone */
    struct lora lora;            /* theirs */
    struct file_tensors tensors; /* sorted */
    const struct model *model;   /* matched */
    struct match match;
};

#endif
