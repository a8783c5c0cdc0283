/* agent_reap.c - the ends of workers: reaping, whether an end was their own, what is known of it. See
 * agent_internal.h. */
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launcher/agent/agent_internal.h"
#include "launcher/policy/end.h"

void agent_describe_end(struct agent *agent, struct worker *worker, struct worker_failure *failure)
{
    agent_describe_worker(agent, worker, failure);
    bool exited = worker->end_code == CLD_EXITED;
    failure->exit_code = exited ? worker->end_status : -1;
    failure->signal = exited ? 0 : worker->end_status;
    failure->core_dumped = worker->end_code == CLD_DUMPED;
    pump_drain(worker->streams[STDERR_FILENO]);
    pump_tail(worker->streams[STDERR_FILENO], failure->tail, sizeof failure->tail);
}

static struct worker *find_worker(struct agent *agent, pid_t pid)
{
    for (int i = 0; i < agent->config->nproc_per_node; i++)
        if (agent->workers[i].alive && agent->workers[i].pid == pid)
            return &agent->workers[i];
    return NULL;
}

/* All that is dead is collected before the first of it is handled: it died before anybody was told to stop.
 */
static void collect(struct agent *agent)
{
    for (;;) {
        siginfo_t info = {0};
        if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG) < 0 || info.si_pid == 0)
            return;
        struct worker *worker = find_worker(agent, info.si_pid);
        if (agent->dead_count < AGENT_DEAD_KEPT)
            agent->dead[agent->dead_count++] = info.si_pid;
        if (!worker)
            continue; /* an orphan that became ours */
        worker->alive = false;
        worker->news = true;
        worker->end_code = info.si_code;
        worker->end_status = info.si_status;
        agent->alive--;
        agent_end_beats(agent, worker);
        guardian_reaped(&agent->guardian, worker->pid);
    }
}

/* state: when it was collected. */
static void judge(struct agent *agent, struct worker *worker, enum worker_group_state state)
{
    struct worker_failure failure;
    enum end_kind kind = end_kind_of(state, agent->group.leaving || agent->group.planned,
                                     worker->end_code == CLD_EXITED, worker->end_status);
    if (kind == END_DONE) {
        agent_tell_worker(agent, worker, NULL);
        return;
    }
    if (agent->beats[worker->local_rank].stalled)
        kind = END_STOPPED; /* it hung, and was told of */
    agent_describe_end(agent, worker, &failure);
    failure.told = kind != END_OWN;
    if (kind == END_STOPPED)
        agent_note_stopped(agent, &failure);
    else if (kind == END_SUSPECT)
        agent_suspect(agent, &failure);
    else
        agent_event(agent, &(struct worker_group_event){.kind = GROUP_FAILURE}, &failure);
}

void agent_reap(struct agent *agent)
{
    enum worker_group_state state = agent->group.state;
    collect(agent);
    if (agent_holds_ends(agent))
        return;
    for (int i = 0; i < agent->config->nproc_per_node; i++) {
        struct worker *worker = &agent->workers[i];
        bool news = worker->news;
        worker->news = false;
        if (news)
            judge(agent, worker, state);
    }
    state = agent->group.state;
    if ((state == GROUP_RUNNING || state == GROUP_DRAINING || state == GROUP_SAVING) && agent->alive == 0 &&
        !agent_awaits_logs(agent))
        agent_event(agent, &(struct worker_group_event){.kind = GROUP_SUCCESS}, NULL);
}
