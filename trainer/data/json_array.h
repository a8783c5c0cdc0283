/* json_array.h - the elements of a JSON array in a text, one at a time: the array may be larger than memory.
 * Pure. */
#ifndef MUSTER_TRAINER_DATA_JSON_ARRAY_H
#define MUSTER_TRAINER_DATA_JSON_ARRAY_H

#include <stddef.h>
#include <stdint.h>

#include "proto/include/muster_error.h"
#include "proto/json/json_text.h"

struct json_array {
    const char *text;
    size_t length;
    size_t flags; /* flags that jansson gets for each element */
    int64_t line; /* the element's line, from 1 */
    /* Its own: */
    size_t at;    /* the element's first byte */
    size_t bytes; /* the length; 0: before the first element */
};

/* text: from its first byte, a byte order mark included. Blanks and the opening bracket are there. */
void json_array_begin(struct json_array *array, const char *text, size_t length, size_t flags);
/* 1: *element is the caller's; 0: the array and the text are over; -1: it is not valid JSON, in the line
 * array->line. */
int json_array_next(struct json_array *array, json_t **element, struct muster_error *err);

#endif
