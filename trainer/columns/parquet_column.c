/* parquet_column.c - the pages of a column as levels and values. */
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "trainer/columns/columns_internal.h"

enum { PAGE_VALUES = 1 << 24, COLUMN_VALUES = 1 << 28 };

/* A dictionary has the same values as a column. */
struct reading {
    struct parquet_column *column;
    struct parquet_column dictionary;
    enum packing packing;
    struct muster_error *err;
};

void parquet_column_free(struct parquet_column *column)
{
    for (size_t i = 0; i < column->blocks; i++)
        mem_free(column->block[i]);
    mem_free(column->block);
    mem_free(column->definitions);
    mem_free(column->repeats);
    mem_free(column->text);
    mem_free(column->number);
    mem_free(column->real);
    *column = (struct parquet_column){.field = column->field};
}

static int no_column_memory(struct muster_error *err)
{
    return error_set(err, MUSTER_E_NOMEM, "no memory for a column");
}

/* Memory for `more` values; one kind of them. */
static int reserve_values(struct parquet_column *c, size_t more, struct muster_error *err)
{
    if (more > COLUMN_VALUES || c->values + more > COLUMN_VALUES)
        return error_set(err, MUSTER_E_LIMIT, "a row group has more than %d values of a column",
                         COLUMN_VALUES);
    if (c->value_room - c->values >= more)
        return 0;
    const size_t room = (c->values + more) * 2;
    void *grown = NULL;
    switch ((enum parquet_type)c->field->type) {
    case PARQUET_BYTES:
    case PARQUET_FIXED:
        grown = mem_realloc(c->text, room, sizeof *c->text);
        c->text = grown ? grown : c->text;
        break;
    case PARQUET_FLOAT:
    case PARQUET_DOUBLE:
        grown = mem_realloc(c->real, room, sizeof *c->real);
        c->real = grown ? grown : c->real;
        break;
    case PARQUET_BOOL:
    case PARQUET_INT32:
    case PARQUET_INT64:
    case PARQUET_INT96:
        grown = mem_realloc(c->number, room, sizeof *c->number);
        c->number = grown ? grown : c->number;
        break;
    }
    if (!grown)
        return no_column_memory(err);
    c->value_room = room;
    return 0;
}

static int reserve_entries(struct parquet_column *c, size_t more, struct muster_error *err)
{
    if (more > COLUMN_VALUES || c->entries + more > COLUMN_VALUES)
        return error_set(err, MUSTER_E_LIMIT, "a row group has more than %d values of a column",
                         COLUMN_VALUES);
    if (c->entry_room - c->entries >= more)
        return 0;
    const size_t room = (c->entries + more) * 2;
    uint8_t *definitions = mem_realloc(c->definitions, room, 1);
    c->definitions = definitions ? definitions : c->definitions;
    uint8_t *repeats = definitions ? mem_realloc(c->repeats, room, 1) : NULL;
    c->repeats = repeats ? repeats : c->repeats;
    if (!repeats)
        return no_column_memory(err);
    c->entry_room = room;
    return 0;
}

/* A block of the column, which owns it. */
static char *new_block(struct parquet_column *c, size_t bytes, struct muster_error *err)
{
    char **grown = mem_realloc(c->block, c->blocks + 1, sizeof *grown);
    c->block = grown ? grown : c->block;
    char *block = grown ? mem_calloc(bytes + 1, 1) : NULL;
    if (block)
        c->block[c->blocks++] = block;
    else
        (void)no_column_memory(err);
    return block;
}

/* ---- values ---- */

static int plain_texts(struct parquet_column *c, struct cursor *at, size_t count, struct muster_error *err)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t length = (uint32_t)c->field->length;
        const unsigned char *bytes;
        if ((c->field->type == PARQUET_BYTES && !cursor_u32(at, &length)) || !cursor_take(at, length, &bytes))
            return columns_damaged(err, "texts of a page");
        c->text[c->values++] = (struct parquet_text){(const char *)bytes, length};
    }
    return 0;
}

static int plain_numbers(struct parquet_column *c, struct cursor *at, size_t count, struct muster_error *err)
{
    const int type = c->field->type;
    const size_t width = type == PARQUET_INT32 || type == PARQUET_FLOAT ? 4 : 8;
    const unsigned char *bytes;
    if (!cursor_take(at, type == PARQUET_BOOL ? (count + 7) / 8 : count * width, &bytes))
        return columns_damaged(err, "numbers of a page");
    for (size_t i = 0; i < count; i++, c->values++) {
        int32_t narrow;
        float single;
        if (type == PARQUET_BOOL)
            c->number[c->values] = bytes[i / 8] >> (i % 8) & 1;
        else if (type == PARQUET_INT32)
            c->number[c->values] = (memcpy(&narrow, bytes + i * 4, 4), narrow);
        else if (type == PARQUET_INT64)
            memcpy(&c->number[c->values], bytes + i * 8, 8);
        else if (type == PARQUET_FLOAT)
            c->real[c->values] = (double)(memcpy(&single, bytes + i * 4, 4), single);
        else
            memcpy(&c->real[c->values], bytes + i * 8, 8);
    }
    return 0;
}

static int plain_values(struct parquet_column *c, struct cursor *at, size_t count, struct muster_error *err)
{
    return c->field->type == PARQUET_BYTES || c->field->type == PARQUET_FIXED
               ? plain_texts(c, at, count, err)
               : plain_numbers(c, at, count, err);
}

static int dictionary_values(struct reading *r, struct cursor *at, size_t count)
{
    struct parquet_column *c = r->column;
    const struct parquet_column *d = &r->dictionary;
    const unsigned char *bits;
    scope_free uint32_t *index = mem_calloc(count + 1, sizeof *index);
    if (!index)
        return no_column_memory(r->err);
    if (count && (!cursor_take(at, 1, &bits) || !encoding_rle(at, *bits, count, index)))
        return columns_damaged(r->err, "indexes of a page");
    for (size_t i = 0; i < count; i++, c->values++) {
        if (index[i] >= d->values)
            return columns_damaged(r->err, "an index after the end of a dictionary");
        if (c->text)
            c->text[c->values] = d->text[index[i]];
        else if (c->real)
            c->real[c->values] = d->real[index[i]];
        else
            c->number[c->values] = d->number[index[i]];
    }
    return 0;
}

/* Lengths, then all bytes. */
static int delta_lengths(struct parquet_column *c, struct cursor *at, size_t count, struct parquet_text *out,
                         struct muster_error *err)
{
    scope_free int64_t *length = mem_calloc(count + 1, sizeof *length);
    size_t found = 0;
    (void)c;
    if (!length)
        return no_column_memory(err);
    if (!encoding_delta(at, count, length, &found) || found != count)
        return columns_damaged(err, "lengths of a page");
    for (size_t i = 0; i < count; i++) {
        const unsigned char *bytes;
        if (length[i] < 0 || length[i] > INT32_MAX || !cursor_take(at, (size_t)length[i], &bytes))
            return columns_damaged(err, "texts of a page");
        out[i] = (struct parquet_text){(const char *)bytes, (uint32_t)length[i]};
    }
    return 0;
}

/* Lengths that a text shares with the text in front of it, then the other bytes. */
static int delta_texts(struct parquet_column *c, struct cursor *at, size_t count, struct muster_error *err)
{
    scope_free int64_t *shared = mem_calloc(count + 1, sizeof *shared);
    struct parquet_text *text = c->text + c->values;
    size_t found = 0, bytes = 0;
    if (!shared)
        return no_column_memory(err);
    if (!encoding_delta(at, count, shared, &found) || found != count)
        return columns_damaged(err, "lengths of a page");
    if (delta_lengths(c, at, count, text, err) < 0)
        return -1;
    for (size_t i = 0, before = 0; i < count; i++) {
        if (shared[i] < 0 || (uint64_t)shared[i] > before)
            return columns_damaged(err, "lengths of a page");
        before = (size_t)shared[i] + text[i].length;
        bytes += before;
        if (bytes > COLUMNS_UNPACKED)
            return error_set(err, MUSTER_E_LIMIT, "a page has more than %u bytes of texts", COLUMNS_UNPACKED);
    }
    char *block = new_block(c, bytes, err);
    if (!block)
        return -1;
    for (size_t i = 0; i < count; i++) {
        const size_t front = (size_t)shared[i];
        if (front)
            memcpy(block, text[i - 1].data, front);
        memcpy(block + front, text[i].data, text[i].length);
        text[i] = (struct parquet_text){block, (uint32_t)(front + text[i].length)};
        block += text[i].length;
    }
    c->values += count;
    return 0;
}

static int delta_numbers(struct parquet_column *c, struct cursor *at, size_t count, struct muster_error *err)
{
    size_t found = 0;
    if (!c->number || !encoding_delta(at, count, c->number + c->values, &found) || found != count)
        return columns_damaged(err, "numbers of a page");
    for (size_t i = 0; i < count && c->field->type == PARQUET_INT32; i++)
        c->number[c->values + i] = (int32_t)c->number[c->values + i];
    c->values += count;
    return 0;
}

static int rle_truths(struct parquet_column *c, struct cursor *at, size_t count, struct muster_error *err)
{
    scope_free uint32_t *bits = mem_calloc(count + 1, sizeof *bits);
    uint32_t length;
    if (!bits)
        return no_column_memory(err);
    if (c->field->type != PARQUET_BOOL || !cursor_u32(at, &length) || !encoding_rle(at, 1, count, bits))
        return columns_damaged(err, "truths of a page");
    for (size_t i = 0; i < count; i++)
        c->number[c->values++] = bits[i];
    return 0;
}

enum {
    PLAIN = 0,
    PLAIN_DICTIONARY = 2,
    RLE = 3,
    DELTA_NUMBERS = 5,
    DELTA_LENGTHS = 6,
    DELTA_TEXTS = 7,
    RLE_DICTIONARY = 8
};

static int page_values(struct reading *r, int encoding, struct cursor *at, size_t count)
{
    struct parquet_column *c = r->column;
    if (reserve_values(c, count + 1, r->err) < 0)
        return -1;
    switch (encoding) {
    case PLAIN:
        return plain_values(c, at, count, r->err);
    case PLAIN_DICTIONARY:
    case RLE_DICTIONARY:
        return dictionary_values(r, at, count);
    case RLE:
        return rle_truths(c, at, count, r->err);
    case DELTA_NUMBERS:
        return delta_numbers(c, at, count, r->err);
    case DELTA_LENGTHS:
        if (!c->text)
            break;
        if (delta_lengths(c, at, count, c->text + c->values, r->err) < 0)
            return -1;
        c->values += count;
        return 0;
    case DELTA_TEXTS:
        if (c->text)
            return delta_texts(c, at, count, r->err);
        break;
    default:
        break;
    }
    return error_set(r->err, MUSTER_E_UNSUPPORTED, "encoding %d of a Parquet page is not read", encoding);
}

/* ---- pages ---- */

static int bits_for(int level)
{
    int bits = 0;
    while (level >> bits)
        bits++;
    return bits;
}

/* One kind of levels of a page. */
static int page_levels(struct cursor *at, int level, size_t count, uint8_t *out, struct muster_error *err)
{
    scope_free uint32_t *levels = mem_calloc(count + 1, sizeof *levels);
    if (!levels)
        return no_column_memory(err);
    if (!encoding_rle(at, bits_for(level), count, levels))
        return columns_damaged(err, "levels of a page");
    for (size_t i = 0; i < count; i++) {
        if (levels[i] > (uint32_t)level)
            return columns_damaged(err, "a level of a page");
        out[i] = (uint8_t)levels[i];
    }
    return 0;
}

/* Levels with their length in front (version 1), or of `bytes` bytes. */
static int take_levels(struct cursor *at, int level, size_t count, int64_t bytes, uint8_t *out,
                       struct muster_error *err)
{
    uint32_t length = (uint32_t)bytes;
    const unsigned char *from;
    if (!level && bytes <= 0) {
        memset(out, 0, count);
        return 0;
    }
    if ((bytes < 0 && !cursor_u32(at, &length)) || !cursor_take(at, length, &from))
        return columns_damaged(err, "levels of a page");
    return page_levels(&(struct cursor){from, from + length}, level, count, out, err);
}

static int read_data_page(struct reading *r, const struct parquet_page *page, struct cursor body)
{
    struct parquet_column *c = r->column;
    const size_t count = (size_t)page->values,
                 levels = (size_t)page->definition_bytes + (size_t)page->repetition_bytes;
    const bool second = page->kind == 3;
    const size_t packed = (size_t)(body.end - body.at), unpacked = (size_t)page->unpacked;
    if (count > PAGE_VALUES || unpacked > COLUMNS_UNPACKED)
        return error_set(r->err, MUSTER_E_LIMIT, "a page of %zu values and %zu bytes", count, unpacked);
    if (second && (levels > packed || levels > unpacked))
        return columns_damaged(r->err, "levels of a page");
    const size_t front = second ? levels : 0;
    char *block = reserve_entries(c, count + 1, r->err) < 0 ? NULL : new_block(c, unpacked, r->err);
    if (!block)
        return -1;
    memcpy(block, body.at, front);
    if (unpacked > front &&
        columns_unpack(second && !page->compressed ? PACKED_NOT : r->packing, (const char *)body.at + front,
                       packed - front, block + front, unpacked - front, r->err) < 0)
        return -1;
    struct cursor at = {(unsigned char *)block, (unsigned char *)block + unpacked};
    uint8_t *definitions = c->definitions + c->entries;
    if (take_levels(&at, c->field->repeat, count, second ? page->repetition_bytes : -1,
                    c->repeats + c->entries, r->err) < 0 ||
        take_levels(&at, c->field->definition, count, second ? page->definition_bytes : -1, definitions,
                    r->err) < 0)
        return -1;
    size_t present = 0;
    for (size_t i = 0; i < count; i++)
        present += definitions[i] == c->field->definition;
    c->entries += count;
    return page_values(r, page->encoding, &at, present);
}

static int read_dictionary(struct reading *r, const struct parquet_page *page, struct cursor body)
{
    struct parquet_column *d = &r->dictionary;
    const size_t count = (size_t)page->values, unpacked = (size_t)page->unpacked;
    if (d->value_room || count > PAGE_VALUES || unpacked > COLUMNS_UNPACKED)
        return columns_damaged(r->err, "a dictionary");
    d->field = r->column->field;
    char *block = new_block(r->column, unpacked, r->err); /* texts of the column point into it */
    if (!block || reserve_values(d, count + 1, r->err) < 0 ||
        (unpacked && columns_unpack(r->packing, (const char *)body.at, (size_t)(body.end - body.at), block,
                                    unpacked, r->err) < 0))
        return -1;
    return plain_values(d, &(struct cursor){(unsigned char *)block, (unsigned char *)block + unpacked}, count,
                        r->err);
}

static int read_pages(struct reading *r, struct cursor file, const struct parquet_chunk *chunk)
{
    while (r->column->entries < (size_t)chunk->values) {
        struct parquet_page page;
        const unsigned char *body;
        if (!parquet_read_page(&file, &page) || !cursor_take(&file, (size_t)page.packed, &body))
            return columns_damaged(r->err, "the header of a page");
        const struct cursor bytes = {body, body + page.packed};
        const size_t before = r->column->entries;
        if (page.kind == 2                     ? read_dictionary(r, &page, bytes) < 0
            : page.kind == 0 || page.kind == 3 ? read_data_page(r, &page, bytes) < 0
                                               : false)
            return -1;
        if ((page.kind == 0 || page.kind == 3) && r->column->entries == before && file.at == file.end)
            return columns_damaged(r->err, "a column ends early");
    }
    return r->column->entries == (size_t)chunk->values ? 0
                                                       : columns_damaged(r->err, "a column has more values");
}

int parquet_column_read(const char *data, size_t length, const struct parquet_chunk *chunk,
                        struct parquet_column *out, struct muster_error *err)
{
    static const struct {
        int codec;
        enum packing packing;
    } codecs[] = {{0, PACKED_NOT}, {1, PACKED_SNAPPY}, {2, PACKED_GZIP}, {6, PACKED_ZSTD}};
    static const char *const names[] = {"none", "snappy", "gzip", "LZO", "Brotli", "LZ4", "zstd", "LZ4"};
    struct reading r = {.column = out, .err = err};
    bool known = false;
    const int64_t dictionary = chunk->dictionary_at,
                  at = dictionary > 0 && dictionary < chunk->data_at ? dictionary : chunk->data_at;
    for (size_t i = 0; i < sizeof codecs / sizeof *codecs; i++)
        if (codecs[i].codec == chunk->codec) {
            r.packing = codecs[i].packing;
            known = true;
        }
    if (!known)
        return error_set(err, MUSTER_E_UNSUPPORTED,
                         "a Parquet column packed by %s is not read; write it with snappy, gzip or zstd",
                         chunk->codec >= 0 && chunk->codec < 8 ? names[chunk->codec] : "an unknown codec");
    if (out->field->type == PARQUET_INT96)
        return error_set(err, MUSTER_E_UNSUPPORTED, "a Parquet column of the type INT96 is not read");
    if (!chunk->values)
        return 0;
    if (at < 4 || (uint64_t)at > length || chunk->bytes < 0 ||
        (uint64_t)chunk->bytes > length - (uint64_t)at || chunk->values < 0 || chunk->values > COLUMN_VALUES)
        return columns_damaged(err, "the place of a column");
    const unsigned char *from = (const unsigned char *)data + at;
    const int result = read_pages(&r, (struct cursor){from, from + chunk->bytes}, chunk);
    parquet_column_free(&r.dictionary);
    return result;
}
