/* thread.h - starts a thread that takes no signals: they belong to the program's own loop. */
#ifndef MUSTER_PROTO_BASE_THREAD_H
#define MUSTER_PROTO_BASE_THREAD_H

#include <pthread.h>
#include <stddef.h>

#include "proto/base/error.h"

#ifdef __cplusplus
extern "C" {
#endif

/* *thread is the caller's to join; NULL: a detached thread. stack_bytes: 0 for the system's default.
 * Returns 0 or an error number, as pthread_create does. */
int thread_start(pthread_t *thread, size_t stack_bytes, void *(*run)(void *context), void *context);

/* What thread_start returned, or why there is no process, which the same limits hold: MUSTER_E_NOMEM, "cannot
 * start <it>: <why> (the cgroup's pids.max is 512, and 512 are in use; ulimit -u is 1024; ulimit
 * -v is 400000 KiB)", the last where it is set. err may be NULL.
 * Returns -1. */
int thread_error(struct muster_error *err, int failed, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#ifdef __cplusplus
}
#endif
#endif
