/* sodium_calls.h - libsodium's functions, found when a job's secret is read.
 *
 * libzmq is built with it, so where there is ZeroMQ it is there too; like ZeroMQ it is loaded on demand
 * (zmq_calls.h). */
#ifndef MUSTER_RENDEZVOUS_SECURITY_SODIUM_CALLS_H
#define MUSTER_RENDEZVOUS_SECURITY_SODIUM_CALLS_H

#include <sodium.h>

#include "proto/include/muster_error.h"

#ifdef __cplusplus
extern "C" {
#endif

/* member, function */
#define SODIUM_CALLS(X)                                                                                      \
    X(init, sodium_init)                                                                                     \
    X(generichash_init, crypto_generichash_init)                                                             \
    X(generichash_update, crypto_generichash_update)                                                         \
    X(generichash_final, crypto_generichash_final)                                                           \
    X(scalarmult_base, crypto_scalarmult_base)

struct sodium_calls {
#define SODIUM_CALL_MEMBER(member, function) __typeof__(function) *member;
    SODIUM_CALLS(SODIUM_CALL_MEMBER)
#undef SODIUM_CALL_MEMBER
};

/* Filled by sodium_calls_load, and constant from then on. */
extern struct sodium_calls sodium_calls;

/* Loads the library unless it is there already; it stays until the process ends. From one thread. -1
 * (MUSTER_E_NOT_FOUND) names the package that has it. */
int sodium_calls_load(struct muster_error *err);

#ifdef __cplusplus
}
#endif
#endif
