/* libraries.h - NVIDIA's libraries, opened at run time: one table a library, a row a function.
 *
 * The module links with cudart alone. NCCL, cuBLASLt and cuDNN may be missing, or have another version than
 * the header that the module was compiled with. An open then fails with one sentence that names the library,
 * the loaded version, the needed version, and the way out. A function that a newer version has added is NULL
 * where an older version is loaded, and its caller does without.
 *
 * Versions are numbers of the library's own form (NCCL 2.28.9: 22809; cuBLASLt 13.0.2: 130002), which the
 * table knows how to print. */
#ifndef MUSTER_RUNTIME_CUDA_LIBRARIES_H
#define MUSTER_RUNTIME_CUDA_LIBRARIES_H

#include <stddef.h>

#include "proto/include/muster_error.h"

#ifdef __cplusplus
extern "C" {
#endif

struct cuda_library_function {
    const char *name; /* the library's symbol */
    size_t slot;      /* offset of its pointer in the struct of functions */
    int since;        /* the version from which it is there; 0: every version that is accepted */
};

/* A row of the table: CUDA_LIBRARY_ROW(struct nccl_calls, comm_split, ncclCommSplit, 21800). */
#define CUDA_LIBRARY_ROW(calls, member, function, since)                                                     \
    {                                                                                                        \
#function, offsetof(calls, member), since                                                            \
    }

enum { CUDA_LIBRARY_FUNCTIONS = 64 }; /* rows of a table, at most */

struct cuda_library {
    const char *name; /* "NCCL" */
    const char *file; /* "libnccl.so.2", for dlopen: on the loader's path, or in the process already */
    const char
        *from; /* who needs it and where it comes from, for errors: "comm nccl needs NCCL (pip: ...)" */
    const struct cuda_library_function *functions;
    size_t count;
    int oldest; /* the first version that is accepted */
    /* Asks the loaded library, whose functions of every version are filled in calls. Returns 0, or -1 with
     * err where it does not say. */
    int (*version)(const void *calls, int *version, struct muster_error *err);
    /* "2.28.9" of 22809, into size bytes of text; cut where it does not fit. */
    void (*version_text)(int version, char *text, size_t size);
};

/* Loads the library and fills calls, a zeroed struct of function pointers; *version (may be NULL) is the
 * library's. -1 leaves calls zeroed: MUSTER_E_NOT_FOUND where the library or a function that its version has
 * is missing, MUSTER_E_UNSUPPORTED where it is older than `oldest`. The library stays loaded until the
 * process ends. From one thread at a time for a struct. */
int cuda_library_open(const struct cuda_library *library, void *calls, size_t calls_size, int *version,
                      struct muster_error *err);

#ifdef __cplusplus
}
#endif
#endif
