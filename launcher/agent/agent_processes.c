/* agent_processes.c - signalling and cleaning up after the processes of one agent. See agent_processes.h. */
#include "launcher/agent/agent_processes.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launcher/agent/agent_output.h"
#include "launcher/loop/background_job.h"
#include "launcher/process/guardian.h"
#include "launcher/process/remains.h"
#include "launcher/warm/warm.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"

enum {
    GUARDIANS_LIMIT = 8,
    SECOND_AFTER_MS = 100, /* many a job is over by then */
};

struct agent_processes {
    struct guardian guardian;
    struct loop_source guard, second_guard;
    int guardians;            /* started so far */
    struct instant second_at; /* when the second one is started */
    struct remains_killer killer;
    const struct warm *warm;          /* the template of workers; NULL: none */
    pid_t spared, reaper;             /* the template's processes, not signalled with workers; 0: none */
    int late_signal;                  /* for processes that remain after the workers; 0: none */
    struct instant kill_at;           /* next scan for processes to kill */
    struct instant look_at;           /* HOLDING, CULLING: no scan before; else 0 */
    size_t swept;                     /* the same: workers that had ended when the last one began */
    struct background_watch cleaning; /* during the clean-up after the workers */
    struct remains_files *cleanup;    /* result of cleaning */
};

/* The sessions of this round's workers, the caller's to free; NULL without memory. */
static struct descendants_session *list_sessions(const struct agent *agent, size_t *count)
{
    const struct round *round = &agent->round;
    struct descendants_session *sessions = mem_calloc((size_t)round->worker_count, sizeof *sessions);
    *count = 0;
    for (int i = 0; sessions && i < round->worker_count; i++)
        if (round->workers[i].pid)
            sessions[(*count)++] =
                (struct descendants_session){round->workers[i].pid, !round->workers[i].alive};
    return sessions;
}

/* --- what there is --- */

void agent_processes_take_up(struct agent *agent, struct worker *worker, pid_t pid)
{
    guardian_add(&agent->processes->guardian, pid);
    round_worker_started(&agent->round, worker, pid);
}

void agent_processes_know_template(struct agent *agent, const struct warm *warm)
{
    agent->processes->warm = warm;
    agent->processes->spared = warm ? warm_keeper(warm) : 0;
    agent->processes->reaper = warm ? warm_reaper(warm) : 0;
}

pid_t agent_processes_release(struct agent *agent)
{
    return agent->processes ? guardian_release(&agent->processes->guardian) : 0;
}

/* --- signalling --- */

static void send_killer(struct agent *agent, int signal)
{
    struct agent_processes *processes = agent->processes;
    struct muster_error err = {0};
    struct sweep_order order = {
        .descendants = {.id = agent->id,
                        .parent = getpid(),
                        .except = {getpid(), processes->guardian.pid},
                        .keeper = processes->spared,
                        .reaper = processes->reaper},
        .signal = signal,
        .spare_groups = signal != SIGKILL, /* they get theirs directly, once */
    };
    scope_free struct descendants_session *sessions = list_sessions(agent, &order.descendants.session_count);
    order.descendants.sessions = sessions; /* without memory, by id and parent alone */
    if (remains_killer_start(&processes->killer, &order, &err) < 0)
        log_warning(&agent->log, "%s", err.text);
}

static void signal_workers(const struct agent *agent, int signal)
{
    for (int i = 0; i < agent->round.worker_count; i++)
        if (agent->round.workers[i].alive)
            worker_signal(&agent->round.workers[i], signal, agent->config->signal_scope);
}

void agent_processes_terminate(struct agent *agent, int signal)
{
    if (agent_processes_are_gone(agent))
        return;
    signal_workers(agent, signal);
    signal_workers(agent, SIGCONT); /* a stopped process handles nothing */
    if (agent->config->signal_scope == SIGNAL_SCOPE_GROUP)
        send_killer(agent, signal);
    else
        agent->processes->late_signal = signal;
}

void agent_processes_kill(struct agent *agent)
{
    struct instant now = clock_now(NULL);
    struct instant since =
        instant_add(agent->group.deadline, -agent->group.kill_bound_ns); /* when KILLING began */
    signal_workers(agent, SIGKILL);
    send_killer(agent, SIGKILL);
    agent->processes->kill_at = instant_add(now, remains_killer_pause_ns(instant_diff_ns(now, since)));
}

void agent_processes_kill_last(struct agent *agent, int64_t patience_ns)
{
    signal_workers(agent, SIGKILL);
    send_killer(agent, SIGKILL);
    remains_killer_wait(&agent->processes->killer, patience_ns);
}

void agent_processes_kill_left(struct agent *agent, int64_t patience_ns)
{
    agent->processes->spared = agent->processes->reaper = 0;
    send_killer(agent, SIGKILL);
    remains_killer_wait(&agent->processes->killer, patience_ns);
}

/* Another scan could block, and nothing can be done about them anyway. */
const struct descendants_process *agent_processes_name_stuck(struct agent *agent)
{
    const struct remains_killer *killer = &agent->processes->killer;
    for (int i = 0; i < killer->left_count; i++) {
        const struct descendants_process *process = &killer->left[i];
        log_error(&agent->log, "process %d (%s) survived SIGKILL: it is in state %c%s", (int)process->pid,
                  process->name, process->state,
                  process->state == 'D'
                      ? ", inside the kernel (a driver or a file system that does not respond)"
                      : "");
    }
    if (killer->left_count)
        return &killer->left[0];
    log_error(&agent->log, "some worker processes survived SIGKILL and could not be identified");
    return NULL;
}

bool agent_processes_are_gone(struct agent *agent)
{
    /* all children of this process and of the reaper of warm workers */
    return children_are_none(&agent->children) && warm_is_empty(agent->processes->warm);
}

/* --- the processes of workers that have ended, while others stay --- */

/* Orphans with sessions of their own are left, as they may be of a worker that stays. */
static void kill_sessions(struct agent *agent, struct descendants_session *sessions, size_t count)
{
    struct muster_error err = {0};
    const struct sweep_order order = {
        .descendants = {.sessions = sessions, .session_count = count, .except = {getpid()}},
        .signal = SIGKILL};
    agent->processes->swept = count;
    agent->processes->look_at = instant_add(clock_now(NULL), remains_killer_pause_ns(0));
    if (remains_killer_start(&agent->processes->killer, &order, &err) < 0)
        log_warning(&agent->log, "%s", err.text);
}

bool agent_processes_ended_are_gone(struct agent *agent)
{
    struct agent_processes *processes = agent->processes;
    const struct remains_killer *killer = &processes->killer;
    size_t count, ended = 0;
    scope_free struct descendants_session *sessions = list_sessions(agent, &count);
    for (size_t i = 0; sessions && i < count; i++)
        if (sessions[i].leaderless)
            sessions[ended++] = sessions[i];
    if (!ended || (processes->swept == ended && !killer->job && !killer->left_count))
        return true;
    if (!killer->job && instant_reached(clock_now(NULL), processes->look_at))
        kill_sessions(agent, sessions, ended);
    return false;
}

/* --- the guardian --- */

/* If it is empty: its content is for later. */
static void remove_error_directory(const void *folder)
{
    if (folder && *(const char *)folder == '/')
        (void)rmdir(folder);
}

static int start_guardian(struct agent *agent, bool second, struct muster_error *err)
{
    if (getpid() == 1)
        return 0; /* the kernel kills the whole namespace with its init */
    size_t count;
    scope_free struct descendants_session *sessions = list_sessions(agent, &count);
    if (!sessions)
        return error_set(err, MUSTER_E_NOMEM, "no memory to start the guardian");
    struct guardian_task task = {.id = agent->id,
                                 .sessions = sessions,
                                 .session_count = count,
                                 .afterwards = remove_error_directory,
                                 .context = agent_output_error_directory(agent)};
    if ((second ? guardian_start_second : guardian_start)(&task, &agent->processes->guardian, err) < 0)
        return -1;
    agent->processes->guardians++;
    return 0;
}

static int watch_guardian(struct agent *agent, struct muster_error *err);

static void guardian_gone(void *context, uint32_t events)
{
    struct agent *agent = context;
    struct agent_processes *processes = agent->processes;
    struct muster_error err = {0};
    struct guardian gone = processes->guardian; /* its second one stays until there is another first */
    (void)events;                               /* EPOLLERR: no process has the read end any more */
    loop_remove(&agent->loop, &processes->guard);
    if (gone.second)
        loop_remove(&agent->loop, &processes->second_guard);
    processes->guardian = (struct guardian){.fd = -1, .second_fd = -1};
    if (processes->guardians >= GUARDIANS_LIMIT || watch_guardian(agent, &err) < 0)
        log_warning(&agent->log,
                    "the guardian process was killed and cannot be replaced%s%s: if this agent is killed "
                    "too, worker processes may survive",
                    *err.text ? ": " : "", err.text);
    guardian_dismiss(&gone);
}

/* Continues without features that an emulator lacks, and logs it. */
static int warn_of_unsupported(struct agent *agent, struct muster_error *err)
{
    if (err->code != MUSTER_E_UNSUPPORTED)
        return -1;
    log_warning(&agent->log, "%s", err->text);
    return 0;
}

static int watch_guardian(struct agent *agent, struct muster_error *err)
{
    struct agent_processes *processes = agent->processes;
    if (start_guardian(agent, false, err) < 0)
        return warn_of_unsupported(agent, err);
    if (processes->guardian.pid)
        processes->second_at = instant_add(clock_now(NULL), SECOND_AFTER_MS * NS_PER_MS);
    processes->guard = (struct loop_source){processes->guardian.fd, guardian_gone, agent};
    return processes->guardian.pid ? loop_add(&agent->loop, &processes->guard, 0, err) : 0;
}

static void second_gone(void *context, uint32_t events)
{
    struct agent *agent = context;
    struct agent_processes *processes = agent->processes;
    (void)events;
    loop_remove(&agent->loop, &processes->second_guard);
    guardian_dismiss_second(&processes->guardian);
    if (processes->guardians < GUARDIANS_LIMIT)
        processes->second_at = clock_now(NULL);
}

/* Without it there is the first. */
static void start_second(struct agent *agent)
{
    struct agent_processes *processes = agent->processes;
    struct muster_error err = {0};
    processes->second_at = INSTANT_NEVER;
    if (start_guardian(agent, true, &err) < 0 || !processes->guardian.second)
        return;
    processes->second_guard = (struct loop_source){processes->guardian.second_fd, second_gone, agent};
    if (loop_add(&agent->loop, &processes->second_guard, 0, &err) < 0)
        guardian_dismiss_second(&processes->guardian);
}

void agent_processes_note_reaped(struct agent *agent, const struct worker *worker)
{
    guardian_reaped(&agent->processes->guardian, worker->pid);
}

/* --- between two rounds --- */

void agent_processes_stop_cleaning(struct agent *agent)
{
    background_watch_end(&agent->processes->cleaning);
}

static void log_removed(const struct agent *agent, const struct remains_files *cleanup)
{
    if (cleanup->count)
        log_info(&agent->log, "removed %d files of dead workers from /dev/shm: %s", cleanup->count,
                 cleanup->removed.data ? cleanup->removed.data : "");
}

static void cleaned(void *context)
{
    struct agent *agent = context;
    log_removed(agent, agent->processes->cleanup);
    agent_processes_stop_cleaning(agent);
    agent_emit(agent, &(struct agent_event){.kind = AGENT_CLEANED});
}

static struct background_job *start_cleaning(struct agent *agent, struct muster_error *err)
{
    const int64_t running_ns = instant_diff_ns(clock_now(NULL), agent->round.started);
    struct remains_files_scope scope = {
        .uid = geteuid(),
        .since_ns = remains_files_since(agent->round.started_wall_ns, running_ns, clock_wall_ns()),
        .dead = agent->round.dead,
        .dead_count = (size_t)agent->round.dead_count};
    return remains_files_start(&scope, "/dev/shm", &agent->processes->cleanup, err);
}

void agent_processes_clean(struct agent *agent)
{
    struct agent_processes *processes = agent->processes;
    struct muster_error err = {0};
    struct background_job *job = start_cleaning(agent, &err);
    if (background_watch_begin(&processes->cleaning, &agent->loop, job, cleaned, agent, &err) < 0)
        log_warning(&agent->log, "%s", err.text); /* the next round starts all the same, at the deadline */
}

/* After a failure, on a machine that outlives the job. */
static void clean_at_end(struct agent *agent)
{
    const int64_t end_patience_ns = NS_PER_S;
    struct background_job *job = agent->round.dead_count ? start_cleaning(agent, NULL) : NULL;
    if (job && background_job_wait(job, end_patience_ns))
        log_removed(agent, agent->processes->cleanup);
    background_job_release(job);
}

/* --- the part --- */

static int processes_create(struct agent *agent, struct muster_error *err)
{
    struct agent_processes *processes = agent->processes = mem_calloc(1, sizeof *processes);
    if (!processes)
        return error_set(err, MUSTER_E_NOMEM, "no memory to watch workers");
    processes->killer.loop = &agent->loop;
    processes->guardian.fd = processes->guardian.second_fd = -1;
    processes->kill_at = processes->second_at = INSTANT_NEVER;
    if (children_init(&agent->children, err) < 0)
        return -1;
    if (guardian_adopt_orphans(err) < 0 && warn_of_unsupported(agent, err) < 0)
        return -1;
    if (watch_guardian(agent, err) < 0)
        return -1;
    return 0;
}

static struct instant processes_deadline(const struct agent *agent)
{
    const struct agent_processes *processes = agent->processes;
    const bool looks = processes->swept && !processes->killer.job && processes->killer.left_count;
    return instant_min(
        instant_min(processes->kill_at, processes->second_at),
        instant_min(looks ? processes->look_at : INSTANT_NEVER, remains_killer_deadline(&processes->killer)));
}

static void processes_tick(struct agent *agent, struct instant now)
{
    struct agent_processes *processes = agent->processes;
    pid_t stuck = remains_killer_tick(&processes->killer, now);
    if (stuck)
        log_warning(&agent->log, "cannot read /proc/%d/environ (blocked in the kernel); skipping it",
                    (int)stuck);
    if (instant_reached(now, processes->kill_at))
        agent_processes_kill(agent);
    if (instant_reached(now, processes->second_at))
        start_second(agent);
    /* Processes that the workers have left get the stop signal too. */
    int signal = agent->processes->late_signal;
    if (!signal || agent->round.alive)
        return;
    agent->processes->late_signal = 0;
    if (!agent_processes_are_gone(agent))
        send_killer(agent, signal);
}

static void forget_sessions(struct agent *agent)
{
    for (int i = 0; i < agent->round.worker_count; i++)
        if (agent->round.workers[i].pid && !agent->round.workers[i].kept)
            guardian_remove(&agent->processes->guardian, agent->round.workers[i].pid);
}

static void processes_event(struct agent *agent, const struct agent_event *event)
{
    switch (event->kind) {
    case AGENT_PASS_ON:
        signal_workers(agent, event->code);
        break;
    case AGENT_STATE:
        if (agent->group.state != GROUP_KILLING)
            agent->processes->kill_at = INSTANT_NEVER;
        if (agent->group.state != GROUP_STOPPING)
            agent->processes->late_signal = 0;
        if (agent->group.state != GROUP_CULLING) {
            agent->processes->swept = 0;
            agent->processes->look_at = (struct instant){0};
        }
        break;
    case AGENT_EMPTY: /* it must not find the next round's workers */
        remains_killer_cancel(&agent->processes->killer);
        break;
    case AGENT_ROUND_ENDS:
        forget_sessions(agent);
        break;
    case AGENT_ENDED:
        if (event->code)
            clean_at_end(agent);
        break;
    default:
        break;
    }
}

static void processes_destroy(struct agent *agent)
{
    struct agent_processes *processes = agent->processes;
    if (!processes)
        return;
    remains_killer_cancel(&processes->killer);
    background_watch_end(&processes->cleaning);
    guardian_dismiss(&processes->guardian);
    mem_free(processes);
    agent->processes = NULL;
}

const struct agent_part agent_processes_part = {"processes",    processes_create, processes_deadline,
                                                processes_tick, processes_event,  processes_destroy};
