/* guard.h - scope guards: a resource owned by a variable is released when its scope ends, on every path.
 *
 *     scope_free char *text = ...;
 *     scope_close int fd = open(...);
 *     return take_fd(&fd);            // ownership leaves the scope
 *
 * A type that owns something ships its own guard next to its destroy function with GUARD_DEFINE. Guards
 * keep errno. */
#ifndef MUSTER_PROTO_BASE_GUARD_H
#define MUSTER_PROTO_BASE_GUARD_H

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "proto/base/mem.h"

#define GUARD(function) __attribute__((cleanup(function)))

/* GUARD_DEFINE(tcpstore_client, struct tcpstore_client *, tcpstore_client_destroy) gives the function
 * guard_tcpstore_client for use as GUARD(guard_tcpstore_client). destroy accepts NULL. */
#define GUARD_DEFINE(name, type, destroy)                                                                    \
    static inline void guard_##name(type *value)                                                             \
    {                                                                                                        \
        int kept = errno;                                                                                    \
        destroy(*value);                                                                                     \
        errno = kept;                                                                                        \
    }                                                                                                        \
    static_assert(sizeof(type) <= sizeof(void *), "a guard holds a handle")

static inline void guard_free(void *pointer)
{
    int kept = errno;
    mem_free(*(void **)pointer);
    errno = kept;
}

static inline void guard_close(int *fd)
{
    if (*fd >= 0) {
        int kept = errno;
        (void)close(*fd); /* nothing can be done if closing an abandoned descriptor fails */
        errno = kept;
    }
}

static inline void guard_fclose(FILE **file)
{
    if (*file) {
        int kept = errno;
        (void)fclose(*file);
        errno = kept;
    }
}

#define scope_free   GUARD(guard_free)
#define scope_close  GUARD(guard_close)
#define scope_fclose GUARD(guard_fclose)

static inline int take_fd(int *fd)
{
    int taken = *fd;
    *fd = -1;
    return taken;
}

/* take_pointer(&p): the value of p, and p becomes NULL. */
#define take_pointer(pointer)                                                                                \
    ({                                                                                                       \
        __typeof__(*(pointer)) taken_ = *(pointer);                                                          \
        *(pointer) = NULL;                                                                                   \
        taken_;                                                                                              \
    })

#endif
