/* agent_output.c - the folders of a run, the files of a round, and the destination of each stream of a
 * worker. See agent_output.h. */
#include "launcher/agent/agent_output.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcher/agent/agent_signals.h"
#include "launcher/loop/background_job.h"
#include "launcher/output/log_files.h"
#include "launcher/output/pump.h"
#include "launcher/verdict/error_file.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"

static const int64_t making_patience_ns = 5 * NS_PER_S, discarding_patience_ns = 5 * NS_PER_S;

/* At all times: at most one directory of the two exists; opened is in the loop if deadline is set. */
struct agent_output {
    char *run_directory;       /* NULL: no log files */
    char *error_directory;     /* for error files if there are no log files; NULL: none either */
    bool prompt_errors;        /* created and removed without a thread */
    bool may_inherit;          /* workers, our standard output */
    struct log_files *opening; /* this round's, until its workers are started */
    struct loop_source opened;
    struct instant deadline;
    struct log_filter filters[3];    /* by stream */
    struct output_file *filtered[3]; /* this round's; NULL: none */
    const char *prefix;
};

/* --- the pump --- */

/* Whether workers may have the agent's own standard output: a terminal, so that colours and progress
 * bars work, or /dev/null. Not a pipe or a file: lines of several workers would mix. */
static bool may_inherit(const struct agent *agent)
{
    struct stat status, null;
    if (agent->config->log_format == LOG_FORMAT_JSON)
        return false;
    return isatty(STDOUT_FILENO) || (fstat(STDOUT_FILENO, &status) == 0 && S_ISCHR(status.st_mode) &&
                                     stat("/dev/null", &null) == 0 && status.st_rdev == null.st_rdev);
}

static int output_create(struct agent *agent, struct muster_error *err)
{
    const struct run_config *config = agent->config;
    struct agent_output *output = agent->output = mem_calloc(1, sizeof *output);
    if (!output || log_filter_parse(config->duplicate_stdout_filters, &output->filters[1]) < 0 ||
        log_filter_parse(config->duplicate_stderr_filters, &output->filters[2]) < 0)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the workers' output");
    output->deadline = INSTANT_NEVER;
    output->may_inherit = may_inherit(agent); /* once, not for each worker */
    output->prefix = config->line_prefix      ? config->line_prefix
                     : config->max_nodes == 1 ? LINE_PREFIX_ONE_NODE
                                              : LINE_PREFIX_MANY_NODES;
    struct pump_options options = {.loop = &agent->loop,
                                   .style = {(enum log_format)config->log_format, agent->host},
                                   .spool_folder = "",
                                   .spool_limit = config->log_spool_size};
    agent->pump = pump_create(&options, err);
    if (!agent->pump)
        return -1;
    agent->log.write = pump_log;
    agent->log.context = agent->pump;
    return 0;
}

static struct output_file *take_file(struct agent *agent, struct log_file file, struct muster_error *err)
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

/* Nothing else happens yet, so that waiting here delays nothing. */
static int await_directory(struct agent *agent, const struct log_files *files, struct muster_error *err)
{
    if (agent_signals_await(agent, log_files_fd(files), agent_seconds_ns(agent->config->log_open_timeout_s),
                            "the log directory", err) < 0)
        return error_wrap(err, "--log-dir: %s", log_files_path(files)); /* its present location */
    return log_files_done(files) ? log_files_result(files, err)
                                 : error_set(err, MUSTER_E_STATE, "--log-dir: woken too early");
}

/* --- the folder of error files, if there is no run directory --- */

/* Created and removed by threads if TMPDIR may be on a network file system. */
struct folder {
    char *path; /* path of the created directory, or of the one to remove */
    struct temporary_folder temporary;
};

static void warn_of_folder(struct agent *agent, const char *warning)
{
    if (*warning)
        log_warning(&agent->log, "%s", warning);
}

static void free_folder(void *payload)
{
    struct folder *folder = payload;
    mem_free(folder->path);
    mem_free(folder);
}

static void make_folder(void *payload)
{
    struct folder *folder = payload;
    folder->path = error_directory_make(&folder->temporary);
}

static void discard_folder(void *payload)
{
    const struct folder *folder = payload;
    error_directory_discard(folder->path);
}

static int make_error_directory(struct agent *agent, struct muster_error *err)
{
    const char *log_dir = agent->config->log_dir;
    if (log_dir && !strcmp(log_dir, "/dev/null"))
        return 0;
    agent->output->prompt_errors = error_directory_is_prompt();
    if (agent->output->prompt_errors) { /* a thread costs more than the folder */
        struct temporary_folder temporary;
        agent->output->error_directory = error_directory_make(&temporary);
        warn_of_folder(agent, temporary.warning);
        return 0;
    }
    struct folder *folder = mem_calloc(1, sizeof *folder);
    if (!folder)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the folder of error files");
    struct background_job *job =
        background_job_start("making the folder of error files", make_folder, folder, free_folder, err);
    if (!job)
        return -1;
    int result = agent_signals_await_job(agent, job, making_patience_ns, "the folder of error files", err);
    if (result == 0) {
        agent->output->error_directory = take_pointer(&folder->path);
        warn_of_folder(agent, folder->temporary.warning);
    }
    background_job_release(job);
    if (result < 0 && err->code == MUSTER_E_TIMEOUT) { /* workers run without, as on a read-only root */
        log_warning(&agent->log, "no error files of the workers: %s (TMPDIR)", err->text);
        error_clear(err);
        return 0;
    }
    return result;
}

static void discard_error_directory(struct agent *agent)
{
    struct agent_output *output = agent->output;
    if (!output || !output->error_directory)
        return;
    if (output->prompt_errors) {
        error_directory_discard(output->error_directory);
        return;
    }
    struct folder *folder = mem_calloc(1, sizeof *folder);
    if (!folder)
        return; /* it stays */
    folder->path = take_pointer(&output->error_directory);
    struct background_job *job =
        background_job_start("removing the folder of error files", discard_folder, folder, free_folder, NULL);
    if (job)
        (void)background_job_wait(job, discarding_patience_ns); /* a job that hangs is left to its thread */
    background_job_release(job);
}

/* --- both --- */

static int create_folders(struct agent *agent, struct muster_error *err)
{
    uint64_t bits;
    if (!config_wants_log_directory(agent->config))
        return make_error_directory(agent, err);
    if (getrandom(&bits, sizeof bits, 0) != sizeof bits)
        return error_errno(err, "getrandom");
    struct log_files *files = log_files_prepare(agent->config->log_dir, agent->config->rdzv_id, bits, err);
    if (!files || await_directory(agent, files, err) < 0) {
        log_files_release(files);
        return -1;
    }
    agent->output->run_directory = log_files_take_run(files);
    warn_of_folder(agent, log_files_warning(files));
    struct log_file log = log_files_take_log(files);
    log_files_release(files);
    struct output_file *file = log.fd >= 0 ? take_file(agent, log, err) : NULL;
    if (log.fd >= 0 && !file)
        return -1;
    pump_keep_log(agent->pump, file);
    log_info(&agent->log, "log directory: %s", agent->output->run_directory);
    return 0;
}

void agent_output_discard(struct agent *agent)
{
    if (agent->output && agent->output->run_directory)
        log_directory_discard(agent->config->log_dir, agent->output->run_directory);
}

const char *agent_output_run_directory(const struct agent *agent)
{
    return agent->output ? agent->output->run_directory : NULL;
}

const char *agent_output_error_directory(const struct agent *agent)
{
    return agent->output->error_directory;
}

/* --- the files of a round --- */

/* The destination of one stream of one worker. */
struct plan {
    bool tee, redirect, shown;
};

static struct plan plan_stream(const struct agent *agent, int local_rank, int stream)
{
    const struct run_config *config = agent->config;
    bool files = agent->output->run_directory;
    bool tee = files && config_streams(config->tee, local_rank) & stream;
    return (struct plan){.tee = tee,
                         .redirect = files && !tee && config_streams(config->redirects, local_rank) & stream,
                         .shown = log_filter_shows(config->local_ranks_filter, local_rank) > 0};
}

static void files_opened(void *context, uint32_t events);

static int send_for_files(struct agent *agent, struct muster_error *err)
{
    struct agent_output *output = agent->output;
    const int workers = agent->round.worker_count;
    scope_free uint8_t *streams = mem_calloc((size_t)workers, 1);
    struct log_round round = {agent->output->run_directory, agent->round.world.restart_count, workers,
                              streams, 0};
    if (!streams)
        return error_set(err, MUSTER_E_NOMEM, "no memory to open log files");
    for (int i = 0; i < workers; i++)
        for (int stream = 1; stream <= 2; stream++) {
            struct plan plan = plan_stream(agent, i, stream);
            streams[i] |= plan.tee || plan.redirect ? (uint8_t)stream : 0;
            round.filtered |= plan.tee && output->filters[stream].words ? (unsigned)stream : 0;
        }
    output->opening = log_files_open(&round, err);
    if (!output->opening)
        return -1;
    output->opened = (struct loop_source){log_files_fd(output->opening), files_opened, agent};
    output->deadline = instant_add(clock_now(NULL), agent_seconds_ns(agent->config->log_open_timeout_s));
    return loop_add(&agent->loop, &output->opened, EPOLLIN, err);
}

static void fail_round(struct agent *agent, const struct muster_error *err)
{
    agent_emit(agent, &(struct agent_event){.kind = AGENT_NO_FILES, .text = err->text});
}

static void close_files(struct agent *agent);

void agent_output_open_files(struct agent *agent)
{
    struct muster_error err = {0};
    if (!agent->output->run_directory) {
        agent_emit(agent, &(struct agent_event){.kind = AGENT_FILES});
    } else if (send_for_files(agent, &err) < 0) {
        close_files(agent);
        fail_round(agent, &err);
    }
}

static int take_filtered(struct agent *agent, struct muster_error *err)
{
    struct agent_output *output = agent->output;
    for (int stream = 1; stream <= 2; stream++) {
        if (output->filtered[stream])
            continue; /* workers that have stayed write to the file of an earlier round, and so do the others
                       */
        struct log_file file = log_files_take_filtered(output->opening, stream);
        output->filtered[stream] = file.fd >= 0 ? take_file(agent, file, err) : NULL;
        if (file.fd >= 0 && !output->filtered[stream])
            return -1;
    }
    return 0;
}

/* Stops waiting for the files; they stay until they are taken. */
static void stop_waiting(struct agent *agent)
{
    struct agent_output *output = agent->output;
    if (output->deadline.ns != INSTANT_NEVER.ns)
        loop_remove(&agent->loop, &output->opened);
    output->deadline = INSTANT_NEVER;
}

static void files_opened(void *context, uint32_t events)
{
    struct agent *agent = context;
    struct muster_error err = {0};
    (void)events;
    if (!log_files_done(agent->output->opening))
        return; /* it is, except for the order in which one thread sees another's writes */
    stop_waiting(agent);
    bool wanted = agent->group.state == GROUP_RUNNING || agent->group.state == GROUP_DRAINING;
    bool opened = log_files_result(agent->output->opening, &err) == 0 && take_filtered(agent, &err) == 0;
    if (wanted && opened) /* else it is being stopped before it began */
        agent_emit(agent, &(struct agent_event){.kind = AGENT_FILES});
    else if (wanted)
        fail_round(agent, &err);
    log_files_release(agent->output->opening);
    agent->output->opening = NULL;
}

bool agent_output_opens_files(const struct agent *agent)
{
    return agent->output->deadline.ns != INSTANT_NEVER.ns;
}

static void close_files(struct agent *agent)
{
    struct agent_output *output = agent->output;
    stop_waiting(agent);
    log_files_release(output->opening);
    output->opening = NULL;
    for (int i = 0; i < agent->round.worker_count; i++)
        if (agent->round.workers[i].kept)
            return; /* its streams use the filtered files */
    for (int stream = 1; stream <= 2; stream++) {
        pump_release(agent->pump, output->filtered[stream]);
        output->filtered[stream] = NULL;
    }
}

/* --- destinations of streams --- */

/* A pipe whose end the pump reads. file: the log file that the agent writes, or one without a descriptor. */
static int route_through_pump(struct agent *agent, struct worker *worker, int stream, struct plan plan,
                              struct log_file file, struct agent_route *route, struct muster_error *err)
{
    struct agent_output *output = agent->output;
    int ends[2];
    struct output_file *target = file.fd >= 0 ? take_file(agent, file, err) : NULL;
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
        .matches = plan.tee ? output->filtered[stream] : NULL,
        .filter = &output->filters[stream],
        .prefix = plan.tee && *output->prefix ? output->prefix : NULL,
        .names = {.role = agent->config->role,
                  .host = agent->host,
                  .rank = worker->rank,
                  .local_rank = worker->local_rank,
                  .node_rank = agent->round.world.group_rank,
                  .restart = agent->round.world.restart_count},
        .tail = stream == STDERR_FILENO || config_shows_job(agent->config),
    };
    worker->streams[stream] = pump_add(agent->pump, &options, err);
    if (!worker->streams[stream])
        return -1;
    *route = (struct agent_route){take_fd(&writer), true};
    return 0;
}

int agent_output_route(struct agent *agent, struct worker *worker, int stream, struct agent_route *route,
                       struct muster_error *err)
{
    struct plan plan = plan_stream(agent, worker->local_rank, stream);
    struct log_file file = {.fd = -1};
    if (plan.tee || plan.redirect)
        file = log_files_take(agent->output->opening, worker->local_rank, stream);
    if (plan.redirect && !agent->config->log_max_size) {
        *route = (struct agent_route){file.fd, true};
        /* from which the report takes the last lines, and whose disk may be full */
        *(stream == STDERR_FILENO ? &worker->stderr_file : &worker->stdout_file) = file.path;
        return 0;
    }
    if (!plan.tee && !plan.redirect && stream == STDOUT_FILENO &&
        (!plan.shown || agent->output->may_inherit)) {
        int fd = plan.shown ? STDOUT_FILENO : open("/dev/null", O_WRONLY | O_CLOEXEC);
        *route = (struct agent_route){fd, !plan.shown};
        return fd < 0 ? error_errno(err, "cannot open /dev/null") : 0;
    }
    return route_through_pump(agent, worker, stream, plan, file, route, err);
}

void agent_output_last_words(struct agent *agent, const struct worker *worker, char *out, size_t size)
{
    (void)agent;
    pump_drain(worker->streams[STDERR_FILENO]);
    pump_tail(worker->streams[STDERR_FILENO], out, size);
}

/* --- the parts --- */

static struct instant output_deadline(const struct agent *agent)
{
    return instant_min(agent->output->deadline, pump_deadline(agent->pump));
}

static void output_tick(struct agent *agent, struct instant now)
{
    if (instant_reached(now, pump_deadline(agent->pump)))
        pump_tick(agent->pump, now);
    struct agent_output *output = agent->output;
    struct muster_error err = {0};
    if (!instant_reached(now, output->deadline))
        return;
    error_set(&err, MUSTER_E_TIMEOUT,
              "the log file %s could not be opened: its file system did not respond within %.4g s",
              log_files_path(output->opening), agent->config->log_open_timeout_s);
    close_files(agent);
    if (agent->group.state == GROUP_RUNNING || agent->group.state == GROUP_DRAINING)
        fail_round(agent, &err);
}

static void output_event(struct agent *agent, const struct agent_event *event)
{
    if (event->kind != AGENT_ROUND_ENDS)
        return;
    for (int i = 0; i < agent->round.worker_count; i++)
        for (int stream = STDOUT_FILENO; stream <= STDERR_FILENO && !agent->round.workers[i].kept; stream++) {
            pump_close(agent->round.workers[i].streams[stream]);
            agent->round.workers[i].streams[stream] = NULL;
        }
    close_files(agent); /* shared by the streams, after them */
}

static void output_destroy(struct agent *agent)
{
    struct agent_output *output = agent->output;
    (void)pump_destroy(agent->pump); /* output lost on a stuck console cannot be reported either */
    agent->pump = NULL;
    if (!output)
        return;
    log_filter_free(&output->filters[1]);
    log_filter_free(&output->filters[2]);
    mem_free(output);
    agent->output = NULL;
}

static void destroy_folders(struct agent *agent)
{
    discard_error_directory(agent);
    if (!agent->output)
        return;
    mem_free(take_pointer(&agent->output->error_directory));
    mem_free(take_pointer(&agent->output->run_directory));
}

const struct agent_part agent_output_part = {"output",    output_create, output_deadline,
                                             output_tick, output_event,  output_destroy};
const struct agent_part agent_folders_part = {"folders", create_folders, NULL, NULL, NULL, destroy_folders};
