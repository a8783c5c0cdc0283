/* cluster_internal.h - the state of a simulated cluster, shared by its own files: cluster.c (making it, and
 * what happens when), cluster_agent.c (an agent), cluster_life.c (its start and end), cluster_workers.c,
 * cluster_server.c (the agent that serves), cluster_network.c, cluster_faults.c, cluster_queue.c,
 * cluster_invariants.c, cluster_liveness.c and cluster_term.c. */
#ifndef MUSTER_TESTS_SIMULATION_CLUSTER_INTERNAL_H
#define MUSTER_TESTS_SIMULATION_CLUSTER_INTERNAL_H

#include "launcher/policy/worker_group.h"
#include "rendezvous/client/client.h"
#include "rendezvous/client/report_queue.h"
#include "tests/simulation/cluster.h"

enum { LOCAL_SESSION = 1 };
enum direction { TO_SERVER, TO_AGENT };

enum node_phase { NODE_OFF, NODE_UP, NODE_EXITED };
enum worker_phase { WORKERS_NONE, WORKERS_STARTING, WORKERS_RUNNING, WORKERS_DONE, WORKERS_ENDING };

/* A node's own time: local = offset + real time at its own rate. */
struct node_clock {
    int64_t offset_ns; /* grows with a leap, shrinks with a suspension */
    int drift_ppm;
};

/* The roster that an agent serves, and its transport's state. */
struct server {
    struct roster *roster;
    struct roster_actions actions;
    struct instant tick_at;   /* real time; of the tick that is scheduled */
    struct event_queue local; /* for the agent itself */
    bool local_woken;
    int local_slot;
    uint64_t slot_session[CLUSTER_NODE_LIMIT]; /* by slot: the session that was accepted there last, if it has
                                          not broken */
    bool closing;                              /* its agent has gone, and it lingers for the others */
    bool held;                                 /* closing: until they have stopped */
    enum roster_job_state state;               /* as far as the invariants saw it, and since when */
    struct instant state_since;
};

struct node {
    enum node_phase phase;
    int exit_code;
    struct instant exited_at, ended_at; /* ended_at: also without a word */
    unsigned life;         /* grows with every start and end: events for an earlier life are void */
    uint64_t start_number; /* counts the starts of the job's agents */
    int claimed_rank;
    int named_after; /* the node whose name it bears; its own number but for a twin */
    struct agent_incarnation incarnation;
    char name[16];
    struct node_clock clock;
    struct instant frozen_until;
    bool stuck;    /* its workers survive KILL */
    bool replaced; /* by a twin */
    bool foreign;  /* another job's */
    bool hurried;  /* its clock leapt while its workers had time to end: it may think that they cannot be
                      killed */
    /* the agent: its table, and its membership as membership.c keeps it */
    struct worker_group group;
    struct instant group_at; /* real time; of the deadline that is scheduled */
    bool terminated;         /* has had a TERM */
    bool gone;               /* for good */
    struct instant asked_at; /* terminated: when, and how long it may take to go, unless it stands still */
    int64_t leaving_ns;
    bool judged, membership_left, membership_over;
    int verdict; /* judged: the verdict it received */
    struct world_id current;
    uint64_t sequence;          /* a serving agent's last report's */
    struct client *client;      /* NULL: the serving agent, or one without a membership */
    struct instant turn_at;     /* real time; of its loop */
    struct instant received_at; /* its own; of the last message */
    int64_t patience_ns;        /* with a connection on which nothing comes */
    struct server *server;      /* NULL: it does not serve; kept when the agent has ended */
    /* votes: for its next server */
    struct roster_join past;
    struct report_queue reports; /* that no server has */
    struct instant seeks_since;
    bool stops;                    /* its workers were asked to stop */
    uint64_t numbers, server_life; /* of its last message; the server's whose member it is */
    /* its workers */
    enum worker_phase workers;
    unsigned batch; /* generation of workers: grows with every start and end of them */
    struct membership_world world;
    int failed;  /* this world's workers' */
    bool saving; /* they were told of a stop, and end by themselves */
    bool parted; /* it serves, or did, and reaches nobody */
    /* its way to the endpoint */
    bool cut[2];
    struct instant cut_at;      /* its messages arrive nowhere since then; never: it does arrive */
    struct instant stood_until; /* its clock */
    int64_t gap_ns;             /* of the last freeze, as its clock shows it */
    bool slept; /* its clock has stood since the server told it how things are: nobody counted its lease */
    struct instant not_before[2];
    unsigned connection;            /* grows when the network comes back */
    struct instant last_arrival[2]; /* the connection's, each way: in order */
    uint64_t sent[2];
    unsigned registration; /* grows when the server takes it, or asks it to register */
    uint64_t session;      /* that its connection is at the server */
    /* memory of the invariants */
    bool saw_world;
    struct world_id last_world;
};

enum happening_kind {
    HAPPEN_STEP,     /* the schedule's */
    HAPPEN_ARRIVE,   /* a message */
    HAPPEN_TURN,     /* a client's loop */
    HAPPEN_TICK,     /* the roster's */
    HAPPEN_LOCAL,    /* the serving agent finds its own server's messages */
    HAPPEN_STARTED,  /* workers run */
    HAPPEN_ENDED,    /* workers are gone */
    HAPPEN_DEADLINE, /* an agent's table's */
    HAPPEN_EXIT,     /* an agent has done its last */
    HAPPEN_CLOSE,    /* a server's linger is over */
    HAPPEN_BROKEN,   /* the server sees that a connection has ended */
    HAPPEN_CUT_SEEN, /* an agent sees that its connection has ended */
    HAPPEN_THAW,
    HAPPEN_LEASE_OVER, /* an agent that nobody hears must have stopped */
    HAPPEN_LEAVE_BY,   /* an agent that had a TERM must have gone */
    HAPPEN_SEEK,       /* votes: a member gives its server up */
    HAPPEN_GIVE_UP,    /* it has found no other server */
    HAPPEN_ELECT,      /* the voters elect another agent */
    HAPPEN_FOLLOW,     /* a member learns of it */
    HAPPEN_STEP_DOWN,  /* a server that no voter answers gives its office up */
    HAPPEN_REJOIN,     /* its network comes back */
    HAPPEN_CHOSEN,     /* the voters accept a proposal */
};

struct letter;

struct happening {
    struct instant at; /* real time */
    uint64_t order;    /* among events of one instant */
    enum happening_kind kind;
    enum step_kind step;
    int node;
    uint64_t server_life;             /* the server's life that a message is for */
    unsigned registration;            /* number of a WORLD that comes twice; 0: any other message */
    unsigned life, connection, batch; /* connection 0: it had arrived before that broke */
    enum direction direction;
    int64_t value;         /* the step's */
    int phase;             /* the step's: 1 + the job's state that it waits for, -1: has waited; 0: none */
    uint64_t session;      /* BROKEN, ARRIVE */
    struct instant sent;   /* ARRIVE */
    bool stale;            /* ARRIVE: of a connection that was closed */
    struct letter *letter; /* owned */
};

/* A message on its way: as much of it as its kind needs. */
struct letter {
    struct letter *next; /* in the pool */
    enum wire_kind kind;
    int exit_code, member, missing;
    int64_t grace_ns, lease_ns, restart_count;
    uint64_t number, epoch, sequence, proof;
    struct world_id id, server_done;
    struct rank_ranges done;
    bool server_works;
    enum membership_report_kind report;
    struct roster_join join;
    struct worker_failure *failure; /* REPORT of FAILED; owned */
    struct membership_event *event; /* EVENT; owned */
};

enum { WORLDS_KEPT = 4, WAITING_LIMIT = 16 };

/* A world as its members were told it, by group rank. */
struct seen_world {
    struct world_id id;      /* epoch 0: none */
    struct instant ended_at; /* the server has gone on; never: it has not */
    int nodes, size;
    struct {
        bool informed, done;
        int node, base, size, role, role_base, role_size;
        struct agent_incarnation incarnation;
        char master[16];
    } rank[CLUSTER_NODE_LIMIT];
};

/* A client's result when it sends. */
struct sim_link {
    struct cluster *cluster;
    int node;
};

struct session {
    int node, slot;
    uint64_t number; /* number of its last JOIN or beat that has arrived */
};

struct slot_of_heap {
    struct instant at;
    uint64_t order;
    uint32_t happening; /* its place in the pool */
};

struct cluster {
    struct cluster_options options;
    struct instant now;
    uint64_t events;
    struct node nodes[CLUSTER_NODE_LIMIT];
    int used; /* nodes that were ever started are below */
    uint64_t starts;
    struct sim_link links[CLUSTER_NODE_LIMIT];
    struct session *sessions; /* by number; the transport's state of them */
    uint64_t last_session, session_room;
    int endpoint;                             /* the node whose agent serves there, or did so last */
    uint64_t server_lives, server_lives_lost; /* in all, and until the last loss */
    uint64_t server_lives_lost_before;        /* that loss */
    struct world_record record, proposal;     /* votes: the last that was chosen; proposed */
    bool proposed;
    bool ran, elected;   /* votes: the record's world; its server was lost, and no record is chosen since */
    bool handed_over;    /* the server has left in order */
    bool leapt;          /* the serving node's clock: a wait for leases may have been too short */
    bool half_open;      /* connections to a server that vanished */
    bool replaced_ranks; /* static: a rank was claimed by more than one, and the workers of both may live */
    /* future events */
    struct slot_of_heap *heap;
    size_t heap_count, heap_room;
    struct happening *pool;
    uint32_t *pool_free;
    size_t pool_count, pool_room, free_count;
    uint64_t order;
    struct happening waiting[WAITING_LIMIT]; /* steps for a state of the job */
    int waiting_count;
    struct letter *letters;      /* free ones */
    struct wire_message message; /* scratch */
    bool calm;
    int64_t calm_run_ns;
    struct instant calm_at;
    /* memory of the invariants */
    bool changed;         /* since they were looked at */
    unsigned faults;      /* injected that may cost a restart */
    unsigned round_exits; /* workers that failed since the last world went out */
    unsigned misses;      /* messages that a peer is missed */
    unsigned losses;      /* nodes that vanished, or may have looked so */
    bool may_fail;        /* something was done that ends a job by design */
    bool hopeless;        /* an agent gave up when most voters had gone: there may be no next server */
    int64_t seen_restarts;
    int verdict;             /* the job's, -1: none yet */
    bool finished;           /* a verdict of 0 is out in this life of the server */
    struct world_id ending;  /* static: a member of it has said that it was asked to end; epoch 0: none has */
    struct world_id drained; /* the same, and that all are to save first */
    unsigned drained_faults; /* faults when it did */
    struct seen_world worlds[WORLDS_KEPT];
    unsigned worlds_seen;
    uint64_t ready;  /* bit i: node i could be in a world now; and since when it is these */
    int ready_nodes; /* how many they are */
    struct instant ready_since;
    enum invariant broken;
    char broken_text[512];
    struct buffer trace;
    uint64_t digest; /* kept with the trace: of facts that it does not have */
};

/* --- cluster.c --- */

void cluster_digest_roster(struct cluster *cluster, const struct roster *roster,
                           const struct roster_actions *actions);
void cluster_digest_client(struct cluster *cluster, const struct client *client, struct instant now);
void cluster_say(struct cluster *cluster, const struct node *node, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* block, or the end of the program. */
void *cluster_need(void *block);
/* A number that depends on the seed and these three alone, so that removing one step of a schedule leaves
 * the luck of the others as it was. */
uint64_t cluster_luck(const struct cluster *cluster, uint64_t a, uint64_t b, uint64_t c);

static inline struct instant node_time(const struct cluster *cluster, const struct node *node)
{
    int64_t real = cluster->now.ns;
    return (struct instant){node->clock.offset_ns + real + real / 1000000 * node->clock.drift_ppm};
}

/* When the node's clock shows local, or a little after; now where that is past. */
static inline struct instant real_time(const struct cluster *cluster, const struct node *node,
                                       struct instant local)
{
    if (local.ns == INT64_MAX)
        return local;
    int64_t at = local.ns - node->clock.offset_ns;
    if (node->clock.drift_ppm)
        at = at / (1000000 + node->clock.drift_ppm) * 1000000 + 2000000;
    return (struct instant){at > cluster->now.ns ? at : cluster->now.ns};
}

/* The endpoint's address is that of its machine. */
static inline bool is_at_endpoint(const struct cluster *cluster, int node)
{
    return cluster->options.votes ? node == cluster->endpoint : node == 0 || cluster->options.beside[node];
}

static inline bool is_frozen(const struct cluster *cluster, const struct node *node)
{
    return cluster->now.ns < node->frozen_until.ns;
}

static inline bool has_workers(const struct node *node)
{
    return node->workers != WORKERS_NONE && node->workers != WORKERS_DONE;
}

/* --- cluster_queue.c --- */

void cluster_schedule(struct cluster *cluster, const struct happening *happening);
/* Whether a message belongs to this node's present life and workers. */
void cluster_after(struct cluster *cluster, int64_t delay_ns, int node, enum happening_kind kind);
void cluster_at(struct cluster *cluster, struct instant at, int node, enum happening_kind kind);
struct happening cluster_pop(struct cluster *cluster); /* there is one */
void cluster_free_queue(struct cluster *cluster);

/* --- cluster_network.c --- */

bool cluster_client_sends(void *context, const struct wire_message *message);
void cluster_server_sends(struct cluster *cluster, int node, const struct wire_message *message);
void cluster_arrive(struct cluster *cluster, const struct happening *happening);
void cluster_new_connection(struct cluster *cluster, struct node *node);
/* The server sees that it is over, if it can. */
void cluster_break_connection(struct cluster *cluster, int node);
/* And so does the agent. */
void cluster_break_seen(struct cluster *cluster, int node);
void cluster_free_letter(struct cluster *cluster, struct letter *letter);

/* --- cluster_agent.c --- */

void cluster_agent_event(struct cluster *cluster, int node, const struct worker_group_event *event,
                         const struct worker_failure *failure);
/* Tells the table if none of its processes is left and it waits for that. */
void cluster_look_for_the_end(struct cluster *cluster, int node);
/* What became of the workers of its world, to the server. */
void cluster_report(struct cluster *cluster, int node, enum membership_report_kind kind,
                    const struct worker_failure *failure);
/* To its own roster, which was just made: the failures that no server has acknowledged. */
void cluster_report_again(struct cluster *cluster, int node);
/* As an agent does some time after its worker has lost a peer. */
void cluster_miss_peer(struct cluster *cluster, int node);
/* A membership's output. */
void cluster_take_event(struct cluster *cluster, int node, const struct membership_event *event);
void cluster_turn(struct cluster *cluster, int node);
/* After anything that may have changed when a client's loop is to look again. */
void cluster_plan_turn(struct cluster *cluster, int node);

/* --- cluster_life.c --- */

void cluster_start_agent(struct cluster *cluster, int node, int rank, int named_after);
/* Its membership in the present server's job, with its past. */
void cluster_open_client(struct cluster *cluster, int node);
struct roster_join cluster_join_of(const struct cluster *cluster, int node, bool local);
void cluster_add_past(const struct node *node, struct roster_join *join);
/* It is gone, with its workers. */
void cluster_end_agent(struct cluster *cluster, int node, int exit_code);
void cluster_exit_agent(struct cluster *cluster, int node);

/* --- cluster_workers.c --- */

void cluster_set_workers(struct cluster *cluster, struct node *node, enum worker_phase phase);
void cluster_start_workers(struct cluster *cluster, int node);
/* They are told to end, to save first, and killed. */
void cluster_stop_workers(struct cluster *cluster, int node);
void cluster_let_workers_save(struct cluster *cluster, int node);
void cluster_kill_workers(struct cluster *cluster, int node);
void cluster_workers_started(struct cluster *cluster, int node);
void cluster_workers_ended(struct cluster *cluster, int node);
void cluster_fail_worker(struct cluster *cluster, int node, bool follows);
void cluster_finish_workers(struct cluster *cluster, int node);

/* --- cluster_server.c --- */

/* NULL where nobody serves at the endpoint. */
struct server *cluster_server(struct cluster *cluster);
void cluster_open_server(struct cluster *cluster, int node, const struct roster_join *join);
void cluster_free_server(struct server *server);
/* Its agent has gone: it stays until the others have, for a while. */
void cluster_close_server(struct cluster *cluster, int node);
/* The serving agent's own word. */
void cluster_local_step(struct cluster *cluster, int node, struct roster_event *event);
void cluster_local_events(struct cluster *cluster, int node);
void cluster_server_receives(struct cluster *cluster, uint64_t session, const struct wire_message *message);
void cluster_tick(struct cluster *cluster, int node);
/* Its process stood still, or its clock leapt. gap_ns: as its clock shows it. */
void cluster_wake_server(struct cluster *cluster, int node, int64_t gap_ns);
void cluster_connection_broken(struct cluster *cluster, uint64_t session);

/* --- cluster_moving.c --- */

/* Whether another agent takes over where the serving one is lost. */
bool cluster_has_successor(const struct cluster *cluster);
/* The serving agent has ended. seen: its connections broke. */
void cluster_lose_server(struct cluster *cluster, bool seen);
/* An agent has HANDOVER: the server has left. */
void cluster_hand_over(struct cluster *cluster, int node);
/* The serving agent reaches nobody for so long. */
void cluster_part_server(struct cluster *cluster, int64_t for_ns);
void cluster_step_down(struct cluster *cluster, int node);
/* An agent that serves, or did, reaches the others again. */
void cluster_server_returns(struct cluster *cluster, int node);
/* An agent has no server: it stops its workers, and looks for one. */
void cluster_look(struct cluster *cluster, int node);
void cluster_seek(struct cluster *cluster, int node);
void cluster_give_up(struct cluster *cluster, int node);
void cluster_elect(struct cluster *cluster);
void cluster_meet_server(struct cluster *cluster, int node);
/* The roster's proposal; the voters' answer. */
void cluster_propose(struct cluster *cluster, int node);
void cluster_choose(struct cluster *cluster, int node);
void cluster_revise_voters(struct cluster *cluster, int node);

/* --- cluster_faults.c --- */

/* Nobody starts its agents again. */
bool cluster_is_over(const struct cluster *cluster);
void cluster_do_step(struct cluster *cluster, const struct happening *happening);
/* The job has come into this state: events that waited for it happen in a moment. */
void cluster_enter(struct cluster *cluster, enum roster_job_state state);
void cluster_thaw(struct cluster *cluster, int node);
/* The time of its table may have come, by its own clock. */
void cluster_deadline(struct cluster *cluster, int node);

/* --- cluster_invariants.c --- */

void cluster_break(struct cluster *cluster, enum invariant invariant, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void cluster_check(struct cluster *cluster);
/* The server goes on from this world. */
void cluster_note_ended(struct cluster *cluster, struct world_id id);
void cluster_check_refusal(struct cluster *cluster, int node, const char *reason);
/* A world was given to a node; checks it against the others' worlds. */
void cluster_check_world(struct cluster *cluster, int node, const struct membership_world *world);
/* The workers of a node exited 0. */
void cluster_note_done(struct cluster *cluster, int node);
void cluster_check_verdict(struct cluster *cluster, int node, const struct membership_event *verdict);
/* The agent was cut off for a lease. */
void cluster_check_lease(struct cluster *cluster, int node);

/* --- cluster_liveness.c --- */

void cluster_check_progress(struct cluster *cluster);
void cluster_count_ready(struct cluster *cluster);

/* --- cluster_term.c --- */

/* It is asked to end, and must have gone in time. */
void cluster_expect_leave(struct cluster *cluster, int node);
void cluster_check_leave(struct cluster *cluster, int node);
/* An agent's message to the server, before it arrives. */
void cluster_note_word(struct cluster *cluster, const struct roster_event *event);
/* A stop or a verdict reaches a node whose workers run. */
void cluster_check_notice(struct cluster *cluster, int node, const struct membership_event *event);

#endif
