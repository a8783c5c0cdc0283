/* shm_cleanup.h - removes files of dead workers from /dev/shm: the next round would run out of space, or
 * fail on a name that exists. Files that may belong to others are kept. */
#ifndef MUSTER_LAUNCHER_PROCESS_SHM_CLEANUP_H
#define MUSTER_LAUNCHER_PROCESS_SHM_CLEANUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "launcher/loop/background_job.h"
#include "proto/base/buffer.h"

/* --- pure --- */

struct shm_cleanup_scope {
    uid_t uid;         /* ours */
    int64_t since_ns;  /* wall clock when the round's first worker was started */
    bool sees_all;     /* every process that could use the files is visible in our /proc */
    const pid_t *dead; /* reaped processes of the round */
    size_t dead_count;
};

struct shm_cleanup_file {
    const char *name;
    uid_t uid;
    int64_t changed_ns; /* of its metadata, wall clock */
};

/* Whether it is, unless a process has it open or maps it, left over from the round: torch_<pid>_... and
 * __KMP_REGISTERED_LIB_<pid>_... of a dead process; nccl-..., whose name identifies no process, if it was
 * created in this round and all its possible users are visible. */
bool shm_cleanup_is_candidate(const struct shm_cleanup_file *file, const struct shm_cleanup_scope *scope);

/* --- the thread --- */

struct shm_cleanup {
    struct shm_cleanup_scope scope; /* dead is owned */
    char *directory;                /* "/dev/shm" */
    struct buffer removed; /* names, separated by blanks; owned by the background job until it is done */
    int count;
};

/* scope->dead is copied; sees_all is found out. *cleanup lives as long as the background job. */
struct background_job *shm_cleanup_start(const struct shm_cleanup_scope *scope, const char *directory,
                                         struct shm_cleanup **cleanup, struct muster_error *err);

#endif
