/* stop_notice.h - pure: the stop notice for workers, as a line of JSON, and how a worker registers for
 * notices (notice.md). */
#ifndef MUSTER_LAUNCHER_POLICY_STOP_NOTICE_H
#define MUSTER_LAUNCHER_POLICY_STOP_NOTICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/buffer.h"
#include "proto/base/clock.h"
#include "rendezvous/roster/world.h"

/* Limit of a line, with its newline: it always fits into an empty socket and into a reader's buffer. */
enum { STOP_NOTICE_LINE_LIMIT = 1024 };

/* "" if unknown; as in the lines. */
const char *stop_notice_change_name(enum membership_change change);

/* The event to come. */
struct stop_notice {
    enum membership_change change;
    uint32_t round;          /* the round that ends */
    int nodes, next_nodes;   /* nodes of this round and of the next; next_nodes 0: none, or unknown */
    struct instant deadline; /* when workers still running are sent SIGTERM */
    const char *reason;      /* for display; truncated if too long */
};

/* {"coming": "nodes-join", "round": 3, "nodes": 2, "next_nodes": 3, "deadline_s": 28.998,
 * "deadline_monotonic_ns": 81234567890, "reason": "..."} and a newline, appended. next_nodes is 0 if the
 * job ends, null if it is unknown. */
int stop_notice_format(const struct stop_notice *notice, struct instant now, struct buffer *out);

/* Whether a worker handles notices: it has written a line "ready". Other lines have no meaning yet. */
struct stop_notice_listener {
    bool listens;
    int matched; /* bytes of the present line that match "ready"; -1: another line */
};

void stop_notice_take(struct stop_notice_listener *listener, const char *bytes, size_t length);

#endif
