/* mount_plan.h - the mounts of a pod, as a list of system calls that a child can execute in a mount namespace
 * of its own.
 *
 * A place that does not exist on this machine is never made there: the nearest folder above it is covered by
 * one in memory that shows the same entries, and the missing ones are made in that. */
#ifndef MUSTER_LAUNCHER_LOCAL_RUN_MOUNT_PLAN_H
#define MUSTER_LAUNCHER_LOCAL_RUN_MOUNT_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/include/muster_error.h"

struct mount_request {
    const char *from; /* NULL: a folder in memory */
    const char *to;   /* absolute, without . and .., no slash at its end */
    bool read_only;
    int64_t bytes; /* in memory: at most so many, 0 for no limit */
};

enum mount_op_kind {
    MOUNT_OP_COVER, /* a folder in memory at `to` */
    MOUNT_OP_DIRECTORY,
    MOUNT_OP_FILE,
    MOUNT_OP_LINK,  /* at `to`, leading to `from` */
    MOUNT_OP_SHOW,  /* `from` at `to`, with the mounts in it */
    MOUNT_OP_ROOT,  /* `to` becomes the root */
    MOUNT_OP_PLACE, /* request number `source`, opened before anything was covered, at `to` */
    MOUNT_OP_LOCK,  /* `to` becomes read-only */
};

struct mount_op {
    enum mount_op_kind kind;
    char *from, *to; /* COVER: from are the options of the file system */
    int source;
};

enum { MOUNT_SOURCES_LIMIT = 300 };

struct mount_plan {
    struct mount_op *ops;
    int count;
    char **sources; /* by request; NULL: in memory */
    int source_count;
};

/* Reads this machine's folders. stage is an empty folder of the caller, which the child covers. */
int mount_plan_make(const struct mount_request *requests, int count, const char *stage,
                    struct mount_plan *plan, struct muster_error *err);
void mount_plan_free(struct mount_plan *plan);
/* By system calls only. -1 with errno; the namespace is then unusable. */
int mount_plan_execute(const struct mount_plan *plan);

#endif
