/* plain_files.h - a file written and read by plain calls, which is the limit for what writes and reads it
 * cleverly. */
#ifndef MUSTER_BENCHMARKS_SUPPORT_PLAIN_FILES_H
#define MUSTER_BENCHMARKS_SUPPORT_PLAIN_FILES_H

#include <stdint.h>

#include "proto/base/clock.h"

enum { PLAIN_PIECE = 1 << 20 }; /* bytes of a call */

static inline double plain_since(struct instant start)
{
    return (double)instant_diff_ns(clock_now(NULL), start) / 1e9;
}

/* Seconds to write `bytes`, rounded up to pieces, from the piece again and again, and to sync; -1: a call
 * failed. */
double plain_write(const char *path, const char *piece, int64_t bytes);
/* Seconds to read the file to its end into the piece; -1: a call failed. */
double plain_read(const char *path, char *piece);
/* Drops the file from the page cache, once it is synced. Not 0: a call failed. */
int plain_drop(const char *path);

#endif
