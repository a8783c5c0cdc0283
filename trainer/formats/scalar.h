/* scalar.h - a single value of a file as the text of a setting. Pure.
 *
 * YAML has many forms of a number, and readers of YAML disagree about some of them. 0x10, 0o17 and 1_000
 * become decimal digits; 010, which is 8 for some readers and 10 for others, is refused. */
#ifndef MUSTER_TRAINER_FORMATS_SCALAR_H
#define MUSTER_TRAINER_FORMATS_SCALAR_H

#include "proto/base/knob.h"
#include "proto/tree/tree.h"

enum { SCALAR_SIZE = 40 };

/* The text for this setting: the text of the file, or decimal digits in `number`. NULL: an error, which
 * begins with `where`: no single value (null included), 010, or a boolean where a path is expected. */
const char *scalar_text(const struct tree_node *node, const struct knob *knob, char number[SCALAR_SIZE],
                        const char *where, struct muster_error *err);
/* The value of a number, or of a text with a number; false: no number, or a refused form. */
bool scalar_number(const struct tree_node *node, double *out);
/* Whether the value of an option on the command line is null: null, ~, Null, NULL. "" is a value there. */
bool scalar_is_null(const char *text);
/* Whether it is a whole list, "[a, b]". */
bool scalar_is_list(const char *text);

#endif
