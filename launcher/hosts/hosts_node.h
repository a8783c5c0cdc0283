/* hosts_node.h - one node of the tree over which a job's agents are started: the host that the user sits at,
 * which has connections alone, or a host of the job, which has its agent and perhaps connections to hosts
 * below it.
 *
 * A node lives as long as the one above it: the end of its standard input, by whatever death, is the end of
 * its agent, whose guardian ends the workers, and of its connections. */
#ifndef MUSTER_LAUNCHER_HOSTS_HOSTS_NODE_H
#define MUSTER_LAUNCHER_HOSTS_HOSTS_NODE_H

#include <stdbool.h>

#include "launcher/hosts/hosts_message.h"
#include "proto/base/log.h"

struct hosts_node {
    const struct hosts_message *message; /* hosts, environment, command */
    bool has_agent;                      /* message->hosts.entries[0] is this host */
    int upstream;                        /* descriptor of the orders; -1: none */
    double patience_s;                   /* after a signal, until everything is killed */
};

/* Runs until the agent and all connections have ended, on the main thread, whose signals and children it
 * takes over. The exit code: the first that is not 0, of the agents; 138 for a connection that was lost. */
int hosts_node_run(const struct hosts_node *node, const struct log_sink *log);

/* The words of the connection to a host, for a dry run too. -1 without memory. */
int hosts_ssh_words(const struct hosts_message *message, const char *host, const char *program,
                    struct text_list *out);

#endif
