/* accelerate_keys.h - the keys of accelerate's configuration file, of version 1.15 and of older ones, as
 * tables (pure): kinds of jobs, keys at the top, sections and the variables that their keys become. */
#ifndef MUSTER_LAUNCHER_ACCELERATE_ACCELERATE_KEYS_H
#define MUSTER_LAUNCHER_ACCELERATE_ACCELERATE_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/tree/tree.h"

/* What `accelerate launch` starts workers by. */
enum accelerate_launcher {
    ACCELERATE_SIMPLE, /* one process, or mpirun */
    ACCELERATE_TORCH,  /* torchrun */
    ACCELERATE_DEEPSPEED,
    ACCELERATE_REFUSED, /* a launcher that is not replaced */
};

struct accelerate_type { /* a value of distributed_type */
    const char *name;
    enum accelerate_launcher launcher;
    const char *section;     /* the only section that this kind alone reads; NULL: none */
    const char *devices;     /* the variable that gpu_ids becomes */
    const char *own, *value; /* a variable of this kind; NULL: none */
};

/* How a value is written into a variable. */
enum accelerate_form {
    ACCELERATE_AS_IS, /* as Python prints it: True, 2, text */
    ACCELERATE_LOWER,
    ACCELERATE_UPPER,
};

struct accelerate_key {
    const char *name;
    const char *variable; /* NULL: the reader handles it by name */
    enum accelerate_form form;
    const char *initial; /* value of the variable where the key is missing; NULL: not set */
    const char *when;    /* only where this key of the section is above 1; NULL: always */
};

/* When a section has an effect. */
enum accelerate_reads {
    ACCELERATE_READ_BY_TYPE,       /* where it is the section of distributed_type */
    ACCELERATE_READ_FOR_FP8,       /* with mixed_precision fp8 */
    ACCELERATE_READ_NOT_SIMPLE,    /* where workers are not started alone or by mpirun */
    ACCELERATE_READ_NOT_DEEPSPEED, /* where they are not DeepSpeed's */
};

struct accelerate_section {
    const char *name, *prefix;
    bool bare; /* whether the prefix may be left out */
    enum accelerate_reads reads;
    const char *otherwise; /* why it has no effect */
    const struct accelerate_key *keys;
    size_t count;
};

/* A key at the top that has no effect here, unless it has its resting value. */
struct accelerate_unused {
    const char *name, *why;
    const char *resting; /* besides null, false, an empty list and an empty text; NULL: nothing else */
};

const struct accelerate_type *accelerate_type(const char *name); /* NULL: unknown */
const struct accelerate_section *accelerate_sections(size_t *count);
const struct accelerate_unused *accelerate_unused(
    const char *name); /* NULL: it has an effect, or is unknown */
/* The row of a key of a section, by its whole name or, where the section allows it, without the prefix. */
const struct accelerate_key *accelerate_key(const struct accelerate_section *section, const char *name);
/* Whether a key is known at the top of the file. */
bool accelerate_known(const char *name);
/* The nearest known name, or NULL. */
const char *accelerate_nearest_type(const char *name);
const char *accelerate_nearest(const char *name);
const char *accelerate_nearest_key(const struct accelerate_section *section, const char *name);

/* --- values ---
 *
 * Values of accelerate's configuration file as its own launcher, which is Python, reads and prints them
 * (pure). */

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
