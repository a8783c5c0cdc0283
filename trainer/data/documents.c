/* documents.c - see documents.h. */
#include "trainer/data/documents.h"

#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/text.h"
#include "proto/json/json_text.h"
#include "trainer/data/chats.h"
#include "trainer/data/csv.h"
#include "trainer/data/json_array.h"
#include "trainer/data/mapping.h"
#include "trainer/data/stream.h"

enum { PART_BYTES = 4 << 20 }; /* bytes of a text tokenized at once, if the tokenizer can cut it */

static int encode_text(const struct documents_options *o, const char *text, size_t length, bool masked,
                       struct token_sink *sink, struct muster_error *err)
{
    scope_token_list tokens = {0};
    if (tokenizer_encode(o->tokenizer, text, length, &tokens, err) < 0)
        return -1;
    return token_sink_add(sink, tokens.tokens, tokens.count, masked, err);
}

static void report_bytes(const struct documents_options *o, size_t bytes)
{
    if (o->read)
        o->read(o->context, (int64_t)bytes);
}

static int end_document(const struct documents_options *o, struct token_sink *sink, struct muster_error *err)
{
    if (o->end >= 0 && token_sink_add(sink, &o->end, 1, false, err) < 0)
        return -1;
    return token_sink_end_document(sink, err);
}

static int read_document(const struct documents_options *o, const struct mapping *text,
                         struct token_sink *sink, struct muster_error *err)
{
    for (size_t from = text_byte_order_mark(text->data, text->length); from < text->length;) {
        const size_t part = tokenizer_cut(o->tokenizer, text->data + from, text->length - from, PART_BYTES);
        if (encode_text(o, text->data + from, part, false, sink, err) < 0)
            return -1;
        mapping_release(text, from, part);
        report_bytes(o, part);
        from += part;
    }
    return end_document(o, sink, err);
}

/* The error for a record without a text: names the known key whose value is none, or all of its keys. */
static int no_text(const struct documents_options *o, const json_t *record, struct muster_error *err)
{
    const char *const texts[] = {o->text_key, DOCUMENTS_PROMPT, DOCUMENTS_COMPLETION, "instruction",
                                 "output",    "messages",       "conversations"};
    enum { TURNS_FROM = 5 };
    scope_buffer keys = {0};
    const char *key;
    json_t *value;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        value = json_object_get(record, texts[i]);
        if (value && !json_is_string(value))
            return error_set(err, MUSTER_E_INVALID, "the value of '%s' is %s, where %s expected%s", texts[i],
                             json_text_kind(value), i < TURNS_FROM ? "a text is" : "the turns of a chat are",
                             i ? "" : " (data.text_key)");
    }
    json_object_foreach((json_t *)record, key, value)
    {
        (void)buffer_printf(&keys, "%s%.40s", keys.length ? ", " : "", key);
    }
    return error_set(err, MUSTER_E_INVALID,
                     "no text under the key '%s' (data.text_key), no turns of a chat under 'messages' or "
                     "'conversations', and no texts under '" DOCUMENTS_PROMPT "' and '" DOCUMENTS_COMPLETION
                     "' or 'instruction' and 'output'; the keys are: %.300s",
                     o->text_key, keys.data && !keys.failed ? keys.data : "none");
}

static int encode_prompt(const struct documents_options *o, const char *prompt, size_t prompt_length,
                         const char *completion, size_t completion_length, struct token_sink *sink,
                         struct muster_error *err)
{
    return encode_text(o, prompt, prompt_length, true, sink, err) < 0
               ? -1
               : encode_text(o, completion, completion_length, false, sink, err);
}

/* Adds a record, and ends its document. */
static int add_record(const struct documents_options *o, const json_t *record, struct token_sink *sink,
                      struct muster_error *err)
{
    const json_t *text = json_object_get(record, o->text_key),
                 *prompt = json_object_get(record, DOCUMENTS_PROMPT),
                 *completion = json_object_get(record, DOCUMENTS_COMPLETION);
    int added;
    if (!json_is_object(record) && !json_is_string(record))
        return json_is_array(record) && !json_array_size(record)
                   ? error_set(err, MUSTER_E_INVALID, "an empty list: there is no record")
                   : error_set(err, MUSTER_E_INVALID, "a record is %s, where an object or a text is expected",
                               json_text_kind(record));
    text = json_is_string(record) ? record : text;
    if (!json_is_string(text) && o->chat && chat_is(record, o->text_key)) /* its template ends it */
        return chats_add(o->chat, o->tokenizer, record, o->text_key, sink, err) < 0
                   ? -1
                   : token_sink_end_document(sink, err);
    if (json_is_string(text))
        added = encode_text(o, json_string_value(text), json_string_length(text), false, sink, err);
    else if (json_is_string(prompt) && json_is_string(completion))
        added = encode_prompt(o, json_string_value(prompt), json_string_length(prompt),
                              json_string_value(completion), json_string_length(completion), sink, err);
    else
        return no_text(o, record, err);
    return added < 0 ? -1 : end_document(o, sink, err);
}

/* A value of JSON; numbers that no machine has are rounded. */
static json_t *parse_record(const char *line, size_t length, json_error_t *problem)
{
    json_t *root = json_loadb(line, length, JSON_ALLOW_NUL, problem);
    return root ? root : json_loadb(line, length, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, problem);
}

int documents_add_line(const struct documents_options *o, const char *line, size_t length,
                       struct token_sink *sink, struct muster_error *err)
{
    json_error_t problem;
    GUARD(guard_json) json_t *root = parse_record(line, length, &problem);
    if (!root)
        return error_set(err, MUSTER_E_INVALID, "column %d: not valid JSON: %s", problem.column,
                         problem.text);
    return add_record(o, root, sink, err);
}

bool documents_is_blank(const char *line, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (!strchr(" \t\r", line[i]))
            return false;
    return true;
}

static int read_lines(const struct documents_options *o, const struct walk_file *file,
                      const struct mapping *text, struct token_sink *sink, struct muster_error *err)
{
    int64_t number = 1;
    size_t reported = 0;
    for (size_t from = text_byte_order_mark(text->data, text->length); from < text->length; number++) {
        const char *line = text->data + from, *end = memchr(line, '\n', text->length - from);
        const size_t length = end ? (size_t)(end - line) : text->length - from;
        if (!documents_is_blank(line, length) && documents_add_line(o, line, length, sink, err) < 0)
            return error_wrap(err, "%s:%lld", file->path, (long long)number);
        if (from / PART_BYTES != (from + length + 1) / PART_BYTES) {
            mapping_release(text, from / PART_BYTES * PART_BYTES, from % PART_BYTES + length);
            report_bytes(o, from + length - reported);
            reported = from + length;
        }
        from += length + 1;
    }
    report_bytes(o, text->length - reported);
    return 0;
}

/* ---- the records of an array of JSON ---- */

bool documents_are_records(enum walk_kind kind)
{
    return kind == WALK_ARRAY || kind == WALK_COMMAS || kind == WALK_TABS || kind == WALK_PARQUET ||
           kind == WALK_ARROW;
}

static int array_records(const struct documents_records *r, const struct walk_file *file,
                         const struct mapping *text, struct muster_error *err)
{
    struct json_array array;
    json_t *element;
    int found;
    json_array_begin(&array, text->data, text->length, JSON_ALLOW_NUL);
    while ((found = json_array_next(&array, &element, err)) > 0) {
        GUARD(guard_json) json_t *record = element;
        if (r->take(r->context, record, (int64_t)array.bytes, err) < 0) {
            found = -1;
            break;
        }
        mapping_release(text, array.at, array.bytes);
    }
    return found < 0 ? error_wrap(err, "%s:%lld", file->path, (long long)array.line) : 0;
}

/* ---- the rows of a table ---- */

static int column_named(const struct csv *csv, const char *name)
{
    for (int i = 0; i < csv->fields; i++) {
        size_t length;
        const char *text = csv_text(csv, i, &length);
        if (strlen(name) == length && !memcmp(text, name, length))
            return i;
    }
    return -1;
}

enum { ROW_COLUMNS = 8 };

/* The columns of a record, by the first of these that a table has: a text, a prompt and a completion, the
 * turns of a chat. */
struct row_columns {
    const char *name[ROW_COLUMNS]; /* keys of the record */
    int at[ROW_COLUMNS];           /* -1: the table has no such column */
    int count;                     /* 0: no record */
    bool text;                     /* bytes as they are, which may be no UTF-8 */
};

static void add_column(struct row_columns *columns, const struct csv *csv, const char *name)
{
    columns->name[columns->count] = name;
    columns->at[columns->count++] = column_named(csv, name);
}

static struct row_columns find_columns(const struct documents_records *r, const struct csv *csv)
{
    static const char *const turns[] = {"instruction", "output", "input", "system", "tools", NULL};
    struct row_columns found = {.text = true};
    if (column_named(csv, r->text_key) >= 0) {
        add_column(&found, csv, r->text_key);
        return found;
    }
    if (r->pairs && column_named(csv, DOCUMENTS_PROMPT) >= 0 &&
        column_named(csv, DOCUMENTS_COMPLETION) >= 0) {
        add_column(&found, csv, DOCUMENTS_PROMPT);
        add_column(&found, csv, DOCUMENTS_COMPLETION);
        return found;
    }
    found.text = false;
    if (r->chats && column_named(csv, turns[0]) >= 0 && column_named(csv, turns[1]) >= 0)
        for (int i = 0; turns[i]; i++)
            add_column(&found, csv, turns[i]);
    return found;
}

static json_t *row_record(const struct csv *csv, const struct row_columns *columns, struct muster_error *err)
{
    GUARD(guard_json) json_t *record = json_object();
    for (int i = 0; i < columns->count; i++) {
        size_t length = 0;
        const char *text = columns->at[i] < 0 ? NULL : csv_text(csv, columns->at[i], &length);
        if (text && json_object_set_new(record, columns->name[i],
                                        columns->text ? json_stringn_nocheck(text, length)
                                                      : json_stringn(text, length)) < 0) {
            (void)error_set(err, MUSTER_E_INVALID, "the text under '%s' is no UTF-8", columns->name[i]);
            return NULL;
        }
    }
    return take_pointer(&record);
}

/* where: begins the list of names that there are. */
static int no_column(const struct documents_records *r, const char *where, const char *names,
                     struct muster_error *err)
{
    const char *others = r->pairs ? ", and none '" DOCUMENTS_PROMPT "' and '" DOCUMENTS_COMPLETION
                                    "' or 'instruction' and 'output'"
                         : r->chats ? ", and none 'messages' or 'instruction' and 'output'"
                                    : "";
    return error_set(err, MUSTER_E_INVALID, "no column '%s' (%s)%s; %s: %.300s", r->text_key, r->setting,
                     others, where, names);
}

static int no_text_column(const struct documents_records *r, const struct csv *csv, struct muster_error *err)
{
    scope_buffer names = {0};
    for (int i = 0; i < csv->fields; i++) {
        size_t length;
        const char *name = csv_text(csv, i, &length);
        (void)buffer_printf(&names, "%s%.*s", i ? ", " : "", (int)(length < 40 ? length : 40), name);
    }
    return no_column(r, "the first row has", names.data && !names.failed ? names.data : "nothing", err);
}

static int rows_of_text(const struct documents_records *r, struct csv *csv, struct muster_error *err)
{
    int found = csv_next(csv, err);
    if (found <= 0)
        return found;
    const int fields = csv->fields;
    const struct row_columns columns = find_columns(r, csv);
    if (!columns.count)
        return no_text_column(r, csv, err) < 0 ? error_wrap(err, "line %lld", (long long)csv->line) : 0;
    for (size_t at = 0; (found = csv_next(csv, err)) > 0; at = csv->at) {
        if (csv->fields != fields)
            return error_set(err, MUSTER_E_INVALID, "line %lld: %d columns, and the first row has %d",
                             (long long)csv->line, csv->fields, fields);
        GUARD(guard_json) json_t *record = row_record(csv, &columns, err);
        if (!record || r->take(r->context, record, (int64_t)(csv->at - at), err) < 0)
            return error_wrap(err, "line %lld", (long long)csv->line);
    }
    return found;
}

static int table_records(const struct documents_records *r, const struct walk_file *file,
                         const struct mapping *text, struct muster_error *err)
{
    const size_t mark = text_byte_order_mark(text->data, text->length);
    struct csv csv = {
        .data = text->data + mark, .length = text->length - mark, .tabs = file->kind == WALK_TABS};
    const int result = rows_of_text(r, &csv, err);
    csv_free(&csv);
    return result;
}

/* ---- the rows of a table of columns ---- */

struct columns *documents_open_columns(const struct walk_file *file, const struct mapping *text,
                                       const char *const *names, struct muster_error *err)
{
    const struct columns_options options = {text->data, text->length, names};
    return file->kind == WALK_PARQUET ? columns_open_parquet(&options, err)
                                      : columns_open_arrow(&options, err);
}

static bool holds_records(const struct documents_records *r, const struct columns *columns)
{
    return columns_have(columns, r->text_key) ||
           (r->pairs && columns_have(columns, DOCUMENTS_PROMPT) &&
            columns_have(columns, DOCUMENTS_COMPLETION)) ||
           (r->chats && (columns_have(columns, "messages") || columns_have(columns, "conversations") ||
                         columns_have(columns, "conversation") ||
                         (columns_have(columns, "instruction") && columns_have(columns, "output"))));
}

static int rows_of_columns(const struct documents_records *r, struct columns *columns,
                           const struct mapping *text, struct muster_error *err)
{
    json_t *row;
    int found;
    if (!holds_records(r, columns))
        return no_column(r, "the columns are", columns_names(columns), err);
    for (int64_t number = 1; (found = columns_next(columns, &row, err)) != 0; number++) {
        if (found < 0)
            return error_wrap(err, "row %lld", (long long)number);
        GUARD(guard_json) json_t *record = row;
        if (r->take(r->context, record, 0, err) < 0)
            return error_wrap(err, "row %lld", (long long)number);
    }
    mapping_release(text, 0, text->length);
    return 0;
}

static int column_records(const struct documents_records *r, const struct walk_file *file,
                          const struct mapping *text, struct muster_error *err)
{
    const char *const names[] = {r->text_key,
                                 DOCUMENTS_PROMPT,
                                 DOCUMENTS_COMPLETION,
                                 "messages",
                                 "conversations",
                                 "conversation",
                                 "instruction",
                                 "output",
                                 "input",
                                 "system",
                                 "history",
                                 "tools",
                                 "chat_template_kwargs",
                                 NULL};
    static const char *none;
    const char *const alone[] = {r->text_key, none};
    GUARD(guard_columns)
    struct columns *columns = documents_open_columns(file, text, r->pairs || r->chats ? names : alone, err);
    return columns ? rows_of_columns(r, columns, text, err) : -1;
}

int documents_records(const struct documents_records *r, const struct walk_file *file,
                      const struct mapping *text, struct muster_error *err)
{
    if (file->kind == WALK_ARRAY)
        return array_records(r, file, text, err);
    const bool by_columns = file->kind == WALK_PARQUET || file->kind == WALK_ARROW;
    const int result = by_columns ? column_records(r, file, text, err) : table_records(r, file, text, err);
    return result < 0 ? error_wrap(err, "%s", file->path) : 0;
}

/* ---- a file ---- */

struct taken {
    const struct documents_options *options;
    struct token_sink *sink;
    int64_t reported;
};

static int take_record(void *context, const json_t *record, int64_t bytes, struct muster_error *err)
{
    struct taken *taken = context;
    if (add_record(taken->options, record, taken->sink, err) < 0)
        return -1;
    report_bytes(taken->options, (size_t)bytes);
    taken->reported += bytes;
    return 0;
}

static int read_records(const struct documents_options *o, const struct walk_file *file,
                        const struct mapping *text, struct token_sink *sink, struct muster_error *err)
{
    struct taken taken = {o, sink, 0};
    const struct documents_records records = {.text_key = o->text_key,
                                              .setting = "data.text_key",
                                              .pairs = true,
                                              .chats = o->chat != NULL,
                                              .take = take_record,
                                              .context = &taken};
    if (documents_records(&records, file, text, err) < 0)
        return -1;
    report_bytes(o, text->length - (size_t)taken.reported);
    return 0;
}

int documents_read(const struct documents_options *options, const struct walk_file *file,
                   struct token_sink *sink, struct muster_error *err)
{
    struct mapping text __attribute__((cleanup(mapping_close))) = {0};
    struct documents_options unpacked;
    if (stream_map(&text, file, err) < 0)
        return -1;
    if (file->packed) { /* the file's bytes are reported, and not the unpacked bytes */
        report_bytes(options, (size_t)file->bytes);
        unpacked = *options;
        unpacked.read = NULL;
        options = &unpacked;
    }
    if (documents_are_records(file->kind))
        return read_records(options, file, &text, sink, err);
    if (file->kind == WALK_LINES)
        return read_lines(options, file, &text, sink, err);
    return read_document(options, &text, sink, err) < 0 ? error_wrap(err, "%s", file->path) : 0;
}
