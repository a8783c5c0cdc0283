/* whole_greeting.h - tells a server which of the two has a job secret, where libzmq does not.
 *
 * Of two sides that do not go together, libzmq's closes as soon as it has read the other's greeting, often
 * before its own has left. Where this node is the quicker one, the server sees a greeting that stopped in its
 * middle and can tell its operator nothing. So a node that knows what is wrong says the whole of its greeting
 * (ZMTP 3.0, 64 bytes) once more by hand, on a connection that it keeps open until the server closes it.
 *
 * Nothing waits: each step, made when the connection is tried again, does what can be done by then. */
#ifndef MUSTER_RENDEZVOUS_CLIENT_WHOLE_GREETING_H
#define MUSTER_RENDEZVOUS_CLIENT_WHOLE_GREETING_H

#include <stdbool.h>
#include <stdint.h>

/* Zeroed at first. */
struct whole_greeting {
    bool open; /* fd is one */
    bool said;
    int fd;
};

/* Connects with the first step, speaks with the next; one that did not get through begins anew with the one
 * after. host: numeric. secret: whether this node has one. Once it was said there is nothing more to do. */
void whole_greeting_step(struct whole_greeting *greeting, const char *host, uint16_t port, bool secret);
/* Closes; it may be used again. */
void whole_greeting_close(struct whole_greeting *greeting);

#endif
