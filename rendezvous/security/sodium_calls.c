/* sodium_calls.c - see sodium_calls.h. */
#include "rendezvous/security/sodium_calls.h"

#include "proto/base/error.h"
#include "proto/base/library.h"

struct sodium_calls sodium_calls;

#define SODIUM_CALL_ROW(member, function) LIBRARY_ROW(struct sodium_calls, member, function),
static const struct library_function functions[] = {SODIUM_CALLS(SODIUM_CALL_ROW)};
#undef SODIUM_CALL_ROW

int sodium_calls_load(struct muster_error *err)
{
    static const struct library library = {
        .file = "libsodium.so.23", /* sodium.h of 1.0.x */
        .needs = "a job's secret needs libsodium (package libsodium23)",
        .functions = functions,
        .count = sizeof functions / sizeof *functions,
    };
    if (library_load(&library, &sodium_calls, NULL, err))
        return -1;
    if (sodium_calls.init() < 0) /* once it has started, another call costs nothing */
        return error_set(err, MUSTER_E_UNSUPPORTED,
                         "libsodium does not start: there is no source of random numbers");
    return 0;
}
