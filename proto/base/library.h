/* library.h - a shared library that is loaded only where it is needed, and the table of its functions.
 *
 * What few jobs need (ZeroMQ, libmicrohttpd, the NVIDIA driver's NVML) would cost every job its loading if it
 * were linked. A module has a struct of function pointers instead, filled here. */
#ifndef MUSTER_PROTO_BASE_LIBRARY_H
#define MUSTER_PROTO_BASE_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>

#include "proto/include/muster_error.h"

#ifdef __cplusplus
extern "C" {
#endif

struct library_function {
    const char *name; /* the library's symbol */
    size_t slot;      /* where its address goes: offset of a function pointer in the struct */
    bool optional;    /* a library without it will do, and the slot stays NULL */
};

struct library {
    const char *file;  /* "libzmq.so.5", for dlopen; its number is that of the binary interface */
    const char *needs; /* begins every error: what needs the library, and the package that has it */
    const struct library_function *functions;
    size_t count;
};

/* Loads the library and fills the slots of calls, a zeroed struct of function pointers. Where the first slot
 * is filled already nothing is done. handle: for dlclose; NULL where the library stays until the process
 * ends. -1 (MUSTER_E_NOT_FOUND, naming the file or the function that is missing) leaves no slot filled and
 * nothing loaded. From one thread at a time for a struct. */
int library_load(const struct library *library, void *calls, void **handle, struct muster_error *err);

#ifdef __cplusplus
}
#endif
#endif
