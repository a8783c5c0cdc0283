/* takeover.h - the rules by which the agents of a job choose the server of its next round.
 *
 * Pure: events and the time go in, actions come out. One object lives in each agent, from its start to its
 * end. Nothing of it is written to disk.
 *
 *   SEEK ---(a voter: the server is silent)---> STAND ---(a majority has promised)---> SERVE
 *     ^  \                                        |                                      |
 *     |   +---(an agent serves: MOVED)--> FOLLOW  +--(no majority, or another is ahead)--+--> SEEK
 *     +-----(the server is silent, or its connection has been broken for 1 s)-----+
 *
 * Round r+1 has one record. It is chosen when a majority of the voters of round r has accepted it, and only
 * then the world of round r+1 is sent out. (A record with other voters for the same round is chosen by the
 * same vote.) The server in office asks the voters, too. The rules are Paxos' for a single decision:
 *   - A voter promises to accept nothing under a lower ballot than the highest that it has seen.
 *   - A candidate that has a majority of promises serves. If a voter has accepted a record, the candidate
 *     proposes that record again (of several the record with the highest ballot), under its own ballot.
 *   - The server of round r proposes round r+1 under the ballot of its own record without another election:
 *     no other agent has that ballot. It proposes one record under one ballot. If it gets no majority in
 * time, it stands again.
 *
 * If the chosen record names another server, the round has no world here: the next round follows.
 *
 * A record is proposed by a voter of round r that was a member of it and whose own workers have ended. It is
 * a member of round r+1. So two worlds in a row share a node, which runs one world at a time, and at most one
 * world of a job trains at any instant: no lease and no clock are needed for that.
 *
 * No WORLD has the record of other voters for the same round. The server repeats it to these voters until
 * they have confirmed it (KNOWN).
 *
 * Only the endpoint's agent begins a job (takeover_begin). It gives way to the first agent that knows a
 * record.
 *
 * A voter that receives messages from its server refuses to elect another one. So a member whose connection
 * to the server alone is broken does not unseat it. A server that receives messages from a majority of its
 * voters refuses, too.
 *
 * An agent that leaves the job (takeover_leave) is a voter still: it votes until a round is decided in which
 * it is no voter, but stands and serves no more. So the loss of another voter just then costs no majority. It
 * sends LEAVES to the voters, which answer, and so it goes at once if no voter is left that could stand. It
 * spreads the record of the next round before it goes: the server may be lost before all voters of that round
 * know it.
 *
 * A new agent that receives a record from agents that do not serve keeps it for itself until it follows a
 * server. Where most voters are lost for good, their agents end and begin anew at different times: a record
 * that each passed on would keep the job looking for lost voters for ever. But it sends the record to a voter
 * of it, which is no new agent: all other agents that knew the record may have ended. If the agent is at the
 * endpoint, and for TAKEOVER_ALONE_MS and twice the time in which a loss is noticed nothing has come
 * from a voter or from an agent that knows the record, it begins the job again, as an agent that is started
 * then would.
 *
 * Where each world has all ranks (takeover_all_ranks: a static job), two worlds never train at once, whatever
 * agents serve: a rank has one agent at a time, and an agent is in one world. Votes only choose the server,
 * and lost voters need not be waited for. An agent without a server for TAKEOVER_ALONE_MS and twice the time
 * in which a loss is noticed forgets its record: at the endpoint it begins the job again, elsewhere it does
 * so once an agent serves without that record. An agent without a record takes one from a server only, and
 * goes on serving until then. A voter that has forgotten its promises votes no more about that round.
 *
 * A candidate's knowledge changes in one function (learn in takeover.c). A newer record ends the candidacy or
 * the office there, or completes it if the record is the agent's own proposal. */
#ifndef MUSTER_RENDEZVOUS_TAKEOVER_TAKEOVER_H
#define MUSTER_RENDEZVOUS_TAKEOVER_TAKEOVER_H

#include "proto/base/clock.h"
#include "rendezvous/takeover/record.h"

#ifdef __cplusplus
extern "C" {
#endif

/* symbol, name, meaning */
#define TAKEOVER_STATES(X)                                                                                   \
    X(TAKEOVER_SEEK, "SEEK", "looks for the agent that serves")                                              \
    X(TAKEOVER_STAND, "STAND", "asks the voters for their promises")                                         \
    X(TAKEOVER_SERVE, "SERVE", "serves the job")                                                             \
    X(TAKEOVER_FOLLOW, "FOLLOW", "is a member of the server that it follows")

/* In the order of rendezvous.proto. */
#define TAKEOVER_MESSAGES(X)                                                                                 \
    X(TAKEOVER_WHO, "ASK", "where is the server? It is answered by MOVED")                                   \
    X(TAKEOVER_PREPARE, "PREPARE", "a candidate asks for a promise")                                         \
    X(TAKEOVER_PROMISE, "PROMISE", "a voter promises, and sends the record that it has accepted")            \
    X(TAKEOVER_ACCEPT, "ACCEPT", "a server proposes a record")                                               \
    X(TAKEOVER_ACCEPTED, "ACCEPTED", "a voter has accepted it")                                              \
    X(TAKEOVER_NACK, "NACK", "a newer record or a higher ballot is known here")                              \
    X(TAKEOVER_MOVED, "MOVED", "the sender serves, or knows the server")                                     \
    X(TAKEOVER_KNOWN, "KNOWN", "a voter has its server's record, or that of an agent that leaves")           \
    X(TAKEOVER_LEAVES, "LEAVES", "the sender leaves the job, and votes until the next round is decided")

/* Why an agent has left a state. */
#define TAKEOVER_REASONS(X)                                                                                  \
    X(TAKEOVER_NO_REASON, "")                                                                                \
    X(TAKEOVER_BEGUN, "the job begins at its endpoint")                                                      \
    X(TAKEOVER_FOUND, "it has answered that it serves the job")                                              \
    X(TAKEOVER_SILENT, "the server is silent")                                                               \
    X(TAKEOVER_BROKEN, "the connection to the server is broken")                                             \
    X(TAKEOVER_STEPPED_DOWN, "the server does not serve any more")                                           \
    X(TAKEOVER_LEFT, "the server has left")                                                                  \
    X(TAKEOVER_REPLACED, "another agent is at the server's address")                                         \
    X(TAKEOVER_IN_TURN, "no other voter has taken over")                                                     \
    X(TAKEOVER_ELECTED, "a majority of the voters has promised")                                             \
    X(TAKEOVER_OUTVOTED, "another agent has a higher ballot")                                                \
    X(TAKEOVER_OUTDATED, "a newer round is known")                                                           \
    X(TAKEOVER_NO_ANSWER, "no majority of the voters has answered")                                          \
    X(TAKEOVER_OTHERS_PROPOSAL, "the round that was chosen is that of another server")                       \
    X(TAKEOVER_LEAVING, "this node leaves the job")                                                          \
    X(TAKEOVER_AGAIN, "most voters are lost, and the job begins again at its endpoint")

/* symbol, meaning */
#define TAKEOVER_ACTIONS(X)                                                                                  \
    X(TAKEOVER_SEND, "send `message` to `to`")                                                               \
    X(TAKEOVER_ASK, "ask `to` for the server: with a JOIN, which is answered by MOVED")                      \
    X(TAKEOVER_ASK_ENDPOINTS, "the same at the endpoints of the job")                                        \
    X(TAKEOVER_TELL_ENDPOINTS, "send `message` to the endpoints of the job")                                 \
    X(TAKEOVER_CHANGE, "the state has changed, for `reason`; FOLLOW: `to` serves")                           \
    X(TAKEOVER_CHOSEN, "the proposal is chosen: a new round's world may be sent out")

#define TAKEOVER_ENUM(symbol, name, meaning) symbol,
enum takeover_state { TAKEOVER_STATES(TAKEOVER_ENUM) TAKEOVER_STATE_COUNT };
enum takeover_message_kind { TAKEOVER_MESSAGES(TAKEOVER_ENUM) TAKEOVER_MESSAGE_COUNT };
#undef TAKEOVER_ENUM
#define TAKEOVER_ENUM(symbol, text) symbol,
enum takeover_reason { TAKEOVER_REASONS(TAKEOVER_ENUM) TAKEOVER_REASON_COUNT };
enum takeover_action_kind { TAKEOVER_ACTIONS(TAKEOVER_ENUM) TAKEOVER_ACTION_COUNT };
#undef TAKEOVER_ENUM

/* Printable; "?" for a number outside the list. */
const char *takeover_state_name(enum takeover_state state);
const char *takeover_message_name(enum takeover_message_kind kind);
const char *takeover_reason_text(enum takeover_reason reason);

enum {
    TAKEOVER_LOST_MS = 2500,   /* silence of a server after which voters stand */
    TAKEOVER_BROKEN_MS = 1000, /* the same for a connection that broke */
    TAKEOVER_TURN_MS = 300,   /* from one voter to the next; also a message to a voter is repeated so often */
    TAKEOVER_DOUBT_MS = 1500, /* silence after which a voter promises to another candidate */
    TAKEOVER_ASK_MS = 250,
    TAKEOVER_PATIENCE_MS = 3000, /* with voters that do not answer */
    TAKEOVER_ALONE_MS = 3000,    /* see above: an election is over by then */
    TAKEOVER_STAY_MS = 10000,    /* an agent that leaves votes no longer: by then the loss of another is
                                    noticed, and the next round decided */
    TAKEOVER_SPREAD_MS = 500,    /* an agent that leaves repeats the record of the next round so long */
    TAKEOVER_PAST_MS = 60000, /* voters of earlier records are kept informed; their addresses may be another
                                 job's afterwards */
};

/* Records and agents are not owned: they are valid until the next step. */
struct takeover_message {
    enum takeover_message_kind kind;
    const struct voter *from;
    const struct world_record *known; /* the sender's word (takeover_word); epoch 0: none */
    struct ballot ballot; /* PREPARE, ACCEPT, MOVED: of the candidate or server; PROMISE, ACCEPTED: the one
                             that is answered; NACK, and MOVED of an agent that does not serve: the highest
                             that the sender has promised */
    struct ballot at;     /* PROMISE, with a value: the ballot under which the sender has accepted it */
    const struct world_record *value; /* ACCEPT: the proposal; PROMISE: the accepted record, or NULL */
    const struct voter *server;       /* MOVED: the agent that serves; NULL: the sender does not know it */
};

struct takeover_action {
    enum takeover_action_kind kind;
    const struct voter *to;
    struct takeover_message message;
    enum takeover_reason reason;
};

/* A step has at most: one message to the sender; one message to each voter, a JOIN there, and one of these
 * to each past voter; two changes of its state. An agent that leaves sends nothing else to voters. */
enum { TAKEOVER_ACTIONS_LIMIT = 3 * RECORD_VOTERS + 6 };

struct takeover_actions {
    int count;
    struct takeover_action items[TAKEOVER_ACTIONS_LIMIT];
};

/* Fields are for takeover*.c; tests and the status read them. */
struct takeover {
    struct voter self;
    enum takeover_state state;
    enum takeover_reason reason; /* for the last change */
    struct world_record known;
    bool hearsay; /* `known` comes from agents that did not serve, and this agent knew no record before */
    uint64_t floor_epoch; /* no record or message of an earlier round of this job counts: this agent knew a */
    uint32_t floor_round; /* newer round before it forgot its records. 0,0: it has forgotten none */
    bool forgot_votes;    /* it was a voter of that round */
    struct voter lost_voter; /* the first of that round's voters that did not answer; its name is "": none */
    struct voter past[RECORD_VOTERS]; /* voters of the records before, the latest first: until past_until this
                                         agent looks for the server at them, or shows itself to them */
    int past_count;
    struct instant past_until;
    bool works;     /* own workers, of whatever round, have not ended */
    bool all_ranks; /* each world has all ranks of the job */
    bool endpoint;  /* this agent listens at the job's endpoint */
    /* as a voter of `known` */
    struct ballot promised, accepted_at;
    bool has_accepted;
    struct world_record accepted;
    /* as a candidate or server */
    struct ballot ballot;
    uint32_t highest;  /* ballot number that was seen */
    unsigned votes;    /* a bit for each voter */
    unsigned informed; /* the same: it is certain that the voter has `known` */
    bool has_best, proposing;
    struct ballot best_at;
    struct world_record proposal; /* proposing; in STAND, with has_best: accepted by a voter */
    struct instant heard_voter[RECORD_VOTERS];
    /* an agent that leaves */
    bool leaves;
    uint32_t left_round;       /* it votes about the round after this one */
    unsigned leaving;          /* a bit for each other voter that leaves */
    struct instant left_at;    /* leaves */
    struct instant stay_until; /* leaves: it goes in any case */
    /* times */
    struct instant heard;     /* FOLLOW: the server */
    struct instant broken_at; /* FOLLOW: its connection; never: it is whole */
    struct instant stand_at;  /* SEEK; never: no voter, or not yet decided */
    struct instant send_at;   /* STAND, SERVE, leaves: messages to voters are repeated */
    struct instant ask_at;    /* SEEK, SERVE: messages about the server are due */
    struct instant since;     /* STAND: the candidacy; SERVE: the proposal */
    struct instant lost_at;   /* SEEK, STAND: without a server since then */
    struct instant again_at;  /* all_ranks: when an agent last served anew, without this agent's record */
    struct instant told_at;   /* the last message of an agent that knew this agent's record */
    struct voter server;      /* FOLLOW */
    struct agent_incarnation gone; /* a server that serves no more: its answers from before may come late */
    struct ballot office;          /* FOLLOW: the server's */
    int64_t lost_ns, doubt_ns; /* TAKEOVER_LOST_MS, TAKEOVER_DOUBT_MS; longer where heartbeats are slower */
    uint64_t random;
    unsigned refused; /* records and messages that were refused */
};

/* Begins in SEEK. self is copied. random: for the time between two candidacies. */
void takeover_init(struct takeover *t, const struct voter *self, uint64_t random, struct instant now);

/* After it: this agent listens at the job's endpoint, where no other does. */
void takeover_at_endpoint(struct takeover *t);

/* After it: each world of the job has all of its ranks, and each rank has one agent at a time. */
void takeover_all_ranks(struct takeover *t);

/* As takeover_init, for an agent that goes on: nothing of a round before the known one counts afterwards, and
 * if it had a vote about the round after that, it has none any more. */
void takeover_forget(struct takeover *t, struct instant now);

/* The record that this agent passes on to others than its voters: known, or an empty record (epoch 0) while
 * that is hearsay. */
const struct world_record *takeover_word(const struct takeover *t);

/* Whether the job of the known record may be over: it is hearsay, and none of its voters answers. Then the
 * server of another beginning of the job counts. */
bool takeover_may_be_over(const struct takeover *t, struct instant now);

/* Whether another agent than the server in office can be elected, or this one can elect itself. Otherwise the
 * rules have no time: the server of one voter is waited for. */
bool takeover_elects(const struct takeover *t);

/* Every function below empties `out` first. */

/* The endpoint's agent serves a job that has not begun. In SEEK, without a record. */
void takeover_begin(struct takeover *t, struct instant now, struct takeover_actions *out);

/* A message was received. An impossible message is refused and counted, and nothing changes. */
void takeover_receive(struct takeover *t, const struct takeover_message *message, struct instant now,
                      struct takeover_actions *out);

/* An agent asks for the server, and knows a record (epoch 0: none): it is answered by MOVED. A server takes
 * it as a member afterwards, if it is a server still. */
void takeover_asked(struct takeover *t, const struct voter *from, const struct world_record *known,
                    struct instant now, struct takeover_actions *out);

/* The record of a world was received from the server. -1 (MUSTER_E_PROTOCOL,
 * with the reason): it is refused and counted. An older or equal one is 0 and changes nothing. */
int takeover_learn(struct takeover *t, const struct world_record *record, struct instant now,
                   struct takeover_actions *out, struct muster_error *err);

/* Something was received from this agent: the server, which serves, or a voter of the server. */
void takeover_heard(struct takeover *t, struct agent_incarnation agent, struct instant now);

/* FOLLOW: the connection to the server broke, or is whole again. */
void takeover_connection(struct takeover *t, bool whole, struct instant now);

/* FOLLOW: the server has gone for certain, for this reason. */
void takeover_gone(struct takeover *t, enum takeover_reason reason, struct instant now,
                   struct takeover_actions *out);

/* The agent leaves the job; its workers have ended. It votes for limit_ns at most. */
void takeover_leave(struct takeover *t, int64_t limit_ns, struct instant now, struct takeover_actions *out);

/* After that: whether its vote may be needed still. */
bool takeover_stays(const struct takeover *t, struct instant now);

/* Whether own workers, of whatever round, have not ended. */
void takeover_workers(struct takeover *t, bool work);

/* Whether the agent may propose a round now: it serves, its workers have ended, and it was in the last one.
 */
bool takeover_may_propose(const struct takeover *t);

/* Proposes the record of the next round: its epoch, round and ballot are filled here; voters[0] is this
 * agent. Returns whether it did. With a majority of one it is chosen at once. */
bool takeover_propose(struct takeover *t, const struct world_record *record, struct instant now,
                      struct takeover_actions *out);

/* Proposes other voters for the round in office, with the same members: for a spare that has registered
 * since, or a member that has gone. voters[0] is this agent. Returns whether it did: it serves, a majority of
 * the voters answers, and it proposes nothing else. */
bool takeover_may_revise(const struct takeover *t, struct instant now);
bool takeover_revise(struct takeover *t, const struct voter *voters, int count, struct instant now,
                     struct takeover_actions *out);

/* Time has passed. */
void takeover_tick(struct takeover *t, struct instant now, struct takeover_actions *out);
struct instant takeover_deadline(const struct takeover *t);

/* Without a server, or without a majority that answers this server: "2 of 3 voters answer: a, b; waiting for
 * one more; no answer from c (10.0.0.3 port 4711)"; else "". */
void takeover_describe(const struct takeover *t, struct instant now, char *out, size_t size);

#ifdef __cplusplus
}
#endif
#endif
