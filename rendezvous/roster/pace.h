/* pace.h - pure: how often the agents of a job send, and the silence after which one of them is lost, for the
 * server and its clients alike. All of them together load one server: the more nodes a job has, the longer
 * the intervals. Up to 250 nodes all are the shortest. */
#ifndef MUSTER_RENDEZVOUS_ROSTER_PACE_H
#define MUSTER_RENDEZVOUS_ROSTER_PACE_H

#include "proto/base/clock.h"

enum {
    PACE_JOIN_NODES = 250, /* so many have the shortest interval */
    PACE_WAIT_NODES = 1000,
    PACE_BEAT_NODES = 4096,
};

static inline int64_t pace_of(int64_t shortest_ns, int nodes, int shortest_up_to)
{
    return nodes > shortest_up_to ? shortest_ns / shortest_up_to * nodes : shortest_ns;
}

/* Between two JOINs on one connection: a slow server is not made slower by them. TCP loses none, so it may be
 * long. */
static inline int64_t pace_join_ns(int nodes)
{
    return pace_of(500 * NS_PER_MS, nodes, PACE_JOIN_NODES);
}

/* Between two heartbeats, and the silence after which a node or the server is lost. */
static inline int64_t pace_beat_ns(int nodes)
{
    return pace_of(500 * NS_PER_MS, nodes, PACE_BEAT_NODES);
}

static inline int64_t pace_lost_ns(int nodes)
{
    return 5 * pace_beat_ns(nodes);
}

/* The same of an agent that waits for its first world and only has to be seen alive. */
static inline int64_t pace_waiting_beat_ns(int nodes)
{
    return pace_of(NS_PER_S, nodes, PACE_WAIT_NODES);
}

static inline int64_t pace_waiting_lost_ns(int nodes)
{
    return 5 * pace_waiting_beat_ns(nodes) / 2;
}

#endif
