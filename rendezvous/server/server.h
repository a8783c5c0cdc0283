/* server.h - an agent's ROUTER and its thread, for the moving transport.
 *
 * The thread of an agent that takes part in votes lives from the first vote to the end of the membership.
 * With a roster it serves the job. Without one it answers heartbeats with "register again", and hands each
 * JOIN to the agent. Votes are handed to the agent in both cases. All calls are from the agent's thread. */
#ifndef MUSTER_RENDEZVOUS_SERVER_SERVER_H
#define MUSTER_RENDEZVOUS_SERVER_SERVER_H

#include "rendezvous/takeover/record.h"
#include "rendezvous/transport/transport.h"

struct wire_message; /* rendezvous/wire/wire.h */

/* A vote, or the JOIN of an agent that has to learn the server first. Sound as wire_decode sees it. */
struct server_frame {
    struct server_frame *next;
    unsigned char id[16]; /* its route */
    size_t id_size;
    char address[RECORD_ADDRESS]; /* where it came from; "": unknown */
    size_t size;
    unsigned char data[];
};

/* Opens the ROUTER and the thread at m's host and port, without a roster. */
int server_open_for_votes(struct membership *m, struct muster_error *err);

/* The agent's office, as ACCEPT and WORLD have it for the members. Copied. */
struct server_office {
    struct voter self;
    struct ballot ballot;
    struct world_record known; /* epoch 0: none */
};

/* Begins to serve: takes the roster, also if it fails. past: the agent's own JOIN. */
int server_serve(struct membership *m, struct roster *roster, const struct roster_join *past,
                 const struct server_office *office, struct muster_error *err);
/* Serves no longer: the roster and its events are gone. */
int server_cease(struct membership *m, struct muster_error *err);
/* The voters have chosen the record: of the proposed world, or of other voters for the world in office. */
int server_chosen(struct membership *m, const struct world_record *record, struct muster_error *err);
/* A world that is to be proposed; revises: only its voters, for the round in office. Whether there was one.
 */
bool server_take_proposal(struct membership *m, struct world_record *out, bool *revises);
/* The next frame, the caller's (mem_free); NULL: none. */
struct server_frame *server_take_frame(struct membership *m);
/* Answers a frame on its route, if that is still there. */
int server_answer(struct membership *m, const struct server_frame *frame, const struct wire_message *message,
                  struct muster_error *err);
/* The job has ended well, and a node that was lost may still look for its server. */
bool server_misses_a_node(const struct membership *m);
/* As its part, for an agent that votes afterwards: the roster goes, and the thread stays. server_has_retired:
 * whether the others have left, or the linger is over. */
void server_retire(struct membership *m, int64_t linger_ns);
bool server_has_retired(const struct membership *m);
/* After its part: whether the thread has ended. */
bool server_has_ended(const struct membership *m);
/* A voter that has sent something since the last call. Whether there was one. */
bool server_take_heard(struct membership *m, struct agent_incarnation *out);

#endif
