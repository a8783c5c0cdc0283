/* output.h - a file that is written at any offset under a temporary name, and renamed into place when it is
 * whole. */
#ifndef MUSTER_RUNTIME_FILES_OUTPUT_H
#define MUSTER_RUNTIME_FILES_OUTPUT_H

#include <stdint.h>

#include "proto/include/muster_error.h"

struct output {
    char *path, *beside;
    int fd;
    int64_t flushed; /* end of the bytes whose writing to the disk has been started */
};

int output_open(struct output *output, const char *path, struct muster_error *err);
int output_write(struct output *output, int64_t offset, const void *data, int64_t bytes,
                 struct muster_error *err);
/* Syncs and closes; the file keeps its temporary name until output_place. */
int output_sync(struct output *output, struct muster_error *err);
int output_place(struct output *output, struct muster_error *err);
/* Frees, and removes a file that was not put in place. A zeroed struct is accepted. */
void output_close(struct output *output);

/* Whether a file can be written at path: makes the temporary file and removes it again. */
int output_probe(const char *path, struct muster_error *err);

#endif
