/* transport.h - shared by the three transports of a membership: the object of struct membership and its table
 * of operations. Internal to rendezvous/. */
#ifndef MUSTER_RENDEZVOUS_TRANSPORT_TRANSPORT_H
#define MUSTER_RENDEZVOUS_TRANSPORT_TRANSPORT_H

#include "rendezvous/roster/roster.h"
#include "rendezvous/roster/world.h"
#include "rendezvous/transport/membership_options.h"

struct transport; /* state of one transport; each defines its own */
struct wire_message;
struct report_queue;

/* How a client informs the transport that it is a part of. All are called from the agent's thread. */
struct transport_hooks {
    /* A message of the server, before the client gets it. False: it does not. */
    bool (*received)(void *context, struct wire_message *message);
    /* The connection has ended, or nothing arrives on it. */
    void (*broken)(void *context);
    void *context;
    const struct world_record *known; /* sent with each JOIN; lives as long as the client; epoch 0: none */
    const struct roster_join *past;   /* the agent's past; read when the client is opened */
    bool stops;                       /* its workers were asked to stop; the same */
    uint64_t sequence;                /* of the agent's last report; the same */
    uint64_t numbers;                 /* of its last JOIN or beat; the same */
    struct report_queue *reports;     /* the agent's reports that no server has; it outlives the client */
};

/* membership.h has the contracts. membership.c has already checked arguments, dropped stale reports and
 * numbered the others; it tracks the events given out. */
struct transport_operations {
    int (*fd)(const struct membership *m);
    struct instant (*deadline)(const struct membership *m);
    int (*next)(struct membership *m, struct membership_event *event, struct muster_error *err);
    int (*report)(struct membership *m, struct world_id id, enum membership_report_kind kind,
                  const struct worker_failure *failure, struct muster_error *err);
    int (*leave)(struct membership *m, int exit_code, struct muster_error *err);
    /* NULL in process: such a world is static and never waits */
    int (*drain)(struct membership *m, int exit_code, int64_t grace_ns, struct muster_error *err);
    int (*evict)(struct membership *m, const struct membership_evict *request, struct muster_error *err);
    void (*miss)(struct membership *m, int rank);  /* NULL in process */
    void (*ended)(struct membership *m, int rank); /* the same */
    /* NULL but for clients */
    int64_t (*silence)(const struct membership *m);
    bool (*has_news)(const struct membership *m);
    void (*note)(struct membership *m, const char *data, size_t length);
    uint64_t (*notes_wanted)(const struct membership *m);
    int (*move)(struct membership *m, const char *host, struct muster_error *err);
    /* NULL but for moving ones */
    const char *(*server)(const struct membership *m);
    void (*serving)(const struct membership *m, struct membership_serving *out);
    bool (*seeks)(const struct membership *m);
    void (*ask)(struct membership *m, const char *address, uint16_t port);
    void (*progress)(const struct membership *m, char *out, size_t size);
    /* NULL but for servers */
    void (*part)(struct membership *m, int64_t linger_ns, int64_t grace_ns);
    int (*parting)(struct membership *m, bool *votes);
    bool (*take_note)(struct membership *m, struct membership_note *out);
    void (*close)(struct membership *m, int64_t linger_ns); /* frees the transport */
};

/* At all times: current is the world of the last WORLD or STOP that membership_next gave out and that has
 * not been reported STOPPED; 0,0 otherwise. */
struct membership {
    const struct transport_operations *operations;
    struct transport *transport;
    struct membership_options options; /* texts are owned copies; keys is NULL or points to keys below */
    struct job_keys keys;
    struct agent_incarnation incarnation;
    struct world_id current;
    uint64_t sequence; /* number of the last report */
    bool left, over;   /* over: VERDICT or REFUSED was given out, or the membership is lost */
    const struct transport_hooks *hooks; /* set for clients */
};

/* Each opens its transport into m, which is otherwise complete. */
int transport_local_open(struct membership *m, struct muster_error *err);
int transport_client_open(struct membership *m, struct muster_error *err);
/* As a server or a client, by m's mode; other agents may take over later. */
int transport_moving_open(struct membership *m, struct muster_error *err);

/* Fills out with random bytes of the kernel. */
int transport_random_bytes(void *out, size_t size, struct muster_error *err);
/* The JOIN of m; its texts point into m. */
struct roster_join membership_join(const struct membership *m, bool local);
/* The roster for m's options, with a fresh epoch; hosted by the process and server transports. known: the
 * newest record of the job's worlds (epoch 0: none); NULL: a world in process, which does not vote. lost:
 * this agent was in a world of the job, and begins again without this voter; NULL: none. */
struct roster *membership_make_roster(const struct membership *m, const struct world_record *known,
                                      const struct voter *lost, struct muster_error *err);

/* After each step of a hosted roster and before its actions are executed: calls world_forms if a world
 * other than *announced was formed. */
void membership_announce(const struct membership_options *options, struct roster *roster,
                         struct world_id *announced);

/* Events between a transport and its caller. Few can wait: each WORLD, STOP and VERDICT needs an answer
 * before the next. */
enum { EVENT_QUEUE_LIMIT = 8 };
struct event_queue {
    unsigned first, count;
    struct membership_event events[EVENT_QUEUE_LIMIT];
};
/* The slot of a new last event, or NULL if the queue is full. */
struct membership_event *event_queue_push(struct event_queue *queue);
/* Whether there was one. */
bool event_queue_pop(struct event_queue *queue, struct membership_event *event);

#endif
