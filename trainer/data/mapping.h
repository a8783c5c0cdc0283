/* mapping.h - a file in memory by mmap, read only. Its pages are the page cache's: they can be given back
 * behind each use, so that a process holds what it uses and not what it has mapped. */
#ifndef MUSTER_TRAINER_DATA_MAPPING_H
#define MUSTER_TRAINER_DATA_MAPPING_H

#include <stddef.h>

#include "proto/include/muster_error.h"

struct mapping {
    const char *data; /* NULL: empty */
    size_t length;
};

int mapping_open(struct mapping *mapping, const char *path, struct muster_error *err);
void mapping_close(struct mapping *mapping); /* accepts NULL and a zeroed one */
/* Gives back the pages around the bytes from..from + length. */
void mapping_release(const struct mapping *mapping, size_t from, size_t length);

#endif
