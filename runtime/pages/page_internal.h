/* page_internal.h - one run of a page, for the parts of page.h: page.c has the sections, facts.c a page's
 * facts about its model, evaluate.c the expressions, keys.c the functions of config.json, rope.c its rotary
 * positions, operations.c the functions that write. */
#ifndef MUSTER_RUNTIME_PAGES_PAGE_INTERNAL_H
#define MUSTER_RUNTIME_PAGES_PAGE_INTERNAL_H

#include <stdatomic.h>

#include "proto/tree/tree.h"
#include "runtime/pages/page.h"

enum {
    PAGE_VARIABLES = 96,
    PAGE_ARGUMENTS = 12,
    PAGE_ROPES = 4,
    PAGE_ROPE_LIST = 1024, /* factors of the pairs of a head, short and long */
};

/* Keys of a page. */
enum section {
    MODEL_TYPE, /* "qwen2": of config.json */
    CLASSIFIER, /* "BertForSequenceClassification": its name in config.json; such a page reads labelled texts
                 */
    BASE,       /* "model.": prefix of names that the model without its head leaves out */
    DRAWN,      /* beginnings of names that files without the classifier lack */
    SAVED,      /* beginnings of names that are trained whole next to adapters */
    UNREAD,     /* beginnings of names that other heads' tensors have */
    ADAPTERS,   /* modules that get adapters where no target is named, as PEFT chooses them */
    ORDER,      /* parts of a block in the order in which transformers has them */
    DROPOUT,    /* keys of config.json with probabilities that are not applied */
    ONLY,       /* keys of config.json with the values that the page takes, divided by "|" */
    VALUES,     /* statements */
    POSITIONS,  /* expression: the longest sequence */
    LAYERS,     /* expression: how often the block is */
    EMBEDDING,  /* statements; x is the result */
    NAMES,      /* "model.layers.{}": name of a block; its parameters' names begin with that and a dot */
    BLOCK,      /* statements from x to x */
    HEAD,       /* statements from x; the last is logits, or classes */
    SECTIONS
};

enum { HEAD_PARAMS = 8 };

struct page {
    atomic_int references;
    char *name, *config_name;
    bool own;
    json_t *config;
    struct tree tree;
    const struct tree_node *section[SECTIONS]; /* NULL: absent */
    bool changed;                              /* config is not the file's */
    double dropout;
    char tied[MODEL_NAME_LIMIT], tied_to[MODEL_NAME_LIMIT]; /* "": not tied */
    int layers;
    char head[HEAD_PARAMS][MODEL_NAME_LIMIT]; /* parameters of the head; "" at the end */
};

enum page_kind { PAGE_NONE, PAGE_NUMBER, PAGE_FLAG, PAGE_TEXT, PAGE_JSON, PAGE_ROPE, PAGE_ROWS };

/* A value of an expression. */
struct page_value {
    enum page_kind kind;
    double number;      /* PAGE_NUMBER; PAGE_FLAG: 0 or 1; PAGE_ROPE: index; PAGE_ROWS: value of the layer */
    int layer;          /* PAGE_ROWS: the layer that it is of */
    const json_t *json; /* PAGE_JSON: a list */
    char text[MODEL_NAME_LIMIT]; /* PAGE_TEXT */
};

struct page_variable {
    char name[32];
    struct page_value value;
};

struct page_run {
    const struct page *of;
    const char *page, *config_name; /* names for errors */
    const json_t *config;
    const struct tree_node *node; /* the statement; NULL: before the first */
    const char *at;               /* the place in its text */
    int skips;                    /* not 0: expressions are parsed and not evaluated */
    int depth;
    struct page_variable variables[PAGE_VARIABLES];
    int variable_count;
    struct rotary ropes[PAGE_ROPES];
    double rope_list[PAGE_ROPES][PAGE_ROPE_LIST];
    int rope_count;
    struct writer writer; /* its model NULL: the values alone are evaluated */
    int layer;            /* number of the block; -1: none */
    /* Inputs of the batch; -1: there is none. Texts with labels have no targets. */
    int tokens, types, targets, lengths, labels;
    int table;                                                 /* parameter: the embedding's table */
    char table_name[MODEL_NAME_LIMIT], tied[MODEL_NAME_LIMIT]; /* names; tied "": not tied */
    bool ended;                                                /* by logits */
    struct muster_error error;                                 /* the first */
};

/* Keep the first error and return -1. page_fail: of the page, with name and line. page_refuse: of
 * config.json. */
int page_fail(struct page_run *run, const char *format, ...) __attribute__((format(printf, 2, 3)));
int page_refuse(struct page_run *run, const char *key, const json_t *value, const char *works);
int page_refuse_kind(struct page_run *run, const char *key, const char *kind);

/* Whether a parameter is trained whole where the model has adapters. */
bool page_saves(const struct page *page, const char *param);

/* ---- evaluate.c ---- */

/* A statement: "name = expression", or an expression, either followed by "when condition". */
int page_statement(struct page_run *run, const struct tree_node *node);
/* An expression alone. */
int page_expression(struct page_run *run, const struct tree_node *node, struct page_value *out);
struct page_value *page_variable(struct page_run *run, const char *name);
int page_set(struct page_run *run, const char *name, const struct page_value *value);
bool page_is_true(const struct page_value *value);
/* A whole number of a value, between bounds; `what` for the error. */
int page_whole(struct page_run *run, const struct page_value *value, const char *what, int64_t least,
               int64_t most, int64_t *out);
struct page_value page_number(double number);

/* ---- functions ---- */

/* A function of the language. parameters: names in their order, divided by blanks; those followed by "?"
 * may be left out and are PAGE_NONE then. */
struct page_function {
    const char *name, *parameters;
    int (*call)(struct page_run *run, const struct page_value *arguments, struct page_value *out);
};
extern const struct page_function page_key_functions[], page_operation_functions[]; /* name NULL at the end */

/* The value of a key; NULL: absent or null. */
const json_t *page_key(const struct page_run *run, const char *key);

#endif
