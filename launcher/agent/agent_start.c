/* agent_start.c - starts the workers of a round: cold, or from a template (--warm). See agent_start.h. */
#include "launcher/agent/agent_start.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launcher/agent/agent_heartbeats.h"
#include "launcher/agent/agent_nccl.h"
#include "launcher/agent/agent_notices.h"
#include "launcher/agent/agent_output.h"
#include "launcher/agent/agent_processes.h"
#include "launcher/agent/agent_server.h"
#include "launcher/agent/agent_signals.h"
#include "launcher/agent/pmi/agent_pmi.h"
#include "launcher/process/find_program.h"
#include "launcher/process/spawn.h"
#include "launcher/process/worker_command.h"
#include "launcher/verdict/error_file.h"
#include "launcher/warm/warm.h"
#include "launcher/warm/warm_message.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/exit_code.h"

struct agent_start {
    char *program; /* the file to execute; NULL: not searched yet */
    bool ran;
    struct warm *warm;    /* NULL: no template */
    bool left_killed;     /* what workers of a reaper that was killed had left */
    bool awaits_template; /* the round's workers are started when its state changes */
};

/* What one worker's start needs until its program is executed. */
struct starting {
    struct worker *worker;
    struct worker_command *command; /* one for all, changed from worker to worker */
    struct agent_route out, error;
    int beats, notices, pmi; /* the worker's ends; pmi: -1 where there is none */
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
    guard_close(&s->pmi);
}

static struct spawn_options options_of(const struct agent *agent, const struct starting *s)
{
    const int key = agent_server_store_key_fd(agent);
    struct spawn_options options = {.path = agent->start->program,
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
    if (key >= 0)
        options.extra_fds[options.extra_count++] = key;
    if (s->pmi >= 0)
        options.extra_fds[options.extra_count++] = s->pmi;
    return options;
}

static void take_up(struct agent *agent, struct worker *worker, pid_t pid)
{
    agent_processes_take_up(agent, worker, pid);
    agent->start->ran = true;
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
    struct agent_start *start = agent->start;
    if (!start->program)
        start->program = strchr(name, '/') ? mem_strdup(name) : find_program(name, getenv("PATH"), err);
    if (!start->program && strchr(name, '/'))
        return error_set(err, MUSTER_E_NOMEM, "no memory for the program's path");
    return start->program ? 0 : -1;
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
    *exit_code = EXIT_CODE_ENVIRONMENT; /* no memory, no file, no pipe */
    if (name_error_file(agent, s->worker, err) < 0 || command_worker(agent, s, err) < 0)
        return -1;
    *exit_code = EXIT_CODE_NOT_FOUND;
    if (find_once(agent, s->command->argv[0], err) < 0)
        return -1;
    *exit_code = EXIT_CODE_ENVIRONMENT;
    struct worker *worker = s->worker;
    return agent_output_route(agent, worker, STDOUT_FILENO, &s->out, err) < 0 ||
                   agent_output_route(agent, worker, STDERR_FILENO, &s->error, err) < 0 ||
                   agent_heartbeats_open(agent, worker, &s->beats, err) < 0 ||
                   agent_notices_open(agent, worker, &s->notices, err) < 0 ||
                   agent_pmi_open(agent, worker, &s->pmi, err) < 0
               ? -1
               : 0;
}

static int start_cold(struct agent *agent, struct start_failure *out, struct muster_error *err)
{
    struct worker_command __attribute__((cleanup(worker_command_free))) command = {0};
    for (int i = 0; i < agent->round.worker_count; i++) {
        if (agent->round.workers[i].pid)
            continue; /* it has stayed */
        struct starting s = {
            .worker = &agent->round.workers[i], .command = &command, .beats = -1, .notices = -1, .pmi = -1};
        int exit_code, result = prepare_worker(agent, &s, &exit_code, err);
        if (result == 0)
            result = spawn_cold(agent, &s, &exit_code, err);
        starting_free(&s);
        if (result < 0) {
            *out = (struct start_failure){.worker = s.worker, .exit_code = exit_code};
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
    const struct agent_start *start = agent->start;
    const char *reason = warm_reason(start->warm);
    agent_processes_know_template(agent, start->warm);
    if (warm_state(start->warm) == WARM_SERVING && *warm_note(start->warm))
        log_info(&agent->log, "--warm-keep: %s", warm_note(start->warm));
    if (warm_state(start->warm) == WARM_ENDED)
        log_warning(&agent->log,
                    "--warm: the template cannot be used (%s): workers start their own interpreters", reason);
    else if (*reason)
        log_warning(&agent->log, "--warm: left out of the template: %s", reason);
    bool wanted = agent->group.state == GROUP_RUNNING || agent->group.state == GROUP_DRAINING;
    if (wanted && start->awaits_template) /* else it is being stopped before it began */
        agent_emit(agent, &(struct agent_event){.kind = AGENT_TEMPLATE});
}

static bool is_compiled(const char *program)
{
    size_t length = strlen(program);
    return length > 4 && (!strcmp(program + length - 4, ".pyc") || !strcmp(program + length - 4, ".pyz"));
}

static void worker_of_template_ended(void *context)
{
    struct agent *agent = context;
    struct agent_start *start = agent->start;
    if (warm_reaper_has_gone(start->warm) && !start->left_killed) {
        start->left_killed = true;
        agent_processes_kill_left(agent, NS_PER_S);
    }
    agent_emit(agent, &(struct agent_event){.kind = AGENT_CHILDREN});
}

/* NULL: a template that ends with the job is used, and the log says why. */
static struct warm *open_kept(struct agent *agent, const struct spawn_options *options)
{
    const struct run_config *config = agent->config;
    struct muster_error err = {0};
    const struct warm_keep keep = {
        .seconds = config->warm_keep_s,
        .mark = descendants_mark(agent->id),
        .subject = {.interpreter = options->path,
                    .modules = config->warm,
                    .program = config->kind == PROGRAM_PYTHON ? config->program : NULL,
                    .environment = options->envp,
                    .ignored = options->ignored,
                    .descriptors = options->descriptors,
                    .core_dumps = options->core_dumps},
    };
    struct warm *warm = NULL;
    if (config->kind == PROGRAM_EXECUTABLE)
        error_set(&err, MUSTER_E_UNSUPPORTED, "%s is its own template", config->program);
    else
        warm = warm_open_kept(options, &keep, &agent->loop, template_changed, worker_of_template_ended, agent,
                              &err);
    if (!warm)
        log_warning(&agent->log, "--warm-keep: %s: the template ends with this job", err.text);
    return warm;
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
    const struct spawn_options options = {.path = agent->start->program,
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
    if (config->warm_keep_s > 0)
        agent->start->warm = open_kept(agent, &options);
    if (!agent->start->warm)
        agent->start->warm = warm_open(&options, &agent->loop, template_changed, agent, err);
    if (!agent->start->warm)
        return -1;
    agent_processes_know_template(agent, agent->start->warm);
    return 0;
}

/* A missing interpreter and the like are errors of the workers' start, with its exit codes. */
static void try_template(struct agent *agent)
{
    struct muster_error err = {0};
    const char *modules = agent->config->warm;
    if (modules && *modules && open_template(agent, &err) < 0)
        log_warning(&agent->log, "--warm: %s: workers start their own interpreters", err.text);
    if (agent->config->warm_keep_s > 0 && !(modules && *modules))
        log_warning(&agent->log, "--warm-keep has no effect without --warm, which makes the template");
}

static bool template_serves(const struct agent *agent)
{
    return agent->start->warm && warm_state(agent->start->warm) == WARM_SERVING;
}

bool agent_start_await_template(struct agent *agent)
{
    struct agent_start *start = agent->start;
    start->awaits_template = start->warm && warm_state(start->warm) == WARM_IMPORTING;
    return start->awaits_template;
}

bool agent_start_awaits_template(const struct agent *agent)
{
    return agent->start->awaits_template;
}

/* Requests all, so that a worker's own set-up runs during the template's next fork, and then takes them up
 * as they answer. Returns how many did. */
static int start_requested(struct agent *agent, struct starting *all, int requested)
{
    struct muster_error err = {0};
    struct instant deadline = instant_add(clock_now(NULL), template_patience_ns);
    int taken = 0;
    for (; taken < requested; taken++) {
        unsigned number;
        pid_t pid = warm_collect(agent->start->warm, deadline, &number, &err);
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
    *requests = *requests &&
                warm_request(agent->start->warm, (unsigned)s->worker->local_rank, &options, &refused) == 0;
    if (*refused.text)
        log_warning(&agent->log, "--warm: %s: the workers from local rank %d on start their own interpreters",
                    refused.text, s->worker->local_rank);
    return 0;
}

/* Starts the workers that the template did not make. */
static int start_rest(struct agent *agent, struct starting *all, struct start_failure *out,
                      struct muster_error *err)
{
    for (int i = 0; i < agent->round.worker_count; i++) {
        struct starting *s = &all[i];
        int exit_code = EXIT_CODE_ENVIRONMENT;
        if (s->worker->pid)
            continue;
        if (command_worker(agent, s, err) < 0 || spawn_cold(agent, s, &exit_code, err) < 0) {
            *out = (struct start_failure){.worker = s->worker, .exit_code = exit_code};
            return -1;
        }
    }
    return 0;
}

static int start_from_template(struct agent *agent, struct start_failure *out, struct muster_error *err)
{
    struct worker_command __attribute__((cleanup(worker_command_free))) command = {0};
    int count = agent->round.worker_count, prepared = 0, requested = 0, result = 0;
    bool requests = true;
    scope_free struct starting *all = mem_calloc((size_t)count, sizeof *all);
    if (!all)
        return error_set(err, MUSTER_E_NOMEM, "no memory to start %d workers", count);
    for (; result == 0 && prepared < count; prepared++) {
        struct starting *s = &all[prepared];
        *s = (struct starting){.worker = &agent->round.workers[prepared],
                               .command = &command,
                               .beats = -1,
                               .notices = -1,
                               .pmi = -1};
        int exit_code;
        if (s->worker->pid)
            continue; /* it has stayed */
        result = prepare_and_request(agent, s, &requests, &exit_code, err);
        requested += result == 0 && requests;
        if (result < 0)
            *out = (struct start_failure){.worker = s->worker, .exit_code = exit_code};
    }
    (void)start_requested(agent, all, requested);
    if (result == 0)
        result = start_rest(agent, all, out, err);
    for (int i = 0; i < prepared; i++)
        starting_free(&all[i]);
    return result;
}

int agent_start_workers(struct agent *agent, struct start_failure *out, struct muster_error *err)
{
    *out = (struct start_failure){.exit_code = EXIT_CODE_FAILURE};
    agent->round.started = clock_now(NULL);
    agent->round.started_wall_ns = clock_wall_ns();
    if (agent_nccl_decide(agent, err) < 0)
        return -1;
    for (int i = 0; i < agent->round.worker_count; i++)
        if (agent->round.workers[i].alive) { /* it has stayed */
            agent_heartbeats_renew(agent, &agent->round.workers[i]);
            agent_notices_place(agent, &agent->round.workers[i]);
        }
    return (template_serves(agent) ? start_from_template : start_cold)(agent, out, err);
}

bool agent_start_take_end(struct agent *agent, struct warm_end *end)
{
    return agent->start && warm_take_end(agent->start->warm, end);
}

bool agent_start_ran(const struct agent *agent)
{
    return agent->start && agent->start->ran;
}

/* --- the part --- */

static int start_create(struct agent *agent, struct muster_error *err)
{
    agent->start = mem_calloc(1, sizeof *agent->start);
    if (!agent->start)
        return error_set(err, MUSTER_E_NOMEM, "no memory to start workers");
    try_template(agent);
    return 0;
}

static struct instant start_deadline(const struct agent *agent)
{
    return warm_deadline(agent->start->warm);
}

static void start_tick(struct agent *agent, struct instant now)
{
    warm_tick(agent->start->warm, now);
}

static void start_event(struct agent *agent, const struct agent_event *event)
{
    if (event->kind == AGENT_WORLD || event->kind == AGENT_TEMPLATE)
        agent->start->awaits_template = false;
}

static void start_destroy(struct agent *agent)
{
    struct agent_start *start = agent->start;
    if (!start)
        return;
    agent_processes_know_template(agent, NULL);
    warm_close(start->warm);
    mem_free(start->program);
    mem_free(start);
    agent->start = NULL;
}

const struct agent_part agent_start_part = {"start",    start_create, start_deadline,
                                            start_tick, start_event,  start_destroy};
