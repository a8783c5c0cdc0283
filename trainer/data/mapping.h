/* mapping.h - a file in memory by mmap, read only. Its pages belong to the page cache. A process gives pages
 * back after each use, and so holds little of a large file. */
#ifndef MUSTER_TRAINER_DATA_MAPPING_H
#define MUSTER_TRAINER_DATA_MAPPING_H

#include <stddef.h>

#include "proto/include/muster_error.h"

struct mapping {
    const char *data; /* NULL: empty */
    size_t length;
};

int mapping_open(struct mapping *mapping, const char *path, struct muster_error *err);
/* The same of an open file, which may be closed afterwards; path: for errors. */
int mapping_of_fd(struct mapping *mapping, int fd, const char *path, struct muster_error *err);
void mapping_close(struct mapping *mapping); /* accepts NULL and a zeroed mapping */
/* Gives back the pages that hold the bytes from..from + length. */
void mapping_release(const struct mapping *mapping, size_t from, size_t length);

#endif
