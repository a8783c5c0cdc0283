/* agent_membership.c - this agent's membership in the world: joining, its events, the address of its
 * server. See agent_membership.h. */
#include "launcher/agent/agent_membership.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "launcher/agent/agent_server.h"
#include "launcher/agent/membership/membership_internal.h"
#include "launcher/agent/port/agent_port.h"
#include "proto/base/address.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/exit_code.h"

static const int64_t first_progress_ns = 5 * NS_PER_S, progress_every_ns = 15 * NS_PER_S,
                     look_up_every_ns = 5 * NS_PER_S;

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
    case MEMBERSHIP_EVENT_EVICTION:
        agent_emit(agent, &(struct agent_event){.kind = AGENT_EVICTION, .membership = event});
        break;
    case MEMBERSHIP_EVENT_GO:
        agent_emit(agent, &(struct agent_event){.kind = AGENT_GO, .text = event->reason});
        break;
    case MEMBERSHIP_EVENT_REFUSED:
        log_error(&agent->log, "refused by the server: %s", event->reason);
        (void)snprintf(agent->end_reason, sizeof agent->end_reason, "refused by the server: %.*s",
                       (int)sizeof agent->end_reason - 32, event->reason);
        agent_emit(agent, &(struct agent_event){.kind = AGENT_LOST, .code = EXIT_CODE_FAILURE});
        break;
    }
}

static void end_membership(struct agent *agent, const struct muster_error *err)
{
    char text[MUSTER_ERROR_TEXT + 64];
    if (err->code == MUSTER_E_PEER)
        agent_emit(agent, &(struct agent_event){.kind = AGENT_SERVER_LOST, .text = err->text});
    (void)snprintf(text, sizeof text, "%s%s",
                   err->code == MUSTER_E_PEER ? "the node that serves the job's world is lost: " : "",
                   err->text);
    membership_lose(agent, text, err->code == MUSTER_E_REFUSED ? EXIT_CODE_FAILURE : EXIT_CODE_NODE);
}

static void poll_membership(struct agent *agent)
{
    while (agent->membership->handle && !agent->finished) {
        struct membership_event event;
        struct muster_error err = {0};
        int got = membership_next(agent->membership->handle, &event, &err);
        if (got < 0)
            end_membership(agent, &err);
        if (got <= 0)
            return;
        on_membership(agent, &event);
    }
}

void agent_membership_serving(const struct agent *agent, struct membership_serving *out)
{
    *out = agent->membership ? agent->membership->last_serving : (struct membership_serving){0};
    if (agent->membership && agent->membership->handle)
        membership_serving(agent->membership->handle, out);
}

bool agent_membership_serves(const struct agent *agent)
{
    return agent->membership->serves_here;
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
        bool votes;
        const int others = agent_membership_departing(agent, &votes);
        if (votes)
            (void)snprintf(out, size,
                           "leaving: this node votes until the others have decided the next round");
        else if (others)
            (void)snprintf(out, size, "leaving: waiting for the acknowledgement of %d node%s", others,
                           others > 1 ? "s" : "");
    } else if (membership->handle)
        membership_progress(membership->handle, out, size);
    else if (agent_port_describe(agent, out, size), *out)
        return;
    else if (trouble)
        (void)snprintf(out, size, "the name %s does not resolve yet: %s", name, trouble);
    else if (membership->resolver)
        (void)snprintf(out, size, "resolving the name %s", name);
}

/* --- two nodes --- */

/* Without a third voter no node takes over from the serving node. Told later than a spare takes to register
 * that starts with the others, and not at all in jobs that end at once. */
static void note_two_nodes(struct agent *agent, const struct membership_world *world)
{
    static const int64_t after_ns = 5 * NS_PER_S;
    struct agent_membership *membership = agent->membership;
    const bool matters = agent->config->elastic && agent->config->max_restarts > 0 &&
                         world->group_world_size == 2 && world->id.round == 0;
    membership->lone_at =
        matters && membership->serves_here ? instant_add(clock_now(NULL), after_ns) : INSTANT_NEVER;
}

static void tell_of_two_nodes(struct agent *agent)
{
    struct membership_serving serving;
    agent_membership_serving(agent, &serving);
    agent->membership->lone_at = INSTANT_NEVER;
    if (serving.voter_count < 2)
        log_info(&agent->log,
                 "there are two nodes and no spare: the job ends if this node is lost for good, in spite "
                 "of --max-restarts; a third agent, as a spare node, could take over");
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

int agent_membership_evict(struct agent *agent, const struct membership_evict *request,
                           struct muster_error *err)
{
    struct membership *handle = agent->membership->handle;
    return handle ? membership_evict(handle, request, err) : 0; /* it is repeated when there is a job */
}

void agent_membership_miss(struct agent *agent, int rank)
{
    if (agent->membership->handle)
        membership_miss(agent->membership->handle, rank);
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
        membership_part(agent->membership->handle, linger_ns, agent->group.shutdown_grace_ns);
}

int agent_membership_departing(const struct agent *agent, bool *votes)
{
    *votes = false;
    return agent->membership && agent->membership->handle
               ? membership_parting(agent->membership->handle, votes)
               : 0;
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
    agent->membership->lone_at = INSTANT_NEVER;
    begin_waiting(agent, clock_now(NULL));
    return membership_join_job(agent, err);
}

static struct instant agent_membership_deadline(const struct agent *agent)
{
    const struct agent_membership *membership = agent->membership;
    return instant_min(instant_min(progress_deadline(agent), membership->lone_at),
                       membership->handle ? membership_deadline(membership->handle) : INSTANT_NEVER);
}

static bool serves_elsewhere(const struct agent *agent)
{
    return agent->membership->serves_here && membership_server(agent->membership->handle)[0];
}

/* Known: a server, or a world that has begun. */
static bool knows_nobody(const struct agent *agent)
{
    struct membership_serving serving;
    agent_membership_serving(agent, &serving);
    return !agent->round.world.id.epoch && !serving.voter_count && agent_membership_seeks(agent);
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
    if (instant_reached(now, agent->membership->lone_at))
        tell_of_two_nodes(agent);
    /* If the server is silent, checks whether its name has another address now. An agent that serves
     * elsewhere has to find an agent that is started at the endpoint. */
    if (agent->membership->handle &&
        (membership_silence_ns(agent->membership->handle) || serves_elsewhere(agent)) &&
        !address_is_numeric(agent->config->master_addr) &&
        instant_reached(now, agent->membership->look_up_at)) {
        agent->membership->look_up_at = instant_add(now, look_up_every_ns);
        membership_look_server_up(agent);
    }
    poll_membership(agent);
    if (agent->membership->joined_holder && agent->membership->handle && knows_nobody(agent) &&
        membership_silence_ns(agent->membership->handle))
        membership_replace_holder(agent);
}

/* The last of them is reported as the end of all. */
static void tell_of_end(const struct agent *agent, const struct worker *worker)
{
    if (agent->membership->handle && agent->group.state == GROUP_RUNNING && agent->round.alive > 0 &&
        worker->end_code == CLD_EXITED && worker->end_status == 0)
        membership_ended(agent->membership->handle, worker->rank);
}

static void agent_membership_event(struct agent *agent, const struct agent_event *event)
{
    if (event->kind == AGENT_WORLD)
        note_two_nodes(agent, &event->membership->world);
    else if (event->kind == AGENT_ROUND_ENDS)
        begin_waiting(agent, clock_now(NULL));
    else if (event->kind == AGENT_WORKER_ENDED)
        tell_of_end(agent, event->worker);
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
