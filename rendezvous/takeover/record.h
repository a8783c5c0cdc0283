/* record.h - the record of a world: its round, its server, and the agents that decide about the next round.
 *
 * Pure. The record travels with JOIN and WORLD, so that every agent knows who decides next. Its voters are up
 * to five members of the world: the agent that serves, as a rule rank 0, and others spread evenly over the
 * ranks. A voter is one start of an agent: an agent that is started again is not a voter, since it has
 * forgotten its votes. */
#ifndef MUSTER_RENDEZVOUS_TAKEOVER_RECORD_H
#define MUSTER_RENDEZVOUS_TAKEOVER_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/include/muster_error.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { RECORD_VOTERS = 5, RECORD_NAME = 256, RECORD_ADDRESS = 64 };
/* The index of the voter that is a spare, in a world of two nodes. */
enum { RECORD_SPARE_VOTER = 2 };
/* More nodes than any roster has are refused. */
enum { RECORD_NODES_LIMIT = 1 << 20 };

struct agent_incarnation {
    uint64_t high, low; /* 128 random bits, fresh for every start of an agent; 0,0 is none */
};

static inline bool agent_incarnation_equal(struct agent_incarnation a, struct agent_incarnation b)
{
    return a.high == b.high && a.low == b.low;
}

/* An agent as others reach it. */
struct voter {
    struct agent_incarnation incarnation;
    uint16_t port;                /* for votes, reserved by the agent; 0: unknown */
    uint16_t server_port;         /* where it serves the job; 0: it does not, or unknown */
    char address[RECORD_ADDRESS]; /* numeric; "": unknown */
    char name[RECORD_NAME];
};

/* Ballots are ordered by number, then by the agent that has them: two agents never have the same one. */
struct ballot {
    uint32_t number;
    struct agent_incarnation agent;
};

/* < 0, 0, > 0 */
int ballot_compare(struct ballot a, struct ballot b);

struct world_record {
    uint64_t epoch; /* from the job's first server; 0: no record */
    uint32_t round;
    uint32_t revision; /* counts the choices of voters for this round: a spare that registers later may become
                          a voter */
    struct ballot ballot; /* under which its server proposed it; ballot.agent is the server */
    int nodes;
    int64_t restart_count;
    int voter_count;
    struct voter voters[RECORD_VOTERS]; /* voters[0] is the server */
};

/* < 0, 0, > 0: which of two records of one job is newer. */
int record_compare(const struct world_record *a, const struct world_record *b);

/* Whether `next` may follow `record`: the first of the next round, or the next of the same round. */
bool record_follows(const struct world_record *next, const struct world_record *record);

/* Whether both are the same record. */
bool record_equal(const struct world_record *a, const struct world_record *b);

/* The index of the agent among the voters; -1: it is not a voter. */
int record_find_voter(const struct world_record *record, struct agent_incarnation agent);

/* How many voters decide. */
int record_majority(const struct world_record *record);

/* The number of voters of a world of so many nodes, of which spares more agents are registered: 5 of 5 or
 * more, 3 of 3 or 4, 3 of 2 with a spare, else 1. */
int record_voter_count(int nodes, int spares);

/* The rank of voter `index` in a world of `nodes` nodes with `voters` voters: 0 for the first, the last rank
 * for the last. With more voters than nodes the last voter is a spare: -1. */
int record_voter_rank(int index, int voters, int nodes);

/* An agent that was received: whether it has an incarnation and texts of a possible length.
 * MUSTER_E_PROTOCOL. */
int voter_check(const struct voter *voter, struct muster_error *err);

/* A record that was received: whether it can be one. MUSTER_E_PROTOCOL with the value and the limit. */
int record_check(const struct world_record *record, struct muster_error *err);

#ifdef __cplusplus
}
#endif
#endif
