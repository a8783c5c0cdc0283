/* arrow_internal.h - private header: the messages and the schema of Arrow, for arrow*.c. */
#ifndef MUSTER_TRAINER_COLUMNS_ARROW_INTERNAL_H
#define MUSTER_TRAINER_COLUMNS_ARROW_INTERNAL_H

#include "trainer/columns/columns_internal.h"

/* ---- flatbuffers: places are offsets into data, 0: not there ---- */

struct flat {
    const char *data;
    size_t length;
};
int64_t flat_int(const struct flat *f, size_t table, int field, size_t bytes, int64_t otherwise);
size_t flat_offset(const struct flat *f, size_t table, int field);
/* The first element of a vector of elements of `each` bytes. */
size_t flat_vector(const struct flat *f, size_t table, int field, size_t each, size_t *count);
size_t flat_table(const struct flat *f, size_t vector, size_t index);

/* ---- messages ---- */

enum arrow_header { ARROW_SCHEMA = 1, ARROW_DICTIONARY = 2, ARROW_BATCH = 3 };
struct arrow_message {
    struct flat flat;
    int kind; /* enum arrow_header */
    size_t header;
    const char *body;
    size_t body_length;
};
/* 1; 0: the end. *at: the place of the next message. */
int arrow_next_message(const char *data, size_t length, size_t *at, struct arrow_message *out,
                       struct muster_error *err);

enum arrow_type {
    ARROW_NULL = 1,
    ARROW_INT = 2,
    ARROW_FLOAT = 3,
    ARROW_BINARY = 4,
    ARROW_UTF8 = 5,
    ARROW_BOOL = 6,
    ARROW_DECIMAL = 7,
    ARROW_LIST = 12,
    ARROW_STRUCT = 13,
    ARROW_UNION = 14,
    ARROW_FIXED_LIST = 16,
    ARROW_MAP = 17,
    ARROW_LARGE_BINARY = 19,
    ARROW_LARGE_UTF8 = 20,
    ARROW_LARGE_LIST = 21,
};
/* In the order of the schema: a parent, then its children. */
struct arrow_field {
    const char *name; /* (name_length) in the file */
    size_t name_length;
    int type; /* enum arrow_type, or a type that is not read */
    int bits; /* ARROW_INT: its bits, ARROW_FLOAT 0 to 2; ARROW_FIXED_LIST: items of a list */
    bool is_signed;
    int children, next;
    int64_t dictionary; /* its number; -1: none */
    int index_bits;
};
struct arrow_schema {
    struct arrow_field *field; /* (fields) */
    int fields;
};
int arrow_read_schema(const struct arrow_message *message, struct arrow_schema *out,
                      struct muster_error *err);

#endif
