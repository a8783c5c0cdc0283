/* hosts_child.h - a process of a node of the tree: its agent, or one ssh. */
#ifndef MUSTER_LAUNCHER_HOSTS_HOSTS_CHILD_H
#define MUSTER_LAUNCHER_HOSTS_HOSTS_CHILD_H

#include <signal.h>
#include <sys/types.h>

#include "launcher/hosts/hosts_message.h"
#include "launcher/output/pump.h"

/* Set for an agent that a host's node started: its --hosts are settled. */
#define HOSTS_PLACED_ENV "MUSTER_HOSTS_PLACED"

struct hosts_child {
    const char *name; /* the host's */
    pid_t pid;        /* 0: ended */
    int control;      /* ssh's standard input; -1 for the agent */
    bool is_agent;
    struct pump_stream *streams[2];
};

struct hosts_place {
    const struct hosts_message *message; /* the node's own */
    const char *program;                 /* this program's path */
    const sigset_t *ignored;
    struct pump *pump;
};

/* The agent of the node itself. */
int hosts_child_start_agent(struct hosts_child *child, const struct hosts_place *place,
                            struct muster_error *err);
/* ssh to host number `first` of the message, which gets count hosts, itself included. */
int hosts_child_connect(struct hosts_child *child, const struct hosts_place *place, int first, int count,
                        struct muster_error *err);
/* A line after the message: "s15", ".". A line that cannot be written now is lost: the other end has gone or
 * hangs.
 */
void hosts_child_tell(const struct hosts_child *child, const char *line);
/* It was reaped: closes what belongs to it. */
void hosts_child_close(struct hosts_child *child);

#endif
