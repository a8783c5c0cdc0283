/* sodium_calls_bundle.c - sodium_calls.h in a bundle: the library is inside the program. */
#include "rendezvous/security/sodium_calls.h"

#include "proto/base/error.h"

struct sodium_calls sodium_calls;

int sodium_calls_load(struct muster_error *err)
{
    if (sodium_calls.init)
        return 0;
    if (sodium_init() < 0)
        return error_set(err, MUSTER_E_UNSUPPORTED,
                         "libsodium does not start: there is no source of random numbers");
#define SODIUM_CALL_TAKE(member, function) sodium_calls.member = function;
    SODIUM_CALLS(SODIUM_CALL_TAKE)
#undef SODIUM_CALL_TAKE
    return 0;
}
