/* inflow.h - how much of what each connection has sent libzmq still holds.
 *
 * ZeroMQ bounds the size of a frame, not of a message, and hands over whole messages alone: a peer whose
 * message has no end fills the memory of its server unseen, 32 times over where the frames are empty. The
 * kernel counts what it received on a connection; what was not delivered since is held. Connections are
 * looked at a few milliseconds after they have sent something, and cost nothing while they are silent.
 *
 * For the thread that owns the server's sockets. Connections are known by their descriptors, as in
 * admission.h. */
#ifndef MUSTER_RENDEZVOUS_SERVER_INFLOW_H
#define MUSTER_RENDEZVOUS_SERVER_INFLOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/clock.h"
#include "proto/include/muster_error.h"
#include "rendezvous/wire/wire.h"

enum {
    INFLOW_EACH = WIRE_FRAME_LIMIT + (16 << 10), /* the largest message, encrypted, and a part of the next */
    INFLOW_ALL = 256 << 10,                      /* of all connections, and for each slot: */
    INFLOW_ALL_PER_SLOT = 16 << 10,
};

struct inflow_row {
    bool open, busy; /* busy: it has sent something, and is looked at */
    bool delivered;  /* a message of it, since the last look */
    uint8_t waits;   /* looks in a row at which it held something and nothing was delivered; at most 2 */
    uint64_t seen;   /* bytes received at the last look */
    uint64_t base;   /* of these, delivered */
};

struct inflow {
    int epoll; /* of connections that are not busy; readable when one becomes so. -1: none */
    size_t limit;
    struct inflow_row *rows; /* by descriptor */
    size_t count;
    unsigned busy;
    uint64_t held; /* by all */
    struct instant look_at;
};

/* Without an epoll descriptor nothing is watched, with err filled. */
int inflow_init(struct inflow *inflow, int slots, struct muster_error *err);
/* Accepts a zeroed struct. */
void inflow_close(struct inflow *inflow);

void inflow_accepted(struct inflow *inflow, int fd);
void inflow_ended(struct inflow *inflow, int fd);
void inflow_delivered(struct inflow *inflow, int fd);
/* To be called when `epoll` is readable or look_at is reached, after all messages were received: reads the
 * kernel's counts. */
void inflow_look(struct inflow *inflow, struct instant now);
/* A connection that is to be closed: it held more than a message at two looks, between which all whole
 * messages were received, or most while all together hold too much. -1: none. It is forgotten. */
int inflow_excess(struct inflow *inflow);

/* pure: the kernel has received so many bytes on the row's connection, and `unread` of them are still its
 * own. */
void inflow_note(struct inflow *inflow, struct inflow_row *row, uint64_t received, uint64_t unread);

#endif
