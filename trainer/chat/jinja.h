/* jinja.h - the templates of chats: Jinja with the environment that Hugging Face's tokenizers give it.
 *
 * Blocks are trimmed (trim_blocks, lstrip_blocks), nothing is escaped, mutable values are read only but for
 * namespaces, and tojson is json.dumps without ASCII escapes. There are for, if, set, macro, call, filter,
 * with, raw, break, continue and generation; the filters, tests, methods and functions of filters.c,
 * test.c, methods.c and call.c. A template that needs anything else is refused by name, with the line. */
#ifndef MUSTER_TRAINER_CHAT_JINJA_H
#define MUSTER_TRAINER_CHAT_JINJA_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/buffer.h"
#include "proto/base/guard.h"
#include "proto/include/muster_error.h"

/* ---- memory that is freed as a whole ---- */

struct jinja_block;
struct jinja_arena {
    struct jinja_block *blocks;
    size_t taken, limit; /* bytes; limit 0: none */
};
/* Zeroed bytes; NULL: no memory, or the limit. */
void *jinja_arena_take(struct jinja_arena *arena, size_t bytes);
void jinja_arena_free(struct jinja_arena *arena); /* accepts NULL */

/* ---- values, all in an arena; texts are UTF-8 ---- */

enum jinja_kind {
    JINJA_UNDEFINED, /* text: the name that is not defined */
    JINJA_NONE,
    JINJA_BOOL,
    JINJA_INT,
    JINJA_FLOAT,
    JINJA_STRING,
    JINJA_LIST,
    JINJA_DICT,
    JINJA_NAMESPACE, /* a dict that may change */
    JINJA_MACRO,
    JINJA_METHOD,
    JINJA_FUNCTION,
    JINJA_LOOP,
};
struct jinja_text {
    const char *data;
    size_t length;
};
struct jinja_value {
    enum jinja_kind kind;
    union {
        bool truth;
        int64_t number;
        double real;
        struct jinja_text text;
        struct jinja_list *list;
        struct jinja_dict *dict;
        struct jinja_macro *macro;
        struct jinja_method *method;
        struct jinja_loop *loop;
        int function;
    };
};
struct jinja_list {
    struct jinja_value *item; /* (count) */
    size_t count, capacity;
    bool tuple; /* only its text differs */
};
struct jinja_entry {
    struct jinja_value key, value;
};
struct jinja_dict {
    struct jinja_entry *entry; /* (count), in the order of insertion */
    size_t count, capacity;
};

struct jinja_value jinja_string(const char *data, size_t length); /* points to the caller's bytes */
/* Lists and dicts: NULL, or false: no memory. */
struct jinja_list *jinja_list_create(struct jinja_arena *arena);
bool jinja_list_add(struct jinja_arena *arena, struct jinja_list *list, struct jinja_value value);
struct jinja_dict *jinja_dict_create(struct jinja_arena *arena);
/* Replaces the value of a key that is there. */
bool jinja_dict_set(struct jinja_arena *arena, struct jinja_dict *dict, struct jinja_value key,
                    struct jinja_value value);
/* NULL: the key is not there. */
const struct jinja_value *jinja_dict_get(const struct jinja_dict *dict, struct jinja_value key);
const struct jinja_value *jinja_dict_find(const struct jinja_dict *dict, const char *key);
/* A value of JSON, whose texts stay in json; or with copies of them. false: no memory. */
bool jinja_from_json(struct jinja_arena *arena, const json_t *json, struct jinja_value *out);
bool jinja_from_json_copied(struct jinja_arena *arena, const json_t *json, struct jinja_value *out);

/* ---- templates ---- */

struct jinja;
struct jinja_span {
    size_t from, to; /* bytes of the text */
};
enum { JINJA_SPANS = 4096 };
struct jinja_spans {
    struct jinja_span *span; /* (count): mem_free */
    size_t count, capacity;
};
int jinja_spans_add(struct jinja_spans *spans, struct jinja_span span, struct muster_error *err);

/* name: of the template, for errors: "NAME:LINE: ...". MUSTER_E_INVALID: no Jinja; MUSTER_E_UNSUPPORTED: a
 * statement that is not supported. */
struct jinja *jinja_compile(const char *name, const char *text, size_t length, struct muster_error *err);
void jinja_destroy(struct jinja *source); /* accepts NULL */
GUARD_DEFINE(jinja, struct jinja *, jinja_destroy);
/* Whether the template has generation blocks. */
bool jinja_marks(const struct jinja *source);
/* Whether an expression names a variable or function. */
bool jinja_names(const struct jinja *source, const char *name);

struct jinja_input {
    const struct jinja_dict *variables;
    int64_t now_s;             /* strftime_now, in seconds since 1970, UTC */
    struct jinja_spans *spans; /* gets the texts of generation blocks; may be NULL */
};
/* Adds the text to out. Errors: the template raises one, or uses a value in a way that it has not. */
int jinja_render(const struct jinja *source, struct jinja_arena *arena, const struct jinja_input *input,
                 struct buffer *out, struct muster_error *err);

#endif
