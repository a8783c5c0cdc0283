/* thread.h - starts a thread that takes no signals: they belong to the program's own loop. */
#ifndef MUSTER_PROTO_BASE_THREAD_H
#define MUSTER_PROTO_BASE_THREAD_H

#include <pthread.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* *thread is the caller's to join; NULL: a detached thread. stack_bytes: 0 for the system's default.
 * Returns 0 or an error number, as pthread_create does. */
int thread_start(pthread_t *thread, size_t stack_bytes, void *(*run)(void *context), void *context);

#ifdef __cplusplus
}
#endif
#endif
