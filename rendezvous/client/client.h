/* client.h - the protocol of a member whose world is served by another agent, without the socket: messages
 * and the time go in, messages and events come out. The ZeroMQ transport and the simulator are two shells
 * around it.
 *
 *   JOINING  JOIN goes out when there is a connection, and again until ACCEPT or a refusal
 *   JOINED   beats both ways, fewer before the first world (pace.h); AGAIN, from a server that does not know
 *            this connection, leads back to JOINING
 *
 * Reports are kept until the server has acknowledged them, so a broken connection loses nothing; the
 * server drops repeated ones by their sequence number. Each WORLD and each STOP is given out once, however
 * often it is received.
 *
 * A server that is lost, or has sent HANDOVER, is looked for until the join timeout. Workers that cannot
 * progress without group rank 0's are stopped as soon as those are known to be gone (a STOP of the
 * client's own). In an elastic world the member also holds a lease, from the sending of each answered
 * heartbeat, and workers are stopped when it ends. In a static world the job cannot continue without this
 * node, so the workers keep running while a server is merely silent; but a lost server without a restart
 * left ends the membership at once. */
#ifndef MUSTER_RENDEZVOUS_CLIENT_CLIENT_H
#define MUSTER_RENDEZVOUS_CLIENT_CLIENT_H

#include <stdbool.h>

#include "proto/base/clock.h"
#include "proto/include/muster_error.h"
#include "rendezvous/transport/transport.h"
#include "rendezvous/wire/wire.h"

struct client_options {
    struct roster_join join; /* its texts must outlive the client; the client maintains held itself */
    int64_t join_timeout_ns;
    int64_t join_used_ns; /* time of the first join that is already used */
    int64_t max_restarts; /* static: a server lost with its workers is waited for while a restart is left */
    const char *server;   /* for messages: "10.0.0.1:23456"; must outlive the client */
    /* Passes a message to the connection. Whether it was taken; false if there is none now. */
    bool (*send)(void *context, const struct wire_message *message);
    void *context;
    /* The job may move to another server: the newest record that this agent knows, for its JOINs (it outlives
     * the client; epoch 0 or one voter: none), and its past, read once. NULL: none */
    const struct world_record *known;
    const struct roster_join *past;
    bool stops;                   /* past: its workers were asked to stop */
    uint64_t sequence;            /* of its last report */
    struct report_queue *reports; /* its reports that are not acknowledged yet; it outlives the client */
    uint64_t numbers;             /* of its last JOIN or beat */
};

struct client;

struct client *client_create(const struct client_options *options, struct instant now,
                             struct muster_error *err);
void client_destroy(struct client *client);

/* A message from the server. -1: a message that no server sends, or too many events wait. */
int client_receive(struct client *client, const struct wire_message *message, struct instant now,
                   struct muster_error *err);
/* Whether client_receive has room; if not, take events first. */
bool client_has_room(const struct client *client);
/* Sends all due messages. Call after client_receive, at client_deadline, and when a connection may have
 * been established. -1: the server is lost (MUSTER_E_PEER while a world is held, MUSTER_E_TIMEOUT while
 * joining). */
int client_turn(struct client *client, struct instant now, struct muster_error *err);
/* The connection has ended, or cannot be established: the server's process is lost, unless a message
 * arrives within a second, and the workers of group rank 0 with it, unless they are known to be done. */
void client_broken(struct client *client, struct instant now);
/* There is a connection again: a server that was restarted learns of this member with the next turn, and not
 * with its next heartbeat. */
void client_connected(struct client *client, struct instant now);
/* That was wrong, and there is a connection again. */
void client_reached(struct client *client);
/* Before the messages of one turn are received: after a freeze of this process the silence is our own, and
 * the server gets its full time to answer again. A lease that ended during the freeze stays ended. */
void client_wake(struct client *client, struct instant now);
/* Whether there was an event. */
bool client_take_event(struct client *client, struct membership_event *event);
/* Fills the job's state in a JOIN: all except the identity. */
void client_fill_known(const struct client *client, struct roster_join *join);
/* Without a client: notes an event that the agent was given in its past, and whether its workers were asked
 * to stop. Other events than WORLD and STOP change nothing. */
void client_note_event(const struct membership_event *event, struct roster_join *past, bool *stops);
/* Whether it was in a world. */
bool client_had_world(const struct client *client);
/* The number of the last report. */
uint64_t client_sequence(const struct client *client);
uint64_t client_numbers(const struct client *client);
/* Whether others decide when the server is lost: then neither a lease nor its silence ends anything here. */
void client_set_voted(struct client *client, bool voted);
/* When client_turn is due. Long ago if events wait. */
struct instant client_deadline(const struct client *client);

int client_report(struct client *client, struct world_id id, enum membership_report_kind kind,
                  const struct worker_failure *failure, struct instant now, struct muster_error *err);
/* Requests that all save and stop. Not repeated: an agent that gets no STOP for it leaves alone. */
void client_drain(struct client *client, int exit_code, int64_t grace_ns);
/* Passes an operator's request to the server; a lost one is lost. */
void client_evict(struct client *client, const struct membership_evict *request);
/* A worker of this rank has lost a peer, of which no failure is known. Repeated by the caller. */
void client_miss(struct client *client, int rank, struct instant now);
/* A worker of this rank has exited 0 while others of this agent run: part of each heartbeat of this world.
 */
void client_ended(struct client *client, int rank);
/* Passes a note to the server, if it wants any and there is a connection; a lost one is lost. */
void client_note(struct client *client, const char *data, size_t length);
/* Not 0 while a server that wants notes has accepted us; another number after each acceptance (an epoch may
 * go on with another server). */
uint64_t client_notes_wanted(const struct client *client);
/* Time of the server's last message, as far as it counts (client_wake). */
struct instant client_last_received(const struct client *client);
/* The silence after which it is lost, in the present state. */
int64_t client_lost_after_ns(const struct client *client);
/* Whether the server is known to be lost. */
bool client_is_alone(const struct client *client, struct instant now);
/* Whether the last server that accepted us has sent HANDOVER. */
bool client_server_left(const struct client *client);
/* Time since the server's last message, if long enough to be unusual; else 0. */
int64_t client_silence_ns(const struct client *client, struct instant now);
/* Whether there is a report that the server has not acknowledged yet. */
bool client_has_news(const struct client *client);
/* While the world forms, the missing nodes as reported by the server; "" if it reports none. */
const char *client_progress(const struct client *client);
/* Whether a server has ever accepted this agent. */
bool client_has_joined(const struct client *client);
/* No message is sent after it. A leave without a connection is lost. */
void client_leave(struct client *client, int exit_code);
/* Leaves with the verdict's code if there was a verdict and no leave: otherwise the server would wait for
 * the heartbeats to time out. */
void client_finish(struct client *client);

#endif
