/* description_table.h - the fields of a description as a table, used by its JSON form and by init and
 * free. */
#ifndef MUSTER_RUNTIME_NCCL_DESCRIBE_DESCRIPTION_TABLE_H
#define MUSTER_RUNTIME_NCCL_DESCRIBE_DESCRIPTION_TABLE_H

#include <stddef.h>

#include "runtime/nccl/describe/description.h"

enum { DESCRIPTION_VERSION = 1 };

enum description_field_type {
    DESCRIPTION_FIELD_TEXT, /* char[size] */
    DESCRIPTION_FIELD_INT,
    DESCRIPTION_FIELD_INT64,
    DESCRIPTION_FIELD_UINT64,
    DESCRIPTION_FIELD_DOUBLE,
    DESCRIPTION_FIELD_BOOL,
    DESCRIPTION_FIELD_FLAG, /* enum description_flag: false, true, null */
    DESCRIPTION_FIELD_NAME, /* an enum by its names */
    DESCRIPTION_FIELD_LIST  /* pointer and count */
};

struct description_table;

struct description_field {
    const char *name;
    enum description_field_type type;
    size_t offset;
    size_t size;                           /* TEXT */
    int64_t unknown;                       /* INT, INT64: the value that means unknown */
    const char *const *names;              /* NAME: NULL-terminated, by value */
    const struct description_table *table; /* LIST: of one item */
    size_t count_offset;                   /* LIST */
};

struct description_table {
    const struct description_field *fields;
    size_t count;
    size_t size; /* bytes of the record */
};

/* The table of struct description. */
const struct description_table *description_table(void);
/* A record with all fields unknown. */
void description_record_init(const struct description_table *table, void *record);

#endif
