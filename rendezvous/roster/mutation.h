/* mutation.h - bugs planted on purpose, to see that the simulator finds them.
 *
 * Only tests/simulation builds the roster and the client with MUSTER_MUTATIONS; everywhere else MUTATED is
 * false and nothing of this is left. */
#ifndef MUSTER_RENDEZVOUS_ROSTER_MUTATION_H
#define MUSTER_RENDEZVOUS_ROSTER_MUTATION_H

#include <stdbool.h>

/* symbol, what is wrong. The numbers are torchrun's issues in its own tracker, where it has or had the bug.
 */
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
    X(MUTATION_LATE_WORLD, "a world or a seat that crossed on the way, or waited there, is not asked about") \
    X(MUTATION_LOST_WORLD, "a WORLD that was sent to a broken connection is not sent again")                 \
    X(MUTATION_LOST_VERDICT, "an agent that missed the verdict is not told again (#67616)")                  \
    X(MUTATION_NO_BUDGET, "a node that comes and goes restarts the job without limit (#147064)")             \
    X(MUTATION_COUNT_EACH, "a restart is counted for each agent that failed (#108158)")                      \
    X(MUTATION_REPEATED_REPORT, "a report that comes twice counts twice")                                    \
    X(MUTATION_NO_GIVING_UP, "a job whose nodes do not come waits for ever (#76287)")                        \
    X(MUTATION_CLOSED, "an agent that leaves while the world forms closes it for all (#67742)")              \
    X(MUTATION_REOPENS, "a late joiner opens a job that is over again (#116974)")                            \
    X(MUTATION_LATE_ADMISSION, "a node that comes after the last call is let into the world that is out")    \
    X(MUTATION_NO_SPARES, "a node that waits is not taken in for one that was lost")                         \
    X(MUTATION_NOT_RANK_ZERO, "the serving agent is not rank 0, and workers look elsewhere (#182221)")       \
    X(MUTATION_ALL_SERVE, "every node takes the endpoint's address for its own (#73380)")                    \
    X(MUTATION_NONE_SERVES, "no node knows the endpoint's address for its own (#73380)")                     \
    X(MUTATION_CLOCKS, "a time of one host is compared with another's clock")                                \
    X(MUTATION_ANY_SESSION, "what an old connection says counts for the agent that has the seat now")        \
    X(MUTATION_SUPERSEDED, "an agent whose successor is here takes its rank back")                           \
    X(MUTATION_NO_BARRIER, "the job is over before its agents have left")                                    \
    X(MUTATION_FAREWELL_COSTS, "a server that left on purpose is counted as lost when it comes back")        \
    X(MUTATION_NO_NOTICE, "a static job that is asked to end gives no time to save")                         \
    X(MUTATION_TERM_FORGOTTEN, "a node that is asked to end while the world stops is waited for")            \
    X(MUTATION_DRAIN_UNANSWERED, "a static node that asks for time to save is not heard")                    \
    X(MUTATION_NO_WISHES, "a node rank that an agent of an elastic job wants is not honoured")               \
    X(MUTATION_OTHER_JOB, "an agent of another job is let in")

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
