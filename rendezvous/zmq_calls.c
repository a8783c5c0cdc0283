/* zmq_calls.c - see zmq_calls.h. */
#include "rendezvous/zmq_calls.h"

#include <dlfcn.h>
#include <string.h>

#include "proto/base/error.h"

#define LIBRARY "libzmq.so.5" /* the number of its binary interface: zmq.h of 4.x */

struct zmq_calls zmq_calls;

static int missing(struct muster_error *err)
{
    const char *reason = dlerror();
    return error_set(err, MUSTER_E_NOT_FOUND,
                     "a job of several nodes needs ZeroMQ: install the package libzmq5 (%s)",
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

int zmq_calls_load(struct muster_error *err)
{
    struct zmq_calls found;
    if (zmq_calls.ctx_new)
        return 0;
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return missing(err);
#define ZMQ_CALL_FIND(name)                                                                                  \
    if (find(library, "zmq_" #name, &found.name, err))                                                       \
        return -1; /* a library of the right number without it: left loaded, since nothing goes on */
    ZMQ_CALLS(ZMQ_CALL_FIND)
#undef ZMQ_CALL_FIND
    zmq_calls = found;
    return 0;
}
