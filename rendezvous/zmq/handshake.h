/* handshake.h - pure: the meaning of ZeroMQ's events about a failed handshake, for both sides of it. */
#ifndef MUSTER_RENDEZVOUS_ZMQ_HANDSHAKE_H
#define MUSTER_RENDEZVOUS_ZMQ_HANDSHAKE_H

enum handshake_fault {
    HANDSHAKE_FINE,     /* the event is about something else */
    HANDSHAKE_MISMATCH, /* one side has a secret, the other has none */
    HANDSHAKE_CRYPTO,   /* both have one, and the peer's message does not open with ours */
    HANDSHAKE_DENIED,   /* the server recognises a wrong key: another job id */
    HANDSHAKE_LATER,    /* the server rejects all peers now */
    HANDSHAKE_STRANGE,  /* not our protocol */
    HANDSHAKE_BROKEN,   /* it ended, or nothing came in time: the peer closed silently */
};

/* event and value as zmq_socket_next_event gives them. */
enum handshake_fault handshake_fault(int event, int value);

#endif
