/* membership_internal.h - the inside of agent_membership.h, for its files: events and messages of the
 * membership (agent_membership.c), the way to the server (membership_names.c), and the membership's options
 * (membership_open.c). Each calls the later ones only. */
#ifndef MUSTER_LAUNCHER_AGENT_MEMBERSHIP_INTERNAL_H
#define MUSTER_LAUNCHER_AGENT_MEMBERSHIP_INTERNAL_H

#include "launcher/agent/agent_membership.h"
#include "launcher/loop/resolver.h"

/* At all times: source is in the loop if its fd is not -1; following only if there is a resolver. */
struct agent_membership {
    struct membership *handle;              /* NULL: none yet, or it is lost */
    struct membership_serving last_serving; /* when it was lost */
    struct loop_source source;
    struct resolver *resolver; /* looks up the server's name */
    struct loop_source name;
    bool resolved;                         /* its addresses can be read */
    bool awaited;                          /* on the serving node, once */
    bool following;                        /* it is for a server that is silent */
    struct instant look_up_at;             /* the name may be resolved again */
    bool serves_here;                      /* the roster, or is trying to */
    char server_address[DESCRIPTION_NAME]; /* numeric, for this node or for the others; "" unknown */
    struct instant join_deadline, waiting_since, progress_at;
    struct instant lone_at; /* it is looked whether another node could take over; never: not, or done */
    int vote_fd;            /* reserves vote_port; -1: none */
    uint16_t vote_port;
    bool joined_holder;               /* that server is another agent of this machine, with our port */
    bool signpost;                    /* it is an entry's of --rdzv-endpoint */
    struct membership_event *verdict; /* NULL: none yet */
};

/* --- membership_open.c --- */

/* The exit code where this node could not join or serve the world. */
int membership_join_code(const struct muster_error *err);
/* There is no membership any more; why is logged, and the agent ends with the code. */
void membership_lose(struct agent *agent, const char *why, int exit_code);
/* Opens the membership. address: CLIENT: of the server; SERVER: to bind, NULL is every one. */
int membership_join_in_mode(struct agent *agent, enum membership_mode mode, const char *address,
                            struct muster_error *err);

/* --- membership_names.c --- */

/* Serves, joins, or looks for the server's address first. */
int membership_join_job(struct agent *agent, struct muster_error *err);
/* The agent of this machine that was joined has not accepted this one, and is silent: serves in its place
 * where it has ended. */
void membership_replace_holder(struct agent *agent);
/* Resolves the server's name again: a restarted pod often has its name and another address. */
void membership_look_server_up(struct agent *agent);

#endif
