/* agent_actions.c - one step of the group (worker_group.h), and what it asks for. See agent_internal.h. */
#include "launcher/agent/agent_internal.h"
#include "proto/base/guard.h"

static void report(struct agent *agent, enum membership_report_kind kind)
{
    struct muster_error err = {0};
    if (agent->membership && membership_report(agent->membership, agent->world.id, kind, NULL, &err) < 0)
        log_error(&agent->log, "%s", err.text);
}

static void do_start(struct agent *agent)
{
    agent_begin_failures(agent);
    agent->stop = (struct membership_event){0};
    agent_tell(agent, EVENT_RENDEZVOUS, instant_diff_ns(clock_now(NULL), agent->waiting_since));
    if (agent->world.restart_count > agent->restarts_told) /* a round after a planned change is none */
        log_info(&agent->log, "restart %lld of %lld: round %u starts%s%s",
                 (long long)agent->world.restart_count, (long long)agent->config->max_restarts,
                 agent->world.id.round, *agent->restart_reason ? "; the first cause: " : "",
                 agent->restart_reason);
    agent->restarts_told = agent->world.restart_count;
    agent_open_logs(agent);
}

void agent_begin_round(struct agent *agent)
{
    struct worker_failure failure;
    struct instant begin = clock_now(NULL);
    bool started = agent_start_workers(agent, &failure) == 0;
    agent_watch_kernel(agent, begin);
    agent_tell(agent, EVENT_START, instant_diff_ns(clock_now(NULL), begin));
    if (started) {
        report(agent, MEMBERSHIP_REPORT_RUNNING);
        agent_exchange_facts(agent);
    } else {
        agent_event(agent, &(struct worker_group_event){.kind = GROUP_FAILURE}, &failure);
    }
}

void agent_sweep(struct agent *agent)
{
    struct instant now = clock_now(NULL);
    struct instant since = instant_add(agent->group.deadline, -agent->group.kill_bound_ns); /* of KILLING */
    agent_kill_workers(agent);
    agent->sweep_at = instant_add(now, descendant_killer_pause_ns(instant_diff_ns(now, since)));
}

static void do_leave(struct agent *agent)
{
    struct muster_error err = {0};
    if (agent->membership && membership_leave(agent->membership, agent->group.exit_code, &err) < 0)
        log_debug(&agent->log, "%s", err.text); /* we go all the same */
}

static void do_drain(struct agent *agent)
{
    struct muster_error err = {0};
    if (agent->membership &&
        membership_drain(agent->membership, agent->group.exit_code, agent->group.shutdown_grace_ns, &err) < 0)
        log_debug(&agent->log, "%s", err.text); /* unanswered, it goes alone */
}

static void do_remind(struct agent *agent)
{
    int64_t left = instant_diff_ns(agent->group.deadline, clock_now(NULL)) / NS_PER_S;
    if (agent->group.state == GROUP_OVER) {
        char text[MUSTER_ERROR_TEXT];
        agent_describe_waiting(agent, text, sizeof text);
        log_info(&agent->log, "already %s", *text ? text : "leaving");
        return;
    }
    if (agent->group.state == GROUP_DRAINING) {
        log_info(&agent->log, "already stopping, together with the other nodes");
        return;
    }
    log_info(&agent->log, "already stopping; what still runs %s in %lld s",
             agent->group.state == GROUP_KILLING ? "was killed, giving up" : "is killed",
             (long long)(left > 0 ? left : 0));
}

static void execute(struct agent *agent, enum worker_group_action action,
                    const struct worker_failure *failure)
{
    switch (action) {
    case GROUP_REPORT_FAILED:
        agent_report_failure(agent, failure);
        break;
    case GROUP_REPORT_DONE:
        report(agent, MEMBERSHIP_REPORT_DONE);
        break;
    case GROUP_DRAIN:
        do_drain(agent);
        break;
    case GROUP_LEAVE:
        do_leave(agent);
        break;
    case GROUP_ANNOUNCE:
        agent_announce(agent);
        break;
    case GROUP_TERMINATE:
        agent_terminate_workers(agent, agent->group.signal);
        break;
    case GROUP_KILL:
        agent_sweep(agent);
        break;
    case GROUP_NAME_STUCK:
        agent_name_stuck(agent);
        break;
    case GROUP_CLEAN:
        agent_clean(agent);
        break;
    case GROUP_REPORT_STOPPED:
        agent_stop_cleaning(agent);
        agent_release_workers(agent);
        agent_begin_waiting(agent, clock_now(NULL));
        report(agent, MEMBERSHIP_REPORT_STOPPED);
        break;
    case GROUP_START:
        do_start(agent);
        break;
    case GROUP_REMIND:
        do_remind(agent);
        break;
    default: /* GROUP_EXIT */
        agent->finished = true;
        break;
    }
}

void agent_event(struct agent *agent, const struct worker_group_event *event,
                 const struct worker_failure *failure)
{
    struct muster_error err = {0};
    unsigned actions;
    enum worker_group_state before = agent->group.state;
    agent->group.listens = agent_count_listeners(agent) > 0;
    if (worker_group_step(&agent->group, event, clock_now(NULL), &actions, &err) < 0) {
        log_error(&agent->log, "internal: %s", err.text);
        return;
    }
    log_debug(&agent->log, "%s: %s -> %s", worker_group_event_name(event->kind),
              worker_group_state_name(before), worker_group_state_name(agent->group.state));
    if (agent->group.state != GROUP_RUNNING)
        agent_reset_hang(agent);
    if (before == GROUP_SAVING && agent->group.state != before)
        agent_end_notice(agent);
    if (agent->group.state != GROUP_KILLING)
        agent->sweep_at = INSTANT_NEVER;
    for (int action = 0; action < GROUP_ACTION_COUNT; action++)
        if (actions & 1u << action)
            execute(agent, action, failure);
}
