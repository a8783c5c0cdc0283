/* patch.h - merges an object with a patch as Kubernetes does (strategic merge): maps by key, lists of named
 * things by their names, everything else is replaced (pure). */
#ifndef MUSTER_LAUNCHER_LOCAL_MANIFEST_PATCH_H
#define MUSTER_LAUNCHER_LOCAL_MANIFEST_PATCH_H

#include "proto/tree/tree.h"

/* Owns the nodes that merging makes; parts of the given trees are shared. Zeroed at first. */
struct patch_memory {
    void **blocks;
    size_t count;
};

/* The patched node, or NULL without memory. base NULL: the patch itself. */
const struct tree_node *patch_merge(struct patch_memory *memory, const struct tree_node *base,
                                    const struct tree_node *patch);
/* A map of one key, and a list of one item, of the caller's own making; NULL without memory or of NULL. key
 * must outlive the memory. */
const struct tree_node *patch_map(struct patch_memory *memory, const char *key,
                                  const struct tree_node *value);
const struct tree_node *patch_list(struct patch_memory *memory, const struct tree_node *item);
void patch_free(struct patch_memory *memory);

#endif
