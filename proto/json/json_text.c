/* json_text.c - see json_text.h. */
#include "proto/json/json_text.h"

#include "proto/base/error.h"
#include "proto/base/io.h"
#include "proto/base/text.h"

json_t *json_text_object(const char *name, const char *text, size_t length, size_t flags,
                         struct muster_error *err)
{
    json_error_t problem;
    const size_t mark = text_byte_order_mark(text, length);
    text += mark;
    length -= mark;
    json_t *value = json_loadb(text, length, JSON_REJECT_DUPLICATES | flags, &problem);
    if (value && json_is_object(value))
        return value;
    if (value)
        (void)error_set(err, MUSTER_E_INVALID, "%s: the JSON is no object", name);
    else
        (void)error_set(err, MUSTER_E_INVALID, "%s:%d:%d: not valid JSON: %s", name, problem.line,
                        problem.column, problem.text);
    json_decref(value);
    return NULL;
}

json_t *json_text_parse(const char *name, const char *text, size_t length, struct muster_error *err)
{
    if (length > JSON_TEXT_LIMIT) {
        (void)error_set(err, MUSTER_E_LIMIT, "%s: %zu bytes of JSON; at most %d are read", name, length,
                        JSON_TEXT_LIMIT);
        return NULL;
    }
    return json_text_object(name, text, length, 0, err);
}

json_t *json_text_read(const char *path, struct muster_error *err)
{
    scope_buffer text = {0};
    if (io_read_file(path, JSON_TEXT_LIMIT, &text, err) < 0)
        return NULL;
    return json_text_parse(path, text.data ? text.data : "", text.length, err);
}

const char *json_text_kind(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return json_object_size(value) ? "an object" : "an empty object";
    case JSON_ARRAY:
        return json_array_size(value) ? "a list" : "an empty list";
    case JSON_STRING:
        return json_string_length(value) ? "a text" : "an empty text";
    case JSON_INTEGER:
    case JSON_REAL:
        return "a number";
    case JSON_TRUE:
        return "true";
    case JSON_FALSE:
        return "false";
    default:
        return "null";
    }
}
