/* stop_notice.h - pure: an agent's words to its workers, as lines of JSON, and their answers: stop notices
 * (notice.md), and the regrouping of workers that stay (regroup.md). */
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

/* To a worker that can stay, when its round has failed: {"coming": "regroup", "round": 3, "answer_s":
 * 2.000, "reason": "..."} and a newline, appended. */
int stop_notice_format_regroup(uint32_t round, int64_t answer_ns, const char *reason, struct buffer *out);
/* Later its place in the next round: {"coming": "place", "round": 4, "restarts": 1, "rank": 1, "world_size":
 * 4, "local_rank": 1, "local_world_size": 2, "node": 0, "nodes": 2, "master_addr": "10.0.0.1", "master_port":
 * 29400} and a newline, appended. */
int stop_notice_format_place(const struct membership_world *world, int local_rank, int local_world_size,
                             struct buffer *out);

/* A worker's lines: "ready": it handles notices; "regroup": it can stay; "moves": also when a node is
 * replaced on purpose; "resize": also with another rank, or in a world of another size; "grows": this also
 * when nodes join; "held": it has let go of its communicators; "lost": a peer of it has gone, and it waits
 * for the word to regroup. Other lines have no meaning yet. */
struct stop_notice_listener {
    bool listens, regroups, moves, resizes, grows, held, lost;
    char line[8]; /* the first bytes of the present line */
    int length;   /* of it, so far; above the room: another line */
};

void stop_notice_take(struct stop_notice_listener *listener, const char *bytes, size_t length);

#endif
