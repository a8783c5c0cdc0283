/* agent_reap.c - the ends of workers: reaping, whether an end was their own, what is known of it. See
 * agent_internal.h. */
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launcher/agent_internal.h"
#include "launcher/oom.h"
#include "launcher/postmortem.h"
#include "rendezvous/failure.h"

/* much less than the silence after which the server takes this node for lost */
static const int64_t postmortem_patience_ns = 500 * NS_PER_MS;

/* What it left in files. A file system that stalls costs one wait a round: the others are stopped in time. */
static void describe_remains(struct agent *agent, const struct worker *worker, struct worker_failure *failure)
{
    struct postmortem found;
    struct muster_error err;
    if (agent->files_stall)
        return;
    if (postmortem_read(worker->stderr_file, worker->error_file, postmortem_patience_ns, &found, &err) < 0) {
        log_warning(&agent->log, "%s", err.text);
        agent->files_stall = true;
        return;
    }
    if (found.wrote_error_file)
        (void)snprintf(failure->error_file, sizeof failure->error_file, "%s", worker->error_file);
    if (worker->stderr_file)
        (void)snprintf(failure->tail, sizeof failure->tail, "%s", found.tail);
}

void agent_describe_end(struct agent *agent, struct worker *worker, struct worker_failure *failure)
{
    agent_describe_worker(agent, worker, failure);
    bool exited = worker->end_code == CLD_EXITED;
    failure->exit_code = exited ? worker->end_status : -1;
    failure->signal = exited ? 0 : worker->end_status;
    failure->core_dumped = worker->end_code == CLD_DUMPED;
    if (failure->signal == SIGKILL && agent->oom_kills >= 0)
        failure->out_of_memory = oom_count() > agent->oom_kills;
    pump_drain(worker->streams[STDERR_FILENO]);
    pump_tail(worker->streams[STDERR_FILENO], failure->tail, sizeof failure->tail);
    describe_remains(agent, worker, failure);
}

static struct worker *find_worker(struct agent *agent, pid_t pid)
{
    for (int i = 0; i < agent->config->nproc_per_node; i++)
        if (agent->workers[i].alive && agent->workers[i].pid == pid)
            return &agent->workers[i];
    return NULL;
}

/* Whether the failures so far all say that a peer went away: then its death is still to be seen. */
static bool only_followers(const struct agent *agent)
{
    for (int i = 0; i < agent->failure_count; i++)
        if (failure_class_of(&agent->failures[i].failure) != FAILURE_CASCADE)
            return false;
    return agent->failure_count > 0;
}

/* Whether the worker ended by itself. After our TERM only a KILL, which cannot be an answer to it; and, where
 * others have fallen over a peer that went away, a crash: a process that dumps its core or gives much memory
 * back is reaped after them. */
static bool is_own_end(const struct agent *agent, const struct worker *worker, enum group_state state)
{
    if (worker->end_code == CLD_EXITED && worker->end_status == 0)
        return false;
    if (state == GROUP_RUNNING)
        return true;
    if (state != GROUP_STOPPING || agent->group.leaving || worker->end_code == CLD_EXITED)
        return false;
    bool crashed = worker->end_status != agent->group.signal && worker->end_status != SIGPIPE;
    return worker->end_status == SIGKILL || (crashed && only_followers(agent));
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
        if (!worker)
            continue; /* an orphan that became ours */
        worker->alive = false;
        worker->news = true;
        worker->end_code = info.si_code;
        worker->end_status = info.si_status;
        agent->alive--;
        agent_end_beats(agent, worker);
        (void)guardian_reaped(&agent->guardian, worker->pid, NULL); /* the successor of a dead one is told */
    }
}

void agent_reap(struct agent *agent)
{
    enum group_state state = agent->group.state;
    collect(agent);
    if (agent_holds_ends(agent))
        return;
    for (int i = 0; i < agent->config->nproc_per_node; i++) {
        struct worker *worker = &agent->workers[i];
        bool news = worker->news;
        worker->news = false;
        if (!news)
            continue;
        if (!is_own_end(agent, worker, state)) {
            agent_tell_worker(agent, worker, NULL);
            continue;
        }
        struct worker_failure failure;
        agent_describe_end(agent, worker, &failure);
        agent_tell_worker(agent, worker, &failure);
        agent_event(agent, &(struct group_event){.kind = GROUP_FAILURE}, &failure);
    }
    if (agent->group.state == GROUP_RUNNING && agent->alive == 0)
        agent_event(agent, &(struct group_event){.kind = GROUP_SUCCESS}, NULL);
}
