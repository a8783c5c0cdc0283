/* cluster_internal.h - the state of a simulated cluster, shared by cluster.c (what happens), cluster_queue.c,
 * cluster_script.c (what is asked for) and cluster_invariants.c (what must hold). */
#ifndef MUSTER_TESTS_SIMULATION_CLUSTER_INTERNAL_H
#define MUSTER_TESTS_SIMULATION_CLUSTER_INTERNAL_H

#include "rendezvous/client.h"
#include "tests/simulation/cluster.h"

enum node_phase { NODE_OFF, NODE_UP, NODE_EXITED };
enum worker_phase { WORKERS_NONE, WORKERS_STARTING, WORKERS_RUNNING, WORKERS_DONE, WORKERS_STOPPING };

struct node {
    enum node_phase phase;
    int exit_code;
    struct instant exited_at; /* with a word */
    unsigned life; /* grows with every start and end: what was scheduled for an earlier life is void */
    int claimed_rank;
    struct roster_incarnation incarnation;
    char name[16];
    struct client *client;  /* NULL: the serving agent, or one without a seat */
    struct instant turn_at; /* of its loop */
    bool cut;
    struct instant cut_at;
    uint64_t number; /* of its last JOIN or beat that reached the server */
    struct instant frozen_until;
    bool draining;                  /* has sent a drain, and waits for the STOP or goes after a second */
    unsigned connection;            /* grows when the network comes back */
    struct instant last_arrival[2]; /* of the connection, each way: in order */
    /* the serving side of its connection */
    uint64_t session;
    int slot;
    /* its workers */
    enum worker_phase workers;
    unsigned batch; /* of workers: grows with every start of them */
    struct membership_world world;
    uint32_t highest_round;
    bool saw_world;
    int verdict; /* -1: none */
};

enum { LOCAL_SESSION = 1, KILLED = 137 };

enum happening_kind {
    HAPPEN_START,
    HAPPEN_CRASH,
    HAPPEN_CUT,
    HAPPEN_HEAL,
    HAPPEN_BREAK,
    HAPPEN_BROKEN, /* the server sees that a connection has ended */
    HAPPEN_FREEZE,
    HAPPEN_THAW,
    HAPPEN_KILL,
    HAPPEN_FOLLOW,
    HAPPEN_FINISH,
    HAPPEN_TERM,
    HAPPEN_UNANSWERED, /* a drain */
    HAPPEN_CALM,
    HAPPEN_ARRIVE, /* a message */
    HAPPEN_TURN,   /* a client's loop */
    HAPPEN_TICK,   /* the roster's */
    HAPPEN_STARTED,
    HAPPEN_STOPPED,
    HAPPEN_EXIT,
};

struct happening {
    struct instant at;
    uint64_t order; /* among those of one instant */
    enum happening_kind kind;
    int node, rank;
    unsigned life, connection, batch;
    bool to_server;
    int64_t value;
    uint64_t session;             /* BROKEN */
    struct wire_message *message; /* owned; only as much of it as its kind needs */
};

enum { WORLDS_KEPT = 4 };

/* A world as its members were told it, by group rank. */
struct seen_world {
    struct world_id id; /* epoch 0: none */
    int nodes, size;
    struct {
        bool told, done;
        int node, base, size;
        struct roster_incarnation incarnation;
    } rank[CLUSTER_NODE_LIMIT];
};

/* What a client hands back when it sends. */
struct sim_link {
    struct cluster *cluster;
    int node;
};

struct cluster {
    struct cluster_options options;
    uint64_t random;
    struct instant now;
    struct roster *roster;
    struct roster_actions actions;
    struct node nodes[CLUSTER_NODE_LIMIT];
    int used; /* nodes that were ever started are below */
    struct sim_link links[CLUSTER_NODE_LIMIT];
    uint64_t last_session;
    int server_lives;
    struct happening *heap;
    size_t count, capacity;
    uint64_t order;
    bool calm;
    int64_t calm_run_ns;
    struct instant tick_at;
    /* what the invariants remember */
    unsigned faults; /* injected, that may cost a restart */
    int64_t seen_restarts;
    int verdict; /* the job's, -1: none yet */
    struct seen_world worlds[WORLDS_KEPT];
    unsigned worlds_seen;
    int ready_nodes; /* that could form a world now, and since when there are so many */
    struct instant ready_since;
    enum roster_job_state state;
    struct instant state_since;
    char broken[512];
    struct buffer trace;
};

/* Whether the roster stands still: who serves has crashed, or has left an elastic job. */
static inline bool cluster_has_no_server(const struct cluster *cluster)
{
    const struct node *server = &cluster->nodes[0];
    return server->phase != NODE_UP && (cluster->options.elastic || server->exit_code == KILLED);
}

/* cluster_script.c: the server starts, and knows nothing */
void cluster_make_roster(struct cluster *cluster);

/* cluster_queue.c */
void cluster_schedule(struct cluster *cluster, struct happening happening);
struct happening cluster_pop(struct cluster *cluster); /* there is one */
uint64_t cluster_draw(struct cluster *cluster);        /* the next number of its seed */
/* block, or the end of the program. */
void *cluster_need(void *block);

/* cluster_invariants.c */
void cluster_check(struct cluster *cluster);
/* A world was given to a node; checks it against what the others have. */
void cluster_check_world(struct cluster *cluster, int node, const struct membership_world *world);
/* The workers of a node exited 0. */
void cluster_note_done(struct cluster *cluster, int node);
void cluster_check_verdict(struct cluster *cluster, int node, int exit_code);
void cluster_break(struct cluster *cluster, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
