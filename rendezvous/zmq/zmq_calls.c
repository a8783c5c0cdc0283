/* zmq_calls.c - see zmq_calls.h. */
#include "rendezvous/zmq/zmq_calls.h"

#include "proto/base/library.h"

struct zmq_calls zmq_calls;

#define ZMQ_CALL_ROW(name) LIBRARY_ROW(struct zmq_calls, name, zmq_##name),
static const struct library_function functions[] = {ZMQ_CALLS(ZMQ_CALL_ROW)};
#undef ZMQ_CALL_ROW

int zmq_calls_load(struct muster_error *err)
{
    static const struct library library = {
        .file = "libzmq.so.5", /* zmq.h of 4.x */
        .needs = "a job of several nodes needs ZeroMQ (package libzmq5)",
        .functions = functions,
        .count = sizeof functions / sizeof *functions,
    };
    return library_load(&library, &zmq_calls, NULL, err);
}
