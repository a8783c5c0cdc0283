/* http_calls.c - see http_calls.h. */
#include "launcher/http_calls.h"

#include <dlfcn.h>
#include <string.h>

#include "proto/base/error.h"

#define LIBRARY                                                                                              \
    "libmicrohttpd.so.12" /* the number of its binary interface: microhttpd.h of 0.9.x and 1.x               \
                           */

struct http_calls http_calls;

static int missing(struct muster_error *err)
{
    const char *reason = dlerror();
    return error_set(err, MUSTER_E_NOT_FOUND,
                     "a metrics port needs libmicrohttpd: install the package libmicrohttpd12, or leave out "
                     "--metrics-port (%s)",
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

int http_calls_load(struct muster_error *err)
{
    struct http_calls found;
    if (http_calls.start_daemon)
        return 0;
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return missing(err);
#define HTTP_CALL_FIND(name)                                                                                 \
    if (find(library, "MHD_" #name, &found.name, err))                                                       \
        return -1; /* a library of the right number without it: left loaded, since nothing goes on */
    HTTP_CALLS(HTTP_CALL_FIND)
#undef HTTP_CALL_FIND
    http_calls = found;
    return 0;
}
