/* agent_server.h - everything a node needs to serve the job: the job's secret, the choice of the node, the
 * address, the holder of an occupied port, and the workers' store: ours, or with --worker-store=worker a
 * port reserved for that of rank 0. */
#ifndef MUSTER_LAUNCHER_AGENT_AGENT_SERVER_H
#define MUSTER_LAUNCHER_AGENT_AGENT_SERVER_H

#include "launcher/agent/agent_internal.h"
#include "launcher/agent/store/job_store.h"
#include "launcher/loop/resolver.h"
#include "launcher/policy/server_choice.h"
#include "rendezvous/security/secret.h"

extern const struct agent_part agent_server_part;

/* --bind-addr; NULL: not given. */
static inline const char *agent_bind_address(const struct agent *agent)
{
    const char *given = agent->config->bind_addr;
    return given && *given ? given : NULL;
}

static inline uint16_t agent_master_port(const struct agent *agent)
{
    return (uint16_t)agent->config->master_port; /* never 0 with several nodes */
}

/* The file with the key that workers inherit (ENV_STORE_KEY_FD); -1: the job has no secret. */
int agent_server_store_key_fd(const struct agent *agent);
/* The keys of the job's secret; NULL: it has none. */
const struct job_keys *agent_server_keys(const struct agent *agent);
/* For a thread of this agent that writes muster's own keys to the workers' store. False: the job has no
 * secret.
 */
bool agent_server_copy_store_key(const struct agent *agent, unsigned char key[SECRET_STORE_KEY_SIZE]);
/* The workers' limit, if ours is another one; else NULL. */
const struct rlimit *agent_server_core_dumps(const struct agent *agent);

/* The numeric address that this node binds; NULL: every one. */
const char *agent_server_address(const struct agent *agent);
/* For an elastic job: whether this node serves it (server_choice.h); the second once the resolver is done. */
enum server_choice agent_server_choose(const struct agent *agent);
/* Whether an address is this node's. */
bool agent_server_is_own(const struct agent *agent, const char *address);
/* Whether this host of --rdzv-endpoint's list is this node, by its name or a numeric address. */
bool agent_server_is_entry(const struct agent *agent, const char *host);
bool agent_server_choose_resolved(const struct agent *agent, const struct resolver *resolver);
/* Warns if the job is unauthenticated on an address (NULL: every one) that is not a loopback one. */
void agent_server_warn_of_unauthenticated(const struct agent *agent, const char *address);

/* --- the workers' store --- */

/* If this node serves the job: opens the store, or reserves a port. */
int agent_server_open_store(struct agent *agent, struct muster_error *err);
/* No thread may be in job_store_renew any more. */
void agent_server_close_store(struct agent *agent);
/* NULL: this agent has none. */
struct job_store *agent_server_store(const struct agent *agent);
/* The store's address for workers, if this agent has group rank 0; port 0 if it has no store. */
const char *agent_server_store_address(const struct agent *agent);
uint16_t agent_server_store_port(const struct agent *agent);
/* False: this agent serves no store, or that has ended. */
bool agent_server_store_stats(const struct agent *agent, struct tcpstore_server_stats *stats);

#endif
