/* json_array.c - see json_array.h. */
#include "trainer/data/json_array.h"

#include <string.h>

#include "proto/base/error.h"
#include "proto/base/text.h"

static void skip_blanks_of(struct json_array *a)
{
    for (; a->at < a->length && a->text[a->at] && strchr(" \t\r\n", a->text[a->at]); a->at++)
        a->line += a->text[a->at] == '\n';
}

static void skip_byte(struct json_array *a)
{
    a->at++;
    skip_blanks_of(a);
}

void json_array_begin(struct json_array *a, const char *text, size_t length, size_t flags)
{
    *a = (struct json_array){.text = text, .length = length, .flags = flags, .line = 1};
    a->at = text_byte_order_mark(text, length);
    skip_blanks_of(a);
    skip_byte(a); /* the bracket */
}

static int broken_array(const char *what, struct muster_error *err)
{
    return error_set(err, MUSTER_E_INVALID, "%s", what);
}

int json_array_next(struct json_array *a, json_t **element, struct muster_error *err)
{
    json_error_t problem;
    const bool first = !a->bytes;
    for (size_t end = a->at + a->bytes; a->at < end; a->at++)
        a->line += a->text[a->at] == '\n';
    skip_blanks_of(a);
    if (a->at < a->length && a->text[a->at] == ']') {
        skip_byte(a);
        return a->at == a->length ? 0 : broken_array("there is text after the array", err);
    }
    if (a->at < a->length && !first && a->text[a->at] != ',')
        return broken_array("not valid JSON: a comma or the end of the array is missing", err);
    if (a->at < a->length && !first)
        skip_byte(a);
    if (a->at >= a->length)
        return broken_array("not valid JSON: the array does not end", err);
    const size_t flags = a->flags | JSON_DISABLE_EOF_CHECK | JSON_DECODE_ANY;
    *element = json_loadb(a->text + a->at, a->length - a->at, flags, &problem);
    if (!*element) /* it may have an integer that no machine has */
        *element = json_loadb(a->text + a->at, a->length - a->at, flags | JSON_DECODE_INT_AS_REAL, &problem);
    if (!*element) {
        a->line += problem.line - 1;
        return error_set(err, MUSTER_E_INVALID, "not valid JSON: %s", problem.text);
    }
    a->bytes = (size_t)problem.position;
    return 1;
}
