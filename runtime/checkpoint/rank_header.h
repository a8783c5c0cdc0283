/* rank_header.h - the places of checksums in the header of a rank's file. Pure.
 *
 * Headers of one run differ only in the digits of their checksums: after the first header no JSON is read. */
#ifndef MUSTER_RUNTIME_CHECKPOINT_RANK_HEADER_H
#define MUSTER_RUNTIME_CHECKPOINT_RANK_HEADER_H

#include "runtime/checkpoint/manifest.h"

/* The offset of the value in the first `"name":"value"` at or after `from`; -1: not found, or no memory.
 */
int64_t rank_header_find(const struct buffer *header, int64_t from, const char *name, const char *value);

/* Place of the digits of a slice's checksums. */
struct rank_header_digits {
    int64_t at, count; /* offset and number of digits in the header */
    int64_t in_rows;   /* offset in the manifest's rows */
};

/* A header that was read; zeroed: none. */
struct rank_header {
    struct buffer text;
    int64_t bytes;                     /* size of the file */
    struct buffer rows;                /* rows of its slices in the manifest (manifest_add_slice) */
    struct rank_header_digits *digits; /* in the order of the header */
    int count;
};
void rank_header_clear(struct rank_header *header); /* back to none */
/* Whether the text of a file's header differs only in hexadecimal digits of checksums. */
bool rank_header_same(const struct rank_header *header, const struct buffer *text, int64_t bytes);

#endif
