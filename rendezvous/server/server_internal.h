/* server_internal.h - the serving agent's transport, shared by its own files only: transport_server.c (the
 * agent's side), server_loop.c (the thread's turn: connections, commands, time) and server_sessions.c
 * (messages and the roster's steps).
 *
 * A thread of its own owns the ROUTER socket, the roster and the routes; no other thread touches them
 * after it has started. The agent's calls become commands in a list, the roster's answers to it become
 * events in a queue; a mutex guards both, and an eventfd each way wakes the other side. The thread blocks
 * all signals and does no file I/O except for the log sink. */
#ifndef MUSTER_RENDEZVOUS_SERVER_SERVER_INTERNAL_H
#define MUSTER_RENDEZVOUS_SERVER_SERVER_INTERNAL_H

#include <pthread.h>
#include <sys/eventfd.h>

#include "rendezvous/net/nap.h"
#include "rendezvous/server/admission.h"
#include "rendezvous/server/inflow.h"
#include "rendezvous/server/routes.h"
#include "rendezvous/transport/transport.h"
#include "rendezvous/wire/wire.h"
#include "rendezvous/zmq/zmq_socket.h"

enum { SERVER_LOCAL_SESSION = 1 }; /* of the agent itself */

struct command {
    struct command *next;
    struct roster_event event; /* report.failure points at failure below */
    struct worker_failure failure;
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
    struct roster *roster;
    struct roster_actions actions;
    struct routes routes;
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
    bool other_program_reported;
    struct world_id announced;          /* the last world that was announced */
    char progress[WIRE_PROGRESS_LIMIT]; /* written under lock */
    struct admission admission;
    struct inflow inflow;
    struct instant trim_at; /* memory of connections that were closed is given back */
    int suspect;            /* slot whose connection has ended, but not yet its route */
    uint64_t suspect_session;
    struct instant confirm_at;
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
    int64_t linger_ns;         /* closing */
    struct instant close_deadline;
    int others; /* remaining members */
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

/* One event of the roster and all actions of its step. Returns how many actions it had. */
size_t server_step(struct transport *c, const struct roster_event *event, const struct sender *from);
/* Whether an unsolicited message can no longer be sent to the slot; server_drop_broken does the rest. */
bool server_is_cut_off(struct transport *c, int slot);
/* Bounded, so that a peer that never stops cannot keep the clock from being read. Peers are read in turn:
 * each live one has been received by then. Whether nothing is left. */
bool server_receive_many(struct transport *c);
/* The roster gets the end of connections when all that was received on them has been read. */
void server_drop_broken(struct transport *c);

/* A note of a member for the agent; dropped where too many wait. */
void server_keep_note(struct transport *c, int member, const char *data, size_t length);

/* --- server_loop.c --- */

/* The thread; context is the transport. */
void *server_serve(void *context);

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
