/* moving_internal.h - the membership of an agent whose job may move to another server, shared by the files of
 * this folder only.
 *
 *   moving.c          the membership's calls: events, reports, time, creation and end
 *   moving_roles.c    the roles: the transports after each change of the rules (takeover.h)
 *   moving_time.c     proposals, the rules' time, and a lack of voters
 *   moving_messages.c votes and JOINs of other agents, and the server's messages
 *   moving_leave.c    an agent that has left, and votes until the next round is decided
 *   moving_peers.c    the connections to voters and endpoints
 *
 * An agent has at most one of two transports: that of a member (client), or that of the server. The latter
 * belongs to its door: a ROUTER with a thread, which an agent opens when it serves, or when it becomes a
 * voter.
 *
 * As long as the newest record has one voter, no other agent can be elected. Then the rules have no time: the
 * member waits for its server as a client alone does. */
#ifndef MUSTER_RENDEZVOUS_MOVING_MOVING_INTERNAL_H
#define MUSTER_RENDEZVOUS_MOVING_MOVING_INTERNAL_H

#include "proto/base/buffer.h"
#include "rendezvous/client/report_queue.h"
#include "rendezvous/server/server.h"
#include "rendezvous/takeover/takeover.h"
#include "rendezvous/transport/transport.h"
#include "rendezvous/wire/wire.h"
#include "rendezvous/zmq/zmq_socket.h"

enum { MOVING_PEERS = 3 * RECORD_VOTERS + MEMBERSHIP_ENDPOINTS };

/* An agent that has left the job. */
enum moving_exit {
    MOVING_STAYS_OUT, /* it has no vote, or has not left */
    MOVING_RETIRES,   /* it served, and waits for the others' acknowledgements */
    MOVING_VOTES,     /* it votes until the next round is decided */
};

/* A connection to another agent's door. */
struct moving_peer {
    struct zmq_socket socket; /* zeroed: free */
    char address[RECORD_ADDRESS];
    uint16_t port;
    struct instant used;
};

struct moving_peers {
    void *context; /* libzmq's, shared by all; NULL: not made yet */
    struct moving_peer items[MOVING_PEERS];
};

struct transport {
    struct takeover rules;
    struct membership *outer; /* the whole */
    struct membership member; /* as a client; transport NULL: it is none */
    struct membership door;   /* transport NULL: it is closed */
    bool serves;              /* the door has a roster */
    bool at_endpoint;         /* it listens at the endpoint's port */
    char endpoint[RECORD_ADDRESS];
    uint16_t endpoint_port;
    struct transport_hooks hooks;
    uint64_t sequence;           /* the agent's last report has it */
    uint64_t numbers;            /* its last JOIN or beat has this number */
    struct report_queue reports; /* that no server has */
    uint64_t notes_base;         /* grows with each client */
    struct moving_peers peers;
    int wake; /* an epoll of all descriptors; -1: none */
    /* the member's server */
    char server_address[2][RECORD_ADDRESS]; /* the second while it changes */
    char server_name[RECORD_NAME];
    bool met; /* the server has accepted this agent on the present connection */
    int at;   /* which of the two is in use */
    /* the agent's past, for the JOIN to its next server */
    struct roster_join past;
    bool stops; /* its workers were asked to stop */
    bool ends;  /* they were, and the others have too few nodes for another world */
    int ended;  /* 1 + the rank of a worker that has exited 0 while others of this agent ran; 0: none */
    struct world_id ended_in; /* its world */
    /* the agent has left */
    enum moving_exit exit;
    struct instant drained_at; /* never: without a drain */
    struct instant exit_until; /* its grace */
    /* changes of the rules that are not carried out yet */
    bool changed, chosen;
    enum takeover_reason reason;          /* of the first of these changes */
    char why[64];                         /* the reason of the last change; "": there was none */
    const struct server_frame *answering; /* while it is handled: answers to its sender take its route */
    struct agent_incarnation asker;       /* the sender */
    bool drain;                           /* descriptors may be silent although there is something */
    bool proposed, revises;               /* the roster's proposal waits for the rules */
    struct world_record proposal;
    struct instant lost_since;  /* never: there is a server */
    struct instant warn_at;     /* the lack of a majority is to be logged */
    bool warned;                /* it was */
    struct instant door_at;     /* the door is tried again */
    struct instant early_at;    /* it is opened by a node that may become a voter; never: not yet known */
    unsigned refused;           /* votes that were not for this agent */
    struct event_queue queue;   /* the agent's own events */
    struct wire_message frame;  /* scratch for receiving */
    struct wire_message sent;   /* scratch for sending */
    struct buffer bytes;        /* the same */
    struct world_record record; /* scratch */
    struct world_record word;   /* takeover_word, for JOINs */
};

/* Whether other agents can be elected. */
bool moving_is_voted(const struct transport *c);

/* --- moving_messages.c --- */

/* Everything that waits at the door and at the peers. */
void moving_receive(struct transport *c, struct instant now);
/* A vote of the agent at this address. */
void moving_take_vote(struct transport *c, struct wire_vote *vote, const char *address, struct instant now);
/* The hooks of the client (transport.h). */
bool moving_on_message(void *context, struct wire_message *message);
void moving_on_broken(void *context);

/* --- moving_roles.c --- */

/* Carries out the actions of a step, but for its changes of state. */
void moving_act(struct transport *c, const struct takeover_actions *actions);
/* Asks the agent at this address for the server. */
void moving_ask_at(struct transport *c, const char *address, uint16_t port, struct instant now);
/* Carries out the changes. -1: the membership is lost. */
int moving_change(struct transport *c, struct instant now, struct muster_error *err);
/* For display. */
void moving_describe(const struct transport *c, struct membership_serving *out);
/* The agent is a member at its endpoint, without a record. */
int moving_join_endpoint(struct transport *c, struct muster_error *err);

/* --- moving_door.c --- */

/* Opens the door unless it is open. */
int moving_ensure_door(struct transport *c, struct muster_error *err);
/* Opens the door if this agent is a voter. */
void moving_open_door(struct transport *c, struct instant now);

/* --- moving_time.c --- */

/* Proposals, time, and the votes' connections. */
void moving_turn(struct transport *c, struct instant now);
/* When the rules have something to do. */
struct instant moving_rules_deadline(const struct transport *c);

/* --- moving_leave.c --- */

/* The calls of a membership that is being closed (membership.h). */
void moving_part(struct membership *m, int64_t linger_ns, int64_t grace_ns);
int moving_parting(struct membership *m, bool *votes);
/* When an agent that votes only has something to do. */
struct instant moving_leave_deadline(const struct transport *c);

/* --- moving_peers.c --- */

void moving_peers_send(struct transport *c, const char *address, uint16_t port, const struct voter *to,
                       const struct takeover_message *message, struct instant now);
/* The next message of a peer in c->frame; its peer, or NULL: there is none. */
struct moving_peer *moving_peers_receive(struct transport *c);
/* Closes connections that were not used for long. */
void moving_peers_tend(struct transport *c, struct instant now);
void moving_peers_close(struct transport *c);

#endif
