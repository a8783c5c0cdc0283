/* parquet_schema.c - the footer of a Parquet file and the headers of its pages: Thrift's compact protocol. */
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "trainer/columns/columns_internal.h"

/* ---- Thrift ---- */

enum thrift_type {
    THRIFT_STOP,
    THRIFT_TRUE,
    THRIFT_FALSE,
    THRIFT_BYTE,
    THRIFT_I16,
    THRIFT_I32,
    THRIFT_I64,
    THRIFT_DOUBLE,
    THRIFT_BINARY,
    THRIFT_LIST,
    THRIFT_SET,
    THRIFT_MAP,
    THRIFT_STRUCT
};

static bool thrift_number(struct cursor *c, int64_t *out)
{
    uint64_t value;
    if (!cursor_varint(c, &value))
        return false;
    *out = (int64_t)(value >> 1) ^ -(int64_t)(value & 1);
    return true;
}

/* The next field of a struct; its end has the type THRIFT_STOP. */
static bool thrift_field(struct cursor *c, int *id, int *type)
{
    const unsigned char *byte;
    int64_t number;
    if (!cursor_take(c, 1, &byte))
        return false;
    *type = *byte & 0xF;
    if (*type == THRIFT_STOP)
        return true;
    if (*byte >> 4) {
        *id += *byte >> 4;
    } else {
        if (!thrift_number(c, &number) || number < 0 || number > INT16_MAX)
            return false;
        *id = (int)number;
    }
    return *type <= THRIFT_STRUCT && *id <= 1 << 20;
}

static bool thrift_list(struct cursor *c, int *type, uint64_t *count)
{
    const unsigned char *byte;
    if (!cursor_take(c, 1, &byte))
        return false;
    *type = *byte & 0xF;
    *count = *byte >> 4;
    if (*count == 15 && !cursor_varint(c, count))
        return false;
    return *count <= (uint64_t)(c->end - c->at); /* an element has a byte or more */
}

static bool thrift_binary(struct cursor *c, const unsigned char **out, size_t *length)
{
    uint64_t bytes;
    if (!cursor_varint(c, &bytes) || bytes > (uint64_t)(c->end - c->at))
        return false;
    *length = (size_t)bytes;
    return cursor_take(c, *length, out);
}

static bool thrift_skip(struct cursor *c, int type, int depth);

static bool skip_elements(struct cursor *c, int depth)
{
    int type;
    uint64_t count;
    if (!thrift_list(c, &type, &count))
        return false;
    for (uint64_t i = 0; i < count; i++)
        if (!thrift_skip(c, type == THRIFT_TRUE || type == THRIFT_FALSE ? THRIFT_BYTE : type, depth))
            return false;
    return true;
}

static bool skip_pairs(struct cursor *c, int depth)
{
    uint64_t count;
    const unsigned char *types;
    if (!cursor_varint(c, &count))
        return false;
    if (!count)
        return true;
    if (!cursor_take(c, 1, &types) || count > (uint64_t)(c->end - c->at))
        return false;
    for (uint64_t i = 0; i < count; i++)
        if (!thrift_skip(c, *types >> 4, depth) || !thrift_skip(c, *types & 0xF, depth))
            return false;
    return true;
}

static bool thrift_skip(struct cursor *c, int type, int depth)
{
    const unsigned char *bytes;
    size_t length;
    int64_t number;
    int id = 0, inner;
    if (depth > COLUMNS_DEPTH)
        return false;
    switch (type) {
    case THRIFT_TRUE:
    case THRIFT_FALSE:
        return true;
    case THRIFT_BYTE:
        return cursor_take(c, 1, &bytes);
    case THRIFT_I16:
    case THRIFT_I32:
    case THRIFT_I64:
        return thrift_number(c, &number);
    case THRIFT_DOUBLE:
        return cursor_take(c, 8, &bytes);
    case THRIFT_BINARY:
        return thrift_binary(c, &bytes, &length);
    case THRIFT_LIST:
    case THRIFT_SET:
        return skip_elements(c, depth + 1);
    case THRIFT_MAP:
        return skip_pairs(c, depth + 1);
    case THRIFT_STRUCT:
        while (thrift_field(c, &id, &inner)) {
            if (inner == THRIFT_STOP)
                return true;
            if (!thrift_skip(c, inner, depth + 1))
                return false;
        }
        return false;
    default:
        return false;
    }
}

/* ---- pages ---- */

static bool take_int(struct cursor *c, int32_t *out)
{
    int64_t number;
    if (!thrift_number(c, &number) || number < 0 || number > INT32_MAX)
        return false;
    *out = (int32_t)number;
    return true;
}

/* The header inside of a page's header, by the numbers of its fields. */
static bool read_inner(struct cursor *c, struct parquet_page *out)
{
    int id = 0, type;
    while (thrift_field(c, &id, &type)) {
        int32_t *to = NULL;
        if (type == THRIFT_STOP)
            return true;
        if (out->kind == 3)
            to = id == 1   ? &out->values
                 : id == 2 ? &out->nulls
                 : id == 4 ? &out->encoding
                 : id == 5 ? &out->definition_bytes
                 : id == 6 ? &out->repetition_bytes
                           : NULL;
        else
            to = id == 1 ? &out->values : id == 2 ? &out->encoding : NULL;
        if (out->kind == 3 && id == 7)
            out->compressed = type == THRIFT_TRUE;
        if (to && type == THRIFT_I32 ? !take_int(c, to) : !thrift_skip(c, type, 0))
            return false;
    }
    return false;
}

bool parquet_read_page(struct cursor *c, struct parquet_page *out)
{
    int id = 0, type;
    *out = (struct parquet_page){.kind = -1, .compressed = true};
    while (thrift_field(c, &id, &type)) {
        bool read;
        int32_t kind;
        if (type == THRIFT_STOP)
            return out->kind >= 0;
        if (id == 1 && type == THRIFT_I32) {
            read = take_int(c, &kind);
            out->kind = read ? kind : -1;
        } else if (id == 2 && type == THRIFT_I32) {
            read = take_int(c, &out->unpacked);
        } else if (id == 3 && type == THRIFT_I32) {
            read = take_int(c, &out->packed);
        } else if (type == THRIFT_STRUCT && (id == 5 || id == 7 || id == 8)) {
            read = read_inner(c, out);
        } else {
            read = thrift_skip(c, type, 0);
        }
        if (!read)
            return false;
    }
    return false;
}

/* ---- the footer ---- */

static bool read_field(struct cursor *c, struct parquet_field *out)
{
    int id = 0, type;
    *out = (struct parquet_field){.name = "", .type = -1, .converted = -1, .leaf = -1};
    while (thrift_field(c, &id, &type)) {
        const unsigned char *name;
        int32_t *to = id == 1   ? &out->type
                      : id == 2 ? &out->length
                      : id == 3 ? &out->repetition
                      : id == 5 ? &out->children
                      : id == 6 ? &out->converted
                                : NULL;
        if (type == THRIFT_STOP)
            return out->repetition <= 2 && out->children <= COLUMNS_FIELDS && out->type <= PARQUET_FIXED;
        if (id == 4 && type == THRIFT_BINARY) {
            if (!thrift_binary(c, &name, &out->name_length))
                return false;
            out->name = (const char *)name;
        } else if (to && type == THRIFT_I32 ? !take_int(c, to) : !thrift_skip(c, type, 0)) {
            return false;
        }
    }
    return false;
}

/* ColumnMetaData. */
static bool read_chunk_meta(struct cursor *c, struct parquet_chunk *out)
{
    int id = 0, type;
    while (thrift_field(c, &id, &type)) {
        int64_t *to = id == 5    ? &out->values
                      : id == 7  ? &out->bytes
                      : id == 9  ? &out->data_at
                      : id == 11 ? &out->dictionary_at
                                 : NULL;
        if (type == THRIFT_STOP)
            return true;
        if (id == 4 && type == THRIFT_I32) {
            int32_t codec;
            if (!take_int(c, &codec))
                return false;
            out->codec = codec;
        } else if (to && type == THRIFT_I64 ? !thrift_number(c, to) : !thrift_skip(c, type, 0)) {
            return false;
        }
    }
    return false;
}

static bool read_chunk(struct cursor *c, struct parquet_chunk *out)
{
    int id = 0, type;
    *out = (struct parquet_chunk){.codec = 0};
    while (thrift_field(c, &id, &type)) {
        if (type == THRIFT_STOP)
            return true;
        if (id == 3 && type == THRIFT_STRUCT ? !read_chunk_meta(c, out) : !thrift_skip(c, type, 0))
            return false;
    }
    return false;
}

static bool read_group(struct cursor *c, const struct parquet_meta *meta, struct parquet_chunk *chunks,
                       int64_t *rows)
{
    int id = 0, type, of;
    uint64_t count = 0;
    *rows = -1;
    while (thrift_field(c, &id, &type)) {
        if (type == THRIFT_STOP)
            return *rows >= 0 && count == (uint64_t)meta->leaves;
        if (id == 1 && type == THRIFT_LIST) {
            if (!thrift_list(c, &of, &count) || of != THRIFT_STRUCT || count != (uint64_t)meta->leaves)
                return false;
            for (uint64_t i = 0; i < count; i++)
                if (!read_chunk(c, &chunks[i]))
                    return false;
        } else if (id == 3 && type == THRIFT_I64 ? !thrift_number(c, rows) : !thrift_skip(c, type, 0)) {
            return false;
        }
    }
    return false;
}

/* Levels, ends and leaves of field `at` and all below; the place after them, -1: no tree. */
static int lay_out(struct parquet_meta *meta, int at, int definition, int repeat, int depth)
{
    if (at >= meta->fields || depth > COLUMNS_DEPTH)
        return -1;
    struct parquet_field *field = &meta->field[at];
    const bool root = depth == 0;
    field->definition = definition + (!root && field->repetition != 0);
    field->repeat = repeat + (!root && field->repetition == 2);
    if (!field->children && !root) {
        field->leaf = meta->leaves++;
        field->next = at + 1;
        return field->type < 0 ? -1 : field->next;
    }
    int next = at + 1;
    for (int i = 0; i < field->children && next >= 0; i++)
        next = lay_out(meta, next, field->definition, field->repeat, depth + 1);
    field->next = next;
    return next;
}

static bool read_schema(struct cursor *c, struct parquet_meta *out)
{
    int of;
    uint64_t count;
    if (out->field || !thrift_list(c, &of, &count) || of != THRIFT_STRUCT || !count || count > COLUMNS_FIELDS)
        return false;
    out->field = mem_calloc((size_t)count, sizeof *out->field);
    if (!out->field)
        return false;
    for (out->fields = 0; out->fields < (int)count; out->fields++)
        if (!read_field(c, &out->field[out->fields]))
            return false;
    return lay_out(out, 0, 0, 0, 0) == out->fields && out->leaves > 0;
}

static bool read_groups(struct cursor *c, struct parquet_meta *out)
{
    int of;
    uint64_t count;
    if (!out->leaves || out->chunk || !thrift_list(c, &of, &count) || (count && of != THRIFT_STRUCT) ||
        count > (1u << 24) / (uint64_t)out->leaves)
        return false;
    out->chunk = mem_calloc((size_t)count * (size_t)out->leaves + 1, sizeof *out->chunk);
    out->rows = mem_calloc((size_t)count + 1, sizeof *out->rows);
    for (out->groups = 0; out->chunk && out->rows && out->groups < (int)count; out->groups++)
        if (!read_group(c, out, out->chunk + (size_t)out->groups * (size_t)out->leaves,
                        &out->rows[out->groups]))
            return false;
    return out->chunk && out->rows;
}

void parquet_free_meta(struct parquet_meta *meta)
{
    mem_free(meta->field);
    mem_free(meta->chunk);
    mem_free(meta->rows);
    *meta = (struct parquet_meta){0};
}

int parquet_read_meta(const char *data, size_t length, struct parquet_meta *out, struct muster_error *err)
{
    enum { TAIL = 8 };
    uint32_t footer;
    int id = 0, type = -1;
    *out = (struct parquet_meta){0};
    if (length < 4 + TAIL || memcmp(data, "PAR1", 4) != 0)
        return columns_damaged(err, "it does not begin as Parquet");
    if (!memcmp(data + length - 4, "PARE", 4))
        return error_set(err, MUSTER_E_UNSUPPORTED, "an encrypted Parquet file is not read");
    memcpy(&footer, data + length - TAIL, 4); /* little-endian, as the machine is */
    if (memcmp(data + length - 4, "PAR1", 4) != 0 || footer > length - 4 - TAIL)
        return columns_damaged(err, "it does not end as Parquet");
    const unsigned char *end = (const unsigned char *)data + length - TAIL;
    struct cursor c = {end - footer, end};
    while (thrift_field(&c, &id, &type) && type != THRIFT_STOP)
        if (id == 2 && type == THRIFT_LIST   ? !read_schema(&c, out)
            : id == 4 && type == THRIFT_LIST ? !read_groups(&c, out)
                                             : !thrift_skip(&c, type, 0))
            break;
    if (type == THRIFT_STOP && out->field && out->rows)
        return 0;
    parquet_free_meta(out);
    return columns_damaged(err, "the footer of Parquet");
}
