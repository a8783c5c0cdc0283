/* parquet.c - the rows of a Parquet file: columns of a row group, put together by their levels. */
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "trainer/columns/columns_internal.h"

struct parquet {
    struct columns_options options;
    struct parquet_meta meta;
    struct parquet_column *column; /* (leaves); the wanted columns of a row group are read */
    int group;                     /* the next row group */
    int64_t left;                  /* rows of the present one */
};

static bool field_is(const struct parquet_field *field, const char *name)
{
    return field->name_length == strlen(name) && !memcmp(field->name, name, field->name_length);
}

static bool is_wanted(const struct parquet *p, const struct parquet_field *field)
{
    for (const char *const *name = p->options.names; *name; name++)
        if (field_is(field, *name))
            return true;
    return false;
}

static void free_group(struct parquet *p)
{
    for (int i = 0; p->column && i < p->meta.leaves; i++)
        parquet_column_free(&p->column[i]);
}

static void parquet_close(void *self)
{
    struct parquet *p = self;
    if (!p)
        return;
    free_group(p);
    mem_free(p->column);
    parquet_free_meta(&p->meta);
    mem_free(p);
}
GUARD_DEFINE(parquet, struct parquet *, parquet_close);

static bool parquet_have(const void *self, const char *name)
{
    const struct parquet *p = self;
    for (int at = 1; at < p->meta.fields; at = p->meta.field[at].next)
        if (field_is(&p->meta.field[at], name))
            return true;
    return false;
}

/* ---- values ---- */

static json_t *leaf_value(struct parquet_column *c, struct muster_error *err)
{
    const struct parquet_field *f = c->field;
    enum { DECIMAL = 5 };
    const size_t at = c->value;
    json_t *value = NULL;
    if (c->definitions[c->at++] < f->definition)
        return json_null();
    if (c->value++ >= c->values) {
        (void)columns_damaged(err, "a column has fewer values than levels");
        return NULL;
    }
    if (f->converted == DECIMAL) {
        (void)error_set(err, MUSTER_E_UNSUPPORTED, "the column '%.*s' of decimal numbers is not read",
                        (int)f->name_length, f->name);
        return NULL;
    }
    value = c->text                   ? json_stringn(c->text[at].data, c->text[at].length)
            : c->real                 ? json_real(c->real[at])
            : f->type == PARQUET_BOOL ? json_boolean(c->number[at])
                                      : json_integer(c->number[at]);
    if (!value)
        (void)error_set(err, MUSTER_E_INVALID, "a value of the column '%.*s' is no UTF-8 or not finite",
                        (int)(f->name_length < 60 ? f->name_length : 60), f->name);
    return value;
}

/* The first column of a field's values. */
static struct parquet_column *first_column(const struct parquet *p, int at)
{
    while (p->meta.field[at].leaf < 0)
        at++; /* the first child comes next */
    return &p->column[p->meta.field[at].leaf];
}

/* Passes an entry of all columns of a field: there is nothing. */
static bool pass(const struct parquet *p, int at)
{
    for (int i = at; i < p->meta.field[at].next; i++) {
        const int leaf = p->meta.field[i].leaf;
        if (leaf >= 0 && p->column[leaf].at++ >= p->column[leaf].entries)
            return false;
    }
    return true;
}

static bool has_entry(const struct parquet *p, int at)
{
    for (int i = at; i < p->meta.field[at].next; i++) {
        const int leaf = p->meta.field[i].leaf;
        if (leaf >= 0 && p->column[leaf].at >= p->column[leaf].entries)
            return false;
    }
    return true;
}

static json_t *build_value(struct parquet *p, int at, struct muster_error *err);

static json_t *build_struct(struct parquet *p, int at, struct muster_error *err)
{
    json_t *object = json_object();
    for (int child = at + 1; object && child < p->meta.field[at].next; child = p->meta.field[child].next) {
        const struct parquet_field *f = &p->meta.field[child];
        json_t *value = build_value(p, child, err);
        scope_free char *key = value ? mem_strndup(f->name, f->name_length) : NULL;
        if (!key || json_object_set_new(object, key, value) < 0) {
            if (value && !key)
                json_decref(value);
            json_decref(object);
            if (value)
                (void)error_set(err, MUSTER_E_INVALID, "the name of a column is no UTF-8");
            return NULL;
        }
    }
    return object;
}

/* The items of a repeated field, which is the list itself, or holds its element. */
static json_t *build_list(struct parquet *p, int repeated, struct muster_error *err)
{
    const struct parquet_field *f = &p->meta.field[repeated];
    const bool holds = f->children == 1;
    struct parquet_column *first = first_column(p, repeated);
    json_t *list = json_array();
    if (!has_entry(p, repeated)) {
        json_decref(list);
        (void)columns_damaged(err, "a column has fewer values than rows");
        return NULL;
    }
    if (first->definitions[first->at] < f->definition) {
        (void)pass(p, repeated); /* it has an entry */
        return list;
    }
    do {
        json_t *item = !has_entry(p, repeated) ? NULL
                       : f->leaf >= 0          ? leaf_value(first, err)
                       : holds                 ? build_value(p, repeated + 1, err)
                                               : build_struct(p, repeated, err);
        if (!item || json_array_append_new(list, item) < 0) {
            if (err && !err->code)
                (void)columns_damaged(err, "levels of a list");
            json_decref(list);
            return NULL;
        }
    } while (first->at < first->entries && first->repeats[first->at] == f->repeat);
    return list;
}

/* The value of a field that is not the element of a list itself. */
static json_t *build_value(struct parquet *p, int at, struct muster_error *err)
{
    const struct parquet_field *f = &p->meta.field[at];
    if (!has_entry(p, at)) {
        (void)columns_damaged(err, "a column has fewer values than rows");
        return NULL;
    }
    if (f->repetition == 2)
        return build_list(p, at, err);
    if (f->leaf >= 0)
        return leaf_value(&p->column[f->leaf], err);
    if (!f->children)
        return json_object();
    const struct parquet_column *first = first_column(p, at);
    if (first->definitions[first->at] < f->definition)
        return pass(p, at) ? json_null() : NULL;
    const bool list = f->children == 1 && p->meta.field[at + 1].repetition == 2;
    return list ? build_list(p, at + 1, err) : build_struct(p, at, err);
}

/* ---- rows ---- */

static int read_group_columns(struct parquet *p, struct muster_error *err)
{
    const struct parquet_chunk *chunks = p->meta.chunk + (size_t)p->group * (size_t)p->meta.leaves;
    free_group(p);
    for (int at = 1; at < p->meta.fields; at = p->meta.field[at].next) {
        const struct parquet_field *top = &p->meta.field[at];
        for (int i = at; is_wanted(p, top) && i < top->next; i++) {
            const struct parquet_field *f = &p->meta.field[i];
            if (f->leaf < 0)
                continue;
            p->column[f->leaf].field = f;
            if (parquet_column_read(p->options.data, p->options.length, &chunks[f->leaf], &p->column[f->leaf],
                                    err) < 0)
                return error_wrap(err, "column '%.*s'", (int)(top->name_length < 60 ? top->name_length : 60),
                                  top->name);
        }
    }
    p->left = p->meta.rows[p->group++];
    return 0;
}

static int parquet_next(void *self, json_t **record, struct muster_error *err)
{
    struct parquet *p = self;
    while (!p->left) {
        if (p->group == p->meta.groups)
            return 0;
        if (read_group_columns(p, err) < 0)
            return -1;
    }
    p->left--;
    json_t *row = json_object();
    for (int at = 1; row && at < p->meta.fields; at = p->meta.field[at].next) {
        const struct parquet_field *f = &p->meta.field[at];
        if (!is_wanted(p, f))
            continue;
        json_t *value = build_value(p, at, err);
        scope_free char *key = value ? mem_strndup(f->name, f->name_length) : NULL;
        if (!value || !key || json_object_set_new(row, key, value) < 0) {
            json_decref(row);
            return err && err->code ? -1 : error_set(err, MUSTER_E_NOMEM, "no memory for a row");
        }
    }
    *record = row;
    return row ? 1 : error_set(err, MUSTER_E_NOMEM, "no memory for a row");
}

static const struct columns_ops parquet_ops = {parquet_have, parquet_next, parquet_close};

struct columns *columns_open_parquet(const struct columns_options *options, struct muster_error *err)
{
    GUARD(guard_parquet) struct parquet *p = mem_calloc(1, sizeof *p);
    if (!p) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for a table");
        return NULL;
    }
    p->options = *options;
    if (parquet_read_meta(options->data, options->length, &p->meta, err) < 0)
        return NULL;
    p->column = mem_calloc((size_t)p->meta.leaves, sizeof *p->column);
    if (!p->column) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for a table");
        return NULL;
    }
    struct columns *columns = columns_create(&parquet_ops, p, err);
    if (!columns)
        return NULL;
    for (int at = 1; at < p->meta.fields; at = p->meta.field[at].next)
        (void)buffer_printf(&columns->names, "%s%.*s", at > 1 ? ", " : "", (int)p->meta.field[at].name_length,
                            p->meta.field[at].name); /* it remembers a failure */
    p = NULL;                                        /* columns owns it */
    return columns;
}
