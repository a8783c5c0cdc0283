/* sodium_calls.c - see sodium_calls.h. */
#include "rendezvous/sodium_calls.h"

#include <dlfcn.h>
#include <string.h>

#include "proto/base/error.h"

#define LIBRARY "libsodium.so.23" /* the number of its binary interface: 1.0.x */

struct sodium_calls sodium_calls;

static int missing(struct muster_error *err)
{
    const char *reason = dlerror();
    return error_set(err, MUSTER_E_NOT_FOUND,
                     "a job's secret needs libsodium: install the package libsodium23 (%s)",
                     reason ? reason : LIBRARY);
}

/* call: where the function's address is stored. */
static int find(void *library, const char *name, void *call, struct muster_error *err)
{
    void *address = dlsym(library, name);
    if (!address)
        return missing(err);
    memcpy(call, &address, sizeof address); /* POSIX has it that a function's address fits */
    return 0;
}

int sodium_calls_load(struct muster_error *err)
{
    struct sodium_calls found;
    if (sodium_calls.init)
        return 0;
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return missing(err);
#define SODIUM_CALL_FIND(member, function)                                                                   \
    if (find(library, #function, &found.member, err))                                                        \
        return -1; /* a library of the right number without it: left loaded, since nothing goes on */
    SODIUM_CALLS(SODIUM_CALL_FIND)
#undef SODIUM_CALL_FIND
    if (found.init() < 0)
        return error_set(err, MUSTER_E_UNSUPPORTED,
                         "libsodium does not start: there is no source of random numbers");
    sodium_calls = found;
    return 0;
}
