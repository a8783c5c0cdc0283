/* jinja_internal.h - private header of this folder: the tokens and nodes of a template, and a run of it. */
#ifndef MUSTER_TRAINER_CHAT_JINJA_INTERNAL_H
#define MUSTER_TRAINER_CHAT_JINJA_INTERNAL_H

#include <locale.h>

#include "trainer/chat/jinja.h"

enum {
    JINJA_DEPTH = 200,          /* expressions in expressions, calls in calls */
    JINJA_STEPS = 20 * 1000000, /* nodes that a rendering evaluates */
    JINJA_OUTPUT = 64 << 20,    /* bytes of a text */
    JINJA_MEMORY = 256 << 20,   /* bytes of values */
};

/* ---- lexer.c ---- */

enum jinja_token_kind {
    TOKEN_TEXT, /* the template's text between tags */
    TOKEN_OUTPUT,
    TOKEN_OUTPUT_END,
    TOKEN_TAG,
    TOKEN_TAG_END,
    TOKEN_NAME,
    TOKEN_STRING,
    TOKEN_INTEGER,
    TOKEN_REAL,
    TOKEN_OPERATOR,
    TOKEN_END,
};
struct jinja_token {
    enum jinja_token_kind kind;
    int line;
    struct jinja_text text; /* without quotes and escapes */
};

struct jinja {
    struct jinja_arena arena;
    char *name;
    struct jinja_token *token; /* (tokens), the last is TOKEN_END; NULL after compiling */
    size_t tokens, capacity;
    struct jinja_node *body;
    bool marks;
};
int jinja_lex(struct jinja *source, const char *text, size_t length, struct muster_error *err);

/* ---- parse.c, statements.c ---- */

enum jinja_node_kind {
    NODE_CONSTANT, /* value */
    NODE_NAME,     /* text */
    NODE_LIST,     /* item */
    NODE_TUPLE,
    NODE_DICT,      /* item: key, value, key, value ... */
    NODE_CONDITION, /* a if b else c; c may be NULL */
    NODE_OR,
    NODE_AND,
    NODE_NOT,
    NODE_COMPARE, /* a, then item: NODE_OPERAND with text and a */
    NODE_OPERAND,
    NODE_BINARY, /* a text b */
    NODE_NEGATE,
    NODE_CONCAT,    /* item */
    NODE_ATTRIBUTE, /* a.text */
    NODE_ITEM,      /* a[b] */
    NODE_SLICE,     /* a[item 0:item 1:item 2], each may be NULL */
    NODE_CALL,      /* a(item) */
    NODE_FILTER,    /* a | text(item); a NULL: the body of a block */
    NODE_TEST,      /* a is text(item) */
    NODE_KEYWORD,   /* an argument text=a */
    NODE_SPREAD,    /* an argument *a */
    NODE_SPREAD2,   /* an argument **a */
    /* statements */
    NODE_BODY,       /* item */
    NODE_TEXT,       /* text */
    NODE_PRINT,      /* a */
    NODE_FOR,        /* for a in b if c: body; other */
    NODE_IF,         /* if a: body; other */
    NODE_SET,        /* a = b */
    NODE_SET_BLOCK,  /* a = body | b */
    NODE_MACRO,      /* text(item: NODE_KEYWORD, a NULL without default): body */
    NODE_CALL_BLOCK, /* call(item) a: body */
    NODE_FILTERED,   /* filter b: body */
    NODE_WITH,       /* item: NODE_SET; body */
    NODE_GENERATION, /* body */
    NODE_BREAK,
    NODE_CONTINUE,
};
struct jinja_node {
    enum jinja_node_kind kind;
    int line;
    bool recursive; /* NODE_FOR */
    struct jinja_text text;
    struct jinja_value value;
    struct jinja_node *a, *b, *c, *body, *other;
    struct jinja_node **item; /* (count) */
    size_t count, capacity;
};

struct jinja_parser {
    struct jinja *source;
    size_t at;
    int depth;
    struct muster_error *err;
};
/* All return NULL after an error. */
struct jinja_node *jinja_node_new(struct jinja_parser *p, enum jinja_node_kind kind);
bool jinja_node_add(struct jinja_parser *p, struct jinja_node *node, struct jinja_node *item);
void *jinja_refuse(struct jinja_parser *p, enum muster_error_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
const struct jinja_token *jinja_here(const struct jinja_parser *p);
bool jinja_is(const struct jinja_parser *p, enum jinja_token_kind kind, const char *text);
bool jinja_skip(struct jinja_parser *p, enum jinja_token_kind kind, const char *text);
bool jinja_expect(struct jinja_parser *p, enum jinja_token_kind kind, const char *text);
struct jinja_node *jinja_parse_expression(struct jinja_parser *p, bool condition);
/* a, b, c is a tuple. */
struct jinja_node *jinja_parse_tuple(struct jinja_parser *p, bool condition);
struct jinja_node *jinja_parse_primary(struct jinja_parser *p);
/* NAME(arguments), and all that follow after '|' or 'is'; of NULL: the body of a block. */
struct jinja_node *jinja_parse_filter(struct jinja_parser *p, struct jinja_node *of);
struct jinja_node *jinja_parse_filters(struct jinja_parser *p, struct jinja_node *of);
int jinja_parse_template(struct jinja_parser *p);

/* ---- a run ---- */

struct jinja_variable {
    struct jinja_text name;
    struct jinja_value value;
    struct jinja_variable *next;
};
struct jinja_scope {
    struct jinja_variable *first;
    struct jinja_scope *parent;
};
struct jinja_macro {
    const struct jinja_node *node;
    struct jinja_scope *scope; /* where it was defined */
};
struct jinja_method {
    struct jinja_value of;
    struct jinja_text name;
};
struct jinja_loop {
    const struct jinja_list *items;
    size_t at;
    int depth;
    const struct jinja_node *node; /* the loop, if it is recursive */
    struct jinja_scope *scope;     /* where it stands */
    struct jinja_value changed;    /* last values of loop.changed */
};
enum jinja_jump { JUMP_NONE, JUMP_BREAK, JUMP_CONTINUE };

struct jinja_run {
    const struct jinja *source;
    const struct jinja_input *input;
    struct jinja_arena *arena;
    struct jinja_scope *scope;
    struct buffer *out, *whole; /* text of the block, and the template's text */
    enum jinja_jump jump;
    locale_t letters; /* for the case of letters; 0: not needed yet */
    int line, depth;
    int64_t steps;
    bool failed; /* err has the first error; values are undefined from there on */
    struct muster_error *err;
};
/* Remembers an error at the line of the run; undefined. */
struct jinja_value jinja_fail(struct jinja_run *run, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
struct jinja_value jinja_no_memory(struct jinja_run *run);
/* false after an error; else the run may go on, one level deeper (leave with depth--). */
bool jinja_enter(struct jinja_run *run, int line);

/* arguments of a call, filter or test */
struct jinja_arguments {
    struct jinja_list *list;
    struct jinja_dict *named;
};
/* Argument `at`, or the one with this name; NULL: not given. */
const struct jinja_value *jinja_argument(const struct jinja_arguments *arguments, size_t at,
                                         const char *name);
int64_t jinja_argument_int(struct jinja_run *run, const struct jinja_arguments *arguments, size_t at,
                           const char *name, int64_t otherwise);
/* As a text; NULL where it is not given or none, or after a failure in run: it is of another kind, or needed.
 */
const struct jinja_text *jinja_argument_text(struct jinja_run *run, const struct jinja_arguments *arguments,
                                             size_t at, const char *name, bool needed);
bool jinja_argument_true(const struct jinja_arguments *arguments, size_t at, const char *name,
                         bool otherwise);

/* value.c */
struct jinja_value jinja_undefined(struct jinja_text name);
struct jinja_value jinja_none(void);
struct jinja_value jinja_bool(bool truth);
struct jinja_value jinja_int(int64_t number);
struct jinja_value jinja_real(double real);
struct jinja_value jinja_of_list(struct jinja_list *list);
/* A copy of the buffer's bytes. */
struct jinja_value jinja_copy(struct jinja_run *run, const struct buffer *text);
bool jinja_true(struct jinja_value value);
bool jinja_equal(struct jinja_value a, struct jinja_value b);
/* Below 0, 0, above 0; fails where the kinds have no order. */
int jinja_compare(struct jinja_run *run, struct jinja_value a, struct jinja_value b);
const char *jinja_kind_name(enum jinja_kind kind);
bool jinja_number(struct jinja_value value, double *out); /* false: neither a number nor a truth */
/* The elements: of a list itself, characters, keys. NULL: not iterable, an error. */
struct jinja_list *jinja_elements(struct jinja_run *run, struct jinja_value value);

/* characters.c */
bool jinja_text_is(struct jinja_text text, const char *other);
size_t jinja_characters(struct jinja_text text);
size_t jinja_character_at(struct jinja_text text, size_t character); /* its first byte, or length */
/* A code point to UTF-8, and back: of a character of `bytes` bytes. */
void jinja_add_character(struct buffer *out, uint32_t c);
uint32_t jinja_code_at(const char *at, size_t bytes);
bool jinja_has_case(struct jinja_text text, bool large);         /* all letters of ASCII, and there is one */
bool jinja_is_blank(const char *at, size_t left, size_t *bytes); /* a blank of Unicode */
struct jinja_text jinja_trim(struct jinja_text text, const struct jinja_text *characters, bool left,
                             bool right);

/* text.c: as Python's str, repr, json.dumps write values */
int jinja_write(struct buffer *out, struct jinja_value value);
int jinja_write_repr(struct buffer *out, struct jinja_value value, int depth);
int jinja_write_json(struct jinja_run *run, struct buffer *out, struct jinja_value value,
                     const struct jinja_arguments *arguments);
struct jinja_value jinja_to_string(struct jinja_run *run, struct jinja_value value);
/* format % values, as Python has it. */
struct jinja_value jinja_format(struct jinja_run *run, struct jinja_text format, struct jinja_value values);

/* expression.c */
struct jinja_value jinja_evaluate(struct jinja_run *run, const struct jinja_node *node);
/* operators.c */
struct jinja_value jinja_fail_undefined(struct jinja_run *run, struct jinja_text name);
struct jinja_value jinja_attribute(struct jinja_run *run, struct jinja_value of, struct jinja_text name);
struct jinja_value jinja_item(struct jinja_run *run, struct jinja_value of, struct jinja_value key);
bool jinja_contains(struct jinja_run *run, struct jinja_value in, struct jinja_value value);
struct jinja_value jinja_binary(struct jinja_run *run, const char *sign, struct jinja_value a,
                                struct jinja_value b);
/* call.c */
bool jinja_arguments_of(struct jinja_run *run, const struct jinja_node *node, struct jinja_arguments *out);
struct jinja_value jinja_call(struct jinja_run *run, struct jinja_value callee,
                              const struct jinja_arguments *arguments);
struct jinja_value jinja_call_macro(struct jinja_run *run, const struct jinja_macro *macro,
                                    const struct jinja_arguments *arguments);
int jinja_function(struct jinja_text name); /* -1: no function */
/* filters.c, lists.c, test.c, methods.c */
struct jinja_value jinja_filter(struct jinja_run *run, struct jinja_text name, struct jinja_value of,
                                const struct jinja_arguments *arguments);
/* false: no filter of lists has this name. */
bool jinja_list_filter(struct jinja_run *run, struct jinja_text name, struct jinja_value of,
                       const struct jinja_arguments *arguments, struct jinja_value *out);
bool jinja_test(struct jinja_run *run, struct jinja_text name, struct jinja_value of,
                const struct jinja_arguments *arguments);
bool jinja_has_method(struct jinja_value of, struct jinja_text name, bool *changes);
struct jinja_value jinja_call_method(struct jinja_run *run, const struct jinja_method *method,
                                     const struct jinja_arguments *arguments);
/* render.c */
void jinja_run_node(struct jinja_run *run, const struct jinja_node *node);
bool jinja_assign(struct jinja_run *run, const struct jinja_node *target, struct jinja_value value);
bool jinja_define(struct jinja_run *run, struct jinja_text name, struct jinja_value value);
/* The text of a body in a scope of its own. */
struct jinja_value jinja_capture(struct jinja_run *run, const struct jinja_node *body,
                                 struct jinja_scope *scope);
/* The items of a for; also the call of a recursive loop. */
void jinja_run_for(struct jinja_run *run, const struct jinja_node *node, struct jinja_value over, int depth);

#endif
