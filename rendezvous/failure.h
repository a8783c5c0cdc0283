/* failure.h - pure: which of several failures is the first cause, and what a failure stands for.
 *
 * A job usually shows many deaths for one reason: the first worker dies and its peers fall over it. Causes
 * are ranked by class, and inside a class the earliest wins. Workers that an agent stopped itself never get
 * here. */
#ifndef MUSTER_RENDEZVOUS_FAILURE_H
#define MUSTER_RENDEZVOUS_FAILURE_H

#include <stdbool.h>
#include <stddef.h>

#include "rendezvous/membership.h"

#ifdef __cplusplus
extern "C" {
#endif

/* symbol, name; the first class is the strongest cause */
#define FAILURE_CLASSES(X)                                                                                   \
    X(FAILURE_SIGNAL, "signal")                    /* killed by a signal, out of memory included */          \
    X(FAILURE_LOST_NODE, "lost node")              /* the whole node vanished */                             \
    X(FAILURE_EXIT, "exit code")                   /* a worker left with a code of its own */                \
    X(FAILURE_CASCADE, "followed another failure") /* its stderr tells that a peer or the store was gone */

enum failure_class {
#define FAILURE_ENUM(symbol, name) symbol,
    FAILURE_CLASSES(FAILURE_ENUM)
#undef FAILURE_ENUM
        FAILURE_CLASS_COUNT
};

enum failure_class failure_class_of(const struct worker_failure *failure);
const char *failure_class_name(enum failure_class class_);

/* Whether a, which happened at a_at, is a better first cause than b, which happened at b_at (one clock).
 * Equal instants are decided by the lower rank, so that the choice does not depend on the order of arrival.
 */
bool failure_precedes(const struct worker_failure *a, struct instant a_at, const struct worker_failure *b,
                      struct instant b_at);

/* The exit code that a failure stands for: its own, 128 + signal, 138 for a lost node; never 0. */
int failure_exit_code(const struct worker_failure *failure);

/* One line for people, e.g. "rank 3 (pid 812 on host-b) was killed by signal 9". Always NUL-terminated. */
void failure_describe(const struct worker_failure *failure, char *out, size_t size);

#ifdef __cplusplus
}
#endif
#endif
