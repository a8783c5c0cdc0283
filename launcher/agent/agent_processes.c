/* agent_processes.c - starting, signalling and cleaning up after the processes of one agent. See
 * agent_processes.h. */
#include "launcher/agent/agent_processes.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launcher/agent/agent_heartbeats.h"
#include "launcher/agent/agent_nccl.h"
#include "launcher/agent/agent_notices.h"
#include "launcher/agent/agent_output.h"
#include "launcher/agent/agent_server.h"
#include "launcher/agent/agent_signals.h"
#include "launcher/loop/background_job.h"
#include "launcher/process/descendant_killer.h"
#include "launcher/process/find_program.h"
#include "launcher/process/guardian.h"
#include "launcher/process/shm_cleanup.h"
#include "launcher/process/spawn.h"
#include "launcher/process/worker_command.h"
#include "launcher/verdict/error_directory.h"
#include "launcher/warm/warm.h"
#include "launcher/warm/warm_message.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/exit_code.h"

enum { GUARDIANS_LIMIT = 4 };

struct agent_processes {
    char *program; /* the file to execute; NULL: not searched yet */
    bool ran;
    struct warm *warm;    /* NULL: no template */
    bool awaits_template; /* the round's workers are started when its state changes */
    struct guardian guardian;
    struct loop_source guard;
    int guardians; /* started so far */
    struct descendant_killer killer;
    int late_signal;                  /* for what is left when no worker is; 0: none */
    struct instant kill_at;           /* next scan for processes to kill */
    struct background_watch cleaning; /* during the clean-up after the workers */
    struct shm_cleanup *cleanup;      /* of cleaning */
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

/* --- starting --- */

/* What one worker's start needs until its program is executed. */
struct starting {
    struct worker *worker;
    struct worker_command *command; /* one for all, changed from worker to worker */
    struct agent_route out, error;
    int beats, notices; /* the worker's ends */
};

static void close_route(struct agent_route *route)
{
    if (route->owned)
        (void)close(route->fd); /* the worker has its copy, or was not started */
}

static void starting_free(struct starting *s)
{
    close_route(&s->out);
    close_route(&s->error);
    guard_close(&s->beats);
    guard_close(&s->notices);
}

static int open_routes(struct agent *agent, struct starting *s, struct muster_error *err)
{
    struct worker *worker = s->worker;
    return agent_output_route(agent, worker, STDOUT_FILENO, &s->out, err) < 0 ||
                   agent_output_route(agent, worker, STDERR_FILENO, &s->error, err) < 0 ||
                   agent_heartbeats_open(agent, worker, &s->beats, err) < 0 ||
                   agent_notices_open(agent, worker, &s->notices, err) < 0
               ? -1
               : 0;
}

static struct spawn_options options_of(const struct agent *agent, const struct starting *s)
{
    return (struct spawn_options){.path = agent->processes->program,
                                  .argv = s->command->argv,
                                  .envp = s->command->envp,
                                  .out_fd = s->out.fd,
                                  .err_fd = s->error.fd,
                                  .extra_fds = {s->beats, s->notices},
                                  .extra_count = 2,
                                  .mark = descendants_mark(agent->id),
                                  .ignored = agent_signals_ignored(agent),
                                  .descriptors = &agent->descriptors,
                                  .core_dumps = agent_server_core_dumps(agent),
                                  .cpus = agent->config->cpus ? &agent->config->cpus[s->worker->local_rank]
                                                              : NULL};
}

static void take_up(struct agent *agent, struct worker *worker, pid_t pid)
{
    guardian_add(&agent->processes->guardian, pid);
    round_worker_started(&agent->round, worker, pid);
    agent->processes->ran = true;
}

static int spawn_cold(struct agent *agent, const struct starting *s, int *exit_code, struct muster_error *err)
{
    const struct spawn_options options = options_of(agent, s);
    pid_t pid = spawn_worker(&options, exit_code, err);
    if (pid < 0)
        return -1;
    take_up(agent, s->worker, pid);
    return 0;
}

/* Where execvp(3) would find the program, once for all workers. */
static int find_once(struct agent *agent, const char *name, struct muster_error *err)
{
    struct agent_processes *processes = agent->processes;
    if (processes->program)
        return 0;
    const char *path = getenv("PATH");
    processes->program = strchr(name, '/') ? mem_strdup(name) : find_program(name, path, err);
    if (!processes->program && strchr(name, '/'))
        return error_set(err, MUSTER_E_NOMEM, "no memory for the program's path");
    return processes->program ? 0 : -1;
}

static int name_error_file(const struct agent *agent, struct worker *worker, struct muster_error *err)
{
    const struct membership_world *world = &agent->round.world;
    const char *run_directory = agent_output_run_directory(agent),
               *error_directory = agent_output_error_directory(agent);
    if (run_directory)
        worker->error_file = mem_printf("%s/attempt_%lld/%d/error.json", run_directory,
                                        (long long)world->restart_count, worker->local_rank);
    if (run_directory && !worker->error_file)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a path");
    if (error_directory)
        worker->error_file = error_directory_file(error_directory, world->id.round, worker->local_rank);
    return 0;
}

static int command_worker(struct agent *agent, struct starting *s, struct muster_error *err)
{
    const struct run_config *config = agent->config;
    const struct membership_world *world = &agent->round.world;
    const struct worker *worker = s->worker;
    char *const *inherited = agent_nccl_environment(agent);
    return s->command->argv
               ? worker_command_change(config, world, worker->local_rank, config->kind, inherited,
                                       worker->error_file, s->command, err)
               : worker_command_build(config, world, worker->local_rank, config->kind, inherited,
                                      config->cores, agent->id_chain, worker->error_file, s->command, err);
}

/* All but the start itself. *exit_code: of a failure. */
static int prepare_worker(struct agent *agent, struct starting *s, int *exit_code, struct muster_error *err)
{
    *exit_code = EXIT_CODE_FAILURE;
    if (name_error_file(agent, s->worker, err) < 0 || command_worker(agent, s, err) < 0)
        return -1;
    *exit_code = EXIT_CODE_NOT_FOUND;
    if (find_once(agent, s->command->argv[0], err) < 0)
        return -1;
    *exit_code = EXIT_CODE_FAILURE;
    return open_routes(agent, s, err);
}

static int start_cold(struct agent *agent, struct agent_start *out, struct muster_error *err)
{
    struct worker_command __attribute__((cleanup(worker_command_free))) command = {0};
    for (int i = 0; i < agent->round.worker_count; i++) {
        struct starting s = {
            .worker = &agent->round.workers[i], .command = &command, .beats = -1, .notices = -1};
        int exit_code, result = prepare_worker(agent, &s, &exit_code, err);
        if (result == 0)
            result = spawn_cold(agent, &s, &exit_code, err);
        starting_free(&s);
        if (result < 0) {
            *out = (struct agent_start){.worker = s.worker, .exit_code = exit_code};
            return -1;
        }
    }
    return 0;
}

/* --- starting from a template --- */

/* A template that makes no worker for so long is stuck. */
static const int64_t template_patience_ns = 10 * NS_PER_S;

static void template_changed(void *context)
{
    struct agent *agent = context;
    const struct agent_processes *processes = agent->processes;
    const char *reason = warm_reason(processes->warm);
    if (warm_state(processes->warm) == WARM_ENDED)
        log_warning(&agent->log,
                    "--warm: the template cannot be used (%s): workers start their own interpreters", reason);
    else if (*reason)
        log_warning(&agent->log, "--warm: left out of the template: %s", reason);
    bool wanted = agent->group.state == GROUP_RUNNING || agent->group.state == GROUP_DRAINING;
    if (wanted && processes->awaits_template) /* else it is being stopped before it began */
        agent_emit(agent, &(struct agent_event){.kind = AGENT_TEMPLATE});
}

static bool is_compiled(const char *program)
{
    size_t length = strlen(program);
    return length > 4 && (!strcmp(program + length - 4, ".pyc") || !strcmp(program + length - 4, ".pyz"));
}

static int open_template(struct agent *agent, struct muster_error *err)
{
    const struct run_config *config = agent->config;
    if (config->kind == PROGRAM_PYTHON && is_compiled(config->program))
        return error_set(err, MUSTER_E_UNSUPPORTED, "%s is no Python source", config->program);
    struct worker_command __attribute__((cleanup(worker_command_free))) command = {0};
    scope_text_list argv = {0};
    char *const *inherited = agent_nccl_environment(agent);
    if (worker_command_template(config, config->kind, inherited, config->cores, agent->id_chain, &command,
                                err) < 0 ||
        find_once(agent, command.argv[0], err) < 0)
        return -1;
    if (config->kind != PROGRAM_EXECUTABLE && warm_python_command(config->warm, command.argv, &argv) < 0)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the template's command");
    const struct spawn_options options = {.path = agent->processes->program,
                                          .argv = argv.items ? argv.items : command.argv,
                                          .envp = command.envp,
                                          .out_fd = STDERR_FILENO,
                                          .err_fd = STDERR_FILENO,
                                          .mark = descendants_mark(agent->id),
                                          .ignored = agent_signals_ignored(agent),
                                          .descriptors = &agent->descriptors,
                                          .core_dumps = agent_server_core_dumps(agent),
                                          .cpus = config->cpus && config->nproc_per_node == 1 ? config->cpus
                                                                                              : NULL};
    agent->processes->warm = warm_open(&options, &agent->loop, template_changed, agent, err);
    return agent->processes->warm ? 0 : -1;
}

/* A missing interpreter and the like are errors of the workers' start, with its exit codes. */
static void try_template(struct agent *agent)
{
    struct muster_error err = {0};
    const char *modules = agent->config->warm;
    if (modules && *modules && open_template(agent, &err) < 0)
        log_warning(&agent->log, "--warm: %s: workers start their own interpreters", err.text);
}

static bool template_serves(const struct agent *agent)
{
    return agent->processes->warm && warm_state(agent->processes->warm) == WARM_SERVING;
}

bool agent_processes_await_template(struct agent *agent)
{
    struct agent_processes *processes = agent->processes;
    processes->awaits_template = processes->warm && warm_state(processes->warm) == WARM_IMPORTING;
    return processes->awaits_template;
}

bool agent_processes_awaits_template(const struct agent *agent)
{
    return agent->processes->awaits_template;
}

/* Requests all, so that the workers' own set-up runs beside the template's next fork, and then takes them up
 * as they answer. Returns how many did. */
static int start_requested(struct agent *agent, struct starting *all, int requested)
{
    struct muster_error err = {0};
    struct instant deadline = instant_add(clock_now(NULL), template_patience_ns);
    int taken = 0;
    for (; taken < requested; taken++) {
        unsigned number;
        pid_t pid = warm_collect(agent->processes->warm, deadline, &number, &err);
        if (pid < 0)
            break;
        take_up(agent, all[number].worker, pid);
    }
    if (taken < requested)
        log_warning(&agent->log, "--warm: %s: workers start their own interpreters", err.text);
    return taken;
}

static int prepare_and_request(struct agent *agent, struct starting *s, bool *requests, int *exit_code,
                               struct muster_error *err)
{
    struct muster_error refused = {0};
    if (prepare_worker(agent, s, exit_code, err) < 0)
        return -1;
    const struct spawn_options options = options_of(agent, s);
    *requests = *requests && warm_request(agent->processes->warm, (unsigned)s->worker->local_rank, &options,
                                          &refused) == 0;
    if (*refused.text)
        log_warning(&agent->log, "--warm: %s: the workers from local rank %d on start their own interpreters",
                    refused.text, s->worker->local_rank);
    return 0;
}

/* Those that the template did not make. */
static int start_rest(struct agent *agent, struct starting *all, struct agent_start *out,
                      struct muster_error *err)
{
    for (int i = 0; i < agent->round.worker_count; i++) {
        struct starting *s = &all[i];
        int exit_code = EXIT_CODE_FAILURE;
        if (s->worker->pid)
            continue;
        if (command_worker(agent, s, err) < 0 || spawn_cold(agent, s, &exit_code, err) < 0) {
            *out = (struct agent_start){.worker = s->worker, .exit_code = exit_code};
            return -1;
        }
    }
    return 0;
}

static int start_from_template(struct agent *agent, struct agent_start *out, struct muster_error *err)
{
    struct worker_command __attribute__((cleanup(worker_command_free))) command = {0};
    int count = agent->round.worker_count, prepared = 0, requested = 0, result = 0;
    bool requests = true;
    scope_free struct starting *all = mem_calloc((size_t)count, sizeof *all);
    if (!all)
        return error_set(err, MUSTER_E_NOMEM, "no memory to start %d workers", count);
    for (; result == 0 && prepared < count; prepared++) {
        struct starting *s = &all[prepared];
        *s = (struct starting){
            .worker = &agent->round.workers[prepared], .command = &command, .beats = -1, .notices = -1};
        int exit_code;
        result = prepare_and_request(agent, s, &requests, &exit_code, err);
        requested += result == 0 && requests;
        if (result < 0)
            *out = (struct agent_start){.worker = s->worker, .exit_code = exit_code};
    }
    (void)start_requested(agent, all, requested);
    if (result == 0)
        result = start_rest(agent, all, out, err);
    for (int i = 0; i < prepared; i++)
        starting_free(&all[i]);
    return result;
}

int agent_processes_start(struct agent *agent, struct agent_start *out, struct muster_error *err)
{
    *out = (struct agent_start){.exit_code = EXIT_CODE_FAILURE};
    agent->round.started_wall_ns = clock_wall_ns();
    if (agent_nccl_decide(agent, err) < 0)
        return -1;
    return (template_serves(agent) ? start_from_template : start_cold)(agent, out, err);
}

void agent_processes_release(struct agent *agent)
{
    if (agent->processes)
        guardian_release(&agent->processes->guardian);
}

bool agent_processes_ran(const struct agent *agent)
{
    return agent->processes && agent->processes->ran;
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
                        .keeper = processes->warm ? warm_keeper(processes->warm) : 0},
        .signal = signal,
        .spare_groups = signal != SIGKILL, /* they get theirs directly, once */
    };
    scope_free struct descendants_session *sessions = list_sessions(agent, &order.descendants.session_count);
    order.descendants.sessions = sessions; /* without memory, by id and parent alone */
    if (descendant_killer_start(&processes->killer, &order, &err) < 0)
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

/* What the workers have left behind gets the stop signal too. */
static void signal_remains(struct agent *agent)
{
    int signal = agent->processes->late_signal;
    if (!signal || agent->round.alive)
        return;
    agent->processes->late_signal = 0;
    if (!agent_processes_are_gone(agent))
        send_killer(agent, signal);
}

void agent_processes_kill(struct agent *agent)
{
    struct instant now = clock_now(NULL);
    struct instant since = instant_add(agent->group.deadline, -agent->group.kill_bound_ns); /* of KILLING */
    signal_workers(agent, SIGKILL);
    send_killer(agent, SIGKILL);
    agent->processes->kill_at = instant_add(now, descendant_killer_pause_ns(instant_diff_ns(now, since)));
}

void agent_processes_kill_last(struct agent *agent, int64_t patience_ns)
{
    signal_workers(agent, SIGKILL);
    send_killer(agent, SIGKILL);
    descendant_killer_wait(&agent->processes->killer, patience_ns);
}

/* Another scan could block, and nothing can be done about them anyway. */
const struct descendants_process *agent_processes_name_stuck(struct agent *agent)
{
    const struct descendant_killer *killer = &agent->processes->killer;
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

bool agent_processes_are_gone(const struct agent *agent)
{
    siginfo_t info = {0};
    (void)agent; /* all children of this process are its */
    return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) < 0 && errno == ECHILD;
}

/* --- the guardian --- */

/* If it is empty: its content is for later. */
static void remove_error_directory(const void *folder)
{
    if (folder && *(const char *)folder == '/')
        (void)rmdir(folder);
}

static int start_guardian(struct agent *agent, struct muster_error *err)
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
    if (guardian_start(&task, &agent->processes->guardian, err) < 0)
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
    (void)events; /* EPOLLERR: no process has the read end any more */
    loop_remove(&agent->loop, &processes->guard);
    guardian_dismiss(&processes->guardian);
    if (processes->guardians >= GUARDIANS_LIMIT || watch_guardian(agent, &err) < 0)
        log_warning(&agent->log,
                    "the guardian process was killed and cannot be replaced%s%s: if this agent is killed "
                    "too, worker processes may survive",
                    *err.text ? ": " : "", err.text);
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
    if (start_guardian(agent, err) < 0)
        return warn_of_unsupported(agent, err);
    processes->guard = (struct loop_source){processes->guardian.fd, guardian_gone, agent};
    return processes->guardian.pid ? loop_add(&agent->loop, &processes->guard, 0, err) : 0;
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

static void cleaned(void *context)
{
    struct agent *agent = context;
    const struct shm_cleanup *cleanup = agent->processes->cleanup;
    if (cleanup->count)
        log_info(&agent->log, "removed %d files of dead workers from /dev/shm: %s", cleanup->count,
                 cleanup->removed.data ? cleanup->removed.data : "");
    agent_processes_stop_cleaning(agent);
    agent_emit(agent, &(struct agent_event){.kind = AGENT_CLEANED});
}

void agent_processes_clean(struct agent *agent)
{
    struct agent_processes *processes = agent->processes;
    struct muster_error err = {0};
    struct shm_cleanup_scope scope = {.uid = geteuid(),
                                      .since_ns = agent->round.started_wall_ns,
                                      .dead = agent->round.dead,
                                      .dead_count = (size_t)agent->round.dead_count};
    struct background_job *job = shm_cleanup_start(&scope, "/dev/shm", &processes->cleanup, &err);
    if (background_watch_begin(&processes->cleaning, &agent->loop, job, cleaned, agent, &err) < 0)
        log_warning(&agent->log, "%s", err.text); /* the next round starts all the same, at the deadline */
}

/* --- the part --- */

static int processes_create(struct agent *agent, struct muster_error *err)
{
    struct agent_processes *processes = agent->processes = mem_calloc(1, sizeof *processes);
    if (!processes)
        return error_set(err, MUSTER_E_NOMEM, "no memory to start workers");
    processes->killer.loop = &agent->loop;
    processes->guardian.fd = -1;
    processes->kill_at = INSTANT_NEVER;
    if (guardian_adopt_orphans(err) < 0 && warn_of_unsupported(agent, err) < 0)
        return -1;
    if (watch_guardian(agent, err) < 0)
        return -1;
    try_template(agent);
    return 0;
}

static struct instant processes_deadline(const struct agent *agent)
{
    const struct agent_processes *processes = agent->processes;
    return instant_min(processes->kill_at, descendant_killer_deadline(&processes->killer));
}

static void processes_tick(struct agent *agent, struct instant now)
{
    struct agent_processes *processes = agent->processes;
    pid_t stuck = descendant_killer_tick(&processes->killer, now);
    if (stuck)
        log_warning(&agent->log, "cannot read /proc/%d/environ (blocked in the kernel); skipping it",
                    (int)stuck);
    if (instant_reached(now, processes->kill_at))
        agent_processes_kill(agent);
    signal_remains(agent);
}

static void forget_sessions(struct agent *agent)
{
    for (int i = 0; i < agent->round.worker_count; i++)
        if (agent->round.workers[i].pid)
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
        break;
    case AGENT_EMPTY: /* it must not find the next round's workers */
        descendant_killer_cancel(&agent->processes->killer);
        break;
    case AGENT_WORLD:
    case AGENT_TEMPLATE:
        agent->processes->awaits_template = false;
        break;
    case AGENT_ROUND_ENDS:
        forget_sessions(agent);
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
    descendant_killer_cancel(&processes->killer);
    background_watch_end(&processes->cleaning);
    warm_close(processes->warm);
    guardian_dismiss(&processes->guardian);
    mem_free(processes->program);
    mem_free(processes);
    agent->processes = NULL;
}

const struct agent_part agent_processes_part = {"processes",    processes_create, processes_deadline,
                                                processes_tick, processes_event,  processes_destroy};
