/* json_text.h - JSON objects from untrusted text (jansson): the whole text, no key twice, an error with its
 * place. A byte order mark in front is skipped. */
#ifndef MUSTER_PROTO_JSON_JSON_TEXT_H
#define MUSTER_PROTO_JSON_JSON_TEXT_H

#include <stddef.h>

#include <jansson.h>

#include "proto/base/guard.h"
#include "proto/include/muster_error.h"

enum { JSON_TEXT_LIMIT = 32 << 20 }; /* bytes of one text: jansson needs many times as much */

static inline void guard_json(json_t **value)
{
    json_decref(*value);
}

/* "null", "a number", "an empty list": for errors. */
const char *json_text_kind(const json_t *value);

/* The object, owned by the caller (json_decref); NULL: MUSTER_E_INVALID "name:line:column: ...",
 * MUSTER_E_LIMIT. */
json_t *json_text_parse(const char *name, const char *text, size_t length, struct muster_error *err);
/* The same with more of jansson's flags, and of any length. */
json_t *json_text_object(const char *name, const char *text, size_t length, size_t flags,
                         struct muster_error *err);
/* The same of a file. */
json_t *json_text_read(const char *path, struct muster_error *err);

#endif
