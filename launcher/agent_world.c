/* agent_world.c - this agent's seat in the world: taking it, what comes from it, and the workers' store where
 * this node serves it. See agent_internal.h. */
#include <stdio.h>
#include <string.h>

#include "launcher/agent_internal.h"
#include "launcher/resolver.h"
#include "proto/exit_code.h"
#include "rendezvous/tcpstore_server.h"

enum { DEFAULT_MASTER_PORT = 29500 };

static void on_membership(struct agent *agent, const struct membership_event *event)
{
    switch (event->kind) {
    case MEMBERSHIP_EVENT_WORLD:
        agent->world = event->world;
        agent_keep_count(agent);
        agent_event(agent, &(struct group_event){.kind = GROUP_WORLD}, NULL);
        break;
    case MEMBERSHIP_EVENT_STOP:
        agent_reap(agent); /* who is dead already was not stopped by us */
        agent_event(agent, &(struct group_event){.kind = GROUP_STOP}, NULL);
        break;
    case MEMBERSHIP_EVENT_VERDICT:
        agent->verdict = *event;
        if (event->failed &&
            !event->failure.wall_ns) /* a lost node: the server saw its silence, not its end */
            agent->verdict.failure.wall_ns = clock_wall_ns();
        agent->judged = true;
        agent_event(agent, &(struct group_event){.kind = GROUP_VERDICT, .exit_code = event->exit_code}, NULL);
        break;
    case MEMBERSHIP_EVENT_REFUSED:
        log_error(&agent->log, "refused by the server: %s", event->reason);
        (void)snprintf(agent->end_reason, sizeof agent->end_reason, "refused by the server: %.*s",
                       (int)sizeof agent->end_reason - 32, event->reason);
        agent_event(agent, &(struct group_event){.kind = GROUP_LOST, .exit_code = EXIT_CODE_FAILURE}, NULL);
        break;
    }
}

static void seat_ready(void *context, uint32_t events)
{
    (void)context; /* the loop asks the seat after every turn */
    (void)events;
}

static void lose_seat(struct agent *agent, const char *why, int exit_code)
{
    log_error(&agent->log, "%s", why);
    (void)snprintf(agent->end_reason, sizeof agent->end_reason, "%s", why);
    agent_event(agent, &(struct group_event){.kind = GROUP_LOST, .exit_code = exit_code}, NULL);
    if (agent->seat.fd >= 0)
        loop_remove(&agent->loop, &agent->seat);
    agent->seat.fd = -1;
    membership_destroy(agent->membership, 0);
    agent->membership = NULL;
}

void agent_ask_seat(struct agent *agent)
{
    while (agent->membership && !agent->finished) {
        struct membership_event event;
        struct muster_error err = {0};
        int got = membership_next(agent->membership, &event, &err);
        if (got < 0)
            lose_seat(agent, err.text, EXIT_CODE_NODE);
        if (got <= 0)
            return;
        on_membership(agent, &event);
    }
}

static uint16_t master_port(const struct run_config *config)
{
    return (uint16_t)(config->master_port ? config->master_port : DEFAULT_MASTER_PORT);
}

/* The keys of the last round (NCCL's ids among them) must not be found in the next one. Not later: a worker
 * of another node may connect as soon as its agent has the world. Not earlier: one of the last round may
 * still write. Any thread: agent->store and agent->log do not change while there is a seat. */
static void world_forms(void *context, struct world_id id)
{
    struct agent *agent = context;
    struct muster_error err = {0};
    if (id.round && agent->store && tcpstore_server_new_round(agent->store, &err) < 0)
        log_error(&agent->log, "%s", err.text);
}

/* address: what the server's host binds or its clients connect to; NULL in process. */
static int take_seat(struct agent *agent, enum membership_mode mode, const char *address,
                     struct muster_error *err)
{
    const struct run_config *config = agent->config;
    if (mode != MEMBERSHIP_CLIENT && agent_resume_job(agent, err) < 0)
        return -1;
    struct membership_options options = {
        .mode = mode,
        .job_id = config->rdzv_id,
        .agent_name = agent->host,
        .node_rank = (int)config->node_rank,
        .min_nodes = config->min_nodes,
        .max_nodes = config->max_nodes,
        .local_world_size = config->nproc_per_node,
        .role = config->role,
        .max_restarts = config->max_restarts,
        .restart_count = agent->state.restart_count,
        .backoff_ns = agent_seconds_ns(config->restart_backoff_s),
        .backoff_cap_ns = agent_seconds_ns(config->restart_backoff_s > 60 ? config->restart_backoff_s : 60),
        .host = address,
        .port = master_port(config),
        .store_addr = config->master_addr,
        .store_port = agent->store ? tcpstore_server_port(agent->store) : 0,
        .join_timeout_ns = instant_diff_ns(agent->join_deadline, clock_now(NULL)),
        .stop_timeout_ns = agent_seconds_ns(config->restart_grace_s) + 2 * AGENT_KILL_BOUND_NS,
        .world_forms = world_forms,
        .context = agent,
        .log = &agent->log,
    };
    if (options.join_timeout_ns < NS_PER_MS)
        options.join_timeout_ns = NS_PER_MS; /* a look-up used it up: the seat says so */
    agent->membership = membership_open(&options, err);
    if (!agent->membership)
        return -1;
    agent->seat = (struct loop_source){membership_fd(agent->membership), seat_ready, agent};
    return agent->seat.fd < 0 ? 0 : loop_add(&agent->loop, &agent->seat, EPOLLIN, err);
}

static void name_ready(void *context, uint32_t events)
{
    struct agent *agent = context;
    struct muster_error err = {0};
    char address[RESOLVER_ADDRESS_LIMIT];
    (void)events;
    loop_remove(&agent->loop, &agent->name);
    if (resolver_result(agent->resolver, address, sizeof address, &err) < 0)
        lose_seat(agent, err.text, EXIT_CODE_NODE);
    else if (take_seat(agent, MEMBERSHIP_CLIENT, address, &err) < 0)
        lose_seat(agent, err.text, EXIT_CODE_FAILURE);
}

static int resolve(struct agent *agent, struct muster_error *err)
{
    agent->resolver = resolver_start(agent->config->master_addr, agent->join_deadline, err);
    if (!agent->resolver)
        return -1;
    agent->name = (struct loop_source){resolver_fd(agent->resolver), name_ready, agent};
    return loop_add(&agent->loop, &agent->name, EPOLLIN, err);
}

/* What node 0 binds: MASTER_ADDR where it is an address of this machine, else every address, since the own
 * name is often mapped to a loopback address that no other node reaches. */
static const char *address_to_serve(struct agent *agent)
{
    const char *given = agent->config->master_addr;
    if (!strcmp(given, "localhost")) /* nobody elsewhere can mean us by it */
        return "127.0.0.1";
    if (resolver_is_numeric(given) && resolver_is_local(given))
        return given;
    log_info(&agent->log, "serving the job on every address of this machine, port %u",
             (unsigned)master_port(agent->config));
    return "0.0.0.0";
}

int agent_join(struct agent *agent, struct muster_error *err)
{
    const struct run_config *config = agent->config;
    agent->join_deadline = instant_add(clock_now(NULL), agent_seconds_ns(config->join_timeout_s));
    if (config->max_nodes == 1)
        return take_seat(agent, MEMBERSHIP_IN_PROCESS, NULL, err);
    if (config->node_rank == 0)
        return take_seat(agent, MEMBERSHIP_SERVER, address_to_serve(agent), err);
    if (resolver_is_numeric(config->master_addr))
        return take_seat(agent, MEMBERSHIP_CLIENT, config->master_addr, err);
    return resolve(agent, err);
}

/* The store of the workers: on the loopback address where that is what they are told, else on every one. */
int agent_start_store(struct agent *agent, struct muster_error *err)
{
    const struct run_config *config = agent->config;
    struct tcpstore_server_options options = {.log = &agent->log};
    if (config->node_rank != 0 && config->max_nodes > 1)
        return 0; /* node 0's agent serves it */
    if (!strcmp(config->master_addr, "localhost"))
        options.address = "127.0.0.1";
    else if (!strncmp(config->master_addr, "127.", 4) && resolver_is_numeric(config->master_addr))
        options.address = config->master_addr;
    if (config->max_nodes == 1) {                     /* nothing else wants the port */
        options.port = (uint16_t)config->master_port; /* 0 with --standalone, unless the flag was given */
        return tcpstore_server_start(&options, &agent->store, err);
    }
    options.port = (uint16_t)(master_port(config) + 1); /* beside the rendezvous; 65536 wraps to any */
    if (options.port && tcpstore_server_start(&options, &agent->store, NULL) == 0)
        return 0;
    options.port = 0;
    return tcpstore_server_start(&options, &agent->store, err);
}
