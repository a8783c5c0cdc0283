/* rank_header.h - the places of checksums in the header of a rank's file. Pure.
 *
 * Headers of one run differ in the digits of their checksums alone: behind the first one no JSON is read. */
#ifndef MUSTER_RUNTIME_CHECKPOINT_RANK_HEADER_H
#define MUSTER_RUNTIME_CHECKPOINT_RANK_HEADER_H

#include "runtime/checkpoint/manifest.h"

/* The offset of the value in the first `"name":"value"` at or behind `from`; -1: there is none, or no memory.
 */
int64_t rank_header_find(const struct buffer *header, int64_t from, const char *name, const char *value);

/* The digits of a slice's checksums. */
struct rank_header_digits {
    int64_t at, count; /* in the header */
    int64_t in_rows;   /* in the manifest's rows */
};

/* A header that was read, zeroed: none. */
struct rank_header {
    struct buffer text;
    int64_t bytes;                     /* of the file */
    struct buffer rows;                /* its slices as in the manifest (manifest_add_slice) */
    struct rank_header_digits *digits; /* in their order in the header */
    int count;
};
void rank_header_clear(struct rank_header *header); /* back to none */
/* Whether the text of a file's header differs in hexadecimal digits of checksums alone. */
bool rank_header_same(const struct rank_header *header, const struct buffer *text, int64_t bytes);

#endif
