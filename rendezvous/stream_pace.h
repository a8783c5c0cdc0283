/* stream_pace.h - how long the TCPStore server may sleep on while requests that have no reply (SET, APPEND,
 * ...) stream in. Pure: the time is passed in.
 *
 * Why: a server that wakes up for every few of them spends nearly all its processor time on waking up
 * (benchmarks/README.md). A short nap lets more of them gather, as a network card does with its interrupts.
 *
 * One client alone is not napped on: it was up to a third slower for it. Of several, others go on meanwhile.
 *
 * The promise: nobody waits for a reply or a key when a nap begins; who comes during one waits for the rest
 * of it; and no nap is longer than a sixteenth of the time for which the stream has lasted, nor than
 * STREAM_PACE_LONGEST_NS. */
#ifndef MUSTER_RENDEZVOUS_STREAM_PACE_H
#define MUSTER_RENDEZVOUS_STREAM_PACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/clock.h"

#define STREAM_PACE_LONGEST_NS (200 * NS_PER_US)
/* A nap below this is not taken: the kernel's timers are late by as much. */
#define STREAM_PACE_SHORTEST_NS (50 * NS_PER_US)
/* Where nothing comes for so long after a turn, the stream is over; what comes then begins another one. */
#define STREAM_PACE_GAP_NS (200 * NS_PER_US)
/* A client that has had the stream for itself for so long is alone. */
#define STREAM_PACE_ALONE_NS (10 * NS_PER_MS)
enum {
    STREAM_PACE_SHARE = 16,
    STREAM_PACE_PLENTY = 16 << 10, /* bytes of one turn: enough has gathered without a nap */
};

/* A zeroed one is ready. */
struct stream_pace {
    bool streaming, crowd;
    struct instant since;  /* nothing but requests without a reply since then */
    struct instant resume; /* when the last turn, and the nap after it, was over */
    struct instant others; /* of a crowd: when it was last somebody else's turn */
};

/* Somebody gets a reply or waits for a key: no stream. */
void stream_pace_stop(struct stream_pace *pace);
/* A turn without that is over, which received so many bytes; others: not all of them from him who sent the
 * last before it. Returns for how long to nap, 0 for not at all. */
int64_t stream_pace_nap(struct stream_pace *pace, size_t received, bool others, struct instant now);

#endif
