/* agent_workers.c - the processes of one agent: starting, signalling, reaping. See agent_internal.h. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launcher/agent_internal.h"
#include "launcher/line.h"
#include "launcher/logdir.h"
#include "launcher/oom.h"
#include "launcher/postmortem.h"
#include "launcher/program.h"
#include "launcher/spawn.h"
#include "launcher/worker_command.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/exit_code.h"
#include "rendezvous/failure.h"

/* much less than the silence after which the server takes this node for lost */
static const int64_t postmortem_patience_ns = 500 * NS_PER_MS;

/* --- starting --- */

/* Where one stream of one worker goes. */
struct route {
    int fd; /* what the worker gets; ours to close where owned */
    bool owned;
};

static const char *const file_names[] = {NULL, "stdout.log", "stderr.log"};

/* A pipe whose end the pump reads: to the console, and to the file where there is one. */
static int route_through_pump(struct agent *agent, struct worker *worker, int stream, const char *directory,
                              struct route *route, struct muster_error *err)
{
    scope_buffer prefix = {0};
    scope_close int file = -1;
    int ends[2];
    if (directory) {
        file = logdir_open(directory, file_names[stream], err);
        if (file < 0 || line_prefix(agent->config->line_prefix, agent->config->role, worker->rank,
                                    worker->local_rank, &prefix) < 0)
            return -1;
    }
    if (pipe2(ends, O_CLOEXEC) < 0)
        return error_errno(err, "cannot make a pipe for local rank %d (ulimit -n limits them)",
                           worker->local_rank);
    (void)fcntl(ends[0], F_SETFL, O_NONBLOCK); /* ours alone; the worker's end stays blocking */
    scope_close int writer = ends[1];
    struct pump_stream_options options = {.fd = ends[0],
                                          .console = stream,
                                          .file = take_fd(&file),
                                          .prefix = directory ? prefix.data : NULL,
                                          .tail = stream == STDERR_FILENO};
    worker->streams[stream] = pump_add(agent->pump, &options, err);
    if (!worker->streams[stream])
        return -1;
    *route = (struct route){take_fd(&writer), true};
    return 0;
}

static int route_to_file(struct worker *worker, int stream, const char *directory, struct route *route,
                         struct muster_error *err)
{
    int fd = logdir_open(directory, file_names[stream], err);
    if (fd < 0)
        return -1;
    *route = (struct route){fd, true};
    if (stream != STDERR_FILENO)
        return 0;
    worker->stderr_file = mem_printf("%s/%s", directory, file_names[stream]);
    return 0; /* without memory for the path the report has no last lines */
}

/* torchrun's streams: tee before redirect; else to the console. There, stdout stays the worker's own
 * descriptor on a terminal, so that colours and progress bars are drawn; stderr passes through us for the
 * report. */
static int route_stream(struct agent *agent, struct worker *worker, int stream, const char *directory,
                        struct route *route, struct muster_error *err)
{
    int bit = stream == STDOUT_FILENO ? STREAM_STDOUT : STREAM_STDERR;
    bool tee = directory && config_streams(agent->config->tee, worker->local_rank) & bit;
    bool redirect = directory && config_streams(agent->config->redirects, worker->local_rank) & bit;
    if (redirect && !tee)
        return route_to_file(worker, stream, directory, route, err);
    if (!tee && stream == STDOUT_FILENO && isatty(STDOUT_FILENO)) {
        *route = (struct route){STDOUT_FILENO, false};
        return 0;
    }
    return route_through_pump(agent, worker, stream, tee ? directory : NULL, route, err);
}

static void close_route(struct route *route)
{
    if (route->owned)
        (void)close(route->fd); /* the worker has its copy, or was not started */
}

static int spawn_routed(struct agent *agent, struct worker *worker, const struct worker_command *command,
                        const char *directory, int *exit_code, struct muster_error *err)
{
    struct route __attribute__((cleanup(close_route))) out = {0}, error = {0};
    if (route_stream(agent, worker, STDOUT_FILENO, directory, &out, err) < 0 ||
        route_stream(agent, worker, STDERR_FILENO, directory, &error, err) < 0)
        return -1;
    struct spawn_options options = {.path = agent->program,
                                    .argv = command->argv,
                                    .envp = command->envp,
                                    .out_fd = out.fd,
                                    .err_fd = error.fd,
                                    .ignored = &agent->ignored,
                                    .descriptors = &agent->descriptors};
    pid_t pid = spawn_worker(&options, exit_code, err);
    if (pid < 0)
        return -1;
    worker->pid = pid;
    worker->alive = true;
    agent->alive++;
    return 0;
}

/* Where execvp(3) would find the program, once for all workers. */
static int find_program(struct agent *agent, const char *name, struct muster_error *err)
{
    if (agent->program)
        return 0;
    const char *path = getenv("PATH");
    agent->program = strchr(name, '/') ? mem_strdup(name) : program_find(name, path, err);
    if (!agent->program && strchr(name, '/'))
        return error_set(err, MUSTER_E_NOMEM, "no memory for the program's path");
    return agent->program ? 0 : -1;
}

static int start_worker(struct agent *agent, struct worker *worker, int *exit_code, struct muster_error *err)
{
    struct worker_command __attribute__((cleanup(worker_command_free))) command = {0};
    scope_free char *directory = NULL;
    *exit_code = EXIT_CODE_FAILURE;
    if (agent->run_directory) {
        directory = logdir_worker(agent->run_directory, agent->world.restart_count, worker->local_rank, err);
        worker->error_file = directory ? mem_printf("%s/error.json", directory) : NULL;
        if (!worker->error_file)
            return directory ? error_set(err, MUSTER_E_NOMEM, "no memory for a path") : -1;
    }
    const struct run_config *config = agent->config;
    if (worker_command_build(config, &agent->world, worker->local_rank, config->kind, environ, config->cores,
                             agent->id_chain, worker->error_file, &command, err) < 0)
        return -1;
    *exit_code = EXIT_CODE_NOT_FOUND;
    if (find_program(agent, command.argv[0], err) < 0)
        return -1;
    if (spawn_routed(agent, worker, &command, directory, exit_code, err) < 0)
        return -1;
    if (guardian_add(&agent->guardian, worker->pid, err) < 0)
        log_warning(&agent->log, "%s", err->text); /* its end is an event of its own and brings another one */
    return 0;
}

static void describe(const struct agent *agent, const struct worker *worker, struct worker_failure *failure)
{
    memset(failure, 0, sizeof *failure);
    failure->rank = worker->rank;
    failure->local_rank = worker->local_rank;
    failure->group_rank = agent->world.group_rank;
    failure->pid = worker->pid;
    failure->wall_ns = clock_wall_ns();
    (void)snprintf(failure->host, sizeof failure->host, "%s", agent->host);
}

int agent_start_workers(struct agent *agent, struct worker_failure *failure)
{
    agent->oom_kills = oom_count();
    agent->files_stall = false;
    for (int i = 0; i < agent->config->nproc_per_node; i++) {
        struct worker *worker = &agent->workers[i];
        struct muster_error err = {0};
        *worker = (struct worker){.local_rank = i, .rank = agent->world.rank_base + i};
        int exit_code;
        if (start_worker(agent, worker, &exit_code, &err) == 0)
            continue;
        describe(agent, worker, failure);
        failure->pid = getpid(); /* there is no worker: it is this process that failed to start one */
        failure->exit_code = exit_code;
        (void)snprintf(failure->tail, sizeof failure->tail, "%s", err.text);
        return -1;
    }
    return 0;
}

/* --- signalling --- */

static bool leads_group(const struct agent *agent, pid_t group)
{
    for (int i = 0; i < agent->config->nproc_per_node; i++)
        if (agent->workers[i].alive && agent->workers[i].pid == group)
            return true;
    return false;
}

static bool outside_groups(void *context, const struct kin_process *process)
{
    return !leads_group(context, process->group);
}

/* The sessions of this round's workers; NULL without memory. */
static struct kin_session *list_sessions(const struct agent *agent, size_t *count)
{
    const int workers = agent->config->nproc_per_node;
    struct kin_session *sessions = mem_calloc((size_t)workers, sizeof *sessions);
    *count = 0;
    for (int i = 0; sessions && i < workers; i++)
        if (agent->workers[i].pid)
            sessions[(*count)++] = (struct kin_session){agent->workers[i].pid, !agent->workers[i].alive};
    return sessions;
}

static int sweep(struct agent *agent, int signal, bool (*found)(void *, const struct kin_process *))
{
    struct kin kin = {.id = agent->id, .parent = getpid(), .except = {getpid(), agent->guardian.pid}};
    scope_free struct kin_session *sessions = list_sessions(agent, &kin.session_count);
    kin.sessions = sessions;
    return kin_sweep(&kin, signal, found, agent); /* without memory, by id and parent alone */
}

static void signal_groups(const struct agent *agent, int signal)
{
    for (int i = 0; i < agent->config->nproc_per_node; i++)
        if (agent->workers[i].alive)
            (void)kill(-agent->workers[i].pid, signal); /* it is not reaped: the number is its own */
}

void agent_terminate_workers(struct agent *agent, int signal)
{
    if (agent_is_childless())
        return;
    signal_groups(agent, signal);
    signal_groups(agent, SIGCONT); /* a stopped process handles nothing */
    (void)sweep(agent, signal, outside_groups);
}

void agent_kill_workers(struct agent *agent)
{
    signal_groups(agent, SIGKILL);
    (void)sweep(agent, SIGKILL, NULL); /* without /proc the groups are all that can be reached */
}

static bool name_one(void *context, const struct kin_process *process)
{
    struct agent *agent = context;
    log_error(&agent->log, "process %d (%s) cannot be killed: it is in state %c%s", (int)process->pid,
              process->name, process->state,
              process->state == 'D' ? ", inside the kernel (a driver or a file system that does not answer)"
                                    : "");
    return false;
}

void agent_name_stuck(struct agent *agent)
{
    (void)sweep(agent, SIGKILL, name_one);
}

/* --- reaping --- */

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

static void describe_end(struct agent *agent, struct worker *worker, struct worker_failure *failure)
{
    describe(agent, worker, failure);
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
        (void)guardian_reaped(&agent->guardian, worker->pid, NULL); /* the successor of a dead one is told */
    }
}

void agent_reap(struct agent *agent)
{
    enum group_state state = agent->group.state;
    collect(agent);
    for (int i = 0; i < agent->config->nproc_per_node; i++) {
        struct worker *worker = &agent->workers[i];
        bool news = worker->news;
        worker->news = false;
        if (!news || !is_own_end(agent, worker, state))
            continue;
        struct worker_failure failure;
        describe_end(agent, worker, &failure);
        agent_event(agent, &(struct group_event){.kind = GROUP_FAILURE}, &failure);
    }
    if (agent->group.state == GROUP_RUNNING && agent->alive == 0)
        agent_event(agent, &(struct group_event){.kind = GROUP_SUCCESS}, NULL);
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
            (void)guardian_remove(&agent->guardian, worker->pid, NULL); /* a dead one knows nothing anyway */
        pump_close(worker->streams[STDOUT_FILENO]);
        pump_close(worker->streams[STDERR_FILENO]);
        mem_free(worker->stderr_file);
        mem_free(worker->error_file);
        *worker = (struct worker){.local_rank = i};
    }
}

int agent_start_guardian(struct agent *agent, struct muster_error *err)
{
    if (getpid() == 1)
        return 0; /* the kernel kills the whole namespace with its init */
    size_t count;
    scope_free struct kin_session *sessions = list_sessions(agent, &count);
    if (!sessions)
        return error_set(err, MUSTER_E_NOMEM, "no memory to start the guardian");
    if (guardian_start(agent->id, sessions, count, &agent->guardian, err) < 0)
        return -1;
    agent->guardians++;
    return 0;
}
