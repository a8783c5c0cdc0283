/* cluster.h - a simulated job: agents with their state machines, the roster of the serving agent, workers,
 * clocks and a network, on one fake time.
 *
 * Everything that decides is the real code (roster*.c, client*.c, launcher/policy/worker_group.c,
 * launcher/policy/server_choice.c); the cluster only carries messages, with a delay for each drawn from a
 * seed, and plays the agents' loops and their workers. Time jumps from one event to the next. Messages of one
 * connection arrive in order or not at all, but for duplicates, drops and swaps where they are asked for;
 * cutting a node drops messages in flight and gives it a new connection after. Each node has a clock of its
 * own.
 *
 * Every event may be printed to a trace, which golden tests compare as text, and after every event the
 * invariants of a world are checked; the first that breaks is kept with its time. */
#ifndef MUSTER_TESTS_SIMULATION_CLUSTER_H
#define MUSTER_TESTS_SIMULATION_CLUSTER_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/base/buffer.h"
#include "rendezvous/roster/roster.h"

enum { CLUSTER_NODE_LIMIT = 64, CLUSTER_ROLES = 3 };

/* symbol, name, condition */
#define INVARIANTS(X)                                                                                        \
    X(INVARIANT_NONE, "none", "nothing broke")                                                               \
    X(INVARIANT_ONE_TRAINS, "one-trains", "at most one world of a job trains at any instant")                \
    X(INVARIANT_ONE_HOLDER, "one-holder", "a rank of a round is held by one incarnation")                    \
    X(INVARIANT_SUCCESSOR, "successor", "no agent is displaced by one of its name that has ended")           \
    X(INVARIANT_RANKS, "ranks", "the ranks of a round are 0..n-1, contiguous by node, also inside a role")   \
    X(INVARIANT_OLD_WORLD, "old-world", "nobody acts on an old world")                                       \
    X(INVARIANT_CLEAN_START, "clean-start", "a world starts on a node that has no workers of another")       \
    X(INVARIANT_LEASE, "lease", "an agent that nobody hears stops its workers when its lease ends")          \
    X(INVARIANT_BUDGET, "budget", "the restart budget of the job is kept")                                   \
    X(INVARIANT_COUNTED_ONCE, "counted-once", "a restart is counted once, and only for a cause")             \
    X(INVARIANT_ATTRIBUTED, "attributed", "every exit is attributed once, and only one that was")            \
    X(INVARIANT_ONE_VERDICT, "one-verdict", "one verdict for the whole job")                                 \
    X(INVARIANT_DONE, "done", "a job that is done, or was asked to end, never trains again")                 \
    X(INVARIANT_NOTICE, "notice", "when a static job is asked to end, workers that listen get time")         \
    X(INVARIANT_PROTOCOL, "protocol", "no table meets an event that it does not know")                       \
    X(INVARIANT_PROGRESS, "progress", "starting, stopping and forming come to an end in time")               \
    X(INVARIANT_END, "end", "when the faults are over the job ends, and as it should")

#define INVARIANT_ENUM(symbol, name, meaning) symbol,
enum invariant { INVARIANTS(INVARIANT_ENUM) INVARIANT_COUNT };
#undef INVARIANT_ENUM
const char *invariant_name(enum invariant invariant);
const char *invariant_meaning(enum invariant invariant);

/* Times of 0 stand for the value after the colon. */
struct cluster_options {
    uint64_t seed;
    bool trace; /* keeps the text of what happens */
    int nodes;  /* static: the world's; elastic: number that a calm cluster starts; 0: all */
    bool elastic;
    int min_nodes, max_nodes;         /* elastic; nodes beyond max are spares */
    int64_t last_call_ns, regroup_ns; /* elastic; the roster's own */
    int64_t max_restarts;
    int64_t backoff_ns;                 /* before a restart; 0: none */
    int64_t join_timeout_ns;            /* : 60 s */
    int64_t delay_min_ns, delay_max_ns; /* a message's; both : 1 ms each */
    int duplicate_percent; /* messages but JOIN that arrive once more, up to 2 s late and out of order */
    int drop_percent;      /* messages that are lost on a connection that lives */
    int loss_percent;      /* packets that are lost: TCP sends them again, and later ones wait */
    int stale_percent;     /* messages to the server, on a connection that ends or is cut, that arrive all the
                              same, up to 6 s late: the next connection may be in use then */
    int64_t start_ns;      /* WORLD -> workers run : 100 ms */
    int64_t stop_ns;       /* TERM -> workers gone : 100 ms */
    int64_t grace_ns;      /* TERM -> KILL : 30 s */
    int local_world_size[CLUSTER_NODE_LIMIT]; /* : 1 */
    int role[CLUSTER_NODE_LIMIT];             /* 0..CLUSTER_ROLES-1 */
    bool listens[CLUSTER_NODE_LIMIT]; /* its workers are told of a planned stop, and save before they end */
    bool votes;                       /* a server that is lost for good has a successor (cluster_moving.c) */
    bool own_name; /* the endpoint is the name of its machine, which need not be looked up there */
    bool beside[CLUSTER_NODE_LIMIT]; /* its agent runs on node 0's host, and has the endpoint's address too */
    int64_t clock_offset_ns[CLUSTER_NODE_LIMIT];
    int clock_drift_ppm[CLUSTER_NODE_LIMIT];
};

struct cluster;

struct cluster *cluster_create(const struct cluster_options *options);
void cluster_destroy(struct cluster *cluster);

/* Possible events: symbol, word, kind of value, meaning. Node 0 has the endpoint's address,
 * and so do those next to it: who binds the port first serves. */
#define STEPS(X)                                                                                             \
    X(STEP_START, "start", "as rank", "the agent starts, with a fresh incarnation")                          \
    X(STEP_TWIN, "twin", "of node",                                                                          \
      "as start, under the name and rank of another node: its pod's successor")                              \
    X(STEP_FOREIGN, "foreign", "as rank", "an agent of another job starts, which was given the same port")   \
    X(STEP_CRASH, "crash", "", "the agent and its workers end without a word; the connection breaks")        \
    X(STEP_LOSE, "lose", "", "the machine vanishes with all its agents: nobody sees a connection break")     \
    X(STEP_CUT, "cut", "", "the network of a node goes away")                                                \
    X(STEP_CUT_OUT, "cut-out", "", "what the node sends is lost")                                            \
    X(STEP_CUT_IN, "cut-in", "", "what is sent to the node is lost")                                         \
    X(STEP_HEAL, "heal", "", "the network comes back, on a new connection")                                  \
    X(STEP_LAG, "lag", "ms", "nothing arrives for a while, then all of it")                                  \
    X(STEP_RESET, "reset", "", "the connection breaks, both ends see it, and there is a new one")            \
    X(STEP_FREEZE, "freeze", "ms", "the agent does nothing for a while, and nobody else to its workers")     \
    X(STEP_SUSPEND, "suspend", "ms", "as freeze, and the clock of the node stands as well")                  \
    X(STEP_LEAP, "leap", "ms", "the clock of the node leaps forward")                                        \
    X(STEP_KILL, "kill", "", "a worker dies of signal 9, if any runs")                                       \
    X(STEP_FOLLOW, "follow", "", "a worker exits 1, saying that its peer closed the connection")             \
    X(STEP_FINISH, "finish", "", "the workers exit 0, if they run")                                          \
    X(STEP_STICK, "stick", "", "from now on the workers survive KILL")                                       \
    X(STEP_TERM, "term", "", "the agent gets TERM: leaves with 143, an elastic one drains first")            \
    X(STEP_CALM, "calm", "ms",                                                                               \
      "faults are over: networks heal, who is missing starts, workers end well after so long")               \
    X(STEP_END_SERVER, "end-server", "ms",                                                                   \
      "the serving agent ends without a word, and starts again after so long; 0: never")                     \
    X(STEP_FREEZE_SERVER, "freeze-server", "ms", "the serving agent does nothing for a while")               \
    X(STEP_CUT_SERVER, "cut-server", "ms", "the network of the serving agent goes away for a while")         \
    X(STEP_TERM_SERVER, "term-server", "ms",                                                                 \
      "the serving agent gets TERM, and starts again after so long; 0: never")                               \
    X(STEP_MISS, "miss", "", "a worker, if any runs, has lost a peer, of which no failure is known")

#define STEP_ENUM(symbol, word, unit, meaning) symbol,
enum step_kind { STEPS(STEP_ENUM) STEP_COUNT };
#undef STEP_ENUM
const char *step_word(enum step_kind kind);
const char *step_unit(enum step_kind kind); /* "" where the step has no value */

/* value: START: the rank that it claims, -1: its own (static) or any; FOREIGN: the same; TWIN: the other
 * node; else ms. */
void cluster_step(struct cluster *cluster, int64_t at_ms, enum step_kind kind, int node, int64_t value);
/* As cluster_step, but not before the server is in this state: then within a moment. Never, where that is not
 * so before the calm. */
void cluster_step_in(struct cluster *cluster, int64_t at_ms, enum roster_job_state state, enum step_kind kind,
                     int node, int64_t value);

/* The same by name, for tests. */
void cluster_start(struct cluster *cluster, int64_t at_ms, int node);
void cluster_claim(struct cluster *cluster, int64_t at_ms, int node, int rank);
void cluster_crash(struct cluster *cluster, int64_t at_ms, int node);
void cluster_cut(struct cluster *cluster, int64_t at_ms, int node);
void cluster_heal(struct cluster *cluster, int64_t at_ms, int node);
void cluster_reset(struct cluster *cluster, int64_t at_ms, int node);
void cluster_freeze(struct cluster *cluster, int64_t at_ms, int node, int64_t for_ms);
void cluster_kill(struct cluster *cluster, int64_t at_ms, int node);
void cluster_follow(struct cluster *cluster, int64_t at_ms, int node);
void cluster_finish(struct cluster *cluster, int64_t at_ms, int node);
void cluster_term(struct cluster *cluster, int64_t at_ms, int node);
void cluster_miss(struct cluster *cluster, int64_t at_ms, int node);

/* Runs until nothing is left to happen but beats, or until_ms. */
void cluster_run(struct cluster *cluster, int64_t until_ms);
/* After cluster_run of a schedule that ended in a calm: whether the job came to its end, as it should. */
void cluster_check_end(struct cluster *cluster);

/* "0.101 0 -> WORLD ..." lines; owned by the cluster. */
const char *cluster_trace(const struct cluster *cluster);
/* With a trace: all that rosters and clients said and were after each of their steps, in one number. */
uint64_t cluster_digest(const struct cluster *cluster);
/* INVARIANT_NONE where every one held; *text (may be NULL) is owned by the cluster. */
enum invariant cluster_broken(const struct cluster *cluster, const char **text);
/* -1: it has not exited. */
int cluster_exit_code(const struct cluster *cluster, int node);
uint64_t cluster_events(const struct cluster *cluster);
/* That is served at the endpoint, or was last. */
const struct roster *cluster_roster(const struct cluster *cluster);

#endif
