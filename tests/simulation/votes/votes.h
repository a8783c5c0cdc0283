/* votes.h - whole jobs of 3 to 9 agents that elect their server: the real rules (rendezvous/takeover/), with
 * simulated time, network, workers and a simple roster. One seed is one job, and replays exactly. Each
 * message has a delay of its own: two agents have several connections, and messages overtake each other.
 *
 * Invariants: a record is chosen by a majority of the voters of the round before, as they were started then;
 * a round has one record; at most one world trains at any instant, where a world needs more than half of the
 * agents; and after the faults a world runs again within 10 s and two round trips, if a majority of its
 * voters and enough agents are there. No agent leaves a server in office because it had stepped down, and
 * none follows a server of which it knows that it has left.
 *
 * Where the faults are agents that end, one at a time, and each message arrives soon (quiet): no agent leaves
 * a server that serves, no agent but the server's successor is elected, and a world runs again in time.
 *
 * Where agents leave in order and one other ends at about that time (drains), a world runs again, unless none
 * of the newest round's voters is left.
 *
 * Where a world needs all agents (all_ranks), it runs again within 25 s and two round trips once all are
 * there, however many voters were lost.
 *
 * Agents at the endpoint that have only heard of a round that nobody knows any more begin the job again: the
 * 10 s count from there.
 *
 * A job begins again at its endpoint if its endpoint's agent and as many others as a world needs are started
 * again while all that know the job are cut off. Where half of the agents suffice for a world, the two may
 * train at one time: that is not an error here. */
#ifndef MUSTER_TESTS_SIMULATION_VOTES_H
#define MUSTER_TESTS_SIMULATION_VOTES_H

#include <stdbool.h>
#include <stdint.h>

#include "rendezvous/takeover/takeover.h"

enum { VOTES_NODES = 9, VOTES_FAULTS = 24, VOTES_LIVES = 64, VOTES_RECORDS = 512 };

/* symbol, name */
#define VOTES_FAULT_KINDS(X)                                                                                 \
    X(VOTES_CRASH, "crash")                                                                                  \
    X(VOTES_RESTART, "restart")                                                                              \
    X(VOTES_FREEZE, "freeze")                                                                                \
    X(VOTES_CUT, "cut")                                                                                      \
    X(VOTES_CUT_ONE_WAY, "cut one way")                                                                      \
    X(VOTES_CUT_SERVER, "cut the server")                                                                    \
    X(VOTES_HEAL, "heal")                                                                                    \
    X(VOTES_KILL_SERVER, "kill the server")                                                                  \
    X(VOTES_KILL_SERVER_AND_VOTERS, "kill the server and voters")                                            \
    X(VOTES_KILL_AT_CHOSEN, "kill a server before its next WORLD")                                           \
    X(VOTES_KILL_AT_REVISION, "kill a server when it has told one voter of the new voters")                  \
    X(VOTES_FREEZE_SERVER, "freeze the server")                                                              \
    X(VOTES_DRAIN, "an agent leaves in order")                                                               \
    X(VOTES_CALM, "no more faults")

#define VOTES_ENUM(symbol, name) symbol,
enum votes_fault_kind { VOTES_FAULT_KINDS(VOTES_ENUM) VOTES_FAULT_COUNT };
#undef VOTES_ENUM

struct votes_fault {
    int64_t at_ms;
    enum votes_fault_kind kind;
    int node;       /* -1: none; DRAIN: the server; CRASH: the spare of the first DRAIN */
    int64_t for_ms; /* how long; < 0: for good */
    unsigned side;  /* CUT: one side's nodes, a bit each; KILL_SERVER_AND_VOTERS: how many voters;
                       KILL_AT_REVISION: which voter; KILL_AT_CHOSEN: 1: agents that leave know the round */
};

struct votes_schedule {
    uint64_t seed;
    int nodes, min, max;
    bool stuck;       /* directed: it leaves no majority of voters */
    bool quiet;       /* agents end, one at a time; nothing else happens */
    bool drains;      /* agents leave in order, and one ends at about that time; nothing else happens */
    bool all_ranks;   /* a world has all agents, and they do not wait for lost voters for ever */
    int endpoints;    /* the first nodes are the endpoints; the first one begins the job */
    int64_t delay_ms; /* the longest of a message; a few take seconds */
    int drop_permille;
    int fault_count;
    struct votes_fault faults[VOTES_FAULTS];
};

struct votes_outcome {
    bool broken;
    char text[256];
    uint64_t events;
    unsigned rounds, takeovers, jobs;
    bool stuck;       /* no majority of voters was left at the end */
    int64_t pause_ms; /* from the death of the first server to the next world; 0: none */
};

void votes_random(uint64_t seed, struct votes_schedule *schedule);
void votes_quiet(uint64_t seed, struct votes_schedule *schedule);
void votes_drains(uint64_t seed, struct votes_schedule *schedule);
void votes_all_ranks(uint64_t seed, struct votes_schedule *schedule);
/* Plays a job. trace: also prints it. */
void votes_run(const struct votes_schedule *schedule, bool trace, struct votes_outcome *outcome);
/* Schedules for what random ones show too rarely: NULL after the last one. */
const struct votes_schedule *votes_directed(int index);

#endif
