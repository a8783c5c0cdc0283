/* failures_ends.c - the ends of workers: reaps and classifies them; workers that hung or asked for the end of
 * the round. See failures_internal.h. */
#include <stdio.h>
#include <sys/wait.h>

#include "launcher/agent/agent_heartbeats.h"
#include "launcher/agent/agent_output.h"
#include "launcher/agent/agent_processes.h"
#include "launcher/agent/agent_start.h"
#include "launcher/agent/failures/failures_internal.h"
#include "launcher/policy/worker_group.h"
#include "launcher/warm/warm_reaper.h"

/* The next end of a child of ours, or of a child of the reaper of warm workers. */
static bool reap_next(struct agent *agent, struct warm_end *end)
{
    struct child_end child;
    if (!children_next(&agent->children, &child))
        return agent_start_take_end(agent, end);
    *end = (struct warm_end){child.pid, child.code, child.status};
    return true;
}

/* Reap every exited child first, then classify: all of them exited before we sent a stop signal. */
static void collect_children(struct agent *agent)
{
    struct round *round = &agent->round;
    for (;;) {
        struct warm_end end;
        if (!reap_next(agent, &end))
            return;
        struct worker *worker = round_find_worker(round, end.pid);
        round_note_dead(round, end.pid);
        if (!worker)
            continue; /* an orphan that became ours */
        round_worker_reaped(round, worker, end.code, end.status);
        agent_heartbeats_end(agent, worker);
        agent_processes_note_reaped(agent, worker);
    }
}

/* A worker that hung next to the reported worker: the report has the place where it hung. */
static void take_place(struct agent *agent, struct observed_failure *record)
{
    struct postmortem *postmortem = agent->failures->postmortem;
    record->suspect = record->hung = true;
    if (postmortem && record->error_file)
        postmortem_add(postmortem, record);
    else
        failures_note_stopped(agent, record);
}

/* state: when it was reaped. */
static void classify_exit(struct agent *agent, struct worker *worker, enum worker_group_state state)
{
    const struct worker_group *group = &agent->group;
    if (worker->aborted) { /* in the report already */
        agent_emit(agent, &(struct agent_event){.kind = AGENT_WORKER_ENDED, .worker = worker});
        return;
    }
    enum end_kind kind = end_kind_of(state, group->leaving || group->planned, worker->end_code == CLD_EXITED,
                                     worker->end_status);
    if (kind == END_DONE) {
        round_note_done(&agent->round, worker);
        agent_emit(agent, &(struct agent_event){.kind = AGENT_WORKER_ENDED, .worker = worker});
        return;
    }
    if (agent->round.beats[worker->local_rank].stalled)
        kind = END_STOPPED; /* it hung, and was reported */
    struct observed_failure *record = failures_make_end_record(agent, worker);
    if (!record) {
        if (kind == END_OWN || kind == END_AFTER_STOP)
            failures_take_nothing(agent, worker);
        return;
    }
    record->failure.after_stop = kind != END_OWN;
    record->suspect = kind == END_SUSPECT;
    if (kind == END_STOPPED && agent->round.beats[worker->local_rank].stalled)
        take_place(agent, record);
    else if (kind == END_STOPPED)
        failures_note_stopped(agent, record);
    else
        failures_take(agent, record);
}

void failures_reap(struct agent *agent)
{
    struct round *round = &agent->round;
    enum worker_group_state state = agent->group.state;
    collect_children(agent);
    if (agent_heartbeats_hold_ends(agent))
        return;
    for (int i = 0; i < round->worker_count; i++) {
        struct worker *worker = &round->workers[i];
        bool unhandled = worker->unhandled;
        worker->unhandled = false;
        if (unhandled)
            classify_exit(agent, worker, state);
    }
    state = agent->group.state;
    if ((state == GROUP_RUNNING || state == GROUP_DRAINING || state == GROUP_SAVING) && round->alive == 0 &&
        !agent_output_opens_files(agent) && !agent_start_awaits_template(agent))
        agent_emit(agent, &(struct agent_event){.kind = AGENT_SUCCESS});
}

/* One failure for all stalled workers: of the slowest. */
void failures_take_hang(struct agent *agent, struct worker *slowest, int64_t silent_ns)
{
    struct round *round = &agent->round;
    struct observed_failure *record = failures_make_end_record(agent, slowest);
    if (!record) {
        failures_take_nothing(agent, slowest);
        return;
    }
    struct worker_failure *failure = &record->failure;
    if (slowest->alive || !failure->signal) {
        /* it does not end, or ended by itself when it was stopped */
        failure->exit_code = -1;
        failure->signal = SIGABRT;
    }
    failure->hung = true;
    failure->step = round->beats[slowest->local_rank].step;
    record->at = instant_add(clock_now(NULL), -silent_ns);
    if (agent->failures->watch_at.ns < INSTANT_NEVER.ns)
        failures_watch_kernel(agent); /* which reads the places of the others */
    for (int i = 0; i < round->worker_count; i++) {
        struct worker *worker = &round->workers[i];
        if (!round->beats[i].stalled || !worker->unhandled)
            continue;
        worker->unhandled = false;
        struct observed_failure *other = worker == slowest ? NULL : failures_make_end_record(agent, worker);
        if (other)
            take_place(agent, other);
        else
            agent_emit(agent, &(struct agent_event){.kind = AGENT_WORKER_ENDED,
                                                    .worker = worker,
                                                    .failure = worker == slowest ? failure : NULL});
    }
    failures_take(agent, record);
    failures_reap(agent); /* the others' ends were held back */
}

void failures_note_aborted(struct agent *agent, const struct agent_event *event)
{
    struct observed_failure *record = failures_make_record(agent, event->worker, clock_now(NULL));
    if (!record) {
        failures_take_nothing(agent, event->worker);
        return;
    }
    record->failure.exit_code = event->code;
    (void)snprintf(record->failure.message, sizeof record->failure.message, "%s", event->text);
    event->worker->aborted = true;
    failures_take_last_words(agent, event->worker, record);
    failures_take(agent, record);
}
