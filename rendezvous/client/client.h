/* client.h - the protocol of a seat whose world is served elsewhere, without the socket: messages and the
 * time go in, messages and events come out. The ZeroMQ carrier and the simulator are two shells around it.
 *
 *   JOINING  JOIN goes out when there is a connection, and again every half second until ACCEPT or a refusal
 *   SEATED   beats both ways every half second, every second before the first world; AGAIN (the server does
 * not know this connection) leads back to JOINING
 *
 * What was reported is kept until the server has said that it arrived, so a connection that breaks loses
 * nothing; the server drops what it has seen by its sequence number. Each WORLD and each STOP is given out
 * once, however often it comes.
 *
 * A server that is lost, or has said FAREWELL, is looked for until the join timeout. Workers that cannot get
 * on without group rank 0's are stopped as soon as those are known to be gone (a STOP of the client's own).
 * In an elastic world the seat also holds a lease, from the sending of each beat that was answered, and
 * workers are stopped when it ends. In a static world nobody goes on without this node, so that workers of a
 * server that is only silent run on; but one that is gone when no restart is left ends the seat at once. */
#ifndef MUSTER_RENDEZVOUS_CLIENT_CLIENT_H
#define MUSTER_RENDEZVOUS_CLIENT_CLIENT_H

#include <stdbool.h>

#include "proto/base/clock.h"
#include "proto/include/muster_error.h"
#include "rendezvous/seat/transport.h"
#include "rendezvous/wire/wire.h"

enum { CLIENT_LOST_AFTER_MS = 2500, CLIENT_BEAT_MS = 500, CLIENT_WAITING_BEAT_MS = 1000 };

struct client_options {
    struct roster_join join; /* its texts must outlive the client; held is the client's own matter */
    int64_t join_timeout_ns;
    int64_t join_used_ns; /* of the first join's */
    int64_t max_restarts; /* static: a server that is lost with its workers is waited for while one is left */
    const char *server;   /* for messages: "10.0.0.1:23456"; must outlive the client */
    /* Hands a message to the connection. Whether it took it; false where there is none now. */
    bool (*send)(void *context, const struct wire_message *message);
    void *context;
};

struct client;

struct client *client_create(const struct client_options *options, struct instant now,
                             struct muster_error *err);
void client_destroy(struct client *client);

/* A message from the server. -1: it is not one that a server sends, or too many events wait. */
int client_receive(struct client *client, const struct wire_message *message, struct instant now,
                   struct muster_error *err);
/* Whether client_receive has room; where not, take events first. */
bool client_has_room(const struct client *client);
/* Sends what is due. Call after client_receive, at client_deadline, and when a connection may have come. -1:
 * the server is lost (MUSTER_E_PEER while a world is held, MUSTER_E_TIMEOUT while joining). */
int client_turn(struct client *client, struct instant now, struct muster_error *err);
/* The connection has ended, or there is none to be had: the server's process is gone, unless it is heard
 * again within a second, and the workers of group rank 0 with it, unless they are known to be done. */
void client_broken(struct client *client, struct instant now);
/* That was a guess, and there is a connection again. */
void client_reached(struct client *client);
/* Before the messages of one turn are received: after a freeze of this process the silence is our own, and
 * the server gets its full time to answer again. A lease that ended meanwhile has ended all the same. */
void client_wake(struct client *client, struct instant now);
/* Whether there was an event. */
bool client_take_event(struct client *client, struct membership_event *event);
/* When client_turn is due. Long ago where events wait. */
struct instant client_deadline(const struct client *client);

int client_report(struct client *client, struct world_id id, enum membership_report_kind kind,
                  const struct worker_failure *failure, struct instant now, struct muster_error *err);
/* Asks that all save and stop. Not repeated: the agent that gets no STOP for it goes alone. */
void client_drain(struct client *client, int exit_code, int64_t grace_ns);
/* When the server was last heard, as far as it counts (client_wake). */
struct instant client_heard(const struct client *client);
/* Whether there is no server at the other end any more, as far as is known. */
bool client_is_alone(const struct client *client, struct instant now);
/* Whether the last server that accepted us has said FAREWELL. */
bool client_server_left(const struct client *client);
/* How long the server was not heard, if long enough to miss it; else 0. */
int64_t client_silence_ns(const struct client *client, struct instant now);
/* Whether there is a report that the server has not taken note of yet. */
bool client_has_news(const struct client *client);
/* While the world forms, who is waited for, as the server says; "" where it says nothing. */
const char *client_progress(const struct client *client);
/* Whether the server has taken it at any time. */
bool client_was_seated(const struct client *client);
/* Nothing is sent after it. A leave without a connection is not heard. */
void client_leave(struct client *client, int exit_code);
/* Leaves with the verdict's code if there was a verdict and no leave: a server that is not told waits for
 * beats to end. */
void client_finish(struct client *client);

#endif
