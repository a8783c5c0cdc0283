/* stop_notice.h - pure: what workers are told of a stop that is planned, as a line of JSON, and how a worker
 * says that it listens (notice.md). */
#ifndef MUSTER_LAUNCHER_POLICY_STOP_NOTICE_H
#define MUSTER_LAUNCHER_POLICY_STOP_NOTICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/buffer.h"
#include "proto/base/clock.h"
#include "rendezvous/roster/world.h"

/* No line is longer, its newline included: it always fits into an empty socket, and into a reader's buffer.
 */
enum { STOP_NOTICE_LINE_LIMIT = 1024 };

/* "" where it is not told; as in the lines. */
const char *stop_notice_change_name(enum membership_change change);

/* What is to come. */
struct stop_notice {
    enum membership_change change;
    uint32_t round;          /* the one that ends */
    int nodes, next_nodes;   /* of this round and the next; next_nodes 0: none, or not known */
    struct instant deadline; /* when who still runs is told to end */
    const char *reason;      /* for people; cut where it is too long */
};

/* {"coming": "nodes-join", "round": 3, "nodes": 2, "next_nodes": 3, "deadline_s": 28.998,
 *  "deadline_monotonic_ns": 81234567890, "reason": "..."} and a newline, appended. next_nodes is 0 where the
 * job ends, null where it is not known. */
int stop_notice_format(const struct stop_notice *notice, struct instant now, struct buffer *out);

/* Whether a worker listens: it has written a line "ready". Other lines mean nothing yet. */
struct stop_notice_listener {
    bool listens;
    int matched; /* bytes of the present line that are as in "ready"; -1: it is another one */
};

void stop_notice_take(struct stop_notice_listener *listener, const char *bytes, size_t length);

#endif
