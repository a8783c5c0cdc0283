/* agent_failures.c - failures as a part of the agent: the begin and end of a round, the failed rounds, and a
 * serving node that is lost. See agent_failures.h. */
#include "launcher/agent/agent_failures.h"

#include <stdio.h>

#include "launcher/agent/agent_membership.h"
#include "launcher/agent/failures/failures_internal.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/exit_code.h"
#include "rendezvous/failure/failure.h"

/* The thread that opens the kernel's evidence takes part of a processor and of this process's memory map,
 * which short jobs and the start of many workers need themselves. Nobody fills a machine's memory this
 * quickly. */
static const int64_t settling_ns = 5 * NS_PER_MS;

int64_t agent_failures_seen(const struct agent *agent)
{
    return agent->failures->seen;
}

const int64_t *agent_failures_of_rounds(const struct agent *agent)
{
    return agent->failures->rounds;
}

static void note_move(struct agent *agent)
{
    struct membership_serving serving;
    agent_membership_serving(agent, &serving);
    agent->failures->moved |= serving.server[0] != '\0';
}

/* A cause like any other lost node, named by us since no other agent can. It had rank 0, unless the job has
 * moved. why: no other node serves the job. */
static void note_lost_server(struct agent *agent, const char *why)
{
    struct membership_serving last;
    struct observed_failure *record = failures_make_record(agent, NULL, clock_now(NULL));
    if (!record)
        return;
    record->failure = (struct worker_failure){
        .local_rank = -1, .exit_code = EXIT_CODE_NODE, .lost_node = true, .wall_ns = clock_wall_ns()};
    agent_membership_serving(agent, &last);
    const char *host = *last.server ? last.server : last.voter_count ? last.voters[0] : "";
    record->failure.group_rank = agent->failures->moved ? -1 : 0;
    (void)snprintf(record->failure.host, sizeof record->failure.host, "%s",
                   *host ? host : agent->config->master_addr);
    (void)snprintf(record->failure.message, sizeof record->failure.message, "%s", why);
    round_keep_failure(&agent->round, record);
}

/* --- the part --- */

static int failures_create(struct agent *agent, struct muster_error *err)
{
    agent->failures = mem_calloc(1, sizeof *agent->failures);
    if (!agent->failures)
        return error_set(err, MUSTER_E_NOMEM, "no memory to watch for failures");
    agent->failures->watched.fd = -1;
    agent->failures->deadline = agent->failures->watch_at = INSTANT_NEVER;
    return 0;
}

static void begin_round(struct agent *agent)
{
    struct agent_failures *failures = agent->failures;
    assert(!agent_failures_are_pending(agent)); /* the last round was not over before all was reported */
    failures_stop_watching(agent);
    postmortem_destroy(take_pointer(&failures->postmortem));
}

static struct instant failures_deadline(const struct agent *agent)
{
    const struct agent_failures *failures = agent->failures;
    bool due = failures->postmortem && postmortem_is_due(failures->postmortem);
    return due ? (struct instant){0} : instant_min(failures->deadline, failures->watch_at);
}

static void failures_tick(struct agent *agent, struct instant now)
{
    if (instant_reached(now, agent->failures->deadline))
        failures_give_up(agent);
    if (instant_reached(now, agent->failures->watch_at))
        failures_watch_kernel(agent);
    failures_start_postmortem(agent);
}

static void note_start(struct agent *agent, int64_t ago_ns)
{
    const struct instant now = clock_now(NULL);
    agent->failures->started = instant_add(now, -ago_ns);
    agent->failures->watch_at = instant_add(now, settling_ns);
}

/* The first cause is settled when all workers have stopped: the next world has it, or the verdict. */
static void count_round(struct agent *agent, const struct membership_event *event)
{
    if (event->kind == MEMBERSHIP_EVENT_WORLD && event->failed_class > 0)
        agent->failures->rounds[event->failed_class - 1]++;
    else if (event->kind == MEMBERSHIP_EVENT_VERDICT && event->failed)
        agent->failures->rounds[failure_class_of(&event->failure)]++;
}

static void failures_event(struct agent *agent, const struct agent_event *event)
{
    switch (event->kind) {
    case AGENT_WORLD:
        count_round(agent, event->membership);
        begin_round(agent);
        break;
    case AGENT_VERDICT:
        count_round(agent, event->membership);
        break;
    case AGENT_STARTED:
        note_start(agent, event->duration_ns);
        break;
    case AGENT_ROUND_ENDS:
        agent->failures->watch_at = INSTANT_NEVER;
        break;
    case AGENT_CHILDREN:
        failures_reap(agent);
        break;
    case AGENT_HUNG:
        failures_take_hang(agent, event->worker, event->duration_ns);
        break;
    case AGENT_ABORTED:
        failures_note_aborted(agent, event);
        break;
    case AGENT_SERVER_MOVED:
        note_move(agent);
        break;
    case AGENT_SERVER_LOST:
        note_lost_server(agent, event->text);
        break;
    default:
        break;
    }
}

static void failures_destroy(struct agent *agent)
{
    struct agent_failures *failures = agent->failures;
    if (!failures)
        return;
    failures_stop_watching(agent);
    postmortem_destroy(failures->postmortem);
    mem_free(failures);
    agent->failures = NULL;
}

const struct agent_part agent_failures_part = {"failures",    failures_create, failures_deadline,
                                               failures_tick, failures_event,  failures_destroy};
