/* facts.h - names and values that a controller gives a pod: its labels, annotations or variables (pure). */
#ifndef MUSTER_LAUNCHER_LOCAL_POD_FACTS_H
#define MUSTER_LAUNCHER_LOCAL_POD_FACTS_H

#include <stdbool.h>
#include <stdint.h>

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
