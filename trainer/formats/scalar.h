/* scalar.h - a single value of a file as the text that a setting is read from. Pure.
 *
 * YAML writes one number in many ways, and not all readers of YAML agree on them: 0x10, 0o17 and 1_000 become
 * their decimal digits, and 010, which is 8 for some and 10 for others, is refused. */
#ifndef MUSTER_TRAINER_FORMATS_SCALAR_H
#define MUSTER_TRAINER_FORMATS_SCALAR_H

#include "proto/base/knob.h"
#include "proto/tree/tree.h"

enum { SCALAR_SIZE = 40 };

/* The text for this setting: number, which it may be written to, or as it is in the file. NULL: an error,
 * which begins with where: no single value (null is none, either), 010, a boolean where a path is expected.
 */
const char *scalar_text(const struct tree_node *node, const struct knob *knob, char number[SCALAR_SIZE],
                        const char *where, struct muster_error *err);
/* The value of a number, or of a text that is one; false: it is none, or one of those that are refused. */
bool scalar_number(const struct tree_node *node, double *out);
/* 010, +07, 0_1: octal in YAML 1.1 (PyYAML, Kubernetes), decimal in YAML 1.2. */
bool scalar_is_ambiguous(const struct tree_node *node);
/* null, ~, Null, NULL: of an option of the command line. "" is a value there. */
bool scalar_is_null(const char *text);

#endif
