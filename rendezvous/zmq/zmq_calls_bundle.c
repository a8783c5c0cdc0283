/* zmq_calls_bundle.c - zmq_calls.h in a bundle: the library is inside the program. */
#include "rendezvous/zmq/zmq_calls.h"

struct zmq_calls zmq_calls;

int zmq_calls_load(struct muster_error *err)
{
    (void)err;
#define ZMQ_CALL_TAKE(name) zmq_calls.name = zmq_##name;
    ZMQ_CALLS(ZMQ_CALL_TAKE)
#undef ZMQ_CALL_TAKE
    return 0;
}
