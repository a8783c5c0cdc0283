/* csv.h - rows of a table in text: comma separated with quotes (RFC 4180), or tab separated without. Pure.
 *
 * A field that begins with a quote ends at the next one alone; two in a row are one quote of its text, and
 * line ends in it belong to it. Between tabs quotes are text like any other. Rows end in LF or CRLF; empty
 * ones are left out. */
#ifndef MUSTER_TRAINER_DATA_CSV_H
#define MUSTER_TRAINER_DATA_CSV_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/base/buffer.h"
#include "proto/include/muster_error.h"

enum { CSV_COLUMNS = 256 };

struct csv_field {
    size_t from, length; /* in csv.text */
};

/* Zeroed but for the first three; csv_free ends it. */
struct csv {
    const char *data; /* the whole table, the caller's */
    size_t length;
    bool tabs;
    size_t at;
    int64_t line;  /* of the row that was read last, from 1 */
    int64_t lines; /* read so far */
    struct buffer text;
    struct csv_field field[CSV_COLUMNS];
    int fields;
};

/* The next row: 1, or 0 at the end. -1: a quoted field that does not end, text behind one, more columns than
 * CSV_COLUMNS; the error begins with the line's number. */
int csv_next(struct csv *csv, struct muster_error *err);
/* The text of a field of that row, `length` bytes; until the next call. */
const char *csv_text(const struct csv *csv, int field, size_t *length);
void csv_free(struct csv *csv); /* accepts NULL */

#endif
