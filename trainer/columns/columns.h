/* columns.h - rows of tables that are stored by columns: Parquet files, and Arrow's files and streams, as
 * pandas, polars and `datasets` write them. A row becomes an object of JSON with the chosen
 * columns; other columns are not read.
 *
 * Texts, truths, whole numbers, floating numbers, lists and structs of these are read. Parquet: plain,
 * dictionary, delta and RLE encodings, pages of both versions, and no compression, snappy, gzip or zstd.
 * Arrow: little-endian record batches, with dictionaries, and no compression or zstd. Anything else in such
 * a column is refused by name. All sizes and offsets are checked: a file is foreign. */
#ifndef MUSTER_TRAINER_COLUMNS_COLUMNS_H
#define MUSTER_TRAINER_COLUMNS_COLUMNS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/guard.h"
#include "proto/include/muster_error.h"
#include "proto/json/json_text.h"

struct columns;

struct columns_options {
    const char *data; /* (length) the file, mapped by the caller until columns_close */
    size_t length;
    const char *const *names; /* columns of interest, ended by NULL */
};

/* NULL: MUSTER_E_INVALID, a damaged file; MUSTER_E_UNSUPPORTED, the part of the format that is not read. */
struct columns *columns_open_parquet(const struct columns_options *options, struct muster_error *err);
struct columns *columns_open_arrow(const struct columns_options *options, struct muster_error *err);
void columns_close(struct columns *columns); /* accepts NULL */
GUARD_DEFINE(columns, struct columns *, columns_close);

/* Whether the table has a column of this name. */
bool columns_have(const struct columns *columns, const char *name);
/* Names of all columns, for messages, each after a comma; owned. */
const char *columns_names(const struct columns *columns);
/* The next row: 1, *record is the caller's; 0: there are no more; -1: an error. */
int columns_next(struct columns *columns, json_t **record, struct muster_error *err);

#endif
