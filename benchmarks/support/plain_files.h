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
/* Seconds to write all bytes of data, which begins at a page, past the page cache in large pieces and to
 * sync, as dd oflag=direct does. The length is rounded up to pages. plain_read_direct reads in the same way,
 * into PLAIN_LARGE bytes that begin at a page. -1: a call failed. */
enum { PLAIN_LARGE = 4 << 20 };
double plain_write_direct(const char *path, const char *data, int64_t bytes);
double plain_read_direct(const char *path, char *piece);
/* Seconds to read the file to its end into the piece; -1: a call failed. */
double plain_read(const char *path, char *piece);
/* Drops the file from the page cache, once it is synced. Not 0: a call failed. */
int plain_drop(const char *path);

#endif
