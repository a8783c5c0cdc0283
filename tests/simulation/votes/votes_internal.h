/* votes_internal.h - the simulated job of votes.h, shared by votes*.c only. */
#ifndef MUSTER_TESTS_SIMULATION_VOTES_INTERNAL_H
#define MUSTER_TESTS_SIMULATION_VOTES_INTERNAL_H

#include "tests/simulation/votes/votes.h"
#include "tests/support/walk.h"

enum votes_message_kind {
    VOTES_TAKEOVER, /* a message of the rules */
    VOTES_JOIN,     /* a member, or an agent that looks for the server */
    VOTES_ORDER,    /* the server's STOP or WORLD, repeated with each beat */
    VOTES_BROKEN,   /* the connection of a member ends */
};

struct votes_message {
    enum votes_message_kind kind;
    const struct voter *from;
    const struct world_record *known;
    struct takeover_message takeover; /* its pointers are to records and voters that last */
    uint32_t runs;                    /* JOIN: 1 + the round of its workers; 0: none */
    bool leaves;                      /* JOIN: it leaves; without workers it has left */
    bool stop;                        /* ORDER */
    bool left;                        /* ORDER: the server leaves: look for another */
};

enum votes_happening_kind { VOTES_ARRIVES, VOTES_TICKS, VOTES_FAULT };

struct votes_happening {
    int64_t at; /* ns */
    uint64_t order;
    enum votes_happening_kind kind;
    int node;
    int life; /* TICKS: of that start of the node */
    int fault;
    struct votes_message message;
};

/* A round with its members, of which a record has the voters only. */
struct votes_world {
    struct world_record record;
    int members[VOTES_NODES];
    struct agent_incarnation incarnations[VOTES_NODES];
    unsigned accepted; /* by which voters of the record before */
    bool chosen;
    struct votes_world *base; /* for a record that revises the voters: its round; else NULL */
};

struct votes_entry {
    bool here;
    struct agent_incarnation incarnation;
    const struct voter *voter;
    uint32_t runs;
    int64_t heard;
    struct agent_incarnation gone; /* the last agent that has left */
};

enum votes_phase { VOTES_GATHERS, VOTES_PROPOSES, VOTES_RUNS, VOTES_STOPS };

struct votes_node {
    bool up;
    int life;
    int64_t frozen_until, tick_at;
    struct takeover t;
    const struct voter *self;
    /* before the present step */
    bool follows;
    const struct voter *followed;
    struct ballot office;           /* of the followed */
    const struct votes_world *runs; /* its workers; NULL: none */
    bool stopping;
    const struct votes_world *starts; /* NULL: none */
    int64_t starts_at, stopped_at, stop_ns, report_at;
    bool leaves, left; /* left: it votes only */
    int64_t leave_at, back_ms;
    /* as a server */
    enum votes_phase phase;
    struct votes_entry entries[VOTES_NODES];
    int64_t since, enough_at, order_at, regroup_at;
};

struct votes_job {
    const struct votes_schedule *schedule;
    struct votes_outcome *outcome;
    bool trace;
    uint64_t random;
    int64_t now;
    struct instant instant;
    struct votes_node nodes[VOTES_NODES];
    struct voter voters[VOTES_NODES * VOTES_LIVES];
    int lives;                   /* starts, in all nodes together */
    unsigned reach[VOTES_NODES]; /* to which nodes messages arrive, a bit each */
    bool calm, ended;
    int drop_permille;
    int64_t calm_at, kill_at_chosen, kill_at_revision, kill_for_ms, dead_at;
    unsigned servers_lost, elections; /* quiet: agents that ended while they served; since the beginning */
    int64_t lost_at;                  /* quiet: the last of these, without a world since; 0: there was one */
    int told;                         /* kill_at_revision: the voter */
    bool tells_leaving;               /* kill_at_chosen: agents that leave know the round */
    int spare;                        /* when an agent was first to leave; -1: there was none */
    struct votes_world *worlds;
    int world_count;
    uint64_t epochs[8];
    int epoch_count;
    struct votes_happening *heap;
    int heap_count, heap_room;
    uint64_t order;
};

/* --- votes_network.c --- */
int64_t votes_below(uint64_t *random, int64_t limit);
void votes_say(const struct votes_job *job, int node, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void votes_push(struct votes_job *job, const struct votes_happening *happening);
/* A fault after so many milliseconds; < 0: none. */
void votes_later(struct votes_job *job, int64_t for_ms, enum votes_fault_kind kind, int node);
bool votes_pop(struct votes_job *job, struct votes_happening *happening);
void votes_send(struct votes_job *job, int from, int to, const struct votes_message *message);
int votes_node_of(const struct voter *voter);
/* A lasting copy of the record. */
struct votes_world *votes_keep(struct votes_job *job, const struct world_record *record);
/* The world that has the record: the first record of its round. */
const struct votes_world *votes_world_of(struct votes_job *job, const struct world_record *record);
/* A lasting copy of the voter. */
const struct voter *votes_keep_voter(struct votes_job *job, const struct voter *voter);

/* --- votes_node.c --- */
void votes_start(struct votes_job *job, int node);
void votes_crash(struct votes_job *job, int node);
/* The agent leaves in order; back_ms: after that it is started again; < 0: it is not. */
void votes_drain(struct votes_job *job, int node, int64_t back_ms);
/* Its workers have ended: it votes only. */
void votes_leave(struct votes_job *job, int node);
void votes_tick(struct votes_job *job, int node);
void votes_arrive(struct votes_job *job, int node, const struct votes_message *message);
/* The node that serves the newest round; -1: none. */
int votes_server(const struct votes_job *job);

/* --- votes_server.c --- */
void votes_server_begin(struct votes_job *job, int node);
void votes_server_joined(struct votes_job *job, int node, const struct votes_message *message);
void votes_server_turn(struct votes_job *job, int node);
/* Carries out the actions of a step of the rules. */
void votes_carry_out(struct votes_job *job, int node, const struct takeover_actions *actions);
bool votes_is_member(const struct votes_world *world, int node, struct agent_incarnation incarnation);
void votes_stop_workers(struct votes_job *job, int node);
void votes_want_workers(struct votes_job *job, int node, const struct votes_world *world);
const struct votes_world *votes_known(struct votes_job *job, int node);

/* --- votes_invariants.c --- */
void votes_break(struct votes_job *job, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* After a step of the node's rules. chosen: its own proposal was. */
void votes_check_knowledge(struct votes_job *job, int node, bool chosen);
/* The same; what the step has decided. */
void votes_check_office(struct votes_job *job, int node, const struct takeover_actions *actions);
/* The agent is about to end. */
void votes_note_end(struct votes_job *job, int node);
/* Workers of the node have started. */
void votes_check_training(struct votes_job *job, int node);
/* Whether a world runs; whether one can be expected. */
bool votes_trains(const struct votes_job *job, const struct votes_world *world);
bool votes_can_go_on(const struct votes_job *job);
/* Whether a voter of the newest record that may stand lives, and does not leave. */
bool votes_one_can_stand(const struct votes_job *job);

#endif
