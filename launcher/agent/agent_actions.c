/* agent_actions.c - one step of the worker group for each of its events, and the actions of the step. See
 * agent_internal.h. */
#include "launcher/agent/agent_internal.h"

#include "launcher/agent/agent_failures.h"
#include "launcher/agent/agent_membership.h"
#include "launcher/agent/agent_notices.h"
#include "launcher/agent/agent_output.h"
#include "launcher/agent/agent_processes.h"
#include "launcher/agent/agent_start.h"
#include "proto/base/guard.h"

static const unsigned char steps[] = {
#define AGENT_EVENT_STEP(symbol, step, meaning) [symbol] = (step),
    AGENT_EVENTS(AGENT_EVENT_STEP)
#undef AGENT_EVENT_STEP
};

/* --- effects of the actions --- */

/* Closes what workers that have ended have left. */
static void close_ended(struct agent *agent)
{
    round_keep_workers(&agent->round, true);
    agent_emit(agent, &(struct agent_event){.kind = AGENT_ROUND_ENDS});
    round_end(&agent->round);
}

static void start_round(struct agent *agent)
{
    const struct round *round = &agent->round;
    bool ended = false; /* since it stayed */
    for (int i = 0; i < round->worker_count; i++)
        ended |= round->workers[i].pid && !round->workers[i].alive;
    if (ended)
        close_ended(agent);
    if (round->world.restart_count > agent->restarts_told) /* a round after a planned change is none */
        log_info(&agent->log, "restart %lld of %lld: round %u starts%s%s",
                 (long long)round->world.restart_count, (long long)agent->config->max_restarts,
                 round->world.id.round, *round->restart_reason ? "; the first cause: " : "",
                 round->restart_reason);
    agent->restarts_told = round->world.restart_count;
    agent_output_open_files(agent); /* AGENT_FILES goes on */
}

static void start_workers(struct agent *agent)
{
    struct muster_error err = {0};
    struct instant begin = clock_now(NULL);
    struct start_failure start = {0};
    bool started = agent_start_workers(agent, &start, &err) == 0;
    agent_emit(agent, &(struct agent_event){.kind = AGENT_STARTED,
                                            .code = started,
                                            .duration_ns = instant_diff_ns(clock_now(NULL), begin)});
    if (started)
        agent_membership_report(agent, MEMBERSHIP_REPORT_RUNNING, NULL);
    else
        agent_failures_not_started(agent, start.worker, start.exit_code, err.text);
}

static void end_round(struct agent *agent)
{
    agent_processes_stop_cleaning(agent);
    close_ended(agent);
    agent_membership_report(agent, MEMBERSHIP_REPORT_STOPPED, NULL);
}

static void say_already(struct agent *agent)
{
    const struct worker_group *group = &agent->group;
    int64_t left = instant_diff_ns(group->deadline, clock_now(NULL)) / NS_PER_S;
    if (group->state == GROUP_OVER) {
        char text[MUSTER_ERROR_TEXT];
        agent_membership_describe(agent, text, sizeof text);
        log_info(&agent->log, "already %s", *text ? text : "leaving");
        return;
    }
    if (group->state == GROUP_DRAINING) {
        log_info(&agent->log, "already stopping, together with the other nodes");
        return;
    }
    log_info(&agent->log, "already stopping; the remaining processes %s in %lld s",
             group->state == GROUP_KILLING ? "were killed, giving up" : "are killed",
             (long long)(left > 0 ? left : 0));
}

static void execute_action(struct agent *agent, enum worker_group_action action,
                           const struct agent_event *event)
{
    switch (action) {
    case GROUP_REPORT_FAILED:
        agent_membership_report(agent, MEMBERSHIP_REPORT_FAILED, event->failure);
        break;
    case GROUP_REPORT_DONE:
        agent_membership_report(agent, MEMBERSHIP_REPORT_DONE, NULL);
        break;
    case GROUP_DRAIN:
        agent_membership_drain(agent);
        break;
    case GROUP_LEAVE:
        agent_membership_leave(agent);
        break;
    case GROUP_ANNOUNCE:
        agent_notices_announce(agent);
        break;
    case GROUP_HOLD:
        agent_notices_hold(agent);
        break;
    case GROUP_CULL:
        agent_notices_cull(agent);
        break;
    case GROUP_TERMINATE:
        agent_processes_terminate(agent, agent->group.signal);
        break;
    case GROUP_KILL:
        agent_processes_kill(agent);
        break;
    case GROUP_NAME_STUCK:
        agent_failures_unkillable(agent);
        break;
    case GROUP_CLEAN:
        agent_processes_clean(agent);
        break;
    case GROUP_REPORT_STOPPED:
        end_round(agent);
        break;
    case GROUP_START:
        start_round(agent);
        break;
    case GROUP_REMIND:
        say_already(agent);
        break;
    default: /* GROUP_EXIT */
        agent->finished = true;
        break;
    }
}

/* --- events --- */

/* Whether the end of this round is one that workers can outlive. */
static bool may_keep(const struct agent *agent, const struct agent_event *event)
{
    const bool mended = event->failure && event->failure->no_restart;
    const bool planned = event->kind == AGENT_STOP && event->membership->planned; /* which costs no restart */
    return !mended && !agent->config->mpi &&
           (planned || agent->round.world.restart_count < agent->config->max_restarts);
}

/* Whether a world has other places for this node's workers than the last one. */
static bool is_elsewhere(const struct membership_world *last, const struct membership_world *world)
{
    return world->world_size != last->world_size || world->rank_base != last->rank_base ||
           world->group_world_size != last->group_world_size || world->group_rank != last->group_rank ||
           world->role_rank_base != last->role_rank_base || world->role_world_size != last->role_world_size;
}

static void step_group(struct agent *agent, const struct agent_event *event)
{
    struct worker_group_event own = {.kind = steps[event->kind], .signal = event->code};
    enum worker_group_state before = agent->group.state;
    struct muster_error err = {0};
    unsigned actions;
    own.exit_code = event->kind == AGENT_VERDICT ? event->membership->exit_code : event->code;
    if (event->kind == AGENT_STOP) {
        own.grace_ns = event->membership->grace_ns;
        own.planned = event->membership->planned;
        own.moves = own.planned &&
                    agent_notices_move(agent, event->membership->change, event->membership->next_nodes);
    }
    own.elsewhere = event->kind == AGENT_WORLD && agent->moves && !agent_notices_resize(agent);
    if (own.elsewhere)
        log_info(&agent->log,
                 "workers that stayed do not take another rank or another world's size: they are "
                 "stopped and started anew, without their state (a spare node keeps ranks and "
                 "size)");
    agent->group.listens = agent_notices_listeners(agent) > 0;
    agent->group.keeps = may_keep(agent, event) && agent_notices_stayers(agent) > 0;
    agent->group.holds = agent->round.alive > 0;
    if (worker_group_step(&agent->group, &own, clock_now(NULL), &actions, &err) < 0) {
        log_error(&agent->log, "internal: %s", err.text);
        return;
    }
    log_debug(&agent->log, "%s: %s -> %s", worker_group_event_name(own.kind), worker_group_state_name(before),
              worker_group_state_name(agent->group.state));
    if (agent->group.state != before)
        agent_emit(agent, &(struct agent_event){.kind = AGENT_STATE, .code = (int)before});
    for (int action = 0; action < GROUP_ACTION_COUNT; action++)
        if (actions & 1u << action)
            execute_action(agent, action, event);
}

bool agent_actions_admit(struct agent *agent, const struct agent_event *event)
{
    if (event->kind == AGENT_WORLD && agent->group.state != GROUP_WAITING) {
        log_error(&agent->log, "internal: a world while the workers are %s",
                  worker_group_state_name(agent->group.state));
        return false;
    }
    if (event->kind == AGENT_WORLD) {
        agent->moves = is_elsewhere(&agent->round.world, &event->membership->world);
        round_begin(&agent->round, event->membership);
    }
    if (event->kind == AGENT_STOP) {
        /* a worker that is dead already was not stopped by us */
        agent_emit(agent, &(struct agent_event){.kind = AGENT_CHILDREN});
        log_info(&agent->log, "stopping the workers: %s", event->membership->reason);
        round_take_stop(&agent->round, event->membership);
    }
    return true;
}

void agent_actions_take(struct agent *agent, const struct agent_event *event)
{
    if (steps[event->kind] != AGENT_NO_STEP)
        step_group(agent, event);
    else if ((event->kind == AGENT_FILES && !agent_start_await_template(agent)) ||
             event->kind == AGENT_TEMPLATE)
        start_workers(agent);
    else if (event->kind == AGENT_NO_FILES)
        agent_failures_not_started(agent, NULL, 0, event->text);
}

/* --- time --- */

static int group_create(struct agent *agent, struct muster_error *err)
{
    const struct run_config *config = agent->config;
    (void)err;
    agent->group = (struct worker_group){.state = GROUP_WAITING,
                                         .shutdown_grace_ns = agent_seconds_ns(config->shutdown_timeout_s),
                                         .restart_grace_ns = agent_seconds_ns(config->restart_grace_s),
                                         .hold_ns = AGENT_HOLD_NS,
                                         .kill_bound_ns = AGENT_KILL_BOUND_NS,
                                         .drains = config->elastic,
                                         .ends_together = !config->elastic && config->max_nodes > 1,
                                         .clean_bound_ns = AGENT_CLEAN_BOUND_NS,
                                         .deadline = INSTANT_NEVER};
    return 0;
}

static struct instant group_deadline(const struct agent *agent)
{
    return agent->group.deadline;
}

static bool is_empty(struct agent *agent)
{
    if (!worker_group_is_holding(&agent->group))
        return agent_processes_are_gone(agent);
    return agent_notices_are_held(agent) && agent_processes_ended_are_gone(agent);
}

static void group_tick(struct agent *agent, struct instant now)
{
    if (instant_reached(now, agent->group.deadline))
        agent_emit(agent, &(struct agent_event){.kind = AGENT_DEADLINE});
    else if (worker_group_wants_empty(&agent->group) && !agent_failures_are_pending(agent) && is_empty(agent))
        agent_emit(agent, &(struct agent_event){.kind = AGENT_EMPTY});
}

const struct agent_part agent_actions_part = {"worker group", group_create, group_deadline,
                                              group_tick,     NULL,         NULL};
