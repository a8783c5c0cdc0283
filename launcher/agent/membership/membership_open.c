/* membership_open.c - the options of this agent's membership, its callbacks, and its port for votes. See
 * membership_internal.h. */
#include "launcher/agent/membership/membership_internal.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcher/agent/agent_job_state.h"
#include "launcher/agent/agent_server.h"
#include "launcher/agent/port/agent_port.h"
#include "launcher/process/find_program.h"
#include "proto/base/address.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "proto/base/text.h"
#include "proto/exit_code.h"
#include "rendezvous/net/tcp_listen.h"

static void membership_ready(void *context, uint32_t events)
{
    (void)context; /* the loop calls the membership after every turn */
    (void)events;
}

/* The exit code where this node could not join or serve the world. */
int membership_join_code(const struct muster_error *err)
{
    return exit_code_of_error(err->code) == EXIT_CODE_ENVIRONMENT ? EXIT_CODE_NODE : EXIT_CODE_FAILURE;
}

void membership_lose(struct agent *agent, const char *why, int exit_code)
{
    log_error(&agent->log, "%s", why);
    (void)snprintf(agent->end_reason, sizeof agent->end_reason, "%s", why);
    if (agent->membership->source.fd >= 0)
        loop_remove(&agent->loop, &agent->membership->source);
    agent->membership->source.fd = -1;
    if (agent->membership->handle) /* for the report of the end */
        membership_serving(agent->membership->handle, &agent->membership->last_serving);
    membership_destroy(take_pointer(&agent->membership->handle), 0);
    agent_emit(agent, &(struct agent_event){.kind = AGENT_LOST, .code = exit_code});
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

/* Of an entry of the list that is this node's. */
static void reserve_entry_port(struct agent *agent)
{
    const struct run_config *config = agent->config;
    struct agent_membership *membership = agent->membership;
    struct muster_error err = {0};
    const struct config_endpoint *own = NULL;
    for (int i = 1; i < config->endpoint_count && membership->vote_fd < 0; i++) {
        const struct config_endpoint *entry = &config->endpoints[i];
        if (config->endpoints_derived ? i != config->own_endpoint
                                      : !agent_server_is_entry(agent, entry->host))
            continue;
        own = entry;
        membership->vote_fd =
            tcp_hold_port(agent_bind_address(agent), entry->port, &membership->vote_port, &err);
    }
    membership->signpost = membership->vote_fd >= 0;
    if (own && !membership->signpost)
        log_warning(&agent->log, "new nodes will not find the job at %s:%u, if it moves: %s", own->host,
                    (unsigned)own->port, err.text);
}

/* Else in the range if one is given, else any. Without a port the agent does not vote. */
static void reserve_vote_port(struct agent *agent)
{
    const struct run_config *config = agent->config;
    struct agent_membership *membership = agent->membership;
    struct muster_error err = {0};
    reserve_entry_port(agent);
    for (int port = config->first_port; port && port <= config->last_port && membership->vote_fd < 0; port++)
        membership->vote_fd =
            tcp_hold_port(agent_bind_address(agent), (uint16_t)port, &membership->vote_port, &err);
    if (!config->first_port && membership->vote_fd < 0)
        membership->vote_fd = tcp_hold_port(agent_bind_address(agent), 0, &membership->vote_port, &err);
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

/* --- opening --- */

/* Distinguishes two jobs without an id. */
static uint64_t hash_command(const struct run_config *config)
{
    uint64_t hash = TEXT_HASH_START;
    hash = text_hash(hash, config->program, strlen(config->program) + 1);
    for (char *const *at = config->arguments; *at; at++)
        hash = text_hash(hash, *at, strlen(*at) + 1);
    return hash ? hash : 1; /* 0 means not given */
}

/* Tells one build from another by size, head and tail: an executable has its build id in the head. 0: a job
 * of one node, a module, or no file that can be read here. */
static uint64_t hash_contents(const struct run_config *config)
{
    enum { PART = 64 << 10 };
    const bool searched = config->kind == PROGRAM_EXECUTABLE && !strchr(config->program, '/');
    struct stat about;
    struct muster_error err = {0};
    if (config->max_nodes == 1 || config->kind == PROGRAM_MODULE)
        return 0;
    scope_free char *part = mem_calloc(1, PART);
    scope_free char *path =
        searched ? find_program(config->program, getenv("PATH"), &err) : mem_strdup(config->program);
    scope_close int fd = part && path ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
    if (fd < 0 || fstat(fd, &about) < 0 || !S_ISREG(about.st_mode))
        return 0;
    uint64_t hash = text_hash(TEXT_HASH_START, &about.st_size, sizeof about.st_size);
    for (int tail = 0; tail < 2; tail++) {
        const ssize_t got = pread(fd, part, PART, tail && about.st_size > PART ? about.st_size - PART : 0);
        if (got < 0)
            return 0;
        hash = text_hash(hash, part, (size_t)got);
    }
    return hash ? hash : 1;
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

/* The name that others see in logs and reports: a file's control characters, which they refuse, become '?'.
 */
static void name_program(const struct run_config *config, char *out, size_t size)
{
    const char *slash = strrchr(config->program, '/');
    (void)snprintf(out, size, "%s", slash ? slash + 1 : config->program);
    for (char *c = out; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            *c = '?';
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
        .contents = hash_contents(config),
        .endpoints = hash_endpoints(config),
        .max_restarts = config->max_restarts,
        .restart_count = agent_job_state_restarts(agent),
        .backoff_ns = agent_seconds_ns(config->restart_backoff_s),
        .backoff_cap_ns = agent_seconds_ns(config->restart_backoff_s > 60 ? config->restart_backoff_s : 60),
        .exit_barrier_ns = agent_seconds_ns(config->exit_barrier_s) + 1, /* 0 would be the default */
        .host = address,
        .host_name = config->master_addr,
        .port = agent_master_port(agent),
        .listener = agent_port_claim(agent),
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

int membership_join_in_mode(struct agent *agent, enum membership_mode mode, const char *address,
                            struct muster_error *err)
{
    if (mode == MEMBERSHIP_CLIENT)
        (void)snprintf(agent->membership->server_address, sizeof agent->membership->server_address, "%s",
                       address);
    return open_membership(agent, mode, address, err);
}
