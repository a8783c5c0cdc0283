/* whole_greeting.h - informs a server which of the two sides has a job secret, where libzmq does not.
 *
 * If the two sides are incompatible, libzmq's closes as soon as it has read the other's greeting, often
 * before its own has left. If this node is the faster one, the server sees an incomplete greeting and
 * cannot report the reason to its operator. So a node that knows the reason sends its complete greeting
 * (ZMTP 3.0, 64 bytes) once more by hand, on a connection that it keeps open until the server closes it.
 *
 * Nothing blocks: a step, made when the connection is tried again, does as much as it can without waiting. */
#ifndef MUSTER_RENDEZVOUS_CLIENT_WHOLE_GREETING_H
#define MUSTER_RENDEZVOUS_CLIENT_WHOLE_GREETING_H

#include <stdbool.h>
#include <stdint.h>

/* Zeroed at first. */
struct whole_greeting {
    bool open; /* fd is one */
    bool sent;
    int fd;
};

/* The first step connects, the next step sends. After a failure the following step starts again. Once the
 * greeting was sent, a step does nothing. host: numeric. secret: whether this node has a secret. */
void whole_greeting_step(struct whole_greeting *greeting, const char *host, uint16_t port, bool secret);
/* Closes; it may be used again. */
void whole_greeting_close(struct whole_greeting *greeting);

#endif
