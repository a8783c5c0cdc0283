/* membership_names.c - the way to the server: whether this node serves, the server's name and its addresses.
 * See membership_internal.h. */
#include "launcher/agent/membership/membership_internal.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "launcher/agent/agent_job_state.h"
#include "launcher/agent/agent_server.h"
#include "launcher/agent/port/agent_port.h"
#include "proto/base/address.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/exit_code.h"
#include "rendezvous/net/tcp_listen.h"

/* --- serving --- */

/* Where another agent of this machine is reached. */
static const char *own_address(const char *bound)
{
    return bound && !address_is_any(bound) ? bound : bound && address_is_six(bound) ? "::1" : "127.0.0.1";
}

static bool joins_holder(const struct agent *agent, bool same_program)
{
    const struct run_config *config = agent->config;
    return server_choice_joins_holder(config->elastic, config->rdzv_conf.is_host > 0, same_program);
}

static void holder_known(struct agent *agent, const struct port_holder *holder);

static int open_server(struct agent *agent, struct muster_error *err)
{
    const char *address = agent_server_address(agent);
    if (membership_join_in_mode(agent, MEMBERSHIP_SERVER, address, err) == 0) {
        agent_server_warn_of_unauthenticated(agent, address);
        return 0;
    }
    if (err->code != MUSTER_E_BUSY)
        return -1;
    const bool joins = joins_holder(agent, true);
    if (!joins)
        log_info(&agent->log, "port %u is in use: its holder has a second to end",
                 (unsigned)agent_master_port(agent));
    return agent_port_find_holder(agent, joins, holder_known, err);
}

/* Several agents of one machine may have one endpoint: the first one serves, the others join it. The
 * server decides whether they are of the same job. Any other program that stays on the port is an error. */
static void holder_known(struct agent *agent, const struct port_holder *holder)
{
    const unsigned port = agent_master_port(agent);
    struct muster_error err = {0};
    char text[64];
    if (!holder) {
        log_info(&agent->log, "port %u was in use for a moment", port);
        if (open_server(agent, &err) < 0)
            membership_lose(agent, err.text, membership_join_code(&err));
        return;
    }
    port_holder_text(holder, text, sizeof text);
    if (joins_holder(agent, holder->same_program)) {
        log_info(&agent->log, "port %u of this machine is served by another agent, %s: joining it", port,
                 text);
        agent_server_close_store(agent);
        agent->membership->serves_here = false;
        agent->membership->joined_holder = true;
        agent_job_state_serve(agent, false);
        if (membership_join_in_mode(agent, MEMBERSHIP_CLIENT, own_address(agent_server_address(agent)),
                                    &err) < 0)
            membership_lose(agent, err.text, membership_join_code(&err));
        return;
    }
    error_set(&err, MUSTER_E_BUSY,
              "port %u is in use by %s, and this node must serve the job's world on it: stop that program or "
              "choose another %s (this node does not join an unknown server as a client)",
              port, text, agent->config->elastic ? "port in --rdzv-endpoint" : "--master-port");
    membership_lose(agent, err.text, EXIT_CODE_FAILURE);
}

/* Joins as the member that hosts the roster, and also opens the workers' store. */
static int serve_job(struct agent *agent, struct muster_error *err)
{
    const char *address = agent_server_address(agent);
    agent->membership->serves_here = true;
    if (agent_server_open_store(agent, err) < 0 || agent_job_state_resume(agent, err) < 0)
        return -1;
    /* The address of this machine that the others connect to, if they use a name for it: for the choice of an
     * interface (agent_nccl.c), and no reason to wait or to fail. */
    const struct run_config *config = agent->config;
    struct agent_membership *membership = agent->membership;
    if (config_meets(config) && agent->tune->looked && !membership->resolver &&
        !address_is_numeric(config->master_addr))
        membership->resolver = resolver_start(config->master_addr, membership->join_deadline, NULL);
    if (!config_meets(agent->config))
        return membership_join_in_mode(agent, MEMBERSHIP_IN_PROCESS, NULL, err);
    if (!address)
        log_info(&agent->log, "serving the job on every address of this machine, port %u",
                 (unsigned)agent_master_port(agent));
    return open_server(agent, err);
}

void membership_replace_holder(struct agent *agent)
{
    struct agent_membership *membership = agent->membership;
    struct muster_error err = {0};
    if (tcp_is_in_use(agent_server_address(agent), agent_master_port(agent)))
        return;
    log_info(&agent->log, "the agent at port %u of this machine has ended and never accepted this one",
             (unsigned)agent_master_port(agent));
    loop_remove(&agent->loop, &membership->source);
    membership->source.fd = -1;
    membership_destroy(take_pointer(&membership->handle), 0);
    membership->server_address[0] = '\0';
    membership->joined_holder = false;
    if (serve_job(agent, &err) < 0)
        membership_lose(agent, err.text, membership_join_code(&err));
}

/* A worker without its interface may take one that the others do not reach: worth a moment, in which the
 * server goes on in its own thread. A name that takes longer holds up no job. */
enum { NAME_PATIENCE_MS = 500 };

static void await_name(struct agent *agent)
{
    struct agent_membership *membership = agent->membership;
    struct pollfd answer = {membership->resolver ? resolver_fd(membership->resolver) : -1, POLLIN, 0};
    char first[ADDRESS_TEXT];
    if (membership->resolved || !membership->resolver)
        return;
    if (poll(&answer, 1, membership->awaited ? 0 : NAME_PATIENCE_MS) == 1)
        membership->resolved = resolver_result(membership->resolver, first, sizeof first, NULL) == 0;
    else if (!membership->awaited)
        log_warning(&agent->log,
                    "%s has no address yet on this node, which serves: the interface of its workers is their "
                    "own choice; --local-addr names it",
                    agent->config->master_addr);
    membership->awaited = true;
}

/* The address by which the others reach this node. First of all that of the endpoint, as they have it: the
 * node's own address for the workers may be on another network. */
const char *agent_membership_server_address(struct agent *agent)
{
    const struct run_config *config = agent->config;
    struct agent_membership *membership = agent->membership;
    const char *master = config->master_addr, *own = config->local_addr, *address, *found = NULL;
    const char *moved = membership->handle ? membership_server(membership->handle) : "";
    if (*moved)
        return moved;
    char *out = membership->server_address;
    if (!membership->serves_here || !config_meets(config) || *out)
        return out;
    await_name(agent);
    if (!strcmp(master, "localhost"))
        found = agent_server_address(agent);
    else if (resolver_is_local(master))
        found = master;
    else if (agent_bind_address(agent) && !address_is_any(agent_bind_address(agent)))
        found = agent_bind_address(agent);
    for (int i = 0; !found && membership->resolved && (address = resolver_address(membership->resolver, i));
         i++)
        if (resolver_is_local(address) && !address_is_loopback(address))
            found = address;
    if (!found && own && resolver_is_local(own))
        found = own;
    if (found)
        (void)snprintf(out, sizeof membership->server_address, "%s", found);
    return out;
}

/* --- joining --- */

/* Several nodes have the name: another one serves already, or this one is to. */
static void rival_known(struct agent *agent, const char *address)
{
    struct muster_error err = {0};
    if ((address ? membership_join_in_mode(agent, MEMBERSHIP_CLIENT, address, &err)
                 : serve_job(agent, &err)) < 0)
        membership_lose(agent, err.text, EXIT_CODE_FAILURE);
}

/* Whether the server's name leads to this machine. An agent that listens on a loopback address shares the
 * machine with the server (muster local). */
static bool leads_back(const struct agent *agent, const char *address)
{
    const char *own = agent_bind_address(agent);
    return address_is_loopback(address) && !(own && address_is_loopback(own));
}

static void name_ready(void *context, uint32_t events)
{
    struct agent *agent = context;
    struct muster_error err = {0};
    char address[ADDRESS_TEXT];
    (void)events;
    loop_remove(&agent->loop, &agent->membership->name);
    if (resolver_result(agent->membership->resolver, address, sizeof address, &err) < 0) {
        char why[MUSTER_ERROR_TEXT];
        (void)snprintf(why, sizeof why, "%.400s; asked for %.4g s (--join-timeout)", err.text,
                       agent->config->join_timeout_s);
        membership_lose(agent, why, EXIT_CODE_NODE);
        return;
    }
    agent->membership->resolved = true;
    bool serves = agent->config->elastic && agent_server_choose_resolved(agent, agent->membership->resolver);
    int seeks = serves ? agent_port_seek_rival(agent, agent->membership->resolver, rival_known, &err) : 0;
    if (seeks < 0)
        membership_lose(agent, err.text, EXIT_CODE_FAILURE);
    if (seeks)
        return;
    if (!serves && leads_back(agent, address))
        log_warning(&agent->log,
                    "the name %s leads to %s here, which is this machine itself and does not serve the job: "
                    "/etc/hosts may have the server's name in the line of localhost",
                    agent->config->master_addr, address);
    if ((serves ? serve_job(agent, &err) : membership_join_in_mode(agent, MEMBERSHIP_CLIENT, address, &err)) <
        0)
        membership_lose(agent, err.text, membership_join_code(&err));
}

bool agent_membership_resolves(const struct agent *agent)
{
    const struct agent_membership *membership = agent->membership;
    return membership && !membership->handle && membership->resolver && !membership->resolved &&
           !membership->serves_here && !agent->finished;
}

void agent_membership_join_at(struct agent *agent, const char *address)
{
    struct muster_error err = {0};
    loop_remove(&agent->loop, &agent->membership->name);
    resolver_destroy(take_pointer(&agent->membership->resolver));
    if (membership_join_in_mode(agent, MEMBERSHIP_CLIENT, address, &err) < 0)
        membership_lose(agent, err.text, membership_join_code(&err));
}

static int resolve_server(struct agent *agent, struct muster_error *err)
{
    agent->membership->resolver =
        resolver_start(agent->config->master_addr, agent->membership->join_deadline, err);
    if (!agent->membership->resolver)
        return -1;
    agent->membership->name =
        (struct loop_source){resolver_fd(agent->membership->resolver), name_ready, agent};
    return loop_add(&agent->loop, &agent->membership->name, EPOLLIN, err);
}

int membership_join_job(struct agent *agent, struct muster_error *err)
{
    const struct run_config *config = agent->config;
    struct instant now = clock_now(NULL);
    enum server_choice choice = SERVER_CHOICE_JOIN;
    agent->membership->join_deadline = instant_add(now, agent_seconds_ns(config->join_timeout_s));
    if (config->elastic)
        choice = agent_server_choose(agent);
    else if (!config_meets(config) || config->node_rank == 0)
        choice = SERVER_CHOICE_SERVE;
    else if (!address_is_numeric(config->master_addr))
        choice = SERVER_CHOICE_RESOLVE;
    if (choice == SERVER_CHOICE_SERVE)
        return serve_job(agent, err);
    return choice == SERVER_CHOICE_JOIN
               ? membership_join_in_mode(agent, MEMBERSHIP_CLIENT, config->master_addr, err)
               : resolve_server(agent, err);
}

/* --- a server that returns at another address --- */

/* If a name has several addresses and the one in use is silent, the others have their turn. */
static const char *next_address(const struct resolver *resolver, const char *present)
{
    const char *address;
    for (int i = 0; (address = resolver_address(resolver, i)); i++)
        if (!strcmp(address, present) && resolver_address(resolver, i + 1))
            return resolver_address(resolver, i + 1);
    return resolver_address(resolver, 0);
}

static void move_membership(struct agent *agent, const char *address)
{
    struct muster_error err = {0};
    if (!strcmp(address, agent->membership->server_address))
        return;
    log_info(&agent->log, "the server's name %s resolves to %s now", agent->config->master_addr, address);
    if (membership_move(agent->membership->handle, address, &err) < 0)
        log_warning(&agent->log, "%s", err.text);
    else
        (void)snprintf(agent->membership->server_address, sizeof agent->membership->server_address, "%s",
                       address);
}

static void server_found(void *context, uint32_t events)
{
    struct agent *agent = context;
    struct muster_error err = {0};
    char address[ADDRESS_TEXT];
    (void)events;
    loop_remove(&agent->loop, &agent->membership->name);
    if (resolver_result(agent->membership->resolver, address, sizeof address, &err) < 0)
        log_debug(&agent->log, "%s", err.text); /* resolved again soon */
    else if (agent->membership->handle)
        move_membership(agent, next_address(agent->membership->resolver, agent->membership->server_address));
    resolver_destroy(agent->membership->resolver);
    agent->membership->resolver = NULL;
    agent->membership->following = false;
}

/* A restarted pod often has its name and another address. */
void membership_look_server_up(struct agent *agent)
{
    struct muster_error err = {0};
    if (agent->membership->following)
        return; /* still on its way */
    resolver_destroy(agent->membership->resolver);
    agent->membership->resolver =
        resolver_start(agent->config->master_addr, agent->membership->look_up_at, &err);
    agent->membership->following = agent->membership->resolver != NULL;
    if (agent->membership->resolver) {
        agent->membership->name =
            (struct loop_source){resolver_fd(agent->membership->resolver), server_found, agent};
        if (loop_add(&agent->loop, &agent->membership->name, EPOLLIN, &err) == 0)
            return;
    }
    log_warning(&agent->log, "%s", err.text);
}
