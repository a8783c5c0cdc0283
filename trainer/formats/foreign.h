/* foreign.h - files that are no configuration of ours, nor of a program whose keys are read: recognised, and
 * named with what to do. Pure. */
#ifndef MUSTER_TRAINER_FORMATS_FOREIGN_H
#define MUSTER_TRAINER_FORMATS_FOREIGN_H

#include <stddef.h>

#include "proto/include/muster_error.h"
#include "proto/tree/tree.h"

/* By its text, before it is parsed: TOML, a hostfile, a program, an archive. 0: none of them is recognised;
 * else MUSTER_E_UNSUPPORTED. */
int foreign_text(const char *name, const char *text, size_t length, struct muster_error *err);
/* A value with a tag of another program (!env, !include, !!python/tuple), which would not be applied. */
int foreign_tags(const char *name, const struct tree_node *node, struct muster_error *err);
/* By its keys. */
int foreign_tree(const char *name, const struct tree_node *root, struct muster_error *err);

#endif
