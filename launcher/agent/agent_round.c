/* agent_round.c - starting the workers of a round: where their streams go, what they execute. See
 * agent_internal.h. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launcher/agent/agent_internal.h"
#include "launcher/output/line.h"
#include "launcher/output/log_directory.h"
#include "launcher/process/find_program.h"
#include "launcher/process/spawn.h"
#include "launcher/process/worker_command.h"
#include "launcher/verdict/error_directory.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/exit_code.h"

static void close_route(struct agent_route *route)
{
    if (route->owned)
        (void)close(route->fd); /* the worker has its copy, or was not started */
}

static int spawn_routed(struct agent *agent, struct worker *worker, const struct worker_command *command,
                        int *exit_code, struct muster_error *err)
{
    struct agent_route __attribute__((cleanup(close_route))) out = {0}, error = {0};
    if (agent_route_stream(agent, worker, STDOUT_FILENO, &out, err) < 0 ||
        agent_route_stream(agent, worker, STDERR_FILENO, &error, err) < 0)
        return -1;
    scope_close int beats = -1, notices = -1;
    if (agent_open_beats(agent, worker, &beats, err) < 0 ||
        agent_open_notices(agent, worker, &notices, err) < 0)
        return -1;
    struct spawn_options options = {.path = agent->program,
                                    .argv = command->argv,
                                    .envp = command->envp,
                                    .out_fd = out.fd,
                                    .err_fd = error.fd,
                                    .extra_fds = {beats, notices},
                                    .extra_count = 2,
                                    .mark = descendants_mark(agent->id),
                                    .ignored = &agent->ignored,
                                    .descriptors = &agent->descriptors,
                                    .core_dumps = agent->has_keys ? &agent->core_dumps : NULL,
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
static int round_find_program(struct agent *agent, const char *name, struct muster_error *err)
{
    if (agent->program)
        return 0;
    const char *path = getenv("PATH");
    agent->program = strchr(name, '/') ? mem_strdup(name) : find_program(name, path, err);
    if (!agent->program && strchr(name, '/'))
        return error_set(err, MUSTER_E_NOMEM, "no memory for the program's path");
    return agent->program ? 0 : -1;
}

static int start_worker(struct agent *agent, struct worker *worker, int *exit_code, struct muster_error *err)
{
    struct worker_command __attribute__((cleanup(worker_command_free))) command = {0};
    *exit_code = EXIT_CODE_FAILURE;
    if (agent->run_directory) {
        worker->error_file = mem_printf("%s/attempt_%lld/%d/error.json", agent->run_directory,
                                        (long long)agent->world.restart_count, worker->local_rank);
        if (!worker->error_file)
            return error_set(err, MUSTER_E_NOMEM, "no memory for a path");
    }
    if (agent->error_directory)
        worker->error_file =
            error_directory_file(agent->error_directory, agent->world.id.round, worker->local_rank);
    const struct run_config *config = agent->config;
    if (worker_command_build(config, &agent->world, worker->local_rank, config->kind,
                             agent_environment(agent), config->cores, agent->id_chain, worker->error_file,
                             &command, err) < 0)
        return -1;
    *exit_code = EXIT_CODE_NOT_FOUND;
    if (round_find_program(agent, command.argv[0], err) < 0)
        return -1;
    *exit_code = EXIT_CODE_FAILURE;
    if (spawn_routed(agent, worker, &command, exit_code, err) < 0)
        return -1;
    guardian_add(&agent->guardian, worker->pid);
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

void agent_describe_start(const struct agent *agent, const struct worker *worker, const char *why,
                          struct worker_failure *failure)
{
    agent_describe_worker(agent, worker, failure);
    failure->pid = getpid(); /* there is no worker: it is this process that failed to start one */
    failure->exit_code = EXIT_CODE_FAILURE;
    failure->not_started = true;
    (void)snprintf(failure->message, sizeof failure->message, "%s", why);
}

int agent_start_workers(struct agent *agent, struct worker_failure *failure)
{
    agent->dead_count = 0;
    agent->round_wall_ns = clock_wall_ns();
    struct muster_error err = {0};
    if (agent_tune(agent, &err) < 0) {
        agent_describe_start(agent, &(struct worker){.rank = agent->world.rank_base}, err.text, failure);
        return -1;
    }
    for (int i = 0; i < agent->config->nproc_per_node; i++) {
        struct worker *worker = &agent->workers[i];
        *worker = (struct worker){.local_rank = i, .rank = agent->world.rank_base + i, .notices.fd = -1};
        int exit_code;
        if (start_worker(agent, worker, &exit_code, &err) == 0)
            continue;
        agent_describe_start(agent, worker, err.text, failure);
        failure->exit_code = exit_code;
        return -1;
    }
    return 0;
}
