/* client_internal.h - the state of a client (client.h), shared by client*.c only.
 *
 *   client.c          its turn: incoming and outgoing messages, creation and end
 *   client_past.c     an agent's past, from one server to the next
 *   client_lease.c    time: the lease that workers run under, and the silence of the server
 *   client_worlds.c   events given out (a WORLD that is fresh enough, each STOP once), and reports */
#ifndef MUSTER_RENDEZVOUS_CLIENT_CLIENT_INTERNAL_H
#define MUSTER_RENDEZVOUS_CLIENT_CLIENT_INTERNAL_H

#include "rendezvous/client/client.h"
#include "rendezvous/client/report_queue.h"
#include "rendezvous/roster/pace.h"

/* Later answers renew nothing; 32 s. */
enum { CLIENT_NUMBERS_KEPT = 64 };

struct client {
    struct client_options options;
    bool joined, ever_joined;
    bool voted;      /* client_set_voted */
    bool join_sent;  /* while not a member: on this connection, as far as is known */
    bool left, over; /* over: a VERDICT or REFUSED has been received */
    int verdict_code;
    struct instant send_at;       /* the next beat or JOIN */
    struct instant last_received; /* the server */
    struct instant woken;         /* client_wake */
    struct instant join_limit;    /* end of the present wait for a world */
    struct world_id held;         /* id of the last WORLD, until STOPPED is reported */
    struct world_id newest;       /* received in a WORLD or STOP; older ones are late */
    struct world_id stopping;     /* world of the last STOP */
    bool held_stops;              /* the STOP of held was given out; another world's may have been since */
    bool in_time;                 /* that STOP leaves workers time to save: they work until then */
    uint64_t sequence;            /* number of the last report */
    struct report_queue *reports, own_reports; /* own_reports: unless the options have others */
    char progress[WIRE_PROGRESS_LIMIT];
    bool done;     /* with the held world */
    int ended;     /* in the held world: client_ended; 0: none has */
    bool withheld; /* world was received, but there is no lease to work under, or older workers are to stop
                      first */
    struct world_id newest_before; /* if withheld: newest without it */
    uint64_t accepts;              /* how often a server has accepted us */
    bool notes;                    /* that server wants notes */
    uint64_t epoch;                /* epoch of the last server that accepted us */
    uint64_t left_epoch;           /* epoch of the last server that sent HANDOVER; 0: none has */
    struct world_id last_world;    /* world that was given out */
    struct world_id server_done;   /* the world whose part on the server is done */
    struct rank_ranges done_ranks; /* its nodes that are done */
    bool lapsed;                   /* the lease of that world has ended */
    int last_nodes, last_rank;
    int64_t restart_count; /* from the last world that was given out, or from HANDOVER */
    uint64_t held_at;      /* numbers when held was set */
    /* the lease; lease_ns 0: there is none */
    int64_t lease_ns;
    struct instant
        gone_at; /* the server is lost then, unless it sends before; never: its connection did not end */
    struct instant lease_from; /* the server has received something from us at that time or later */
    uint64_t numbers;          /* count of JOINs and beats; each has its number */
    uint64_t accepted;         /* number of the last JOIN */
    uint64_t answered;         /* highest number that was answered */
    uint64_t doubted; /* no world is accepted before an answer to a later number: messages may be missing, or
                         a JOIN is being sent */
    struct instant sent_at[CLIENT_NUMBERS_KEPT];
    /* large members last, so that the rest is adjacent */
    struct wire_message message;   /* scratch for sending */
    struct membership_event world; /* where withheld */
    struct event_queue queue;
};

/* Whether the connection took client->message. */
bool client_send_now(struct client *client);

/* ---- client_past.c ---- */

/* For a new client of an agent that was a member before. */
void client_take_past(struct client *client, const struct roster_join *past);

/* ---- client_lease.c ---- */

/* The server had our message of that number when it sent the present one; 0, or one from too long ago: no
 * conclusion. */
void client_renew_lease(struct client *client, uint64_t answered);
/* The end of the lease if there is one; lease_end is when it stops workers, never if it does not. */
struct instant client_lease_limit(const struct client *client);
struct instant client_lease_end(const struct client *client);
/* When the silence of the server becomes an error, if it lasts. */
struct instant client_silence_limit(const struct client *client);
/* -1: now, and err holds the reason. */
int client_check_silence(const struct client *client, struct instant now, struct muster_error *err);
/* Stops the workers whose lease has ended. -1: there is no room for the STOP. */
int client_check_lease(struct client *client, struct instant now, struct muster_error *err);

/* ---- client_worlds.c ---- */

/* A WORLD or STOP was received. -1: too many events wait, as below. */
int client_on_world(struct client *client, const struct membership_event *event, struct instant now,
                    struct muster_error *err);
int client_on_stop(struct client *client, const struct membership_event *event, struct instant now,
                   struct muster_error *err);
/* Gives out the withheld world if there is no reason against it any more. */
int client_give_withheld(struct client *client, struct instant now, struct muster_error *err);
/* A withheld world must be sent again by the server, if it is still current. */
void client_forget_withheld(struct client *client);
/* A STOP of our own for the held world, with its reason: the server does not know it, and gets STOPPED. */
int client_stop_held(struct client *client, struct muster_error *err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int client_queue_event(struct client *client, const struct membership_event *event, struct muster_error *err);

/* Sends all that wait, as far as the connection takes them. */
void client_send_reports(struct client *client, struct instant now);

#endif
