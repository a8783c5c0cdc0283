/* arrow_message.c - the messages of an Arrow stream: flatbuffers, whose every offset is checked. */
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "trainer/columns/arrow_internal.h"

/* ---- flatbuffers ---- */

static bool flat_read(const struct flat *f, size_t at, size_t bytes, void *out)
{
    if (at > f->length || f->length - at < bytes)
        return false;
    memcpy(out, f->data + at, bytes);
    return true;
}

/* The place of a field of a table; 0: it is not there, or the table is damaged. */
static size_t flat_field(const struct flat *f, size_t table, int field)
{
    int32_t back;
    uint16_t bytes, offset;
    if (!table || !flat_read(f, table, 4, &back))
        return 0;
    const int64_t entries = (int64_t)table - back;
    if (entries < 0 || !flat_read(f, (size_t)entries, 2, &bytes) || 4 + 2 * (size_t)field + 2 > bytes ||
        !flat_read(f, (size_t)entries + 4 + 2 * (size_t)field, 2, &offset) || !offset)
        return 0;
    return table + offset;
}

int64_t flat_int(const struct flat *f, size_t table, int field, size_t bytes, int64_t otherwise)
{
    const size_t at = flat_field(f, table, field);
    int64_t value = 0;
    if (!at || bytes > 8 || !flat_read(f, at, bytes, &value))
        return otherwise;
    const int shift = (int)(8 * (8 - bytes)); /* keeps the sign */
    return (int64_t)((uint64_t)value << shift) >> shift;
}

size_t flat_offset(const struct flat *f, size_t table, int field)
{
    const size_t at = flat_field(f, table, field);
    uint32_t offset;
    if (!at || !flat_read(f, at, 4, &offset) || !offset || offset > f->length - at)
        return 0;
    return at + offset;
}

size_t flat_vector(const struct flat *f, size_t table, int field, size_t each, size_t *count)
{
    const size_t at = flat_offset(f, table, field);
    uint32_t number;
    *count = 0;
    if (!at || !flat_read(f, at, 4, &number) || number > (f->length - at - 4) / each)
        return 0;
    *count = number;
    return at + 4;
}

size_t flat_table(const struct flat *f, size_t vector, size_t index)
{
    const size_t at = vector + 4 * index;
    uint32_t offset;
    return flat_read(f, at, 4, &offset) && offset && offset <= f->length - at ? at + offset : 0;
}

/* ---- messages ---- */

int arrow_next_message(const char *data, size_t length, size_t *at, struct arrow_message *out,
                       struct muster_error *err)
{
    uint32_t size, root;
    const struct flat file = {data, length};
    if (*at == length)
        return 0;
    if (!flat_read(&file, *at, 4, &size))
        return columns_damaged(err, "a message of Arrow");
    *at += 4;
    if (size == UINT32_MAX) { /* older streams have no marker */
        if (!flat_read(&file, *at, 4, &size))
            return columns_damaged(err, "a message of Arrow");
        *at += 4;
    }
    if (!size)
        return 0;
    if (size > length - *at)
        return columns_damaged(err, "a message of Arrow");
    out->flat = (struct flat){data + *at, size};
    *at += size;
    if (!flat_read(&out->flat, 0, 4, &root) || !root || root > size)
        return columns_damaged(err, "a message of Arrow");
    out->kind = (int)flat_int(&out->flat, root, 1, 1, 0);
    out->header = flat_offset(&out->flat, root, 2);
    const int64_t body = flat_int(&out->flat, root, 3, 8, 0);
    if (!out->header || body < 0 || (uint64_t)body > length - *at)
        return columns_damaged(err, "the body of a message of Arrow");
    out->body = data + *at;
    out->body_length = (size_t)body;
    *at += (size_t)body;
    return 1;
}

/* ---- the schema ---- */

static int read_arrow_type(const struct flat *f, size_t field, struct arrow_field *out,
                           struct muster_error *err)
{
    static const char *const names[] = {
        [ARROW_UNION] = "union", [22] = "run-end",   [23] = "binary view",
        [24] = "text view",      [25] = "list view", [26] = "large list view"};
    const size_t type = flat_offset(f, field, 3);
    const int known = out->type > 0 && out->type <= 26 ? out->type : 0;
    if (!known)
        return columns_damaged(err, "a type of Arrow");
    if (names[known])
        return error_set(err, MUSTER_E_UNSUPPORTED, "the column '%.*s' of Arrow's type %s is not read",
                         (int)(out->name_length < 60 ? out->name_length : 60), out->name, names[known]);
    out->bits = (int)flat_int(f, type, 0, known == ARROW_FLOAT ? 2 : 4, 0);
    out->is_signed = flat_int(f, type, 1, 1, 0) != 0;
    const size_t dictionary = flat_offset(f, field, 4);
    out->dictionary = -1;
    if (!dictionary)
        return 0;
    const size_t index = flat_offset(f, dictionary, 1);
    out->dictionary = flat_int(f, dictionary, 0, 8, 0);
    out->index_bits = index ? (int)flat_int(f, index, 0, 4, 32) : 32;
    return out->dictionary < 0 ? columns_damaged(err, "a dictionary of Arrow") : 0;
}

static int read_arrow_fields(const struct flat *f, size_t vector, size_t count, struct arrow_schema *out,
                             int depth, struct muster_error *err)
{
    if (depth > COLUMNS_DEPTH || count > COLUMNS_FIELDS)
        return columns_damaged(err, "the schema of Arrow");
    for (size_t i = 0; i < count; i++) {
        const size_t field = flat_table(f, vector, i), name = flat_offset(f, field, 0);
        size_t children;
        uint32_t bytes = 0;
        if (!field || out->fields == COLUMNS_FIELDS)
            return columns_damaged(err, "the schema of Arrow");
        struct arrow_field *grown = mem_realloc(out->field, (size_t)out->fields + 1, sizeof *grown);
        if (!grown)
            return error_set(err, MUSTER_E_NOMEM, "no memory for a schema");
        out->field = grown;
        const int at = out->fields++;
        struct arrow_field read = {.name = "", .type = (int)flat_int(f, field, 2, 1, 0)};
        if (name && flat_read(f, name, 4, &bytes) && bytes <= f->length - name - 4) {
            read.name = f->data + name + 4;
            read.name_length = bytes;
        }
        const size_t inner = flat_vector(f, field, 5, 4, &children);
        read.children = (int)children;
        if (read_arrow_type(f, field, &read, err) < 0)
            return -1;
        out->field[at] = read;
        if (read_arrow_fields(f, inner, children, out, depth + 1, err) < 0)
            return -1;
        out->field[at].next = out->fields;
    }
    return 0;
}

int arrow_read_schema(const struct arrow_message *message, struct arrow_schema *out, struct muster_error *err)
{
    size_t count;
    const size_t fields = flat_vector(&message->flat, message->header, 1, 4, &count);
    if (out->field)
        return columns_damaged(err, "a second schema");
    if (flat_int(&message->flat, message->header, 0, 2, 0) != 0)
        return error_set(err, MUSTER_E_UNSUPPORTED, "a big-endian Arrow file is not read");
    return read_arrow_fields(&message->flat, fields, count, out, 0, err);
}
