/* stream.h - the bytes of a file as they were before it was compressed: plain, gzip (zlib) or zstd, by the
 * ending of its name. */
#ifndef MUSTER_TRAINER_CORPUS_STREAM_H
#define MUSTER_TRAINER_CORPUS_STREAM_H

#include <stddef.h>
#include <sys/types.h>

#include "proto/base/guard.h"
#include "proto/include/muster_error.h"

struct stream;

/* Bytes of a name that are its ending for compression (".gz"); 0: none. */
size_t stream_ending(const char *path);
struct stream *stream_open(const char *path, struct muster_error *err);
/* Up to size bytes; 0: the end. Errors: damaged or cut off data, with the path. */
ssize_t stream_read(struct stream *stream, char *out, size_t size, struct muster_error *err);
void stream_close(struct stream *stream); /* accepts NULL */
GUARD_DEFINE(stream, struct stream *, stream_close);

#endif
