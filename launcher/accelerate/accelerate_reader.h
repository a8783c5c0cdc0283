/* accelerate_reader.h - shared by the steps that read accelerate's configuration file: accelerate_config.c
 * (the file, its world and flags), accelerate_sections.c, and accelerate_reader.c with what both use. All
 * pure. */
#ifndef MUSTER_LAUNCHER_ACCELERATE_ACCELERATE_READER_H
#define MUSTER_LAUNCHER_ACCELERATE_ACCELERATE_READER_H

#include "launcher/accelerate/accelerate_config.h"
#include "launcher/accelerate/accelerate_keys.h"
#include "proto/include/muster_error.h"
#include "proto/tree/tree.h"

struct accelerate_reader {
    const char *file, *directory;
    const struct tree_node *root;
    const struct accelerate_type *type; /* value of distributed_type */
    const char *precision;              /* no, fp16, bf16, fp8 */
    bool precision_given;
    int64_t machines; /* 0: not given */
    struct accelerate_config *out;
    struct muster_error *err;
};

/* --- results; all return 0 or -1 --- */

int accelerate_no_memory(const struct accelerate_reader *r);
int accelerate_add_setting(struct accelerate_reader *r, const char *flag, const char *value, int line);
/* line 0: a default. A given value replaces a default, never the other way round. */
int accelerate_add_variable(struct accelerate_reader *r, const char *name, const char *value, int line);
/* The same with a value that was allocated, which it takes; NULL: there was no memory. */
int accelerate_take_variable(struct accelerate_reader *r, const char *name, char *value, int line);
/* The key has no effect. */
int accelerate_set_aside(struct accelerate_reader *r, const char *key, const char *why);

/* --- values at the top of the file; a key that is missing or null leaves *out and has line 0 --- */

int accelerate_not_one_value(const struct accelerate_reader *r, const char *key,
                             const struct tree_node *node); /* sets the error: -1 */
int accelerate_read_bool(const struct accelerate_reader *r, const char *key, bool *out, int *line);
int accelerate_read_int(const struct accelerate_reader *r, const char *key, int64_t *out, int *line);
/* The key as a flag's value; an empty text is none. */
int accelerate_read_setting(struct accelerate_reader *r, const char *key, const char *flag);

/* --- a step (accelerate_sections.c) --- */

int accelerate_read_sections(struct accelerate_reader *r);

#endif
