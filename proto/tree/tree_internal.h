/* tree_internal.h - shared by the readers of tree.h: memory that lives as long as the tree, and scalars. */
#ifndef MUSTER_PROTO_TREE_TREE_INTERNAL_H
#define MUSTER_PROTO_TREE_TREE_INTERNAL_H

#include "proto/tree/tree.h"

struct tree_arena;

/* Zeroed memory that tree_free releases, or NULL. */
void *tree_allocate(struct tree_arena **arena, size_t count, size_t size);
char *tree_copy(struct tree_arena **arena, const char *text, size_t length);
void tree_arena_free(struct tree_arena *arena);

/* Adds a document; empty ones (null) are left out. */
int tree_add_document(struct tree *tree, const struct tree_node *root, struct muster_error *err);

/* Sorts out a map's entries, *count of them: a duplicate key is an error at its second place, or with twice a
 * line there, and the last one stays; entries from `merged` on come from merge keys and yield to earlier ones
 * of the same key. Order is kept. */
int tree_settle_entries(const char *name, struct tree_entry *entries, size_t *count, size_t merged,
                        struct buffer *twice, struct muster_error *err);

/* The meaning of a YAML scalar: sets kind and value of node, text stays. tag is NULL for none. false if
 * the tag does not fit the text. */
bool tree_resolve(struct tree_node *node, bool plain, const char *tag);
/* Whether a tag (NULL for none) is neither YAML's own nor the lone "!". */
bool tree_tag_is_foreign(const char *tag);

/* Position at which a reader found that the text is not in its language; line 0: it did not. */
struct tree_stop {
    int line, column;
};

/* The two readers. Both leave their nodes in tree, also after an error. */
int tree_parse_yaml(const char *name, const char *text, size_t length, struct tree *tree,
                    struct tree_stop *stop, struct muster_error *err);
int tree_parse_json(const char *name, const char *text, size_t length, struct tree *tree,
                    struct tree_stop *stop, struct muster_error *err);

#endif
