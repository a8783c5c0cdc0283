/* mutation.h - bugs planted on purpose, to see that the simulator finds them.
 *
 * Only tests/simulation builds the roster and the client with MUSTER_MUTATIONS; everywhere else MUTATED is
 * false and nothing of this is left. */
#ifndef MUSTER_RENDEZVOUS_MUTATION_H
#define MUSTER_RENDEZVOUS_MUTATION_H

#include <stdbool.h>

/* symbol, what is wrong */
#define MUTATIONS(X)                                                                                         \
    X(MUTATION_NONE, "nothing")                                                                              \
    X(MUTATION_OLD_ROUND, "an agent acts on a world that is older than its last one")                        \
    X(MUTATION_OLD_REPORT, "a report about an old world counts for the present one")                         \
    X(MUTATION_TWO_COUNTS, "a restart is counted twice")                                                     \
    X(MUTATION_TWO_SEATS, "an agent that joins again gets a second seat")                                    \
    X(MUTATION_TWO_HOLDERS, "a rank that is held is given to whoever claims it")                             \
    X(MUTATION_NO_LEASE, "workers run on when the lease has ended")                                          \
    X(MUTATION_NO_FENCE, "the next world does not wait for the leases of those who were lost")               \
    X(MUTATION_NO_LOSS, "the others are not stopped when a node is lost")                                    \
    X(MUTATION_DRAIN_COSTS, "an agent that drains costs a restart")                                          \
    X(MUTATION_LOST_STOP, "a STOP that was sent to a broken connection is not sent again")                   \
    X(MUTATION_EMPTY_SERVER, "a server that has just been started forms a world at once")                    \
    X(MUTATION_LATE_WORLD, "after standing still an agent starts the workers of a world that is over")       \
    X(MUTATION_LATE_WORKERS, "workers that a WORLD brings after the agent was given up are not asked about")

enum mutation {
#define MUTATION_ENUM(symbol, meaning) symbol,
    MUTATIONS(MUTATION_ENUM)
#undef MUTATION_ENUM
        MUTATION_COUNT
};

#ifdef MUSTER_MUTATIONS
extern enum mutation mutation_planted; /* defined by the test */
#define MUTATED(which) (mutation_planted == (which))
#else
#define MUTATED(which) false
#endif

#endif
