/* tree.h - YAML and JSON files as a tree of nodes with their position in the file.
 *
 * Scalars are read as Kubernetes reads them (YAML 1.1 as its tools have it: yes, no, on and off are
 * booleans, 010 is 8, a date is text). Anchors, aliases and merge keys work. The cost of a hostile or
 * broken file is bounded in advance: bytes, depth, and the number of nodes with every alias counted in
 * full. A duplicate key is an error, but for tree_parse_last. */
#ifndef MUSTER_PROTO_TREE_TREE_H
#define MUSTER_PROTO_TREE_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/buffer.h"
#include "proto/include/muster_error.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    TREE_BYTES_LIMIT = 3 << 20, /* the limit of a request to a Kubernetes API server */
    TREE_DEPTH_LIMIT = 64,      /* libyaml's nesting is quadratic */
    TREE_NODES_LIMIT = 200000,  /* aliases counted as if they were written out */
    TREE_ANCHORS_LIMIT = 1000,  /* in one document */
};

enum tree_kind { TREE_NULL, TREE_BOOL, TREE_INT, TREE_FLOAT, TREE_TEXT, TREE_LIST, TREE_MAP };

struct tree_node {
    enum tree_kind kind;
    bool tagged;      /* with a tag of some program (!env, !!python/tuple), which is not applied */
    int line, column; /* from 1 */
    const char *text; /* a scalar: TREE_TEXT its value, otherwise as it was written; NUL-terminated */
    union {
        bool boolean;
        int64_t integer;
        double real;
    };
    size_t count; /* number of items or entries */
    union {
        const struct tree_node *const *items; /* TREE_LIST */
        const struct tree_entry *entries;     /* TREE_MAP, in the order of the file */
    };
};

struct tree_entry {
    const char *key; /* a number or a boolean as text */
    int line, column;
    const struct tree_node *value; /* never NULL */
};

/* One file. Nodes may be shared (aliases) and live as long as the tree. */
struct tree {
    const struct tree_node **documents; /* empty documents are left out */
    size_t document_count;
    void *arena;
    struct buffer *twice; /* for tree_parse_last, while it reads */
};

/* Reads all documents. name is the file's in errors ("job.yaml:3:7: ..."). Errors are MUSTER_E_INVALID,
 * MUSTER_E_LIMIT or MUSTER_E_NOMEM. out needs no initialisation and is zeroed on failure. */
int tree_parse(const char *name, const char *text, size_t length, struct tree *out, struct muster_error *err);
/* The same for files whose own programs keep the last value of a duplicate key, as PyYAML does. Each such key
 * is a line in *twice: "job.yaml:3: key 'x' appears twice; the last value counts\n". */
int tree_parse_last(const char *name, const char *text, size_t length, struct tree *out, struct buffer *twice,
                    struct muster_error *err);
void tree_free(struct tree *tree);

/* The value of a key of a map; NULL where it is absent or null, or node is NULL or no map. */
const struct tree_node *tree_get(const struct tree_node *node, const char *key);
/* The same with the entry, null values included. */
const struct tree_entry *tree_entry(const struct tree_node *node, const char *key);
/* The text of a TREE_TEXT node; NULL for NULL and for any other kind. */
const char *tree_text(const struct tree_node *node);
/* "text", "list", ...: for "is a list where text is expected". */
const char *tree_kind_name(enum tree_kind kind);

/* A node as JSON, appended: texts and booleans as texts, null as null, numbers as they were written, so that
 * they read as before. -1: no memory, which out remembers. */
int tree_write_json(const struct tree_node *node, struct buffer *out);

#ifdef __cplusplus
}
#endif
#endif
