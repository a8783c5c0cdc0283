/* csv.c - see csv.h.
 *
 * libcsv (3.0.3) was tried in its place and loses: it reads 105 MB/s where this reads 430; its strict mode
 * refuses a quote inside of a plain field (5' 6" tall) and its other mode accepts text after a closing quote;
 * a CR alone ends a row; blanks around a field are removed; and it counts no lines for errors. */
#include "trainer/data/csv.h"

#include <string.h>

#include "proto/base/error.h"

void csv_free(struct csv *csv)
{
    if (csv)
        buffer_free(&csv->text);
}

const char *csv_text(const struct csv *csv, int field, size_t *length)
{
    *length = csv->field[field].length;
    return *length ? csv->text.data + csv->field[field].from : "";
}

static bool ends_field(const struct csv *csv, char c)
{
    return c == (csv->tabs ? '\t' : ',') || c == '\n';
}

/* Takes the text up to a separator or the end of the row, which stays. */
static int take_plain(struct csv *csv)
{
    const size_t from = csv->at;
    while (csv->at < csv->length && !ends_field(csv, csv->data[csv->at]))
        csv->at++;
    size_t length = csv->at - from;
    const bool last = csv->at == csv->length || csv->data[csv->at] == '\n';
    if (last && length && csv->data[csv->at - 1] == '\r')
        length--;
    return buffer_append(&csv->text, csv->data + from, length);
}

/* Takes the text after the opening quote. 0: done; -1: no memory; 1: the field does not end. */
static int take_quoted(struct csv *csv)
{
    while (csv->at < csv->length) {
        const char *from = csv->data + csv->at, *quote = memchr(from, '"', csv->length - csv->at);
        const size_t length = quote ? (size_t)(quote - from) : csv->length - csv->at;
        for (const char *c = from; (c = memchr(c, '\n', (size_t)(from + length - c))); c++)
            csv->lines++;
        if (buffer_append(&csv->text, from, length) < 0)
            return -1;
        csv->at += length + (quote ? 1 : 0);
        if (!quote)
            return 1;
        if (csv->at == csv->length || csv->data[csv->at] != '"')
            return 0;
        if (buffer_append(&csv->text, "\"", 1) < 0)
            return -1;
        csv->at++;
    }
    return 1;
}

static int csv_error(const struct csv *csv, struct muster_error *err, const char *what)
{
    return error_set(err, MUSTER_E_INVALID, "line %lld: %s", (long long)csv->line, what);
}

static int take_field(struct csv *csv, struct muster_error *err)
{
    const bool quoted = !csv->tabs && csv->at < csv->length && csv->data[csv->at] == '"';
    if (csv->fields == CSV_COLUMNS)
        return error_set(err, MUSTER_E_LIMIT, "line %lld: a row of more than %d columns",
                         (long long)csv->line, CSV_COLUMNS);
    struct csv_field *field = &csv->field[csv->fields++];
    field->from = csv->text.length;
    csv->at += quoted;
    const int result = quoted ? take_quoted(csv) : take_plain(csv);
    if (result < 0)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a row of a table");
    if (result > 0)
        return csv_error(csv, err, "a field begins with a quote and does not end with one");
    field->length = csv->text.length - field->from;
    if (quoted && csv->at + 1 < csv->length && csv->data[csv->at] == '\r' && csv->data[csv->at + 1] == '\n')
        csv->at++;
    if (csv->at < csv->length && !ends_field(csv, csv->data[csv->at]))
        return csv_error(csv, err, "there is text after the quote that ends a field");
    return 0;
}

/* Skips rows without a character. */
static void skip_empty(struct csv *csv)
{
    for (;;) {
        const size_t left = csv->length - csv->at, end = left && csv->data[csv->at] == '\r' ? 1 : 0;
        if (left <= end || csv->data[csv->at + end] != '\n')
            return;
        csv->at += end + 1;
        csv->lines++;
    }
}

int csv_next(struct csv *csv, struct muster_error *err)
{
    buffer_clear(&csv->text);
    csv->fields = 0;
    skip_empty(csv);
    if (csv->at == csv->length)
        return 0;
    csv->line = csv->lines + 1;
    for (;;) {
        if (take_field(csv, err) < 0)
            return -1;
        const bool row = csv->at == csv->length || csv->data[csv->at] == '\n';
        csv->lines += row;
        csv->at += csv->at < csv->length;
        if (row)
            return 1;
    }
}
