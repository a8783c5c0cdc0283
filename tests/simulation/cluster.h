/* cluster.h - a simulated job: one serving agent, its roster, N-1 client agents, workers, and a network, on a
 * fake clock.
 *
 * Everything that decides is the real code (roster.c, client.c); the cluster only carries messages, with a
 * delay for each drawn from a seed, and plays the agents' loops and their workers. Time jumps from one event
 * to the next. Messages of one connection arrive in order or not at all (but for asked-for duplicates):
 * cutting a node drops what is in flight and gives it a new connection after.
 *
 * Every event may be printed to a trace, which golden tests compare as text, and after every event the
 * invariants of a world are checked; the first that breaks is kept with its time. */
#ifndef MUSTER_TESTS_SIMULATION_CLUSTER_H
#define MUSTER_TESTS_SIMULATION_CLUSTER_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/base/buffer.h"
#include "rendezvous/roster.h"

enum { CLUSTER_NODE_LIMIT = 64 };

struct cluster_options {
    uint64_t seed;
    int nodes;      /* static: the world's; elastic: those that a calm cluster starts; 0: all */
    bool strangers; /* static: other names may take a lost node's rank, whose workers may still be stopping */
    bool elastic;
    int min_nodes, max_nodes;                 /* elastic; nodes beyond max are spares */
    int64_t last_call_ns, regroup_ns;         /* elastic; 0: the roster's own */
    int local_world_size[CLUSTER_NODE_LIMIT]; /* 0: 1 */
    int64_t max_restarts;
    int64_t join_timeout_ns;            /* 0: 60 s */
    int64_t delay_min_ns, delay_max_ns; /* of a message; both 0: 1 ms each */
    int duplicate_percent; /* of messages but JOIN that arrive once more, up to 2 s late and out of order */
    int64_t start_ns, stop_ns; /* WORLD -> workers run; STOP -> workers gone; 0: 100 ms */
};

struct cluster;

struct cluster *cluster_create(const struct cluster_options *options);
void cluster_destroy(struct cluster *cluster);

/* What happens, and when (milliseconds from the start). Node 0 serves and must not be cut; it may
 * crash, and the server with it. */
void cluster_start(struct cluster *cluster, int64_t at_ms,
                   int node); /* the agent starts, with a fresh incarnation */
void cluster_claim(struct cluster *cluster, int64_t at_ms, int node,
                   int rank); /* as start, under its own name, but asks for this rank */
void cluster_crash(struct cluster *cluster, int64_t at_ms,
                   int node); /* the agent and its workers vanish without a word */
void cluster_cut(struct cluster *cluster, int64_t at_ms, int node);  /* its network goes away */
void cluster_heal(struct cluster *cluster, int64_t at_ms, int node); /* and comes back, on a new connection */
void cluster_reset(struct cluster *cluster, int64_t at_ms,
                   int node); /* its connection breaks, both ends see it, and there is a new one */
void cluster_freeze(struct cluster *cluster, int64_t at_ms, int node,
                    int64_t for_ms); /* its agent and its workers do nothing for a while */
void cluster_kill(struct cluster *cluster, int64_t at_ms,
                  int node); /* one of its workers dies of signal 9, if any runs */
void cluster_follow(struct cluster *cluster, int64_t at_ms,
                    int node); /* one of its workers exits 1, saying that its peer closed the connection */
void cluster_finish(struct cluster *cluster, int64_t at_ms, int node); /* its workers exit 0, if they run */
void cluster_term(struct cluster *cluster, int64_t at_ms,
                  int node); /* the agent gets TERM: leaves with 143, in an elastic world it drains first */
/* From then on workers of any world end well after run_ms, and agents that exited with 138 are started again:
 * what a calm cluster does. */
void cluster_calm(struct cluster *cluster, int64_t at_ms, int64_t run_ms);

/* Runs until nothing is left to happen but beats, or until_ms. */
void cluster_run(struct cluster *cluster, int64_t until_ms);

/* "0.101 0 -> WORLD ..." lines; owned by the cluster. */
const char *cluster_trace(const struct cluster *cluster);
/* NULL where every invariant held. */
const char *cluster_broken(const struct cluster *cluster);
/* -1: it has not exited. */
int cluster_exit_code(const struct cluster *cluster, int node);
const struct roster *cluster_roster(const struct cluster *cluster);

#endif
