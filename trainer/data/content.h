/* content.h - what a file is, by its first bytes and not by its name. Pure. */
#ifndef MUSTER_TRAINER_DATA_CONTENT_H
#define MUSTER_TRAINER_DATA_CONTENT_H

#include <stdbool.h>
#include <stddef.h>

enum { CONTENT_BYTES = 8192 }; /* of the beginning of a file, from which its kind follows */

enum content_kind {
    CONTENT_TEXT,
    CONTENT_LINES,  /* a JSON object in the first line */
    CONTENT_OBJECT, /* a JSON object over several lines */
    CONTENT_ARRAY,  /* a JSON array of objects or texts */
    CONTENT_SHARD,  /* llm.c's tokens */
    CONTENT_OTHER,  /* none of these: see what and advice */
};

struct content {
    enum content_kind kind;
    const char *what;   /* of CONTENT_OTHER: "Parquet", "compressed by gzip", ... */
    const char *advice; /* what can be done, as a clause; NULL: nothing is known */
};

/* whole: `length` bytes are the whole file. */
struct content content_of(const char *start, size_t length, bool whole);

/* Of a file that begins with an object a line: whether the first one has a text under text_key, or a prompt
 * and a completion. */
bool content_has_text(const char *start, size_t length, const char *text_key);

#endif
