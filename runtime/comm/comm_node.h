/* comm_node.h - shared memory inside each node and TCP between nodes, in one comm: how it works.
 *
 * Consecutive ranks of one node are a group. A group's ranks share a host comm ("inside"). The first ranks of
 * each group, up to NODE_RAILS, are rails: rail j of each group has a TCP comm with rail j of the others. One
 * more TCP comm connects all ranks ("wide").
 *
 * An operation moves in chunks, and a chunk in four steps:
 *   1. Every rank shows its values to its group: where they lie in a COMM arena, or a copy. The group meets.
 *   2. Rail j does its slice of the elements over TCP, for all ranks of its group: sums pass along the chain
 *      of groups, and each group adds its ranks' values in rank order. So results have the bits of the host
 *      comm. The result lies in memory that the group reads.
 *   3. The group meets again.
 *   4. Every rank copies its results, or adds them to what it has.
 * So a node sends as many bytes as a single rank
 * would. Operations of two ranks of a group and comms inside a
 * single group use the inside comm alone. all_to_all, other pairs, and comms whose groups have one rank each
 * use the wide comm alone.
 *
 * The first reason that ends any of these comms on a rank is passed on in all of them. */
#ifndef MUSTER_RUNTIME_COMM_COMM_NODE_H
#define MUSTER_RUNTIME_COMM_COMM_NODE_H

#include "runtime/comm/comm_internal.h"
#include "runtime/comm/comm_shm_internal.h"
#include "runtime/comm/comm_tcp_internal.h"

enum {
    NODE_RAILS = 4,              /* most rails of a group */
    NODE_SHOWN_BYTES = 4 << 20,  /* values that a rank shows in a copy */
    NODE_RESULT_BYTES = 4 << 20, /* results that a rail shows */
    NODE_STAGES = 48,            /* comms that share one rank's memory for both: a comm and its splits */
};

/* Memory of a rank that its node's ranks map: NODE_STAGES times the bytes for values and results. */
struct node_home {
    _Atomic(int) references;
    struct device_arena arena;
    _Atomic(uint64_t) taken; /* a bit for each stage */
};

struct node_comm {
    struct comm comm;
    struct node_home *home;
    int stage;           /* the part of home; -1: none */
    uint64_t *nodes;     /* [size] which node a rank is on */
    struct comm *wide;   /* over all ranks */
    struct comm *local;  /* over the ranks of this node, for splits */
    struct comm *inside; /* over the ranks of our group; perhaps local itself */
    struct comm *rail;   /* NULL: this rank is none */
    int groups, group, rails;
    int *first;              /* [groups + 1] the first rank of each group */
    int *inside_names;       /* [length of our group] */
    int *rail_names;         /* [groups] */
    uint64_t sequence;       /* counts collectives */
    struct tcp_given *given; /* [length of our group] */
    const char *results[NODE_RAILS];
};

static inline struct node_comm *node_comm_of(struct comm *comm)
{
    return (struct node_comm *)comm; /* comm is its first member */
}
static inline int node_group_size(const struct node_comm *node)
{
    return node->first[node->group + 1] - node->first[node->group];
}

/* ---- comm_node_move.c ---- */

/* Does one operation; called on the stream's thread. */
int node_run_call(struct comm *comm, const struct comm_call *call, struct muster_error *err);

#endif
