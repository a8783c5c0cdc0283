/* columns_internal.h - private header of this folder. */
#ifndef MUSTER_TRAINER_COLUMNS_COLUMNS_INTERNAL_H
#define MUSTER_TRAINER_COLUMNS_COLUMNS_INTERNAL_H

#include "proto/base/buffer.h"
#include "trainer/columns/columns.h"

enum {
    COLUMNS_DEPTH = 16,          /* lists and structs in each other */
    COLUMNS_FIELDS = 65536,      /* fields of a schema */
    COLUMNS_UNPACKED = 1u << 30, /* bytes of a page or buffer */
};

/* A kind of table. */
struct columns_ops {
    bool (*have)(const void *self, const char *name);
    int (*next)(void *self, json_t **record, struct muster_error *err);
    void (*close)(void *self);
};
struct columns {
    const struct columns_ops *ops;
    void *self;
    struct buffer names;
};
struct columns *columns_create(const struct columns_ops *ops, void *self, struct muster_error *err);
bool columns_wants(const char *const *names, const char *name);
int columns_damaged(struct muster_error *err, const char *what);

/* ---- unpack.c ---- */

enum packing { PACKED_NOT, PACKED_SNAPPY, PACKED_GZIP, PACKED_ZSTD };
/* Unpacks `length` bytes into out (size), which they fill. */
int columns_unpack(enum packing packing, const char *data, size_t length, char *out, size_t size,
                   struct muster_error *err);

/* ---- encoding.c: the values of Parquet's pages ---- */

struct cursor {
    const unsigned char *at, *end;
};
/* Little-endian numbers and LEB128; false: the bytes end. */
bool cursor_take(struct cursor *c, size_t bytes, const unsigned char **out);
bool cursor_u32(struct cursor *c, uint32_t *out);
bool cursor_varint(struct cursor *c, uint64_t *out);
/* `count` values of RLE and bit-packing; each is below 2^bits. */
bool encoding_rle(struct cursor *c, int bits, size_t count, uint32_t *out);
/* DELTA_BINARY_PACKED: up to `room` values to out; *count: their number. */
bool encoding_delta(struct cursor *c, size_t room, int64_t *out, size_t *count);

/* ---- parquet_schema.c ---- */

enum parquet_type {
    PARQUET_BOOL,
    PARQUET_INT32,
    PARQUET_INT64,
    PARQUET_INT96,
    PARQUET_FLOAT,
    PARQUET_DOUBLE,
    PARQUET_BYTES,
    PARQUET_FIXED
};

/* An element of the schema, in the order of the file: a parent, then its children. */
struct parquet_field {
    const char *name; /* (name_length) in the file */
    size_t name_length;
    int type;       /* enum parquet_type; -1: a group */
    int repetition; /* 0 required, 1 optional, 2 repeated */
    int children, converted, length;
    int next;               /* the element after this one and all its children */
    int definition, repeat; /* levels of a value that is there */
    bool list, map;
    int leaf; /* number of the column of values; -1: a group */
};
struct parquet_chunk {
    int64_t values, data_at, dictionary_at, bytes;
    int codec;
};
struct parquet_meta {
    struct parquet_field *field; /* (fields) */
    int fields, leaves;
    struct parquet_chunk *chunk; /* (groups x leaves) */
    int64_t *rows;               /* (groups) */
    int groups;
};
/* The footer. Names point into data. */
int parquet_read_meta(const char *data, size_t length, struct parquet_meta *out, struct muster_error *err);
void parquet_free_meta(struct parquet_meta *meta);

struct parquet_page {
    int kind; /* 0 data, 2 dictionary, 3 data of version 2 */
    int32_t packed, unpacked, values, nulls, encoding, definition_bytes, repetition_bytes;
    bool compressed;
};
/* Reads the header of a page; the cursor is at its bytes afterwards. */
bool parquet_read_page(struct cursor *c, struct parquet_page *out);

/* ---- parquet_column.c: a column of values of a row group ---- */

struct parquet_text {
    const char *data;
    uint32_t length;
};
struct parquet_column {
    const struct parquet_field *field;
    uint8_t *definitions, *repeats; /* (entries); NULL: the level is always the highest, or 0 */
    size_t entries, at;             /* entries and the next one */
    size_t values, value;           /* values and the next one */
    /* the values, in the first array that fits the type: */
    struct parquet_text *text;
    int64_t *number;
    double *real;
    size_t entry_room, value_room;
    char **block; /* (blocks) unpacked pages, which texts point into */
    size_t blocks;
};
int parquet_column_read(const char *data, size_t length, const struct parquet_chunk *chunk,
                        struct parquet_column *out, struct muster_error *err);
void parquet_column_free(struct parquet_column *column);

#endif
