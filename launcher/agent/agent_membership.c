/* agent_membership.c - this agent's seat in the world: taking it, what comes from it, and the workers' store
 * where this node serves it. See agent_internal.h. */
#include <stdio.h>
#include <string.h>

#include "launcher/agent/agent_internal.h"
#include "launcher/loop/resolver.h"
#include "proto/base/text.h"
#include "proto/exit_code.h"

static const int64_t first_progress_ns = 5 * NS_PER_S, progress_every_ns = 15 * NS_PER_S,
                     look_up_every_ns = 5 * NS_PER_S;

static void on_membership(struct agent *agent, const struct membership_event *event)
{
    switch (event->kind) {
    case MEMBERSHIP_EVENT_WORLD:
        agent->world = event->world;
        memcpy(agent->restart_reason, event->reason, sizeof agent->restart_reason);
        agent_keep_count(agent);
        agent_event(agent, &(struct worker_group_event){.kind = GROUP_WORLD}, NULL);
        break;
    case MEMBERSHIP_EVENT_STOP:
        agent_reap(agent); /* who is dead already was not stopped by us */
        log_info(&agent->log, "the workers stop: %s", event->reason);
        agent->stop = *event;
        agent_event(agent,
                    &(struct worker_group_event){
                        .kind = GROUP_STOP, .grace_ns = event->grace_ns, .planned = event->planned},
                    NULL);
        break;
    case MEMBERSHIP_EVENT_VERDICT:
        agent->verdict = *event;
        if (event->failed &&
            !event->failure.wall_ns) /* a lost node: the server saw its silence, not its end */
            agent->verdict.failure.wall_ns = clock_wall_ns();
        agent->judged = true;
        agent_event(agent, &(struct worker_group_event){.kind = GROUP_VERDICT, .exit_code = event->exit_code},
                    NULL);
        break;
    case MEMBERSHIP_EVENT_REFUSED:
        log_error(&agent->log, "refused by the server: %s", event->reason);
        (void)snprintf(agent->end_reason, sizeof agent->end_reason, "refused by the server: %.*s",
                       (int)sizeof agent->end_reason - 32, event->reason);
        agent_event(agent, &(struct worker_group_event){.kind = GROUP_LOST, .exit_code = EXIT_CODE_FAILURE},
                    NULL);
        break;
    }
}

static void seat_ready(void *context, uint32_t events)
{
    (void)context; /* the loop asks the seat after every turn */
    (void)events;
}

static void close_seat(struct agent *agent)
{
    if (agent->seat.fd >= 0)
        loop_remove(&agent->loop, &agent->seat);
    agent->seat.fd = -1;
    membership_destroy(agent->membership, 0);
    agent->membership = NULL;
}

void agent_lose_seat(struct agent *agent, const char *why, int exit_code)
{
    log_error(&agent->log, "%s", why);
    (void)snprintf(agent->end_reason, sizeof agent->end_reason, "%s", why);
    close_seat(agent);
    agent_event(agent, &(struct worker_group_event){.kind = GROUP_LOST, .exit_code = exit_code}, NULL);
}

void agent_ask_seat(struct agent *agent)
{
    while (agent->membership && !agent->finished) {
        struct membership_event event;
        struct muster_error err = {0};
        int got = membership_next(agent->membership, &event, &err);
        if (got < 0 && err.code == MUSTER_E_PEER)
            agent_note_lost_server(agent);
        if (got < 0)
            agent_lose_seat(agent, err.text,
                            err.code == MUSTER_E_REFUSED ? EXIT_CODE_FAILURE : EXIT_CODE_NODE);
        if (got <= 0)
            return;
        on_membership(agent, &event);
    }
}

/* The keys of the last round (NCCL's ids among them) must not be found in the next one. Not later: a worker
 * of another node may connect as soon as its agent has the world. Not earlier: one of the last round may
 * still write. */
static uint16_t world_forms(void *context, struct world_id id)
{
    return id.round ? agent_renew_store(context) : 0;
}

/* What tells two jobs apart that were given no id. */
static uint64_t hash_command(const struct run_config *config)
{
    uint64_t hash = TEXT_HASH_START;
    hash = text_hash(hash, config->program, strlen(config->program) + 1);
    for (char *const *at = config->arguments; *at; at++)
        hash = text_hash(hash, *at, strlen(*at) + 1);
    return hash ? hash : 1; /* 0 would say nothing */
}

static void name_program(const struct run_config *config, char *out, size_t size)
{
    const char *slash = strrchr(config->program, '/');
    (void)snprintf(out, size, "%s", slash ? slash + 1 : config->program);
}

/* What looking the server's name up has taken of the join timeout; the seat says so where that is all. */
static int64_t join_used_ns(const struct agent *agent)
{
    int64_t whole = agent_seconds_ns(agent->config->join_timeout_s);
    int64_t left = instant_diff_ns(agent->join_deadline, clock_now(NULL));
    return left < whole ? whole - (left > 0 ? left : 0) : 0;
}

static int open_seat(struct agent *agent, enum membership_mode mode, const char *address,
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
        .max_restarts = config->max_restarts,
        .restart_count = agent->state.restart_count,
        .backoff_ns = agent_seconds_ns(config->restart_backoff_s),
        .backoff_cap_ns = agent_seconds_ns(config->restart_backoff_s > 60 ? config->restart_backoff_s : 60),
        .exit_barrier_ns = agent_seconds_ns(config->exit_barrier_s) + 1, /* 0 would be the default */
        .host = address,
        .host_name = config->master_addr,
        .port = agent_master_port(agent),
        .keys = agent->has_keys ? &agent->keys : NULL,
        .store_addr = agent_store_address(agent),
        .store_port = agent_store_port(agent),
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
        .log = &agent->log,
    };
    agent->membership = membership_open(&options, err);
    if (!agent->membership)
        return -1;
    agent->seat = (struct loop_source){membership_fd(agent->membership), seat_ready, agent};
    return agent->seat.fd < 0 ? 0 : loop_add(&agent->loop, &agent->seat, EPOLLIN, err);
}

int agent_take_seat(struct agent *agent, enum membership_mode mode, const char *address,
                    struct muster_error *err)
{
    if (mode != MEMBERSHIP_CLIENT && agent_resume_job(agent, err) < 0)
        return -1;
    if (mode == MEMBERSHIP_CLIENT)
        (void)snprintf(agent->server_address, sizeof agent->server_address, "%s", address);
    return open_seat(agent, mode, address, err);
}

static void name_ready(void *context, uint32_t events)
{
    struct agent *agent = context;
    struct muster_error err = {0};
    char address[RESOLVER_ADDRESS_LIMIT];
    (void)events;
    loop_remove(&agent->loop, &agent->name);
    if (resolver_result(agent->resolver, address, sizeof address, &err) < 0) {
        char why[MUSTER_ERROR_TEXT];
        (void)snprintf(why, sizeof why, "%.400s; asked for %.4g s (--join-timeout)", err.text,
                       agent->config->join_timeout_s);
        agent_lose_seat(agent, why, EXIT_CODE_NODE);
        return;
    }
    agent->resolved = true;
    bool serves = agent->config->elastic && agent_serves_resolved(agent);
    if ((serves ? agent_serve(agent, &err) : agent_take_seat(agent, MEMBERSHIP_CLIENT, address, &err)) < 0)
        agent_lose_seat(agent, err.text, EXIT_CODE_FAILURE);
}

static int resolve(struct agent *agent, struct muster_error *err)
{
    agent->resolver = resolver_start(agent->config->master_addr, agent->join_deadline, err);
    if (!agent->resolver)
        return -1;
    agent->name = (struct loop_source){resolver_fd(agent->resolver), name_ready, agent};
    return loop_add(&agent->loop, &agent->name, EPOLLIN, err);
}

int agent_join(struct agent *agent, struct muster_error *err)
{
    const struct run_config *config = agent->config;
    struct instant now = clock_now(NULL);
    enum server_choice choice = SERVER_CHOICE_JOIN;
    agent->join_deadline = instant_add(now, agent_seconds_ns(config->join_timeout_s));
    agent_begin_waiting(agent, now);
    if (config->elastic)
        choice = agent_choose_server(agent);
    else if (config->max_nodes == 1 || config->node_rank == 0)
        choice = SERVER_CHOICE_SERVE;
    else if (!resolver_is_numeric(config->master_addr))
        choice = SERVER_CHOICE_RESOLVE;
    if (choice == SERVER_CHOICE_SERVE)
        return agent_serve(agent, err);
    return choice == SERVER_CHOICE_JOIN ? agent_take_seat(agent, MEMBERSHIP_CLIENT, config->master_addr, err)
                                        : resolve(agent, err);
}

/* --- a server that comes back elsewhere --- */

/* Where a name has several addresses and the one that is in use is silent, the others have their turn. */
static const char *next_address(const struct resolver *resolver, const char *present)
{
    const char *address;
    for (int i = 0; (address = resolver_address(resolver, i)); i++)
        if (!strcmp(address, present) && resolver_address(resolver, i + 1))
            return resolver_address(resolver, i + 1);
    return resolver_address(resolver, 0);
}

static void move_seat(struct agent *agent, const char *address)
{
    struct muster_error err = {0};
    if (!strcmp(address, agent->server_address))
        return;
    log_info(&agent->log, "the server's name %s stands for %s now", agent->config->master_addr, address);
    if (membership_move(agent->membership, address, &err) < 0)
        log_warning(&agent->log, "%s", err.text);
    else
        (void)snprintf(agent->server_address, sizeof agent->server_address, "%s", address);
}

static void moved(void *context, uint32_t events)
{
    struct agent *agent = context;
    struct muster_error err = {0};
    char address[RESOLVER_ADDRESS_LIMIT];
    (void)events;
    loop_remove(&agent->loop, &agent->name);
    if (resolver_result(agent->resolver, address, sizeof address, &err) < 0)
        log_debug(&agent->log, "%s", err.text); /* asked again soon */
    else if (agent->membership)
        move_seat(agent, next_address(agent->resolver, agent->server_address));
    resolver_destroy(agent->resolver);
    agent->resolver = NULL;
    agent->following = false;
}

/* A pod that is started again often has its name and another address. */
static void look_server_up(struct agent *agent)
{
    struct muster_error err = {0};
    if (agent->following)
        return; /* still on its way */
    resolver_destroy(agent->resolver);
    agent->resolver = resolver_start(agent->config->master_addr, agent->look_up_at, &err);
    agent->following = agent->resolver != NULL;
    if (agent->resolver) {
        agent->name = (struct loop_source){resolver_fd(agent->resolver), moved, agent};
        if (loop_add(&agent->loop, &agent->name, EPOLLIN, &err) == 0)
            return;
    }
    log_warning(&agent->log, "%s", err.text);
}

void agent_follow_server(struct agent *agent, struct instant now)
{
    if (!agent->membership || !membership_silence_ns(agent->membership) ||
        resolver_is_numeric(agent->config->master_addr) || !instant_reached(now, agent->look_up_at))
        return;
    agent->look_up_at = instant_add(now, look_up_every_ns);
    look_server_up(agent);
}

/* --- while the world forms --- */

void agent_begin_waiting(struct agent *agent, struct instant now)
{
    agent->waiting_since = now;
    agent->progress_at =
        instant_add(now, first_progress_ns); /* until then what is known may be of the last world */
}

struct instant agent_progress_deadline(const struct agent *agent)
{
    bool waits = agent->group.state == GROUP_WAITING && agent->config->max_nodes > 1 && !agent->finished;
    return waits ? agent->progress_at : INSTANT_NEVER;
}

static void describe_parting(const struct agent *agent, char *out, size_t size)
{
    int others = agent->membership ? membership_parting(agent->membership) : 0;
    if (others)
        (void)snprintf(out, size, "leaving: waiting for %d node%s to take note", others,
                       others > 1 ? "s" : "");
}

void agent_describe_waiting(const struct agent *agent, char *out, size_t size)
{
    const char *name = agent->config->master_addr;
    const char *trouble = agent->resolver ? resolver_trouble(agent->resolver) : NULL;
    out[0] = '\0';
    if (agent->group.state == GROUP_OVER)
        describe_parting(agent, out, size);
    else if (agent->membership)
        membership_progress(agent->membership, out, size);
    else if (trouble)
        (void)snprintf(out, size, "the name %s does not resolve yet: %s", name, trouble);
    else if (agent->resolver)
        (void)snprintf(out, size, "the name %s is being looked up", name);
}

void agent_tell_progress(struct agent *agent, struct instant now)
{
    char text[MUSTER_ERROR_TEXT];
    agent->progress_at = instant_add(now, progress_every_ns);
    agent_describe_waiting(agent, text, sizeof text);
    if (*text)
        log_info(&agent->log, "waiting for the world: %s", text);
}
