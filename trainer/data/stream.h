/* stream.h - the uncompressed bytes of a file: plain, gzip (zlib) or zstd, by the ending of its name or by
 * its first bytes. */
#ifndef MUSTER_TRAINER_DATA_STREAM_H
#define MUSTER_TRAINER_DATA_STREAM_H

#include <stddef.h>
#include <sys/types.h>

#include "proto/base/guard.h"
#include "proto/include/muster_error.h"
#include "trainer/data/mapping.h"
#include "trainer/data/walk.h"

struct stream;

struct stream *stream_open(const char *path, struct muster_error *err);
/* Reads up to size bytes; 0: the end. Errors: damaged or cut off data, with the path. */
ssize_t stream_read(struct stream *stream, char *out, size_t size, struct muster_error *err);
void stream_close(struct stream *stream); /* accepts NULL */
GUARD_DEFINE(stream, struct stream *, stream_close);

/* Maps the bytes of a file. The unpacked bytes of a packed file are in a temporary file without a name. */
int stream_map(struct mapping *mapping, const struct walk_file *file, struct muster_error *err);

#endif
