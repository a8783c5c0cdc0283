/* agent_start.c - starting the workers of a round: where their streams go, what they execute. See
 * agent_internal.h. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launcher/agent_internal.h"
#include "launcher/error_directory.h"
#include "launcher/line.h"
#include "launcher/logdir.h"
#include "launcher/program.h"
#include "launcher/spawn.h"
#include "launcher/worker_command.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/exit_code.h"

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
    scope_close int beats = -1;
    if (agent_open_beats(agent, worker, &beats, err) < 0)
        return -1;
    struct spawn_options options = {.path = agent->program,
                                    .argv = command->argv,
                                    .envp = command->envp,
                                    .out_fd = out.fd,
                                    .err_fd = error.fd,
                                    .extra_fd = beats,
                                    .mark = kin_mark(agent->id),
                                    .ignored = &agent->ignored,
                                    .descriptors = &agent->descriptors,
                                    .cpus = agent->config->cpus ? &agent->config->cpus[worker->local_rank]
                                                                : NULL};
    pid_t pid = spawn_worker(&options, exit_code, err);
    if (pid < 0)
        return -1;
    worker->pid = pid;
    worker->alive = true;
    worker->begun = clock_now(NULL);
    agent->ran = true;
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
    if (agent->error_directory)
        worker->error_file =
            error_directory_file(agent->error_directory, agent->world.id.round, worker->local_rank);
    const struct run_config *config = agent->config;
    if (worker_command_build(config, &agent->world, worker->local_rank, config->kind, environ, config->cores,
                             agent->id_chain, worker->error_file, &command, err) < 0)
        return -1;
    *exit_code = EXIT_CODE_NOT_FOUND;
    if (find_program(agent, command.argv[0], err) < 0)
        return -1;
    *exit_code = EXIT_CODE_FAILURE;
    if (spawn_routed(agent, worker, &command, directory, exit_code, err) < 0)
        return -1;
    if (guardian_add(&agent->guardian, worker->pid, err) < 0)
        log_warning(&agent->log, "%s", err->text); /* its end is an event of its own and brings another one */
    return 0;
}

void agent_describe_worker(const struct agent *agent, const struct worker *worker,
                           struct worker_failure *failure)
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
    agent->dead_count = 0;
    agent->round_wall_ns = clock_wall_ns();
    for (int i = 0; i < agent->config->nproc_per_node; i++) {
        struct worker *worker = &agent->workers[i];
        struct muster_error err = {0};
        *worker = (struct worker){.local_rank = i, .rank = agent->world.rank_base + i};
        int exit_code;
        if (start_worker(agent, worker, &exit_code, &err) == 0)
            continue;
        agent_describe_worker(agent, worker, failure);
        failure->pid = getpid(); /* there is no worker: it is this process that failed to start one */
        failure->exit_code = exit_code;
        failure->not_started = true;
        (void)snprintf(failure->message, sizeof failure->message, "%s", err.text);
        return -1;
    }
    return 0;
}
