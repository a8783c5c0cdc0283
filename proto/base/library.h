/* library.h - loads a shared library on first use and fills a table of its functions.
 *
 * Libraries that few jobs need (ZeroMQ, libmicrohttpd, the NVIDIA driver's NVML) would cost every job
 * their load time if they were linked. A module has a struct of function pointers instead, filled here. */
#ifndef MUSTER_PROTO_BASE_LIBRARY_H
#define MUSTER_PROTO_BASE_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>

#include "proto/include/muster_error.h"

#ifdef __cplusplus
extern "C" {
#endif

struct library_function {
    const char *name;     /* the library's symbol */
    size_t slot;          /* offset of the function pointer in the struct */
    bool optional;        /* optional: without it the slot stays NULL */
    void (*linked)(void); /* the function itself, in a program that has the library inside; else NULL */
};

/* A row of such a table. MUSTER_BUNDLE: the library is linked statically. */
#ifdef MUSTER_BUNDLE
#define LIBRARY_LINKED(function) ((void (*)(void))(function))
#else
#define LIBRARY_LINKED(function) NULL
#endif
#define LIBRARY_ROW(calls, member, function)                                                                 \
    {                                                                                                        \
#function, offsetof(calls, member), false, LIBRARY_LINKED(function)                                  \
    }

struct library {
    const char *file;  /* "libzmq.so.5", for dlopen; its number is that of the binary interface */
    const char *needs; /* prefix of every error: the feature that needs the library, and the package that
                          contains it */
    const struct library_function *functions;
    size_t count;
};

/* Loads the library, unless it is inside the program, and fills the slots of calls, a zeroed struct of
 * function pointers. Does nothing if the first slot is filled already. handle: for dlclose; NULL where the
 * library stays until the process ends. -1 (MUSTER_E_NOT_FOUND, naming the file or the function that is
 * missing) leaves no slot filled and nothing loaded. From one thread at a time for a struct. */
int library_load(const struct library *library, void *calls, void **handle, struct muster_error *err);

#ifdef __cplusplus
}
#endif
#endif
