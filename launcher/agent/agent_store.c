/* agent_store.c - the store that the workers meet at, where this node serves the job: ours, or with
 * --worker-store=worker the port that is kept free for that of rank 0. See agent_internal.h. */
#include <string.h>
#include <sys/epoll.h>

#include "launcher/agent/agent_internal.h"
#include "launcher/loop/resolver.h"
#include "proto/base/error.h"
#include "rendezvous/net/tcp_listen.h"
#include "rendezvous/tcpstore/tcpstore_server.h"

const char *agent_store_address(const struct agent *agent)
{
    const struct run_config *config = agent->config;
    return config->elastic && config->local_addr && *config->local_addr ? config->local_addr
                                                                        : config->master_addr;
}

uint16_t agent_store_port(const struct agent *agent)
{
    return agent->store ? tcpstore_server_port(agent->store) : agent->held_port;
}

static bool is_the_workers(const struct agent *agent)
{
    return agent->config->worker_store == WORKER_STORE_WORKER;
}

static void stop_knocking(struct agent *agent)
{
    if (agent->store_knock.fd >= 0)
        loop_remove(&agent->loop, &agent->store_knock);
    agent->store_knock.fd = -1;
}

static void somebody_knocks(void *context, uint32_t events)
{
    struct agent *agent = context;
    struct muster_error err = {0};
    (void)events;
    stop_knocking(agent);
    if (tcpstore_server_serve(agent->store, &err) < 0)
        log_error(&agent->log, "%s", err.text); /* the workers' own time-out tells them */
}

/* With several nodes the server's thread renews the store (agent_renew_store), so that it has its own from
 * the beginning. */
static int serve(struct agent *agent, const struct tcpstore_server_options *options, struct muster_error *err)
{
    if (agent->config->max_nodes > 1)
        return tcpstore_server_start(options, &agent->store, err);
    if (tcpstore_server_listen(options, &agent->store, err) < 0)
        return -1;
    agent->store_knock = (struct loop_source){tcpstore_server_fd(agent->store), somebody_knocks, agent};
    return loop_add(&agent->loop, &agent->store_knock, EPOLLIN, err);
}

/* Serves at options->port, or holds it; 0 is any. */
static int take_port(struct agent *agent, const struct tcpstore_server_options *options,
                     struct muster_error *err)
{
    if (!is_the_workers(agent))
        return serve(agent, options, err);
    int fd = tcp_hold_port(options->port, &agent->held_port, err);
    if (fd < 0)
        return -1;
    if (agent->held_port_fd >= 0)
        (void)close(agent->held_port_fd);
    agent->held_port_fd = fd;
    return 0;
}

/* In the range where one is given, else any. */
static int take_any_port(struct agent *agent, struct tcpstore_server_options *options,
                         struct muster_error *err)
{
    const struct run_config *config = agent->config;
    for (int port = config->first_port; port && port <= config->last_port; port++) {
        options->port = (uint16_t)port;
        if (take_port(agent, options, NULL) == 0)
            return 0;
    }
    options->port = 0;
    if (config->first_port)
        return error_set(err, MUSTER_E_BUSY,
                         "--port-range: no port of %d to %d is free for the workers' store",
                         config->first_port, config->last_port);
    return take_port(agent, options, err);
}

/* On the loopback address where that is what workers are told, else where --bind-addr says, else on every
 * one. A worker's own store is on every one. */
static const char *store_binds(const struct agent *agent)
{
    const char *told = agent_store_address(agent);
    if (!strcmp(told, "localhost"))
        return "127.0.0.1";
    return !strncmp(told, "127.", 4) && resolver_is_numeric(told) ? told : agent_bind_address(agent);
}

int agent_open_store(struct agent *agent, struct muster_error *err)
{
    const struct run_config *config = agent->config;
    struct tcpstore_server_options options = {.address = store_binds(agent), .log = &agent->log};
    if (config->max_nodes == 1) {
        options.port = (uint16_t)config->master_port; /* 0 with --standalone, unless the flag was given */
        return take_port(agent, &options, err);
    }
    /* Beside the rendezvous where nodes have ranks beforehand (65536 wraps to any); but who gives a range may
     * have a firewall that lets no other port through. */
    bool beside = !config->elastic && !config->first_port;
    options.port = (uint16_t)(beside ? agent_master_port(agent) + 1 : 0);
    return options.port && take_port(agent, &options, NULL) == 0 ? 0 : take_any_port(agent, &options, err);
}

/* Something of the last round may still listen where rank 0 did. */
static uint16_t renew_held_port(struct agent *agent)
{
    struct tcpstore_server_options options = {0};
    struct muster_error err = {0};
    uint16_t port = agent->held_port;
    int probe = tcp_hold_port(port, &port, NULL);
    if (probe >= 0) {
        (void)close(probe);
        return 0;
    }
    if (take_any_port(agent, &options, &err) < 0) {
        log_error(&agent->log, "port %u, at which rank 0 served the last round, is in use: %s", port,
                  err.text);
        return 0;
    }
    log_warning(&agent->log, "port %u, at which rank 0 served the last round, is in use: now it is %u", port,
                agent->held_port);
    return agent->held_port;
}

uint16_t agent_renew_store(struct agent *agent)
{
    struct muster_error err = {0};
    if (is_the_workers(agent))
        return agent->held_port_fd >= 0 ? renew_held_port(agent) : 0;
    if (agent->store && tcpstore_server_new_round(agent->store, &err) < 0)
        log_error(&agent->log, "%s", err.text);
    return 0;
}

void agent_close_store(struct agent *agent)
{
    stop_knocking(agent);
    tcpstore_server_destroy(agent->store);
    agent->store = NULL;
    if (agent->held_port_fd >= 0)
        (void)close(agent->held_port_fd);
    agent->held_port_fd = -1;
    agent->held_port = 0;
}
