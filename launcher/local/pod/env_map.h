/* env_map.h - a container's environment while it is put together: the last value of a name wins, $(NAME)
 * is replaced by the value set before (pure). */
#ifndef MUSTER_LAUNCHER_LOCAL_POD_ENV_MAP_H
#define MUSTER_LAUNCHER_LOCAL_POD_ENV_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/buffer.h"
#include "proto/base/text_list.h"
#include "proto/include/muster_error.h"

enum {
    ENV_ENTRIES_LIMIT = 4096,
    ENV_TEXT_LIMIT = 128 << 10,   /* the kernel's limit of one argument or variable */
    ENV_TOTAL_LIMIT = 1024 << 10, /* all of a container's: $(A)$(A) doubles with every line */
};

struct env_entry {
    char *name, *value;
};
struct env_map {
    struct env_entry *entries;
    size_t count, bytes;
    uint32_t *slots; /* open addressing by the name's hash: index of the entry + 1, 0 for an empty slot */
    size_t slot_count;
};

/* Sets or replaces; a replaced name keeps its place. */
int env_map_set(struct env_map *map, const char *name, const char *value, struct muster_error *err);
/* NAME=value of each, appended to out. */
int env_map_list(const struct env_map *map, struct text_list *out);
void env_map_free(struct env_map *map);

/* Kubernetes' rules: $(NAME) is replaced where NAME is set and left as it is where it is not; $$ is a dollar
 * sign that begins nothing, so that $$(NAME) stays $(NAME). Appends to out, whose limit should be set. -1
 * where out has failed. */
int env_expand(const char *text, const struct env_map *map, struct buffer *out);

/* --- facts ---
 *
 * Names and values that a controller gives a pod: its labels, annotations or variables (pure). */

enum { FACTS_LIMIT = 24 };

struct fact {
    const char *name;
    char *value;
};
struct facts {
    struct fact list[FACTS_LIMIT]; /* in the controller's order; a name may occur twice */
    int count;
};

/* Takes value, also on failure: NULL, for which there was no memory. name must outlive the facts. */
bool facts_add(struct facts *facts, const char *name, char *value);
bool facts_add_number(struct facts *facts, const char *name, int64_t value);
/* The value of a name, or NULL. */
const char *facts_find(const struct facts *facts, const char *name);
void facts_free(struct facts *facts);

#endif
