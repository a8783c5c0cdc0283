/* agent_port.h - the port at which this node is to serve the job: the program that holds it, and other nodes
 * that would serve at theirs, since they have the server's name too. */
#ifndef MUSTER_LAUNCHER_AGENT_PORT_AGENT_PORT_H
#define MUSTER_LAUNCHER_AGENT_PORT_AGENT_PORT_H

#include "launcher/agent/agent_internal.h"
#include "launcher/loop/resolver.h"
#include "rendezvous/net/port_holder.h"

extern const struct agent_part agent_port_part;

/* The port to serve on is in use: known is called, in the loop, with its holder, which has had a second to
 * end (tcp_await_port); NULL: the port is free. joins: for a holder of the same program it is called at once.
 */
int agent_port_find_holder(struct agent *agent, bool joins,
                           void (*known)(struct agent *agent, const struct port_holder *holder),
                           struct muster_error *err);
/* Where other nodes have addresses of the resolved name, too: each of them would serve, and one may. A server
 * that listens at another address is joined; else the node with the lowest address serves at once, and every
 * other one after a patience that grows with its place among the addresses, since an address may be that of a
 * node which is not there. Of two that would serve at once one gives way (listener_search.h). known is called
 * in the loop with the server's address; NULL: this node. Returns 1 if it will be, 0 if there is no other
 * node, or -1. */
int agent_port_seek_rival(struct agent *agent, const struct resolver *resolver,
                          void (*known)(struct agent *agent, const char *address), struct muster_error *err);
/* The socket that listens at the job's port since that search, or -1; the membership takes it over. */
int *agent_port_claim(const struct agent *agent);
/* While it looks, what for; "" otherwise. */
void agent_port_describe(const struct agent *agent, char *out, size_t size);

#endif
