/* read.c - see labelled_internal.h: the files of a set, and their texts as tokens. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "proto/base/mem.h"
#include "proto/base/text.h"
#include "proto/json/json_text.h"
#include "trainer/data/csv.h"
#include "trainer/data/documents.h"
#include "trainer/data/json_array.h"
#include "trainer/data/stream.h"
#include "trainer/labelled/labelled_internal.h"

/* ---- names ---- */

void label_names_free(struct label_names *names)
{
    for (int i = 0; names && i < names->count; i++)
        mem_free(names->name[i]);
    if (names)
        names->count = 0;
}

int label_names_find(const struct label_names *names, const char *name, size_t length)
{
    for (int i = 0; i < names->count; i++)
        if (strlen(names->name[i]) == length && !memcmp(names->name[i], name, length))
            return i;
    return -1;
}

/* The number of a name; a new name is added. */
static int add_name(struct label_names *names, const char *name, size_t length, struct muster_error *err)
{
    const int found = label_names_find(names, name, length);
    if (found >= 0)
        return found;
    if (!length || memchr(name, '\n', length) || memchr(name, '\0', length))
        return error_set(err, MUSTER_E_INVALID, "a label is empty, or has more than one line");
    if (names->count == LABELS_LIMIT)
        return error_set(
            err, MUSTER_E_LIMIT,
            "more than %d different labels ('%.*s' is the next): is data.label_key another column?",
            LABELS_LIMIT, (int)(length < 40 ? length : 40), name);
    names->name[names->count] = mem_strndup(name, length);
    if (!names->name[names->count])
        return error_set(err, MUSTER_E_NOMEM, "no memory for a label");
    return names->count++;
}

static int write_names(const struct label_names *names, struct token_sink *sink, struct muster_error *err)
{
    for (int i = 0; i < names->count; i++) {
        for (const char *c = names->name[i]; *c; c++) {
            const int32_t byte = (unsigned char)*c;
            if (token_sink_add(sink, &byte, 1, false, err) < 0)
                return -1;
        }
        const int32_t end = '\n';
        if (token_sink_add(sink, &end, 1, false, err) < 0)
            return -1;
    }
    return token_sink_end_document(sink, err);
}

int label_names_parse(const struct token_file *file, struct label_names *names, struct muster_error *err)
{
    char name[4096];
    size_t length = 0;
    const int64_t from = file->documents > 1 ? (int64_t)file->ends[file->documents - 2] : 0;
    for (int64_t at = from; file->documents && at < file->count; at++) {
        int32_t token;
        token_file_read(file, at, 1, &token);
        if (token != '\n' && length < sizeof name && token > 0 && token < 256) {
            name[length++] = (char)token;
            continue;
        }
        if (token != '\n' || label_names_find(names, name, length) >= 0)
            return 1;
        if (add_name(names, name, length, err) < 0)
            return -1;
        length = 0;
    }
    return length ? 1 : 0;
}

/* ---- a text ---- */

static int add_labelled_text(const struct labelled_read *r, int label, const char *text, size_t length,
                             struct token_sink *sink, struct muster_error *err)
{
    scope_token_list tokens = {0};
    const int32_t first = label;
    if (label < 0 || tokenizer_encode(r->tokenizer, text, length, &tokens, err) < 0)
        return -1;
    return token_sink_add(sink, &first, 1, false, err) < 0 ||
                   token_sink_add(sink, tokens.tokens, tokens.count, false, err) < 0 ||
                   token_sink_end_document(sink, err) < 0
               ? -1
               : 0;
}

/* ---- tables ---- */

bool labelled_is_table(const struct walk_file *file)
{
    return file->kind != WALK_TEXT && file->kind != WALK_TOKENS;
}

/* The error for a missing column: names the columns of the first row. */
static int no_column(const struct csv *csv, const char *setting, const char *key, struct muster_error *err)
{
    scope_buffer names = {0};
    for (int i = 0; i < csv->fields; i++) {
        size_t length;
        const char *name = csv_text(csv, i, &length);
        (void)buffer_printf(&names, "%s%.*s", i ? ", " : "", (int)(length < 30 ? length : 30), name);
    }
    return error_set(err, MUSTER_E_INVALID, "line %lld: no column '%s' (%s); the first row has %s",
                     (long long)csv->line, key, setting, names.failed || !names.data ? "others" : names.data);
}

static int column_of(const struct csv *csv, const char *key)
{
    for (int i = 0; i < csv->fields; i++) {
        size_t length;
        const char *name = csv_text(csv, i, &length);
        if (strlen(key) == length && !memcmp(name, key, length))
            return i;
    }
    return -1;
}

static int read_table_rows(const struct labelled_read *r, struct csv *csv, struct label_names *names,
                           struct token_sink *sink, struct muster_error *err)
{
    int found = csv_next(csv, err);
    if (found <= 0)
        return found;
    const int columns = csv->fields, text = column_of(csv, r->text_key), label = column_of(csv, r->label_key);
    if (text < 0 || label < 0)
        return no_column(csv, text < 0 ? "data.text_key" : "data.label_key",
                         text < 0 ? r->text_key : r->label_key, err);
    while ((found = csv_next(csv, err)) > 0) {
        if (csv->fields != columns)
            return error_set(err, MUSTER_E_INVALID, "line %lld: %d columns, and the first row has %d",
                             (long long)csv->line, csv->fields, columns);
        size_t text_length, label_length;
        const char *words = csv_text(csv, text, &text_length), *name = csv_text(csv, label, &label_length);
        if (add_labelled_text(r, add_name(names, name, label_length, err), words, text_length, sink, err) < 0)
            return error_wrap(err, "line %lld", (long long)csv->line);
    }
    return found;
}

/* ---- JSON ---- */

/* A label is a text, a whole number, or true or false. */
static int json_label(const json_t *value, struct label_names *names, struct muster_error *err)
{
    char number[32];
    if (json_is_string(value))
        return add_name(names, json_string_value(value), json_string_length(value), err);
    if (json_is_integer(value))
        (void)snprintf(number, sizeof number, "%lld", (long long)json_integer_value(value)); /* fits */
    else if (json_is_boolean(value))
        (void)snprintf(number, sizeof number, "%s", json_is_true(value) ? "true" : "false");
    else
        return error_set(err, MUSTER_E_INVALID, "a label must be a text, a whole number, true or false");
    return add_name(names, number, strlen(number), err);
}

static int read_record(const struct labelled_read *r, const json_t *root, struct label_names *names,
                       struct token_sink *sink, struct muster_error *err)
{
    if (json_is_array(root) && !json_array_size(root))
        return error_set(err, MUSTER_E_INVALID, "an empty list: there is no record");
    if (!json_is_object(root))
        return error_set(err, MUSTER_E_INVALID, "a record is %s, where an object is expected",
                         json_text_kind(root));
    const json_t *text = json_object_get(root, r->text_key), *label = json_object_get(root, r->label_key);
    if (text && !json_is_string(text))
        return error_set(err, MUSTER_E_INVALID,
                         "the value of '%s' is %s, where a text is expected (data.text_key)", r->text_key,
                         json_text_kind(text));
    if (!json_is_string(text) || !label)
        return error_set(err, MUSTER_E_INVALID, "no %s under the key '%s' (%s)",
                         json_is_string(text) ? "label" : "text",
                         json_is_string(text) ? r->label_key : r->text_key,
                         json_is_string(text) ? "data.label_key" : "data.text_key");
    return add_labelled_text(r, json_label(label, names, err), json_string_value(text),
                             json_string_length(text), sink, err);
}

static int read_line(const struct labelled_read *r, const char *line, size_t length,
                     struct label_names *names, struct token_sink *sink, struct muster_error *err)
{
    json_error_t problem;
    GUARD(guard_json) json_t *root = json_loadb(line, length, JSON_ALLOW_NUL, &problem);
    return root ? read_record(r, root, names, sink, err)
                : error_set(err, MUSTER_E_INVALID, "column %d: not valid JSON: %s", problem.column,
                            problem.text);
}

static int read_lines(const struct labelled_read *r, const char *data, size_t length,
                      struct label_names *names, struct token_sink *sink, struct muster_error *err)
{
    int64_t number = 1;
    for (size_t from = 0; from < length; number++) {
        const char *line = data + from, *end = memchr(line, '\n', length - from);
        const size_t bytes = end ? (size_t)(end - line) : length - from;
        if (!documents_is_blank(line, bytes) && read_line(r, line, bytes, names, sink, err) < 0)
            return error_wrap(err, "line %lld", (long long)number);
        from += bytes + 1;
    }
    return 0;
}

static int read_array(const struct labelled_read *r, const char *data, size_t length,
                      struct label_names *names, struct token_sink *sink, struct muster_error *err)
{
    struct json_array array;
    json_t *element;
    int found;
    json_array_begin(&array, data, length, JSON_ALLOW_NUL);
    while ((found = json_array_next(&array, &element, err)) > 0) {
        GUARD(guard_json) json_t *record = element;
        if (read_record(r, record, names, sink, err) < 0) {
            found = -1;
            break;
        }
    }
    return found < 0 ? error_wrap(err, "line %lld", (long long)array.line) : 0;
}

static int read_columns(const struct labelled_read *r, const struct walk_file *file, const char *data,
                        size_t length, struct label_names *names, struct token_sink *sink,
                        struct muster_error *err)
{
    const char *const keys[] = {r->text_key, r->label_key, NULL};
    GUARD(guard_columns)
    struct columns *columns = documents_open_columns(file, &(struct mapping){data, length}, keys, err);
    json_t *row;
    int found = columns ? 1 : -1;
    for (int64_t number = 1; found > 0 && (found = columns_next(columns, &row, err)) > 0; number++) {
        GUARD(guard_json) json_t *record = row;
        if (read_record(r, record, names, sink, err) < 0)
            return error_wrap(err, "row %lld of a table with the columns %.200s", (long long)number,
                              columns_names(columns));
    }
    return found;
}

int labelled_read_table(const struct labelled_read *r, const struct walk_file *file, const char *data,
                        size_t length, struct label_names *names, struct token_sink *sink,
                        struct muster_error *err)
{
    const size_t mark = text_byte_order_mark(data, length);
    struct csv csv = {.data = data + mark, .length = length - mark, .tabs = file->kind == WALK_TABS};
    int result;
    if (file->kind == WALK_PARQUET || file->kind == WALK_ARROW)
        result = read_columns(r, file, data, length, names, sink, err);
    else if (file->kind == WALK_ARRAY)
        result = read_array(r, data, length, names, sink, err);
    else if (file->kind == WALK_LINES)
        result = read_lines(r, csv.data, csv.length, names, sink, err);
    else
        result = read_table_rows(r, &csv, names, sink, err);
    csv_free(&csv);
    return result < 0 ? error_wrap(err, "%s", file->path) : 0;
}

/* ---- files ---- */

/* The name of the folder that a file is in. */
static int folder_label(const char *path, struct label_names *names, struct muster_error *err)
{
    const char *end = strrchr(path, '/'), *from = end;
    while (from && from > path && from[-1] != '/')
        from--;
    return end ? add_name(names, from, (size_t)(end - from), err)
               : error_set(err, MUSTER_E_INVALID, "%s is in no folder that has a label", path);
}

static int read_one_file(const struct labelled_read *r, const struct walk_file *file,
                         struct label_names *names, struct token_sink *sink, struct muster_error *err)
{
    struct mapping text __attribute__((cleanup(mapping_close)));
    if (stream_map(&text, file, err) < 0)
        return -1;
    const char *data = text.data ? text.data : "";
    if (!r->folders)
        return labelled_read_table(r, file, data, text.length, names, sink, err);
    const size_t mark = text_byte_order_mark(data, text.length);
    return add_labelled_text(r, folder_label(file->path, names, err), data + mark, text.length - mark, sink,
                             err) < 0
               ? error_wrap(err, "%s", file->path)
               : 0;
}

int labelled_read(const struct labelled_read *r, const struct walk *walk, struct token_sink *sink,
                  struct muster_error *err)
{
    struct label_names names __attribute__((cleanup(label_names_free))) = {0};
    for (int i = 0; i < walk->count; i++) {
        if (read_one_file(r, &walk->file[i], &names, sink, err) < 0)
            return -1;
        if (r->read)
            r->read(r->context, walk->file[i].bytes);
    }
    return write_names(&names, sink, err);
}

/* ---- the files of a path ---- */

void labelled_files_free(struct labelled_files *files)
{
    if (!files)
        return;
    mem_free(files->path);
    walk_free(&files->walk);
    *files = (struct labelled_files){0};
}

/* "unsup" holds texts without a label (aclImdb). */
static int may_be_label(const struct dirent *entry)
{
    return entry->d_name[0] != '.' && strcmp(entry->d_name, "unsup") != 0;
}

/* Leaves out files without a text, such as lists of words and addresses. */
static void keep_texts(struct walk *walk, bool (*is_one)(const struct walk_file *file))
{
    int kept = 0;
    for (int i = 0; i < walk->count; i++) {
        if (is_one(&walk->file[i]))
            walk->file[kept++] = walk->file[i];
        else
            mem_free(walk->file[i].path);
    }
    walk->count = kept;
}

static bool is_text_file(const struct walk_file *file)
{
    const size_t length = strlen(file->path);
    return length > 4 && !strcmp(file->path + length - 4, ".txt");
}

/* Adds the texts of all folders in a folder. */
static int add_labels(struct labelled_files *files, struct dirent **entries, int count,
                      struct muster_error *err)
{
    for (int i = 0; i < count; i++) {
        scope_free char *inside = mem_printf("%s/%s", files->path, entries[i]->d_name);
        if (!inside)
            return error_set(err, MUSTER_E_NOMEM, "no memory for a path");
        const int is = io_is_folder(inside, err);
        if (is < 0 || (is && walk_path(&files->walk, inside, err) < 0))
            return -1;
    }
    keep_texts(&files->walk, is_text_file);
    return 0;
}

static int add_folders(struct labelled_files *files, struct muster_error *err)
{
    struct dirent **entries = NULL;
    const int count = scandir(files->path, &entries, may_be_label, alphasort);
    if (count < 0)
        return error_errno(err, "cannot read folder %s", files->path);
    const int result = add_labels(files, entries, count, err);
    for (int i = 0; i < count; i++)
        free(entries[i]);
    free(entries); /* allocated by scandir, as the entries */
    return result;
}

/* Sets the path to PATH/train or PATH/test, if there is such a folder; else to PATH. */
static int choose_part(struct labelled_files *files, const char *path, enum labelled_part part,
                       struct muster_error *err)
{
    scope_free char *train = mem_printf("%s/train", path), *test = mem_printf("%s/test", path);
    if (!train || !test)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a path");
    const int has_train = io_is_folder(train, err), has_test = has_train < 0 ? -1 : io_is_folder(test, err);
    if (has_test < 0)
        return -1;
    files->has_test = has_test;
    const bool inside = part == LABELLED_TRAIN ? has_train : has_test;
    files->path = inside ? take_pointer(part == LABELLED_TRAIN ? &train : &test) : mem_strdup(path);
    return files->path ? 0 : error_set(err, MUSTER_E_NOMEM, "no memory for a path");
}

/* Adds the files of a folder of tables, or of folders by label. */
static int add_inside(struct labelled_files *files, struct muster_error *err)
{
    if (walk_path(&files->walk, files->path, err) < 0)
        return -1;
    keep_texts(&files->walk, labelled_is_table);
    if (files->walk.count)
        return 0;
    files->folders = true;
    return add_folders(files, err);
}

int labelled_find(struct labelled_files *files, const char *path, enum labelled_part part,
                  const char *setting, const char *text_key, struct muster_error *err)
{
    *files = (struct labelled_files){.walk.name = setting};
    if (choose_part(files, path, part, err) < 0)
        return -1;
    const int folder = io_is_folder(files->path, err);
    if (!folder) /* JSON lines under any name; in folders by label no text is JSON */
        files->walk.text_key = text_key;
    if (folder < 0 || (folder ? add_inside(files, err) : walk_path(&files->walk, files->path, err)) < 0)
        return -1;
    if (!folder)
        keep_texts(&files->walk, labelled_is_table);
    if (files->walk.count)
        return 0;
    return error_set(err, MUSTER_E_INVALID,
                     folder
                         ? "%s %s holds no labelled texts: no .csv, .tsv, .jsonl, .ndjson or .json, and no "
                           "folders by label with .txt files"
                         : "%s %s is no file of labelled texts: it is empty, or no table (.csv, .tsv) and no "
                           "JSON (.jsonl, .ndjson, .json)",
                     setting, files->path);
}
