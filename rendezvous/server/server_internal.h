/* server_internal.h - the serving agent's transport, shared by its own files only: transport_server.c (the
 * agent's side), server_loop.c (the thread's turn: connections, commands, time), server_sessions.c
 * (messages and the roster's steps) and server_votes.c (server.h).
 *
 * A thread of its own owns the ROUTER socket, the roster and the routes; no other thread touches them
 * after it has started. The agent's calls become commands in a list, the roster's answers to it become
 * events in a queue; a mutex guards both, and an eventfd each way wakes the other side. The thread blocks
 * all signals and does no file I/O except for the log sink. */
#ifndef MUSTER_RENDEZVOUS_SERVER_SERVER_INTERNAL_H
#define MUSTER_RENDEZVOUS_SERVER_SERVER_INTERNAL_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/eventfd.h>

#include "proto/base/clock.h"
#include "proto/base/log.h"
#include "proto/include/muster_error.h"
#include "rendezvous/net/nap.h"
#include "rendezvous/security/rejection_log.h"
#include "rendezvous/server/server.h"
#include "rendezvous/transport/transport.h"
#include "rendezvous/wire/wire.h"
#include "rendezvous/zmq/zmq_socket.h"

/* ---- routes.c: the serving agent's map between ZeroMQ routing ids and the slots of the roster ----
 *
 * Routing ids are given by libzmq and have no meaning; a route exists from the ACCEPT of a session to its
 * end, so there are never more routes than slots, however many unauthenticated peers connect. Every
 * operation is O(1). */

enum { ROUTE_ID_LIMIT = 16 }; /* automatic ids have 5 bytes */

struct route {
    uint64_t session; /* 0: no route */
    unsigned char id[ROUTE_ID_LIMIT];
    size_t id_size;
    int fd;            /* descriptor of its connection; -1: unknown */
    bool broken;       /* a send to it has failed; earlier messages from it may still be unread */
    int next, next_fd; /* slot in the same bucket, -1: none */
};

struct routes {
    struct route *slots;
    int *buckets, *fd_buckets; /* first slot, -1: none */
    int slot_count, bucket_count;
};

int routes_init(struct routes *routes, int slot_count, struct muster_error *err);
void routes_free(struct routes *routes);
/* The slot of the id, or -1. */
int routes_find(const struct routes *routes, const void *id, size_t id_size);
/* The slot whose connection has the descriptor, or -1. */
int routes_find_fd(const struct routes *routes, int fd);
/* Replaces the slot's route. id_size <= ROUTE_ID_LIMIT. */
void routes_set(struct routes *routes, int slot, uint64_t session, const void *id, size_t id_size, int fd);
/* Removes the slot's route if it is the session's. */
void routes_remove(struct routes *routes, int slot, uint64_t session);

/* ---- admission.c: connection admission: ZAP handler, connection limits, rejection log (rejection_log.h).
 * For the thread that owns the server's sockets ----
 *
 * A connection is identified by its descriptor from its acceptance on. Its address is read at that moment.
 * If the connection has already gone, or its number was reused, the address is missing or that of the next
 * connection.
 *
 * libzmq accepts up to the last descriptor of the process, and then the agent could start no worker. So
 * above the limit the oldest connection that has sent nothing is closed: an agent greets and sends JOIN at
 * once, and stays. */

struct admission_slot {
    bool open, active;    /* active: a message was received */
    bool evicted;         /* it was shut down, and is not closed yet */
    bool late;            /* the same: it had not registered in time */
    bool endless;         /* shut down, and logged: its message had no end */
    uint16_t port;        /* the peer's port */
    struct instant since; /* it was accepted, or passed over */
    int newer, older;     /* neighbours among the idle connections, by descriptor; -1: none */
    char address[REJECTION_ADDRESS_SIZE];
};

/* Zeroed but for the first part. */
struct admission {
    const unsigned char *client_public; /* key of the job; NULL: no secret */
    const struct log_sink *log;
    unsigned open_limit; /* without a secret: new connections are rejected while more connections that have
                            sent something are open */
    unsigned full_at;    /* while so many are open, each new connection closes the oldest idle one */
    int64_t patience_ns; /* a connection that has sent no message for so long is closed */

    struct admission_slot *slots; /* by descriptor */
    size_t slot_count;
    unsigned open, evicted, silent;
    int newest, oldest;  /* idle slot; -1: none */
    unsigned denied;     /* rejected and not yet closed */
    int greeted;         /* connections that have greeted and sent no message yet; below 0: a message was read
                            before libzmq's report of its greeting */
    int pending;         /* enum rejection of the connection that is about to be closed; -1: unknown */
    unsigned looks_left; /* so many more are no unknown peers */
    struct rejection_log rejections;
};

/* descriptors: this process's limit, of which connections get half, or more if the job needs more. nodes: of
 * the job, which may have more slots than that. */
void admission_init(struct admission *admission, const unsigned char *client_public, int nodes, int slots,
                    uint64_t descriptors, const struct log_sink *log);
/* An event of the server's socket. */
void admission_watch(struct admission *admission, int event, int value, struct instant now);
/* The address of a connection's other end; "" if unknown. */
const char *admission_address(const struct admission *admission, int fd);
/* The connection is closed: it sends a message without an end. */
void admission_close_endless(struct admission *admission, int fd, struct instant now);
/* A message was received on the connection; -1: unknown. */
void admission_note_active(struct admission *admission, int fd);
/* Answers a bounded number of waiting ZAP requests. Returns how many. */
size_t admission_answer(struct admission *admission, const struct zmq_socket *s, struct instant now);
/* Closes connections that have not registered in time, and logs all due lines; admission_deadline is the time
 * of the next. */
void admission_tick(struct admission *admission, struct instant now);
struct instant admission_deadline(const struct admission *admission);
/* "; connections that were refused: ..." if there were any; NUL-terminated, nothing if it does not fit. */
void admission_describe(const struct admission *admission, char *out, size_t size);
/* Logs the totals, if there are any, and frees. */
void admission_close(struct admission *admission);

/* ---- inflow.c: the bytes of each connection that libzmq still holds ----
 *
 * ZeroMQ bounds the size of a frame, not of a message, and hands over whole messages alone. A peer whose
 * message has no end fills the memory of its server unseen, 32 times over if the frames are empty. The kernel
 * counts the bytes received on a connection; libzmq holds the bytes that it has not delivered. Connections
 * are looked at a few milliseconds after they have sent something, and cost nothing while they are silent.
 *
 * For the thread that owns the server's sockets. Connections are known by their descriptors, as for
 * admission.c. */

enum {
    INFLOW_EACH = WIRE_FRAME_LIMIT + (16 << 10), /* the largest message, encrypted, and a part of the next */
    INFLOW_ALL = 256 << 10,                      /* bytes of all connections, plus for each slot: */
    INFLOW_ALL_PER_SLOT = 16 << 10,
};

struct inflow_row {
    bool open, busy; /* busy: it has sent something, and is looked at */
    bool delivered;  /* a message of it, since the last look */
    uint8_t waits;   /* looks in a row at which it held something and nothing was delivered; at most 2 */
    uint64_t seen;   /* bytes received at the last look */
    uint64_t base;   /* bytes of these that were delivered */
};

struct inflow {
    int epoll; /* readable when a connection has sent something new. -1: none */
    size_t limit;
    struct inflow_row *rows; /* by descriptor */
    size_t count;
    unsigned busy;
    uint64_t held; /* by all */
    struct instant look_at;
};

/* Without an epoll descriptor nothing is watched, with err filled. */
int inflow_init(struct inflow *inflow, int slots, struct muster_error *err);
/* Accepts a zeroed struct. */
void inflow_close(struct inflow *inflow);

void inflow_accepted(struct inflow *inflow, int fd);
void inflow_ended(struct inflow *inflow, int fd);
void inflow_delivered(struct inflow *inflow, int fd);
/* To be called when `epoll` is readable or look_at is reached, after all messages were received: reads the
 * kernel's counts. */
void inflow_look(struct inflow *inflow, struct instant now);
/* A connection that is to be closed: it held more than a message at two looks, between which all whole
 * messages were received, or most while all together hold too much. -1: none. It is forgotten. */
int inflow_excess(struct inflow *inflow);

/* pure: the kernel has received so many bytes on the row's connection, and `unread` of them are still its
 * own. */
void inflow_note(struct inflow *inflow, struct inflow_row *row, uint64_t received, uint64_t unread);

/* ---- the transport ---- */

enum { SERVER_LOCAL_SESSION = 1 }; /* session of the agent itself */

enum command_kind {
    COMMAND_EVENT,  /* of the roster */
    COMMAND_SERVE,  /* with a roster from now on */
    COMMAND_CEASE,  /* without it */
    COMMAND_CHOSEN, /* the voters have chosen office->known */
    COMMAND_ANSWER, /* send the bytes of frame on its route */
};

struct command {
    struct command *next;
    enum command_kind kind;
    struct roster_event event; /* report.failure points at failure below, join at join, evict at evict */
    struct worker_failure failure;
    struct roster_join join;
    struct membership_evict evict; /* its node is node */
    char node[MEMBERSHIP_NAME_LIMIT];
    struct roster *roster;        /* owned, as the following */
    struct server_office *office; /* SERVE, CHOSEN */
    struct server_frame *frame;
};

struct kept_note {
    struct kept_note *next;
    int member;
    size_t length;
    char data[];
};

/* Bytes of notes that may wait for the agent. */
enum { SERVER_NOTES_LIMIT = 4 << 20 };

struct transport {
    /* the thread's own */
    struct zmq_socket socket;
    struct roster *roster; /* NULL: it does not serve */
    struct roster_actions actions;
    struct routes routes;
    struct server_office office; /* while it serves */
    bool revision_asked;         /* for the world in office */
    bool elected;                /* it has taken the job over from another server */
    struct buffer frame;         /* scratch for sending */
    struct wire_message message; /* scratch for packing and unpacking */
    bool broken;                 /* there are broken routes */
    uint64_t last_session;
    int local_member;
    enum roster_job_state logged_state;
    unsigned complaints, rejections;
    size_t handled; /* messages and events of connections, in this turn */
    struct nap pace;
    char refused[MUSTER_ERROR_TEXT]; /* the last agent whose rejection was logged, and why */
    bool other_program_reported, other_size_reported, other_endpoints_reported;
    struct world_id announced;          /* the last world that was announced */
    char progress[WIRE_PROGRESS_LIMIT]; /* written under lock */
    struct admission admission;
    struct inflow inflow;
    struct instant trim_at; /* memory of connections that were closed is given back */
    int suspect;            /* slot whose connection has ended, but not yet its route */
    uint64_t suspect_session;
    struct instant confirm_at;
    struct instant turned_at;   /* server_now's last time, while there are nodes to judge */
    struct instant progress_at; /* when it may be computed again */
    const struct membership_options *options;
    const struct clock *clock;
    const struct log_sink *log;
    /* shared, under lock */
    pthread_mutex_t lock;
    struct command *first, **last;
    struct event_queue queue;
    struct kept_note *notes, **last_note;
    size_t notes_bytes;
    struct muster_error fatal; /* why the thread has ended early; code 0: it has not */
    bool closing, ended;       /* ended: the thread waits for no agent any more */
    bool retires, retired;     /* closing: of its roster alone; retired: that is over */
    /* votes */
    bool deaf; /* the agent serves no longer: events of the roster are dropped */
    struct server_frame *frames, **last_frame;
    int frame_count;
    bool proposed, revises; /* proposal is to be taken */
    struct world_record proposal;
    struct agent_incarnation heard[RECORD_VOTERS];
    int heard_count;
    int64_t linger_ns; /* closing */
    struct instant close_deadline;
    struct instant closing_at; /* closing */
    struct instant missed_at;  /* roster_last_missed */
    int others;                /* remaining members */
    /* the agent's own */
    int wake_fd, ready_fd; /* to the thread, to the agent */
    pthread_t thread;
    bool thread_started;
};

/* The session of a message. */
struct sender {
    uint64_t session;
    const void *id;
    size_t id_size;
    int fd;
};

/* --- server_sessions.c; all for the thread, or before it has started --- */

/* The time of each step and turn. After a freeze of this process the others' silence was ours, and some have
 * replaced their connections: the roster is woken before it receives the time. A freeze may strike between a
 * turn's wait and its step, so both measure from the time before. While there are nodes to judge, turns are
 * so frequent that a gap is a freeze. */
struct instant server_now(struct transport *c);
/* One event of the roster and all actions of its step. Returns how many actions it had. */
size_t server_step(struct transport *c, const struct roster_event *event, const struct sender *from);
/* Whether an unsolicited message can no longer be sent to the slot; server_drop_broken does the rest. */
bool server_is_cut_off(struct transport *c, int slot);
/* Bounded, so that a peer that never stops cannot keep the clock from being read. Peers are read in turn:
 * each live one has been received by then. Whether nothing is left. */
bool server_receive_many(struct transport *c);
/* The roster gets the end of connections when all that was received on them has been read. */
void server_drop_broken(struct transport *c);

/* The bytes of c->message in c->frame, to a route. */
int server_send(struct transport *c, const void *id, size_t id_size);
void server_complain(struct transport *c, const char *what);

/* --- server_votes.c; the thread's part --- */

/* Whether a decoded message is the agent's to answer, or of no use without a roster. Then it is dealt with.
 */
bool server_takes_for_agent(struct transport *c, const struct sender *peer, const void *data, size_t size);
/* A message of the member in a slot: if it is a voter, the agent learns that it lives. */
void server_note_voter(struct transport *c, int slot);
/* The roster's proposal, for the agent. */
void server_keep_proposal(struct transport *c, bool revises);
/* After a step: a spare may become a voter of the world in office, or the spare that is one has gone. */
void server_tend_voters(struct transport *c);
/* A command other than an event. */
void server_obey(struct transport *c, struct command *command);
/* The roster goes. */
void server_end_office(struct transport *c);
void server_free_command(struct command *command);

/* --- transport_server.c --- */

struct command *server_new_command(enum command_kind kind, struct muster_error *err);
void server_post(struct transport *c, struct command *command);
/* Under the lock: the agent's eventfd is silent if nothing waits for it. */
void server_settle_ready(struct transport *c);

/* --- server_loop.c --- */

/* The thread; context is the transport. */
void *server_run(void *context);

/* --- the two eventfds --- */

static inline void server_signal_fd(int fd)
{
    /* An eventfd's write can only fail if its counter is full, and then it is readable already. */
    (void)eventfd_write(fd, 1);
}

static inline void server_drain_fd(int fd)
{
    eventfd_t value;
    (void)eventfd_read(fd, &value); /* empty is fine: it is non-blocking */
}

#endif
