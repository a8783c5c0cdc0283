/* rows.h - documents put together into rows of T positions, so that few positions are left over. Pure. */
#ifndef MUSTER_TRAINER_DATA_ROWS_H
#define MUSTER_TRAINER_DATA_ROWS_H

#include <stdint.h>

#include "proto/include/muster_error.h"

/* Documents document[start[r]..start[r + 1] - 1] are in row r, ascending. Rows are in the order of their
 * first documents. */
struct rows {
    int64_t count;
    int64_t *document; /* (documents) */
    int64_t *start;    /* (count + 1) */
};

/* Best fit, longest first (Johnson 1973): each document goes into the row with the least room that it fits
 * into. length (n): positions of each document, 1..T. Every document is in one row. -1: no memory. */
int rows_pack(const int32_t *length, int64_t n, int T, struct rows *out, struct muster_error *err);
void rows_free(struct rows *rows); /* accepts NULL and a zeroed struct */

#endif
