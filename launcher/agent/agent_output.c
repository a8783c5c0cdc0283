/* agent_output.c - the workers' output as one agent arranges it: the run directory, the files of a round, and
 * where each stream of a worker goes. See agent_internal.h. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcher/agent/agent_internal.h"
#include "launcher/output/log_directory.h"
#include "launcher/output/log_files.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"

struct agent_logs {
    struct log_files *opening; /* of this round, until its workers are started */
    struct loop_source opened;
    struct instant deadline;
    struct log_filter filters[3];    /* by stream */
    struct output_file *filtered[3]; /* of this round; NULL: none */
    const char *prefix;
};

/* --- the pump --- */

static const char *spool_folder(void)
{
    const char *folder = getenv("TMPDIR");
    return folder && *folder ? folder : "/tmp";
}

int agent_open_pump(struct agent *agent, struct muster_error *err)
{
    const struct run_config *config = agent->config;
    struct agent_logs *logs = mem_calloc(1, sizeof *logs);
    if (!logs || log_filter_parse(config->duplicate_stdout_filters, &logs->filters[1]) < 0 ||
        log_filter_parse(config->duplicate_stderr_filters, &logs->filters[2]) < 0) {
        if (logs)
            log_filter_free(&logs->filters[1]);
        mem_free(logs);
        return error_set(err, MUSTER_E_NOMEM, "no memory for the workers' output");
    }
    logs->deadline = INSTANT_NEVER;
    logs->prefix = config->line_prefix      ? config->line_prefix
                   : config->max_nodes == 1 ? LINE_PREFIX_ONE_NODE
                                            : LINE_PREFIX_MANY_NODES;
    agent->logs = logs;
    struct pump_options options = {.loop = &agent->loop,
                                   .style = {(enum log_format)config->log_format, agent->host},
                                   .spool_folder = spool_folder(),
                                   .spool_limit = config->log_spool_size};
    agent->pump = pump_create(&options, err);
    return agent->pump ? 0 : -1;
}

void agent_close_pump(struct agent *agent)
{
    (void)pump_destroy(agent->pump); /* what a stuck console did not take cannot be told either */
    agent->pump = NULL;
    if (!agent->logs)
        return;
    log_filter_free(&agent->logs->filters[1]);
    log_filter_free(&agent->logs->filters[2]);
    mem_free(agent->logs);
    agent->logs = NULL;
}

static struct output_file *take_target(struct agent *agent, struct log_file file, struct muster_error *err)
{
    scope_free char *path = file.path;
    struct output_file_options options = {.fd = file.fd,
                                          .owned = true,
                                          .name = "the log file",
                                          .path = path,
                                          .size = file.size,
                                          .max_size = agent->config->log_max_size,
                                          .keep = (int)agent->config->log_keep};
    return pump_file(agent->pump, &options, err);
}

/* --- the run directory --- */

/* Nothing else happens yet, so that waiting here holds up nobody. */
static int await_directory(struct agent *agent, const struct log_files *files, struct muster_error *err)
{
    if (agent_await(agent, log_files_fd(files), agent_seconds_ns(agent->config->log_open_timeout_s),
                    "the log directory", err) < 0)
        return error_wrap(err, "--log-dir: %s", log_files_path(files)); /* where it is by now */
    return log_files_done(files) ? log_files_result(files, err)
                                 : error_set(err, MUSTER_E_STATE, "--log-dir: woken too early");
}

int agent_prepare_logs(struct agent *agent, struct muster_error *err)
{
    uint64_t bits;
    if (!config_wants_log_directory(agent->config))
        return agent_make_error_directory(agent, err);
    if (getrandom(&bits, sizeof bits, 0) != sizeof bits)
        return error_errno(err, "getrandom");
    struct log_files *files = log_files_prepare(agent->config->log_dir, agent->config->rdzv_id, bits, err);
    if (!files || await_directory(agent, files, err) < 0) {
        log_files_release(files);
        return -1;
    }
    agent->run_directory = log_files_take_run(files);
    struct log_file log = log_files_take_log(files);
    log_files_release(files);
    struct output_file *file = log.fd >= 0 ? take_target(agent, log, err) : NULL;
    if (log.fd >= 0 && !file)
        return -1;
    pump_keep_log(agent->pump, file);
    log_info(&agent->log, "log directory: %s", agent->run_directory);
    return 0;
}

/* --- the files of a round --- */

/* What one stream of one worker is to have. */
struct plan {
    bool tee, redirect, shown;
};

static struct plan plan_stream(const struct agent *agent, int local_rank, int stream)
{
    const struct run_config *config = agent->config;
    bool files = agent->run_directory;
    bool tee = files && config_streams(config->tee, local_rank) & stream;
    return (struct plan){.tee = tee,
                         .redirect = files && !tee && config_streams(config->redirects, local_rank) & stream,
                         .shown = log_filter_shows(config->local_ranks_filter, local_rank) > 0};
}

static void files_opened(void *context, uint32_t events);

static int send_for_files(struct agent *agent, struct muster_error *err)
{
    struct agent_logs *logs = agent->logs;
    const int workers = agent->config->nproc_per_node;
    scope_free uint8_t *streams = mem_calloc((size_t)workers, 1);
    struct log_round round = {agent->run_directory, agent->world.restart_count, workers, streams, 0};
    if (!streams)
        return error_set(err, MUSTER_E_NOMEM, "no memory to open log files");
    for (int i = 0; i < workers; i++)
        for (int stream = 1; stream <= 2; stream++) {
            struct plan plan = plan_stream(agent, i, stream);
            streams[i] |= plan.tee || plan.redirect ? (uint8_t)stream : 0;
            round.filtered |= plan.tee && logs->filters[stream].words ? (unsigned)stream : 0;
        }
    logs->opening = log_files_open(&round, err);
    if (!logs->opening)
        return -1;
    logs->opened = (struct loop_source){log_files_fd(logs->opening), files_opened, agent};
    logs->deadline = instant_add(clock_now(NULL), agent_seconds_ns(agent->config->log_open_timeout_s));
    return loop_add(&agent->loop, &logs->opened, EPOLLIN, err);
}

static void fail_round(struct agent *agent, const struct muster_error *err)
{
    struct worker_failure failure;
    agent_describe_start(agent, &(struct worker){.rank = agent->world.rank_base}, err->text, &failure);
    agent_event(agent, &(struct worker_group_event){.kind = GROUP_FAILURE}, &failure);
}

void agent_open_logs(struct agent *agent)
{
    struct muster_error err = {0};
    if (!agent->run_directory) {
        agent_begin_round(agent);
    } else if (send_for_files(agent, &err) < 0) {
        agent_close_logs(agent);
        fail_round(agent, &err);
    }
}

static int take_filtered(struct agent *agent, struct muster_error *err)
{
    struct agent_logs *logs = agent->logs;
    for (int stream = 1; stream <= 2; stream++) {
        struct log_file file = log_files_take_filtered(logs->opening, stream);
        logs->filtered[stream] = file.fd >= 0 ? take_target(agent, file, err) : NULL;
        if (file.fd >= 0 && !logs->filtered[stream])
            return -1;
    }
    return 0;
}

/* No longer waits for the files; they stay until they are taken. */
static void stop_waiting(struct agent *agent)
{
    struct agent_logs *logs = agent->logs;
    if (logs->deadline.ns != INSTANT_NEVER.ns)
        loop_remove(&agent->loop, &logs->opened);
    logs->deadline = INSTANT_NEVER;
}

static void files_opened(void *context, uint32_t events)
{
    struct agent *agent = context;
    struct muster_error err = {0};
    (void)events;
    if (!log_files_done(agent->logs->opening))
        return; /* it is, but for the order in which one thread sees what another has written */
    stop_waiting(agent);
    bool wanted = agent->group.state == GROUP_RUNNING || agent->group.state == GROUP_DRAINING;
    bool opened = log_files_result(agent->logs->opening, &err) == 0 && take_filtered(agent, &err) == 0;
    if (wanted && opened) /* else it is being stopped before it began */
        agent_begin_round(agent);
    else if (wanted)
        fail_round(agent, &err);
    log_files_release(agent->logs->opening);
    agent->logs->opening = NULL;
}

bool agent_awaits_logs(const struct agent *agent)
{
    return agent->logs->deadline.ns != INSTANT_NEVER.ns;
}

struct instant agent_logs_deadline(const struct agent *agent)
{
    return agent->logs->deadline;
}

void agent_logs_tick(struct agent *agent, struct instant now)
{
    struct agent_logs *logs = agent->logs;
    struct muster_error err = {0};
    if (!instant_reached(now, logs->deadline))
        return;
    error_set(&err, MUSTER_E_TIMEOUT,
              "the log file %s could not be opened: its file system did not answer within %.4g s",
              log_files_path(logs->opening), agent->config->log_open_timeout_s);
    agent_close_logs(agent);
    if (agent->group.state == GROUP_RUNNING || agent->group.state == GROUP_DRAINING)
        fail_round(agent, &err);
}

void agent_close_logs(struct agent *agent)
{
    struct agent_logs *logs = agent->logs;
    stop_waiting(agent);
    log_files_release(logs->opening);
    logs->opening = NULL;
    for (int stream = 1; stream <= 2; stream++) {
        pump_release(agent->pump, logs->filtered[stream]);
        logs->filtered[stream] = NULL;
    }
}

/* --- where a stream goes --- */

/* A pipe whose end the pump reads. file: the log file that the agent writes, or one without a descriptor. */
static int route_through_pump(struct agent *agent, struct worker *worker, int stream, struct plan plan,
                              struct log_file file, struct agent_route *route, struct muster_error *err)
{
    struct agent_logs *logs = agent->logs;
    int ends[2];
    struct output_file *target = file.fd >= 0 ? take_target(agent, file, err) : NULL;
    if (file.fd >= 0 && !target)
        return -1;
    if (pipe2(ends, O_CLOEXEC) < 0) {
        pump_release(agent->pump, target);
        return error_errno(err, "cannot make a pipe for local rank %d (ulimit -n limits them)",
                           worker->local_rank);
    }
    (void)fcntl(ends[0], F_SETFL, O_NONBLOCK); /* ours alone; the worker's end stays blocking */
    scope_close int writer = ends[1];
    struct pump_stream_options options = {
        .fd = ends[0],
        .stream = stream,
        .console = plan.shown && !plan.redirect,
        .file = target,
        .matches = plan.tee ? logs->filtered[stream] : NULL,
        .filter = &logs->filters[stream],
        .prefix = plan.tee && *logs->prefix ? logs->prefix : NULL,
        .names = {.role = agent->config->role,
                  .host = agent->host,
                  .rank = worker->rank,
                  .local_rank = worker->local_rank,
                  .node_rank = agent->world.group_rank,
                  .restart = agent->world.restart_count},
        .tail = stream == STDERR_FILENO,
    };
    worker->streams[stream] = pump_add(agent->pump, &options, err);
    if (!worker->streams[stream])
        return -1;
    *route = (struct agent_route){take_fd(&writer), true};
    return 0;
}

/* Whether the worker may have the agent's own standard output: a terminal, so that colours and progress bars
 * are drawn, or nowhere. A pipe or a file it may not: lines of several workers would mix. */
static bool may_inherit(const struct agent *agent)
{
    struct stat status, null;
    if (agent->config->log_format == LOG_FORMAT_JSON)
        return false;
    return isatty(STDOUT_FILENO) || (fstat(STDOUT_FILENO, &status) == 0 && S_ISCHR(status.st_mode) &&
                                     stat("/dev/null", &null) == 0 && status.st_rdev == null.st_rdev);
}

int agent_route_stream(struct agent *agent, struct worker *worker, int stream, struct agent_route *route,
                       struct muster_error *err)
{
    struct plan plan = plan_stream(agent, worker->local_rank, stream);
    struct log_file file = {.fd = -1};
    if (plan.tee || plan.redirect)
        file = log_files_take(agent->logs->opening, worker->local_rank, stream);
    if (plan.redirect && !agent->config->log_max_size) {
        *route = (struct agent_route){file.fd, true};
        if (stream == STDERR_FILENO)
            worker->stderr_file = file.path; /* where the report finds the last lines */
        else
            mem_free(file.path);
        return 0;
    }
    if (!plan.tee && !plan.redirect && stream == STDOUT_FILENO && (!plan.shown || may_inherit(agent))) {
        int fd = plan.shown ? STDOUT_FILENO : open("/dev/null", O_WRONLY | O_CLOEXEC);
        *route = (struct agent_route){fd, !plan.shown};
        return fd < 0 ? error_errno(err, "cannot open /dev/null") : 0;
    }
    return route_through_pump(agent, worker, stream, plan, file, route, err);
}
