/* spawn_child.h - the steps of a worker between the fork and its program. Internal to spawn.c. */
#ifndef MUSTER_LAUNCHER_PROCESS_SPAWN_CHILD_H
#define MUSTER_LAUNCHER_PROCESS_SPAWN_CHILD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "launcher/process/spawn.h"

/* step, error text */
#define SPAWN_STEPS(X)                                                                                       \
    X(SPAWN_UNSHARE, "cannot copy the descriptors for")                                                      \
    X(SPAWN_SESSION, "cannot make a session for")                                                            \
    X(SPAWN_ENTER, "cannot set up the namespaces of")                                                        \
    X(SPAWN_DIRECTORY, "cannot enter the working directory")                                                 \
    X(SPAWN_PARENT, "the agent died before the start of")                                                    \
    X(SPAWN_DESCRIPTORS, "cannot set up stdout, stderr and the limit of descriptors for")                    \
    X(SPAWN_CPUS, "cannot set the CPUs of")                                                                  \
    X(SPAWN_EXEC, "cannot execute")

enum spawn_step {
#define STEP_ENUM(symbol, text) symbol,
    SPAWN_STEPS(STEP_ENUM)
#undef STEP_ENUM
};

/* Why a child failed. */
struct spawn_obstacle {
    enum spawn_step step;
    int error;
};

enum {
    SPAWN_GIVEN_LIMIT = 2 + SPAWN_EXTRA_LIMIT
}; /* descriptors for a worker: its output, and the extra ones */

/* The parent's memory; the child reads the first part and writes the second. */
struct spawn_child {
    const struct spawn_options *options;
    uint64_t reset; /* signals whose action becomes the default; bit 0 is signal 1 */
    pid_t parent;
    int given[SPAWN_GIVEN_LIMIT]; /* the options', or the low numbers they are copied to */
    unsigned shared_from; /* 0: the table is a copy. Else it is the parent's, and is copied up to here */
    int report_fd;        /* takes an obstacle where the memory is a copy; -1: it is not */
    /* answers */
    bool ran; /* the memory is the parent's */
    bool failed;
    struct spawn_obstacle obstacle;
};

/* For clone, with a struct spawn_child. Never returns: executes the program, or reports the error and ends.
 */
int spawn_child_run(void *child) __attribute__((noreturn));

#endif
