/* documents.c - see documents.h. */
#include "runtime/data/documents.h"

#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "runtime/data/mapping.h"
#include "runtime/files/json_text.h"

enum { PART_BYTES = 4 << 20 }; /* of a text, tokenized at once where the tokenizer says where to cut it */

static int encode_text(const struct documents_options *o, const char *text, size_t length, bool masked,
                       struct token_sink *sink, struct muster_error *err)
{
    scope_token_list tokens = {0};
    if (tokenizer_encode(o->tokenizer, text, length, &tokens, err) < 0)
        return -1;
    return token_sink_add(sink, tokens.tokens, tokens.count, masked, err);
}

static void tell(const struct documents_options *o, size_t bytes)
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
    for (size_t from = 0; from < text->length;) {
        const size_t part = tokenizer_cut(o->tokenizer, text->data + from, text->length - from, PART_BYTES);
        if (encode_text(o, text->data + from, part, false, sink, err) < 0)
            return -1;
        mapping_release(text, from, part);
        tell(o, part);
        from += part;
    }
    return end_document(o, sink, err);
}

int documents_add_line(const struct documents_options *o, const char *line, size_t length,
                       struct token_sink *sink, struct muster_error *err)
{
    json_error_t problem;
    GUARD(guard_json)
    json_t *root = json_loadb(line, length, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, &problem);
    if (!root)
        return error_set(err, MUSTER_E_INVALID, "column %d: not valid JSON: %s", problem.column,
                         problem.text);
    const json_t *text = json_object_get(root, o->text_key),
                 *prompt = json_object_get(root, DOCUMENTS_PROMPT),
                 *completion = json_object_get(root, DOCUMENTS_COMPLETION);
    if (json_is_string(text))
        return encode_text(o, json_string_value(text), json_string_length(text), false, sink, err);
    if (!json_is_string(prompt) || !json_is_string(completion))
        return error_set(err, MUSTER_E_INVALID,
                         "no text under the key '%s' (data.text_key), and none under '" DOCUMENTS_PROMPT
                         "' and '" DOCUMENTS_COMPLETION "'",
                         o->text_key);
    return encode_text(o, json_string_value(prompt), json_string_length(prompt), true, sink, err) < 0
               ? -1
               : encode_text(o, json_string_value(completion), json_string_length(completion), false, sink,
                             err);
}

static bool is_blank(const char *line, size_t length)
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
    size_t told = 0;
    for (size_t from = 0; from < text->length; number++) {
        const char *line = text->data + from, *end = memchr(line, '\n', text->length - from);
        const size_t length = end ? (size_t)(end - line) : text->length - from;
        if (!is_blank(line, length) &&
            (documents_add_line(o, line, length, sink, err) < 0 || end_document(o, sink, err) < 0))
            return error_wrap(err, "%s:%lld", file->path, (long long)number);
        if (from / PART_BYTES != (from + length + 1) / PART_BYTES) {
            mapping_release(text, from / PART_BYTES * PART_BYTES, from % PART_BYTES + length);
            tell(o, from + length - told);
            told = from + length;
        }
        from += length + 1;
    }
    tell(o, text->length - told);
    return 0;
}

int documents_read(const struct documents_options *options, const struct walk_file *file,
                   struct token_sink *sink, struct muster_error *err)
{
    struct mapping text __attribute__((cleanup(mapping_close)));
    if (mapping_open(&text, file->path, err) < 0)
        return -1;
    if (file->kind == WALK_LINES)
        return read_lines(options, file, &text, sink, err);
    return read_document(options, &text, sink, err) < 0 ? error_wrap(err, "%s", file->path) : 0;
}
