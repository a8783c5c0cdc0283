/* agent_processes.c - the processes of one agent as a whole: signalling them, letting go of them. See
 * agent_internal.h. */
#include <errno.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launcher/agent/agent_internal.h"
#include "proto/base/guard.h"

/* --- signalling --- */

struct descendants_session *agent_list_sessions(const struct agent *agent, size_t *count)
{
    const int workers = agent->config->nproc_per_node;
    struct descendants_session *sessions = mem_calloc((size_t)workers, sizeof *sessions);
    *count = 0;
    for (int i = 0; sessions && i < workers; i++)
        if (agent->workers[i].pid)
            sessions[(*count)++] =
                (struct descendants_session){agent->workers[i].pid, !agent->workers[i].alive};
    return sessions;
}

static void sweep(struct agent *agent, int signal)
{
    struct muster_error err = {0};
    struct sweep_order order = {
        .kin = {.id = agent->id, .parent = getpid(), .except = {getpid(), agent->guardian.pid}},
        .signal = signal,
        .spare_groups = signal != SIGKILL, /* they get theirs directly, once */
    };
    scope_free struct descendants_session *sessions = agent_list_sessions(agent, &order.kin.session_count);
    order.kin.sessions = sessions; /* without memory, by id and parent alone */
    if (descendant_killer_start(&agent->sweeper, &order, &err) < 0)
        log_warning(&agent->log, "%s", err.text);
}

void agent_signal_workers(const struct agent *agent, int signal)
{
    for (int i = 0; i < agent->config->nproc_per_node; i++)
        if (agent->workers[i].alive)
            (void)kill(-agent->workers[i].pid, signal); /* it is not reaped: the number is its own */
}

void agent_terminate_workers(struct agent *agent, int signal)
{
    if (agent_is_childless())
        return;
    agent_signal_workers(agent, signal);
    agent_signal_workers(agent, SIGCONT); /* a stopped process handles nothing */
    sweep(agent, signal);
}

void agent_kill_workers(struct agent *agent)
{
    agent_signal_workers(agent, SIGKILL);
    sweep(agent, SIGKILL);
}

/* As the last look found them: another one could block, and nothing can be done about them anyway. */
void agent_name_stuck(struct agent *agent)
{
    for (int i = 0; i < agent->sweeper.left_count; i++) {
        const struct descendants_process *process = &agent->sweeper.left[i];
        log_error(&agent->log, "process %d (%s) cannot be killed: it is in state %c%s", (int)process->pid,
                  process->name, process->state,
                  process->state == 'D'
                      ? ", inside the kernel (a driver or a file system that does not answer)"
                      : "");
    }
    if (!agent->sweeper.left_count)
        log_error(&agent->log,
                  "what is left of the workers cannot be killed, and /proc does not say what it is");
    agent_report_unkillable(agent);
}

bool agent_is_childless(void)
{
    siginfo_t info = {0};
    return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) < 0 && errno == ECHILD;
}

/* --- between rounds --- */

void agent_release_workers(struct agent *agent)
{
    for (int i = 0; i < agent->config->nproc_per_node; i++) {
        struct worker *worker = &agent->workers[i];
        if (worker->pid)
            guardian_remove(&agent->guardian, worker->pid);
        if (worker->agent) {
            agent_close_beats(agent, worker);
            agent_close_notices(agent, worker);
        }
        pump_close(worker->streams[STDOUT_FILENO]);
        pump_close(worker->streams[STDERR_FILENO]);
        mem_free(worker->stderr_file);
        mem_free(worker->error_file);
        *worker = (struct worker){.local_rank = i};
    }
    agent_close_logs(agent); /* what the streams share, after them */
}
