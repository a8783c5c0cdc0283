/* csv.h - rows of a table in text: comma separated with quotes (RFC 4180), or tab separated without. Pure.
 *
 * A field that begins with a quote ends at the next single quote. Two quotes in a row are one quote of the
 * text, and line ends before the closing quote are text. Tab separated fields have no quoting. Rows end in LF
 * or CRLF; empty rows are left out. */
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

/* The caller sets the first three fields and zeroes the others; call csv_free. */
struct csv {
    const char *data; /* the whole table, owned by the caller */
    size_t length;
    bool tabs;
    size_t at;
    int64_t line;  /* first line of the last row, from 1 */
    int64_t lines; /* lines read so far */
    struct buffer text;
    struct csv_field field[CSV_COLUMNS];
    int fields;
};

/* Reads the next row: 1, or 0 at the end. -1: a quoted field does not end or is followed by text, or a row
 * has more than CSV_COLUMNS columns; the error begins with the line's number. */
int csv_next(struct csv *csv, struct muster_error *err);
/* The text of a field of the row, `length` bytes; valid until the next call of csv_next. */
const char *csv_text(const struct csv *csv, int field, size_t *length);
void csv_free(struct csv *csv); /* accepts NULL */

#endif
