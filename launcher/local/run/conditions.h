/* conditions.h - pure: the conditions of a PyTorchJob, in the order and with the replacements of the
 * operator's status. */
#ifndef MUSTER_LAUNCHER_LOCAL_RUN_CONDITIONS_H
#define MUSTER_LAUNCHER_LOCAL_RUN_CONDITIONS_H

#include <stdbool.h>

#define CONDITION_TYPES(X)                                                                                   \
    X(CONDITION_CREATED, "Created")                                                                          \
    X(CONDITION_RUNNING, "Running")                                                                          \
    X(CONDITION_RESTARTING, "Restarting")                                                                    \
    X(CONDITION_SUCCEEDED, "Succeeded")                                                                      \
    X(CONDITION_FAILED, "Failed")                                                                            \
    X(CONDITION_SUSPENDED, "Suspended")

#define CONDITION_ENUM(symbol, name) symbol,
enum condition_type { CONDITION_TYPES(CONDITION_ENUM) CONDITION_TYPE_COUNT };
#undef CONDITION_ENUM

struct condition {
    enum condition_type type;
    bool status;
    const char *reason; /* a constant: "PyTorchJobRunning" */
};

/* Oldest change first; a zeroed struct is a job that the operator has not seen. */
struct conditions {
    struct condition list[CONDITION_TYPE_COUNT];
    int count;
};

/* Appends one condition. Running and Restarting replace each other; Succeeded and Failed turn Running off;
 * after either of them nothing changes any more. Returns whether anything changed. */
bool conditions_set(struct conditions *c, enum condition_type type, bool status, const char *reason);
/* Whether there is such a condition, and it is true. */
bool conditions_hold(const struct conditions *c, enum condition_type type);
/* NULL where there is none of this type. */
const struct condition *conditions_find(const struct conditions *c, enum condition_type type);

const char *condition_name(enum condition_type type);

#endif
