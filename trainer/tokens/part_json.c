/* part_json.c - see parts.h: fields of the parts of a tokenizer.json, read strictly. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/error.h"
#include "trainer/tokens/parts.h"

int part_refuse(const struct part_reader *r, const char *what, const json_t *value)
{
    char *text = value ? json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
    (void)error_set(r->err, MUSTER_E_UNSUPPORTED, "%s: %s %.200s is not supported", r->path, what,
                    text ? text : "(not printable)");
    free(text); /* jansson's, not of mem.h */
    return -1;
}

int part_malformed(const struct part_reader *r, const char *what)
{
    return error_set(r->err, MUSTER_E_INVALID, "%s: %s", r->path, what);
}

bool part_is_nothing(const json_t *value)
{
    return !value || json_is_null(value) || json_is_false(value) ||
           (json_is_string(value) && json_string_length(value) == 0);
}

const char *part_type(const json_t *part)
{
    const char *type = json_string_value(json_object_get(part, "type"));
    return type ? type : "";
}

static int wrong_field(const struct part_reader *r, const json_t *part, const char *key, const char *wanted)
{
    return error_set(r->err, MUSTER_E_INVALID, "%s: the field %s of the %s %.40s is not %s", r->path, key,
                     r->section, part_type(part), wanted);
}

int part_flag(const struct part_reader *r, const json_t *part, const char *key, int otherwise, bool *out)
{
    const json_t *value = json_object_get(part, key);
    if (!value && otherwise >= 0) {
        *out = otherwise;
        return 0;
    }
    *out = json_is_true(value);
    return json_is_boolean(value) ? 0 : wrong_field(r, part, key, "true or false");
}

const char *part_text(const struct part_reader *r, const json_t *part, const char *key)
{
    const char *text = json_string_value(json_object_get(part, key));
    if (!text || strlen(text) != json_string_length(json_object_get(part, key))) {
        (void)wrong_field(r, part, key, "a text");
        return NULL;
    }
    return text;
}

int part_number(const struct part_reader *r, const json_t *part, const char *key, int64_t most, int64_t *out)
{
    const json_t *value = json_object_get(part, key);
    *out = json_integer_value(value);
    return json_is_integer(value) && *out >= 0 && *out <= most
               ? 0
               : wrong_field(r, part, key, "a whole number that is in range");
}
