/* handshake.c - see handshake.h. */
#include "rendezvous/zmq/handshake.h"

#include <zmq.h>

static enum handshake_fault protocol_fault(int value)
{
    switch (value) {
    case ZMQ_PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH:
        return HANDSHAKE_MISMATCH;
    case ZMQ_PROTOCOL_ERROR_ZMTP_CRYPTOGRAPHIC:
    case ZMQ_PROTOCOL_ERROR_ZMTP_KEY_EXCHANGE:
        return HANDSHAKE_CRYPTO;
    default:
        return HANDSHAKE_STRANGE;
    }
}

enum handshake_fault handshake_fault(int event, int value)
{
    switch (event) {
    case ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL:
        return protocol_fault(value);
    case ZMQ_EVENT_HANDSHAKE_FAILED_AUTH:
        return value == 400 ? HANDSHAKE_DENIED : HANDSHAKE_LATER;
    case ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL:
        return HANDSHAKE_BROKEN;
    default:
        return HANDSHAKE_FINE;
    }
}
