/* arrow.c - the rows of an Arrow file or stream, batch by batch. */
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "trainer/columns/arrow_internal.h"

/* A field of a batch. */
struct arrow_array {
    int64_t length;
    struct flat valid, first, second; /* bits; offsets or values; bytes of texts */
};
struct arrow_dictionary {
    int64_t id;
    struct arrow_array texts;
    bool large;
    char **block;
    size_t blocks;
};
struct arrow {
    struct columns_options options;
    struct arrow_schema schema;
    struct arrow_array *array; /* (fields) */
    size_t at;                 /* next message */
    int64_t row, rows;         /* next row and rows in the batch */
    char **block;              /* (blocks) unpacked buffers of the batch */
    size_t blocks;
    struct arrow_dictionary *dictionary; /* (dictionaries) */
    size_t dictionaries;
};

static void free_blocks(char ***block, size_t *blocks)
{
    for (size_t i = 0; i < *blocks; i++)
        mem_free((*block)[i]);
    mem_free(*block);
    *block = NULL;
    *blocks = 0;
}

static void arrow_close(void *self)
{
    struct arrow *a = self;
    if (!a)
        return;
    free_blocks(&a->block, &a->blocks);
    for (size_t i = 0; i < a->dictionaries; i++)
        free_blocks(&a->dictionary[i].block, &a->dictionary[i].blocks);
    mem_free(a->dictionary);
    mem_free(a->array);
    mem_free(a->schema.field);
    mem_free(a);
}
GUARD_DEFINE(arrow, struct arrow *, arrow_close);

static bool is_named(const struct arrow_field *field, const char *name)
{
    return field->name_length == strlen(name) && !memcmp(field->name, name, field->name_length);
}

static bool arrow_have(const void *self, const char *name)
{
    const struct arrow *a = self;
    for (int i = 0; i < a->schema.fields; i = a->schema.field[i].next)
        if (is_named(&a->schema.field[i], name))
            return true;
    return false;
}

static bool is_wanted_field(const struct arrow *a, const struct arrow_field *field)
{
    for (const char *const *name = a->options.names; *name; name++)
        if (is_named(field, *name))
            return true;
    return false;
}

/* ---- the buffers of a batch ---- */

struct batch {
    const struct arrow_message *message;
    size_t nodes, node, node_count, buffers, buffer, buffer_count;
    int codec; /* -1: none; 1: zstd */
    char ***block;
    size_t *blocks;
    struct muster_error *err;
};

static int begin_batch(struct batch *b, const struct arrow_message *message, size_t table, int64_t *length)
{
    const struct flat *f = &message->flat;
    const size_t compression = flat_offset(f, table, 3);
    b->message = message;
    *length = flat_int(f, table, 0, 8, 0);
    b->nodes = flat_vector(f, table, 1, 16, &b->node_count);
    b->buffers = flat_vector(f, table, 2, 16, &b->buffer_count);
    b->codec = compression ? (int)flat_int(f, compression, 0, 1, 0) : -1;
    return *length < 0 ? columns_damaged(b->err, "the length of a batch") : 0;
}

static int unpack_buffer(struct batch *b, struct flat *buffer)
{
    int64_t unpacked;
    if (buffer->length < 8)
        return buffer->length ? columns_damaged(b->err, "a buffer of Arrow") : 0;
    memcpy(&unpacked, buffer->data, 8); /* little-endian, as the machine is */
    buffer->data += 8;
    buffer->length -= 8;
    if (unpacked == -1)
        return 0;
    if (unpacked < 0 || unpacked > COLUMNS_UNPACKED)
        return error_set(b->err, MUSTER_E_LIMIT, "a buffer of more than %u bytes", COLUMNS_UNPACKED);
    char **grown = mem_realloc(*b->block, *b->blocks + 1, sizeof *grown);
    *b->block = grown ? grown : *b->block;
    char *block = grown ? mem_calloc((size_t)unpacked + 1, 1) : NULL;
    if (!block)
        return error_set(b->err, MUSTER_E_NOMEM, "no memory for a buffer");
    (*b->block)[(*b->blocks)++] = block;
    if (unpacked &&
        columns_unpack(PACKED_ZSTD, buffer->data, buffer->length, block, (size_t)unpacked, b->err) < 0)
        return -1;
    *buffer = (struct flat){block, (size_t)unpacked};
    return 0;
}

/* The next buffer; out NULL: it is passed. */
static int take_buffer(struct batch *b, struct flat *out)
{
    int64_t place[2];
    const struct flat *f = &b->message->flat;
    if (b->buffer == b->buffer_count)
        return columns_damaged(b->err, "a batch has fewer buffers than its schema");
    memcpy(place, f->data + b->buffers + 16 * b->buffer++, 16); /* flat_vector has checked the place */
    if (!out)
        return 0;
    if (place[0] < 0 || place[1] < 0 || (uint64_t)place[0] > b->message->body_length ||
        (uint64_t)place[1] > b->message->body_length - (uint64_t)place[0])
        return columns_damaged(b->err, "the place of a buffer");
    *out = (struct flat){b->message->body + place[0], (size_t)place[1]};
    return b->codec < 0 ? 0 : unpack_buffer(b, out);
}

static int buffers_of(int type)
{
    switch (type) {
    case ARROW_NULL:
        return 0;
    case ARROW_STRUCT:
    case ARROW_FIXED_LIST:
        return 1;
    case ARROW_BINARY:
    case ARROW_UTF8:
    case ARROW_LARGE_BINARY:
    case ARROW_LARGE_UTF8:
        return 3;
    default:
        return 2;
    }
}

/* The arrays of field `at` and of all below. as_values: of a dictionary itself. */
static int take_field(struct batch *b, const struct arrow_schema *schema, int at, bool wanted, bool as_values,
                      struct arrow_array *arrays)
{
    const struct arrow_field *field = &schema->field[at];
    const bool indexes = field->dictionary >= 0 && !as_values;
    struct arrow_array *array = &arrays[at];
    int64_t node[2];
    if (b->node == b->node_count)
        return columns_damaged(b->err, "a batch has fewer fields than its schema");
    memcpy(node, b->message->flat.data + b->nodes + 16 * b->node++,
           16); /* flat_vector has checked the place */
    *array = (struct arrow_array){.length = node[0]};
    struct flat *to[] = {&array->valid, &array->first, &array->second};
    const int buffers = indexes ? 2 : buffers_of(field->type);
    for (int i = 0; i < buffers; i++)
        if (take_buffer(b, wanted ? to[i] : NULL) < 0)
            return -1;
    if (node[0] < 0)
        return columns_damaged(b->err, "the length of a field");
    for (int child = at + 1; !indexes && child < field->next; child = schema->field[child].next)
        if (take_field(b, schema, child, wanted, false, arrays) < 0)
            return -1;
    return 0;
}

static int refuse_codec(const struct batch *b)
{
    return b->codec < 0 || b->codec == 1
               ? 0
               : error_set(
                     b->err, MUSTER_E_UNSUPPORTED,
                     "an Arrow file packed by LZ4 is not read; write it with zstd, or without compression");
}

static int read_arrow_batch(struct arrow *a, const struct arrow_message *message, struct muster_error *err)
{
    struct batch b = {.block = &a->block, .blocks = &a->blocks, .err = err};
    free_blocks(&a->block, &a->blocks);
    if (begin_batch(&b, message, message->header, &a->rows) < 0 || refuse_codec(&b) < 0)
        return -1;
    a->row = 0;
    for (int i = 0; i < a->schema.fields; i = a->schema.field[i].next) {
        const bool wanted = is_wanted_field(a, &a->schema.field[i]);
        if (take_field(&b, &a->schema, i, wanted, false, a->array) < 0)
            return -1;
        if (wanted && a->array[i].length < a->rows)
            return columns_damaged(err, "a field is shorter than its batch");
    }
    return 0;
}

/* Texts of a dictionary; of another type they are not kept. A later one with the same number replaces it. */
static int read_arrow_dictionary(struct arrow *a, const struct arrow_message *message,
                                 struct muster_error *err)
{
    const int64_t id = flat_int(&message->flat, message->header, 0, 8, 0);
    const size_t data = flat_offset(&message->flat, message->header, 1);
    int field = -1;
    int64_t length;
    for (int i = 0; i < a->schema.fields; i++)
        if (a->schema.field[i].dictionary == id && a->schema.field[i].next == i + 1)
            field = i;
    if (field < 0 || buffers_of(a->schema.field[field].type) != 3)
        return 0;
    if (flat_int(&message->flat, message->header, 2, 1, 0))
        return error_set(err, MUSTER_E_UNSUPPORTED, "a dictionary of Arrow that grows (a delta) is not read");
    size_t at = 0;
    while (at < a->dictionaries && a->dictionary[at].id != id)
        at++;
    if (at == a->dictionaries) {
        struct arrow_dictionary *grown = mem_realloc(a->dictionary, at + 1, sizeof *grown);
        if (!grown)
            return error_set(err, MUSTER_E_NOMEM, "no memory for a dictionary");
        a->dictionary = grown;
        a->dictionary[a->dictionaries++] = (struct arrow_dictionary){.id = id};
    }
    struct arrow_dictionary *d = &a->dictionary[at];
    free_blocks(&d->block, &d->blocks);
    struct batch b = {.block = &d->block, .blocks = &d->blocks, .err = err};
    if (!data || begin_batch(&b, message, data, &length) < 0)
        return columns_damaged(err, "a dictionary of Arrow");
    if (refuse_codec(&b) < 0 || take_field(&b, &a->schema, field, true, true, a->array) < 0)
        return -1;
    d->texts = a->array[field];
    d->large =
        a->schema.field[field].type == ARROW_LARGE_UTF8 || a->schema.field[field].type == ARROW_LARGE_BINARY;
    return 0;
}

/* ---- values ---- */

static bool is_there(const struct arrow_array *array, int64_t row)
{
    return !array->valid.length ||
           ((uint64_t)row / 8 < array->valid.length && (array->valid.data[row / 8] >> (row % 8) & 1));
}

/* A number of a buffer; false: the buffer ends. */
static bool number_at(const struct flat *buffer, int64_t row, size_t width, bool is_signed, int64_t *out)
{
    uint64_t value = 0;
    if (!width || width > 8 || (uint64_t)row >= buffer->length / width)
        return false;
    memcpy(&value, buffer->data + (size_t)row * width, width);
    const int shift = (int)(8 * (8 - width));
    *out = is_signed ? (int64_t)(value << shift) >> shift : (int64_t)value;
    return true;
}

static bool range_at(const struct arrow_array *array, int64_t row, bool large, int64_t *from, int64_t *to)
{
    const size_t width = large ? 8 : 4;
    return number_at(&array->first, row, width, true, from) &&
           number_at(&array->first, row + 1, width, true, to) && *from >= 0 && *to >= *from;
}

static json_t *text_at(const struct arrow_array *array, int64_t row, bool large, struct muster_error *err)
{
    int64_t from, to;
    if (!is_there(array, row))
        return json_null();
    if (!range_at(array, row, large, &from, &to) || (uint64_t)to > array->second.length) {
        (void)columns_damaged(err, "the place of a text");
        return NULL;
    }
    json_t *text = json_stringn(to > from ? array->second.data + from : "", (size_t)(to - from));
    if (!text)
        (void)error_set(err, MUSTER_E_INVALID, "a text is no UTF-8");
    return text;
}

static json_t *arrow_value(const struct arrow *a, int field, int64_t row, struct muster_error *err);

static json_t *items_at(const struct arrow *a, int field, int64_t from, int64_t to, struct muster_error *err)
{
    json_t *list = json_array();
    if (a->schema.field[field].children != 1 || to > a->array[field + 1].length) {
        json_decref(list);
        (void)columns_damaged(err, "the place of a list");
        return NULL;
    }
    for (int64_t i = from; list && i < to; i++) {
        json_t *item = arrow_value(a, field + 1, i, err);
        if (!item || json_array_append_new(list, item) < 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

static json_t *struct_at(const struct arrow *a, int field, int64_t row, struct muster_error *err)
{
    json_t *object = json_object();
    for (int child = field + 1; object && child < a->schema.field[field].next;
         child = a->schema.field[child].next) {
        const struct arrow_field *f = &a->schema.field[child];
        json_t *value = row < a->array[child].length ? arrow_value(a, child, row, err) : NULL;
        scope_free char *key = value ? mem_strndup(f->name, f->name_length) : NULL;
        if (!key || json_object_set_new(object, key, value) < 0) {
            if (value && !key)
                json_decref(value);
            json_decref(object);
            if (err && !err->code)
                (void)columns_damaged(err, "a struct of Arrow");
            return NULL;
        }
    }
    return object;
}

static json_t *indexed_at(const struct arrow *a, int field, int64_t row, struct muster_error *err)
{
    const struct arrow_field *f = &a->schema.field[field];
    int64_t index;
    for (size_t i = 0; i < a->dictionaries; i++) {
        const struct arrow_dictionary *d = &a->dictionary[i];
        if (d->id != f->dictionary)
            continue;
        if (number_at(&a->array[field].first, row, (size_t)f->index_bits / 8, true, &index) && index >= 0 &&
            index < d->texts.length)
            return text_at(&d->texts, index, d->large, err);
        (void)columns_damaged(err, "an index after the end of a dictionary");
        return NULL;
    }
    (void)error_set(err, MUSTER_E_UNSUPPORTED, "the column '%.*s' has a dictionary of another type than text",
                    (int)(f->name_length < 60 ? f->name_length : 60), f->name);
    return NULL;
}

static json_t *real_at(const struct arrow_array *array, int64_t row, int precision)
{
    int64_t bits;
    float single;
    double real;
    if (precision != 1 && precision != 2) /* half: not read */
        return NULL;
    if (!number_at(&array->first, row, precision == 1 ? 4 : 8, false, &bits))
        return NULL;
    const uint32_t low = (uint32_t)bits;
    memcpy(&single, &low, 4);
    memcpy(&real, &bits, 8);
    return json_real(precision == 1 ? (double)single : real);
}

static json_t *arrow_value(const struct arrow *a, int field, int64_t row, struct muster_error *err)
{
    const struct arrow_field *f = &a->schema.field[field];
    const struct arrow_array *array = &a->array[field];
    int64_t number = 0, to;
    json_t *value = NULL;
    if (f->type == ARROW_NULL || !is_there(array, row))
        return json_null();
    if (f->dictionary >= 0)
        return indexed_at(a, field, row, err);
    switch (f->type) {
    case ARROW_UTF8:
    case ARROW_BINARY:
    case ARROW_LARGE_UTF8:
    case ARROW_LARGE_BINARY:
        return text_at(array, row, f->type == ARROW_LARGE_UTF8 || f->type == ARROW_LARGE_BINARY, err);
    case ARROW_LIST:
    case ARROW_MAP:
    case ARROW_LARGE_LIST:
        if (range_at(array, row, f->type == ARROW_LARGE_LIST, &number, &to))
            return items_at(a, field, number, to, err);
        break;
    case ARROW_FIXED_LIST:
        if (f->bits >= 0 && row < INT64_MAX / (f->bits + 1))
            return items_at(a, field, row * f->bits, (row + 1) * f->bits, err);
        break;
    case ARROW_STRUCT:
        return struct_at(a, field, row, err);
    case ARROW_INT:
        if (number_at(&array->first, row, (size_t)(f->bits < 0 ? 0 : f->bits) / 8, f->is_signed, &number))
            value = json_integer(number);
        break;
    case ARROW_BOOL:
        if ((uint64_t)row / 8 < array->first.length)
            value = json_boolean(array->first.data[row / 8] >> (row % 8) & 1);
        break;
    case ARROW_FLOAT:
        value = real_at(array, row, f->bits);
        break;
    default:
        (void)error_set(err, MUSTER_E_UNSUPPORTED, "the column '%.*s' of Arrow's type %d is not read",
                        (int)(f->name_length < 60 ? f->name_length : 60), f->name, f->type);
        return NULL;
    }
    if (!value)
        (void)columns_damaged(err, "a value of Arrow");
    return value;
}

/* ---- rows ---- */

/* 1: there is a row. */
static int find_batch(struct arrow *a, struct muster_error *err)
{
    while (a->row == a->rows) {
        struct arrow_message message;
        const int found = arrow_next_message(a->options.data, a->options.length, &a->at, &message, err);
        if (found <= 0)
            return found;
        if (message.kind == ARROW_BATCH        ? read_arrow_batch(a, &message, err) < 0
            : message.kind == ARROW_DICTIONARY ? read_arrow_dictionary(a, &message, err) < 0
                                               : false)
            return -1;
    }
    return 1;
}

static int arrow_next(void *self, json_t **record, struct muster_error *err)
{
    struct arrow *a = self;
    const int found = find_batch(a, err);
    if (found <= 0)
        return found;
    json_t *row = json_object();
    for (int i = 0; row && i < a->schema.fields; i = a->schema.field[i].next) {
        const struct arrow_field *f = &a->schema.field[i];
        if (!is_wanted_field(a, f))
            continue;
        json_t *value = arrow_value(a, i, a->row, err);
        scope_free char *key = value ? mem_strndup(f->name, f->name_length) : NULL;
        if (!key || json_object_set_new(row, key, value) < 0) {
            if (value && !key)
                json_decref(value);
            json_decref(row);
            return err && err->code ? -1 : error_set(err, MUSTER_E_NOMEM, "no memory for a row");
        }
    }
    a->row++;
    *record = row;
    return row ? 1 : error_set(err, MUSTER_E_NOMEM, "no memory for a row");
}

static const struct columns_ops arrow_ops = {arrow_have, arrow_next, arrow_close};

struct columns *columns_open_arrow(const struct columns_options *options, struct muster_error *err)
{
    static const char magic[] = "ARROW1";
    struct arrow_message message;
    GUARD(guard_arrow) struct arrow *a = mem_calloc(1, sizeof *a);
    if (!a) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for a table");
        return NULL;
    }
    a->options = *options;
    /* a file is a stream between its name and its index */
    a->at = options->length >= 8 && !memcmp(options->data, magic, sizeof magic - 1) ? 8 : 0;
    const int found = arrow_next_message(options->data, options->length, &a->at, &message, err);
    if (found < 0 ||
        (found && message.kind == ARROW_SCHEMA && arrow_read_schema(&message, &a->schema, err) < 0))
        return NULL;
    if (!found || message.kind != ARROW_SCHEMA || !a->schema.fields) {
        (void)columns_damaged(err, "it does not begin with a schema of Arrow");
        return NULL;
    }
    a->array = mem_calloc((size_t)a->schema.fields, sizeof *a->array);
    struct columns *columns = a->array ? columns_create(&arrow_ops, a, err) : NULL;
    if (!columns) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for a table");
        return NULL;
    }
    for (int i = 0; i < a->schema.fields; i = a->schema.field[i].next)
        (void)buffer_printf(&columns->names, "%s%.*s", i ? ", " : "", (int)a->schema.field[i].name_length,
                            a->schema.field[i].name ? a->schema.field[i].name
                                                    : ""); /* it remembers a failure */
    a = NULL;                                              /* columns owns it */
    return columns;
}
