/* heartbeat.h - pure: what workers tell of their progress, and who has fallen silent (heartbeat.md).
 *
 * A worker writes lines into a pipe, each a decimal step. Its first beat arms the watch over it; a negative
 * step disarms it until the next beat, for a phase that takes its time. */
#ifndef MUSTER_LAUNCHER_POLICY_HEARTBEAT_H
#define MUSTER_LAUNCHER_POLICY_HEARTBEAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/buffer.h"
#include "proto/base/clock.h"

struct heartbeat {
    bool armed;          /* silence means something */
    bool over;           /* the worker has ended; set by the caller */
    bool stalled;        /* heartbeats_stalled has found it so */
    int64_t step;        /* of the last beat that told one; -1: none */
    struct instant last; /* beat; where one was seen */
    struct {
        int64_t value;
        int length; /* digits; -1: this line is no number */
        bool negative;
    } line; /* the line whose end has not come */
};

void heartbeat_init(struct heartbeat *beat);
/* Bytes that arrived at now. Every line is a beat, also one that is no number. */
void heartbeat_take(struct heartbeat *beat, const char *bytes, size_t length, struct instant now);

/* When the first of them will have been silent for timeout_ns; timeout_ns 0: never. */
struct instant heartbeats_deadline(const struct heartbeat *beats, int count, int64_t timeout_ns);
/* Where one is silent for timeout_ns: marks it and all that stand still with it, silent for half as long, and
 * returns the index of the one that is furthest behind: the lowest step, then the longest silence. Otherwise
 * -1.
 */
int heartbeats_stalled(struct heartbeat *beats, int count, int64_t timeout_ns, struct instant now);
/* "step 41: rank 3; step 42: ranks 0-2, 4; no step: rank 5", appended; "" where none has told one. */
int heartbeats_format(const struct heartbeat *beats, int count, int rank_base, struct buffer *out);

#endif
