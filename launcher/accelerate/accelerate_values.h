/* accelerate_values.h - values of accelerate's configuration file as its own launcher, which is Python, reads
 * and prints them (pure). */
#ifndef MUSTER_LAUNCHER_ACCELERATE_ACCELERATE_VALUES_H
#define MUSTER_LAUNCHER_ACCELERATE_ACCELERATE_VALUES_H

#include <stdbool.h>
#include <stdint.h>

#include "launcher/accelerate/accelerate_keys.h"
#include "proto/tree/tree.h"

/* One value: text without control characters, a number or a boolean. */
bool accelerate_is_value(const struct tree_node *node);
/* Text of a file as an error shows it: of at most 60 bytes, control characters as '?'. */
enum { ACCELERATE_SHOWN_SIZE = 61 };
const char *accelerate_shown(const char *text, char scratch[ACCELERATE_SHOWN_SIZE]);
#define ACCELERATE_SHOWN(text) accelerate_shown(text, (char[ACCELERATE_SHOWN_SIZE]){0})
/* It as text, in fresh memory: True, 2, no. NULL without memory, or where it is not one value. */
char *accelerate_print(const struct tree_node *node, enum accelerate_form form);
/* A boolean, or the text of one. */
bool accelerate_bool(const struct tree_node *node, bool *out);
/* A whole number, or the text of one. */
bool accelerate_int(const struct tree_node *node, int64_t *out);
/* Null, false, or an empty list, map or text: a key that was left as it is. */
bool accelerate_is_empty(const struct tree_node *node);

#endif
