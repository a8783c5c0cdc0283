/* nap.h - how long a server may sleep while messages stream in. Pure: the time is passed in.
 *
 * Why: a server that wakes up for every few messages spends nearly all its processor time on waking up, and
 * disturbs the senders. A short nap lets more messages gather, as a network card
 * does with its interrupts. The TCPStore naps on requests that have no reply (SET, APPEND, ...), the
 * server of the job's world on crowds of agents that join or send heartbeats.
 *
 * No naps for a single client: it was up to a third slower. With several clients, others continue during a
 * nap.
 *
 * Measured: 1,000 requests without a reply from 8 clients cost 30 to 75 wake-ups, and 15 to 35 with naps.
 * Tried without a gain: naps of 4 ms, naps of an eighth. sched_yield in their place forfeits the time slice,
 * so that on a busy machine a reply came after 1.7 ms rather than 0.08.
 *
 * The bound: a message that arrives during a nap waits for the rest of it, and no nap is longer than a
 * sixteenth of the time for which the stream has lasted, nor than the limits' longest. */
#ifndef MUSTER_RENDEZVOUS_NET_NAP_H
#define MUSTER_RENDEZVOUS_NET_NAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/clock.h"

enum { NAP_SHARE = 16 };

struct nap_limits {
    int64_t longest_ns;
    int64_t shortest_ns; /* a nap below this is not taken: the kernel's timers are late by as much */
    int64_t gap_ns;      /* if nothing arrives for so long after a turn, the stream is over; the next message
                            begins another one */
    int64_t alone_ns;    /* a client that has had the stream for itself for so long is alone */
    size_t plenty;       /* a turn with this much, in the server's unit, needs no nap */
};

/* A zeroed one is ready. */
struct nap {
    bool streaming, crowd;
    struct instant since;  /* only streaming messages since then */
    struct instant resume; /* when the last turn, and the nap after it, was over */
    struct instant others; /* time of the last turn of another client, in a crowd */
};

/* A client waits for a reply that a nap would delay: no stream. */
void nap_stop(struct nap *pace);
/* A turn without that is over, which received so much; others: not all of it from the sender of the last
 * before it. Returns for how long to nap, 0 for not at all. */
int64_t nap_take(struct nap *pace, const struct nap_limits *limits, size_t received, bool others,
                 struct instant now);

#endif
