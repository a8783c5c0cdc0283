/* agent_membership.c - this agent's membership in the world: joining, its events, the address of its
 * server. See agent_membership.h. */
#include "launcher/agent/agent_membership.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "launcher/agent/agent_job_state.h"
#include "launcher/agent/agent_server.h"
#include "launcher/loop/resolver.h"
#include "proto/base/address.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/text.h"
#include "proto/exit_code.h"
#include "rendezvous/net/tcp_listen.h"

static const int64_t first_progress_ns = 5 * NS_PER_S, progress_every_ns = 15 * NS_PER_S,
                     look_up_every_ns = 5 * NS_PER_S;

/* At all times: source is in the loop if its fd is not -1; following only if there is a resolver. */
struct agent_membership {
    struct membership *handle; /* NULL: none yet, or it is lost */
    struct loop_source source;
    struct resolver *resolver; /* looks up the server's name */
    struct loop_source name;
    bool resolved;                         /* its addresses can be read */
    bool following;                        /* it is for a server that is silent */
    struct instant look_up_at;             /* the name may be resolved again */
    bool serves_here;                      /* the roster, or is trying to */
    char server_address[DESCRIPTION_NAME]; /* numeric, for this node or for the others; "" unknown */
    struct instant join_deadline, waiting_since, progress_at;
    int vote_fd; /* reserves vote_port; -1: none */
    uint16_t vote_port;
    bool signpost;                    /* it is an entry's of --rdzv-endpoint */
    struct membership_event *verdict; /* NULL: none yet */
};

/* A job that ended well, and not by this agent: who started it may believe that it has trained. */
static void tell_of_idleness(const struct agent *agent, struct membership_event *verdict)
{
    const struct run_config *config = agent->config;
    if (verdict->exit_code || agent->round.world.id.epoch)
        return;
    if (!verdict->doubled) {
        log_warning(&agent->log, "the job has ended well without this node, a spare: nothing was run here");
        return;
    }
    verdict->exit_code = EXIT_CODE_SECOND_RUN;
    (void)snprintf(
        verdict->reason, sizeof verdict->reason,
        "nothing was run: the job %s at %s port %u was another run's, which has ended well. Another run "
        "needs another --rdzv-id and another port",
        config->rdzv_id, config->master_addr, (unsigned)agent_master_port(agent));
}

static void take_verdict(struct agent *agent, const struct membership_event *event)
{
    struct membership_event *verdict = mem_calloc(1, sizeof *verdict);
    if (verdict) {
        *verdict = *event;
        if (event->failed && !event->failure.wall_ns)
            verdict->failure.wall_ns =
                clock_wall_ns(); /* a lost node: the server detected its silence, not its end */
        tell_of_idleness(agent, verdict);
        mem_free(agent->membership->verdict);
        agent->membership->verdict = verdict;
    }
    agent_emit(agent, &(struct agent_event){.kind = AGENT_VERDICT, .membership = verdict ? verdict : event});
}

static void on_membership(struct agent *agent, const struct membership_event *event)
{
    switch (event->kind) {
    case MEMBERSHIP_EVENT_WORLD:
        agent_emit(agent, &(struct agent_event){.kind = AGENT_WORLD,
                                                .membership = event,
                                                .duration_ns = instant_diff_ns(
                                                    clock_now(NULL), agent->membership->waiting_since)});
        break;
    case MEMBERSHIP_EVENT_STOP:
        agent_emit(agent, &(struct agent_event){.kind = AGENT_STOP, .membership = event});
        break;
    case MEMBERSHIP_EVENT_VERDICT:
        take_verdict(agent, event);
        break;
    case MEMBERSHIP_EVENT_REFUSED:
        log_error(&agent->log, "refused by the server: %s", event->reason);
        (void)snprintf(agent->end_reason, sizeof agent->end_reason, "refused by the server: %.*s",
                       (int)sizeof agent->end_reason - 32, event->reason);
        agent_emit(agent, &(struct agent_event){.kind = AGENT_LOST, .code = EXIT_CODE_FAILURE});
        break;
    }
}

static void membership_ready(void *context, uint32_t events)
{
    (void)context; /* the loop calls the membership after every turn */
    (void)events;
}

/* The exit code where this node could not join or serve the world. */
static int join_code(const struct muster_error *err)
{
    return exit_code_of_error(err->code) == EXIT_CODE_ENVIRONMENT ? EXIT_CODE_NODE : EXIT_CODE_FAILURE;
}

static void lose_membership(struct agent *agent, const char *why, int exit_code)
{
    log_error(&agent->log, "%s", why);
    (void)snprintf(agent->end_reason, sizeof agent->end_reason, "%s", why);
    if (agent->membership->source.fd >= 0)
        loop_remove(&agent->loop, &agent->membership->source);
    agent->membership->source.fd = -1;
    membership_destroy(take_pointer(&agent->membership->handle), 0);
    agent_emit(agent, &(struct agent_event){.kind = AGENT_LOST, .code = exit_code});
}

static void poll_membership(struct agent *agent)
{
    while (agent->membership->handle && !agent->finished) {
        struct membership_event event;
        struct muster_error err = {0};
        int got = membership_next(agent->membership->handle, &event, &err);
        if (got < 0 && err.code == MUSTER_E_PEER)
            agent_emit(agent, &(struct agent_event){.kind = AGENT_SERVER_LOST});
        if (got < 0)
            lose_membership(agent, err.text,
                            err.code == MUSTER_E_REFUSED ? EXIT_CODE_FAILURE : EXIT_CODE_NODE);
        if (got <= 0)
            return;
        on_membership(agent, &event);
    }
}

/* The keys of the last round (NCCL's ids among them) must not be found in the next one. Not later: a
 * worker of another node may connect as soon as its agent has the world. Not earlier: a worker of the last
 * round may still write. On the server's thread: it touches the store only. */
static uint16_t world_forms(void *context, struct world_id id)
{
    const struct agent *agent = context;
    return id.round ? job_store_renew(agent_server_store(agent)) : 0;
}

/* --- votes about the server --- */

/* Where the others reach this agent; NULL: where its connections come from. */
static const char *vote_address(const struct agent *agent)
{
    const char *own = agent->config->local_addr, *bound = agent_bind_address(agent);
    if (own && address_is_numeric(own) && !address_is_any(own))
        return own;
    return bound && !address_is_any(bound) ? bound : NULL;
}

/* That of an entry of the list that is this node's; else in the range if one is given, else any. Without a
 * port the agent does not vote. */
static void reserve_vote_port(struct agent *agent)
{
    const struct run_config *config = agent->config;
    struct agent_membership *membership = agent->membership;
    struct muster_error err = {0};
    for (int i = 1; i < config->endpoint_count && membership->vote_fd < 0; i++) {
        const bool own = config->endpoints_derived ? i == config->own_endpoint
                                                   : agent_server_is_entry(agent, config->endpoints[i].host);
        if (own)
            membership->vote_fd = tcp_hold_port(config->endpoints[i].port, &membership->vote_port, &err);
        membership->signpost = membership->vote_fd >= 0;
    }
    for (int port = config->first_port; port && port <= config->last_port && membership->vote_fd < 0; port++)
        membership->vote_fd = tcp_hold_port((uint16_t)port, &membership->vote_port, &err);
    if (!config->first_port && membership->vote_fd < 0)
        membership->vote_fd = tcp_hold_port(0, &membership->vote_port, &err);
    if (membership->vote_fd < 0)
        log_warning(&agent->log, "this node does not take part in votes about the job's server: %s",
                    err.text);
}

static void server_moved(void *context, const struct membership_serving *serving)
{
    struct agent *agent = context;
    char text[MUSTER_ERROR_TEXT];
    if (serving->server[0])
        (void)snprintf(text, sizeof text, "%s serves the job: %s", serving->server, serving->reason);
    else
        (void)snprintf(text, sizeof text, "no node serves the job: %s", serving->reason);
    agent_emit(agent, &(struct agent_event){.kind = AGENT_SERVER_MOVED, .text = text});
}

/* The job's server is this agent, or is so no longer. The store stays open: workers of the last world may
 * still use it. */
static int agent_serves(void *context, bool serves, uint16_t *store_port, struct muster_error *err)
{
    struct agent *agent = context;
    agent->membership->serves_here = serves;
    agent_job_state_serve(agent, serves);
    if (!serves)
        return 0;
    if (!agent_server_store(agent) && agent_server_open_store(agent, err) < 0)
        return -1;
    *store_port = agent_server_store_port(agent);
    return 0;
}

/* Distinguishes two jobs without an id. */
static uint64_t hash_command(const struct run_config *config)
{
    uint64_t hash = TEXT_HASH_START;
    hash = text_hash(hash, config->program, strlen(config->program) + 1);
    for (char *const *at = config->arguments; *at; at++)
        hash = text_hash(hash, *at, strlen(*at) + 1);
    return hash ? hash : 1; /* 0 means not given */
}

/* 0: there is no list, or it was not given. */
static uint64_t hash_endpoints(const struct run_config *config)
{
    uint64_t hash = TEXT_HASH_START;
    for (int i = 0; i < config->endpoint_count; i++) {
        const struct config_endpoint *entry = &config->endpoints[i];
        hash = text_hash(hash, entry->host, strlen(entry->host) + 1);
        hash = text_hash(hash, &entry->port, sizeof entry->port);
    }
    return config->endpoint_count && !config->endpoints_derived ? hash : 0;
}

static void name_program(const struct run_config *config, char *out, size_t size)
{
    const char *slash = strrchr(config->program, '/');
    (void)snprintf(out, size, "%s", slash ? slash + 1 : config->program);
}

/* The name look-up's part of the join timeout; reported if it used all of it. */
static int64_t join_used_ns(const struct agent *agent)
{
    int64_t whole = agent_seconds_ns(agent->config->join_timeout_s);
    int64_t left = instant_diff_ns(agent->membership->join_deadline, clock_now(NULL));
    return left < whole ? whole - (left > 0 ? left : 0) : 0;
}

static int open_membership(struct agent *agent, enum membership_mode mode, const char *address,
                           struct muster_error *err)
{
    const struct run_config *config = agent->config;
    char program[MEMBERSHIP_PROGRAM_LIMIT];
    name_program(config, program, sizeof program);
    struct membership_options options = {
        .mode = mode,
        .job_id = config->rdzv_id,
        .agent_name = agent->host,
        .node_rank = config->wanted_rank,
        .min_nodes = config->min_nodes,
        .max_nodes = config->max_nodes,
        .elastic = config->elastic,
        .local_world_size = config->nproc_per_node,
        .role = config->role,
        .program = program,
        .command = hash_command(config),
        .endpoints = hash_endpoints(config),
        .max_restarts = config->max_restarts,
        .restart_count = agent_job_state_restarts(agent),
        .backoff_ns = agent_seconds_ns(config->restart_backoff_s),
        .backoff_cap_ns = agent_seconds_ns(config->restart_backoff_s > 60 ? config->restart_backoff_s : 60),
        .exit_barrier_ns = agent_seconds_ns(config->exit_barrier_s) + 1, /* 0 would be the default */
        .host = address,
        .host_name = config->master_addr,
        .port = agent_master_port(agent),
        .listener = agent_server_claim(agent),
        .keys = agent_server_keys(agent),
        .store_addr = agent_server_store_address(agent),
        .store_port = agent_server_store_port(agent),
        .join_timeout_ns = agent_seconds_ns(config->join_timeout_s),
        .join_used_ns = join_used_ns(agent),
        .last_call_ns = agent_seconds_ns(config->last_call_timeout_s),
        .regroup_ns = agent_seconds_ns(config->regroup_interval_s),
        .notice_ns = agent_seconds_ns(config->notice_timeout_s ? config->notice_timeout_s
                                                               : config->shutdown_timeout_s),
        .stop_timeout_ns =
            agent_seconds_ns(config->restart_grace_s) + 2 * AGENT_KILL_BOUND_NS + AGENT_CLEAN_BOUND_NS,
        .world_forms = world_forms,
        .context = agent,
        .votes = true,
        .vote_addr = vote_address(agent),
        .vote_host = agent_bind_address(agent),
        .store_is_workers = config->worker_store == WORKER_STORE_WORKER,
        .serves = agent_serves,
        .moved = server_moved,
        .notes = config_shows_job(config),
        .log = &agent->log,
    };
    assert(!agent->membership->handle);
    if (mode == MEMBERSHIP_CLIENT && agent->membership->vote_fd < 0)
        reserve_vote_port(agent);
    options.signpost = agent->membership->signpost;
    options.vote_port = mode == MEMBERSHIP_CLIENT ? agent->membership->vote_port : options.port;
    agent->membership->handle = membership_open(&options, err);
    if (!agent->membership->handle)
        return -1;
    agent->membership->source =
        (struct loop_source){membership_fd(agent->membership->handle), membership_ready, agent};
    return agent->membership->source.fd < 0
               ? 0
               : loop_add(&agent->loop, &agent->membership->source, EPOLLIN, err);
}

static int join_in_mode(struct agent *agent, enum membership_mode mode, const char *address,
                        struct muster_error *err)
{
    if (mode != MEMBERSHIP_CLIENT && agent_job_state_resume(agent, err) < 0)
        return -1;
    if (mode == MEMBERSHIP_CLIENT)
        (void)snprintf(agent->membership->server_address, sizeof agent->membership->server_address, "%s",
                       address);
    return open_membership(agent, mode, address, err);
}

/* --- serving --- */

/* Where another agent of this machine is reached. */
static const char *own_address(const char *bound)
{
    return bound && !address_is_any(bound) ? bound : bound && address_is_six(bound) ? "::1" : "127.0.0.1";
}

/* Several agents of one machine may have one endpoint: the first one serves, the others join it. The
 * server decides whether they are of the same job. Any other program on the port is an error. */
static void holder_known(struct agent *agent, const struct port_holder *holder)
{
    const struct run_config *config = agent->config;
    struct muster_error err = {0};
    char text[64];
    port_holder_text(holder, text, sizeof text);
    if (server_choice_joins_holder(config->elastic, config->rdzv_conf.is_host > 0, holder->same_program)) {
        log_info(&agent->log, "port %u of this machine is served by another agent, %s: joining it",
                 (unsigned)agent_master_port(agent), text);
        agent_server_close_store(agent);
        if (join_in_mode(agent, MEMBERSHIP_CLIENT, own_address(agent_server_address(agent)), &err) < 0)
            lose_membership(agent, err.text, join_code(&err));
        return;
    }
    error_set(&err, MUSTER_E_BUSY,
              "port %u is in use by %s, and this node must serve the job's world on it: stop that program or "
              "choose another %s (this node does not join an unknown server as a client)",
              (unsigned)agent_master_port(agent), text,
              config->elastic ? "port in --rdzv-endpoint" : "--master-port");
    lose_membership(agent, err.text, EXIT_CODE_FAILURE);
}

/* Joins as the member that hosts the roster, and also opens the workers' store. */
static int serve_job(struct agent *agent, struct muster_error *err)
{
    const char *address = agent_server_address(agent);
    agent->membership->serves_here = true;
    if (agent_server_open_store(agent, err) < 0)
        return -1;
    /* The address of this machine that the others connect to, if they use a name for it: for the choice of an
     * interface (agent_nccl.c), and no reason to wait or to fail. */
    const struct run_config *config = agent->config;
    struct agent_membership *membership = agent->membership;
    if (config_meets(config) && agent->tune->looked && !membership->resolver &&
        !address_is_numeric(config->master_addr))
        membership->resolver = resolver_start(config->master_addr, membership->join_deadline, NULL);
    if (!config_meets(agent->config))
        return join_in_mode(agent, MEMBERSHIP_IN_PROCESS, NULL, err);
    if (!address)
        log_info(&agent->log, "serving the job on every address of this machine, port %u",
                 (unsigned)agent_master_port(agent));
    if (join_in_mode(agent, MEMBERSHIP_SERVER, address, err) == 0) {
        agent_server_warn_of_unauthenticated(agent, address);
        return 0;
    }
    return err->code == MUSTER_E_BUSY ? agent_server_find_holder(agent, holder_known, err) : -1;
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
    char first[ADDRESS_TEXT], *out = membership->server_address;
    if (!membership->serves_here || !config_meets(config) || *out)
        return out;
    /* whether the master's name has its addresses by now */
    struct pollfd answer = {membership->resolver ? resolver_fd(membership->resolver) : -1, POLLIN, 0};
    if (!membership->resolved && poll(&answer, 1, 0) == 1)
        membership->resolved = resolver_result(membership->resolver, first, sizeof first, NULL) == 0;
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

void agent_membership_serving(const struct agent *agent, struct membership_serving *out)
{
    *out = (struct membership_serving){0};
    if (agent->membership && agent->membership->handle)
        membership_serving(agent->membership->handle, out);
}

bool agent_membership_serves(const struct agent *agent)
{
    return agent->membership->serves_here;
}

/* --- joining --- */

/* Several nodes have the name: another one serves already, or this one is to. */
static void rival_known(struct agent *agent, const char *address)
{
    struct muster_error err = {0};
    if ((address ? join_in_mode(agent, MEMBERSHIP_CLIENT, address, &err) : serve_job(agent, &err)) < 0)
        lose_membership(agent, err.text, EXIT_CODE_FAILURE);
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
        lose_membership(agent, why, EXIT_CODE_NODE);
        return;
    }
    agent->membership->resolved = true;
    bool serves = agent->config->elastic && agent_server_choose_resolved(agent, agent->membership->resolver);
    int seeks = serves ? agent_server_seek_rival(agent, agent->membership->resolver, rival_known, &err) : 0;
    if (seeks < 0)
        lose_membership(agent, err.text, EXIT_CODE_FAILURE);
    if (seeks)
        return;
    if (!serves && leads_back(agent, address))
        log_warning(&agent->log,
                    "the name %s leads to %s here, which is this machine itself and does not serve the job: "
                    "/etc/hosts may have the server's name in the line of localhost",
                    agent->config->master_addr, address);
    if ((serves ? serve_job(agent, &err) : join_in_mode(agent, MEMBERSHIP_CLIENT, address, &err)) < 0)
        lose_membership(agent, err.text, join_code(&err));
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
    if (join_in_mode(agent, MEMBERSHIP_CLIENT, address, &err) < 0)
        lose_membership(agent, err.text, join_code(&err));
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

static void begin_waiting(struct agent *agent, struct instant now);

static int join_job(struct agent *agent, struct muster_error *err)
{
    const struct run_config *config = agent->config;
    struct instant now = clock_now(NULL);
    enum server_choice choice = SERVER_CHOICE_JOIN;
    agent->membership->join_deadline = instant_add(now, agent_seconds_ns(config->join_timeout_s));
    begin_waiting(agent, now);
    if (config->elastic)
        choice = agent_server_choose(agent);
    else if (!config_meets(config) || config->node_rank == 0)
        choice = SERVER_CHOICE_SERVE;
    else if (!address_is_numeric(config->master_addr))
        choice = SERVER_CHOICE_RESOLVE;
    if (choice == SERVER_CHOICE_SERVE)
        return serve_job(agent, err);
    return choice == SERVER_CHOICE_JOIN ? join_in_mode(agent, MEMBERSHIP_CLIENT, config->master_addr, err)
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
static void look_server_up(struct agent *agent)
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

/* --- while the world forms --- */

static void begin_waiting(struct agent *agent, struct instant now)
{
    agent->membership->waiting_since = now;
    agent->membership->progress_at =
        instant_add(now, first_progress_ns); /* until then the known state may be of the last world */
}

static struct instant progress_deadline(const struct agent *agent)
{
    bool waits = agent->group.state == GROUP_WAITING && config_meets(agent->config) && !agent->finished;
    return waits ? agent->membership->progress_at : INSTANT_NEVER;
}

void agent_membership_describe(const struct agent *agent, char *out, size_t size)
{
    const struct agent_membership *membership = agent->membership;
    const char *name = agent->config->master_addr;
    out[0] = '\0';
    if (!membership)
        return;
    const char *trouble = membership->resolver ? resolver_trouble(membership->resolver) : NULL;
    if (agent->group.state == GROUP_OVER) {
        int others = agent_membership_departing(agent);
        if (others)
            (void)snprintf(out, size, "leaving: waiting for the acknowledgement of %d node%s", others,
                           others > 1 ? "s" : "");
    } else if (membership->handle)
        membership_progress(membership->handle, out, size);
    else if (agent_server_describe(agent, out, size), *out)
        return;
    else if (trouble)
        (void)snprintf(out, size, "the name %s does not resolve yet: %s", name, trouble);
    else if (membership->resolver)
        (void)snprintf(out, size, "resolving the name %s", name);
}

/* --- messages of this agent --- */

void agent_membership_report(struct agent *agent, enum membership_report_kind kind,
                             const struct worker_failure *failure)
{
    struct membership *handle = agent->membership->handle;
    struct muster_error err = {0};
    if (handle && membership_report(handle, agent->round.world.id, kind, failure, &err) < 0)
        log_error(&agent->log, "%s", err.text);
}

void agent_membership_leave(struct agent *agent)
{
    struct membership *handle = agent->membership->handle;
    struct muster_error err = {0};
    if (handle && membership_leave(handle, agent->group.exit_code, &err) < 0)
        log_debug(&agent->log, "%s", err.text); /* this agent leaves all the same */
}

void agent_membership_drain(struct agent *agent)
{
    const struct worker_group *group = &agent->group;
    struct membership *handle = agent->membership->handle;
    struct muster_error err = {0};
    if (handle && membership_drain(handle, group->exit_code, group->shutdown_grace_ns, &err) < 0)
        log_debug(&agent->log, "%s", err.text); /* unanswered, it leaves alone */
}

bool agent_membership_has_news(const struct agent *agent)
{
    return agent->membership->handle && membership_has_news(agent->membership->handle);
}

const struct membership_event *agent_membership_verdict(const struct agent *agent)
{
    return agent->membership ? agent->membership->verdict : NULL;
}

void agent_membership_depart(struct agent *agent, int64_t linger_ns)
{
    if (agent->membership && agent->membership->handle)
        membership_part(agent->membership->handle, linger_ns);
}

int agent_membership_departing(const struct agent *agent)
{
    return agent->membership && agent->membership->handle ? membership_parting(agent->membership->handle) : 0;
}

bool agent_membership_seeks(const struct agent *agent)
{
    return agent->membership && agent->membership->handle && membership_seeks(agent->membership->handle);
}

void agent_membership_ask(struct agent *agent, const char *address, uint16_t port)
{
    if (agent->membership && agent->membership->handle)
        membership_ask(agent->membership->handle, address, port);
}

/* --- notes --- */

uint64_t agent_membership_notes_wanted(const struct agent *agent)
{
    return agent->membership && agent->membership->handle ? membership_notes_wanted(agent->membership->handle)
                                                          : 0;
}

void agent_membership_note(struct agent *agent, const char *data, size_t length)
{
    if (agent->membership && agent->membership->handle)
        membership_note(agent->membership->handle, data, length);
}

bool agent_membership_take_note(struct agent *agent, struct membership_note *out)
{
    return agent->membership && agent->membership->handle &&
           membership_take_note(agent->membership->handle, out);
}

/* --- the part --- */

static int agent_membership_create(struct agent *agent, struct muster_error *err)
{
    agent->membership = mem_calloc(1, sizeof *agent->membership);
    if (!agent->membership)
        return error_set(err, MUSTER_E_NOMEM, "no memory to join the job");
    agent->membership->source.fd = agent->membership->vote_fd = -1;
    return join_job(agent, err);
}

static struct instant agent_membership_deadline(const struct agent *agent)
{
    const struct agent_membership *membership = agent->membership;
    return instant_min(progress_deadline(agent),
                       membership->handle ? membership_deadline(membership->handle) : INSTANT_NEVER);
}

static bool serves_elsewhere(const struct agent *agent)
{
    return agent->membership->serves_here && membership_server(agent->membership->handle)[0];
}

static void agent_membership_tick(struct agent *agent, struct instant now)
{
    if (instant_reached(now, progress_deadline(agent))) {
        /* The same as a line of the log, every now and then. */
        char text[MUSTER_ERROR_TEXT];
        agent->membership->progress_at = instant_add(now, progress_every_ns);
        agent_membership_describe(agent, text, sizeof text);
        if (*text)
            log_info(&agent->log, "waiting for the world: %s", text);
    }
    /* If the server is silent, checks whether its name has another address now. An agent that serves
     * elsewhere has to find an agent that is started at the endpoint. */
    if (agent->membership->handle &&
        (membership_silence_ns(agent->membership->handle) || serves_elsewhere(agent)) &&
        !address_is_numeric(agent->config->master_addr) &&
        instant_reached(now, agent->membership->look_up_at)) {
        agent->membership->look_up_at = instant_add(now, look_up_every_ns);
        look_server_up(agent);
    }
    poll_membership(agent);
}

static void agent_membership_event(struct agent *agent, const struct agent_event *event)
{
    if (event->kind == AGENT_ROUND_ENDS)
        begin_waiting(agent, clock_now(NULL));
}

static void agent_membership_destroy(struct agent *agent)
{
    static const int64_t linger_ns = 2 * NS_PER_S; /* for the last messages to the server */
    struct agent_membership *membership = agent->membership;
    if (!membership)
        return;
    membership_destroy(membership->handle, linger_ns);
    guard_close(&membership->vote_fd);
    resolver_destroy(membership->resolver);
    mem_free(membership->verdict);
    mem_free(membership);
    agent->membership = NULL;
}

const struct agent_part agent_membership_part = {
    "membership",          agent_membership_create, agent_membership_deadline,
    agent_membership_tick, agent_membership_event,  agent_membership_destroy};
