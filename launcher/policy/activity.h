/* activity.h - pure: hang detection from outside, for workers that send no heartbeats (--hang-watch=outside).
 *
 * A worker is quiet while its session uses less than 1% of one processor and writes no output. A node hangs
 * when all of its workers have been quiet for the whole time limit. A worker that waits for the others spends
 * no time either, so one busy worker clears the node. */
#ifndef MUSTER_LAUNCHER_POLICY_ACTIVITY_H
#define MUSTER_LAUNCHER_POLICY_ACTIVITY_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/base/buffer.h"
#include "proto/base/clock.h"

enum { ACTIVITY_WAIT_SIZE = 48 };

/* One look at a worker's session. */
struct activity_sample {
    bool there;                    /* some process of the session was found */
    int64_t cpu_ns;                /* of all its processes and their reaped children */
    uint64_t output;               /* bytes written so far, as far as they can be counted */
    char wait[ACTIVITY_WAIT_SIZE]; /* what the worker's main thread waits in: "S futex_wait_queue"; "":
                                      unknown */
};

/* Zeroed it is ready. */
struct activity {
    bool known; /* there was a sample */
    bool over;  /* the worker has ended: it is left out; set by the caller */
    struct activity_sample sample;
    struct instant taken;       /* when */
    struct instant quiet_since; /* the first of the samples since which the worker is quiet */
};

void activity_take(struct activity *activity, const struct activity_sample *sample, struct instant now);

/* How often to look for a time limit: an eighth of it, 0.25 s to 10 s. */
int64_t activity_period_ns(int64_t timeout_ns);

/* If all count workers have been quiet for timeout_ns: the index of the suspected one, which waits in another
 * place than most; the first where all wait in the same place. Otherwise -1. */
int activities_hung(const struct activity *activities, int count, int64_t timeout_ns);

/* "all wait in S futex_wait_queue", or "rank 1 waits in D folio_wait_bit, 3 of 3 others in S
 * futex_wait_queue",
 * appended. -1: no memory, which out remembers. */
int activities_format(const struct activity *activities, int count, int suspect, int rank_base,
                      struct buffer *out);

#endif
