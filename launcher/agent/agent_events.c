/* agent_events.c - event lines to the destination of --event-log-handler. See agent_internal.h. */
#include "launcher/agent/agent_internal.h"

#include <fcntl.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launcher/agent/agent_signals.h"
#include "launcher/loop/background_job.h"
#include "launcher/output/log_record.h"
#include "launcher/output/write_queue.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "rendezvous/failure/failure.h"

static const int64_t open_patience_ns = 5 * NS_PER_S, finish_patience_ns = NS_PER_S,
                     finish_limit_ns = 10 * NS_PER_S;

struct agent_events {
    int wake_fd;
    struct write_queue *outlet;
    struct output_file *target;
};

/* --- the file --- */

struct opening {
    char *path;
    int fd;
    struct muster_error err;
};

static void opening_free(void *payload)
{
    struct opening *opening = payload;
    if (opening->fd >= 0)
        (void)close(opening->fd); /* no thread waited for it, and nothing was written */
    mem_free(opening->path);
    mem_free(opening);
}

static void open_file(void *payload)
{
    struct opening *opening = payload;
    opening->fd = open(opening->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (opening->fd < 0)
        error_errno(&opening->err, "--event-log-handler: cannot open %s", opening->path);
}

static int open_bounded(struct agent *agent, const char *path, struct muster_error *err)
{
    struct opening *opening = mem_calloc(1, sizeof *opening);
    if (!opening || !(opening->path = mem_strdup(path))) {
        mem_free(opening);
        return error_set(err, MUSTER_E_NOMEM, "no memory for a path");
    }
    opening->fd = -1;
    struct background_job *job =
        background_job_start("opening the event log", open_file, opening, opening_free, err);
    if (!job)
        return -1;
    int fd = -1;
    if (agent_signals_await_job(agent, job, open_patience_ns, path, err) < 0)
        (void)error_wrap(err, "--event-log-handler");
    else if (opening->fd < 0)
        error_set(err, (enum muster_error_code)opening->err.code, "%s", opening->err.text);
    else
        fd = take_fd(&opening->fd);
    background_job_release(job);
    return fd;
}

static int events_create(struct agent *agent, struct muster_error *err)
{
    const char *handler = agent->config->event_log_handler;
    if (!strchr(handler, '/'))
        return 0;
    struct agent_events *file = mem_calloc(1, sizeof *file);
    if (!file)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the event log");
    agent->events = file;
    file->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (file->wake_fd < 0)
        return error_errno(err, "cannot make an eventfd");
    scope_close int fd = open_bounded(agent, handler, err);
    if (fd < 0)
        return -1;
    file->outlet = write_queue_create(&(struct write_queue_options){.wake_fd = file->wake_fd}, err);
    if (!file->outlet)
        return -1;
    struct log_style json = {LOG_FORMAT_JSON, agent->host}; /* style of a notice that lines are missing */
    struct output_file_options target = {.fd = fd, .owned = true, .name = "the event log", .style = &json};
    file->target = write_queue_target(file->outlet, &target);
    if (!file->target)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the event log");
    (void)take_fd(&fd);
    return 0;
}

static void events_destroy(struct agent *agent)
{
    struct agent_events *file = agent->events;
    if (!file)
        return;
    struct write_queue_lost lost;
    struct instant limit = instant_add(clock_now(NULL), finish_limit_ns);
    bool ended = write_queue_finish(file->outlet, finish_patience_ns, limit, &lost);
    if (lost.bytes)
        log_warning(&agent->log, "%llu bytes of events were dropped: %s is too slow or not writable",
                    (unsigned long long)lost.bytes, agent->config->event_log_handler);
    if (ended && file->wake_fd >= 0)
        (void)close(file->wake_fd); /* else a thread that hangs may still write to it */
    mem_free(file);
    agent->events = NULL;
}

/* --- lines --- */

static void write_line(struct agent *agent, struct event_line *line)
{
    const struct run_config *config = agent->config;
    scope_buffer text = {0};
    line->wall_ns = clock_wall_ns();
    line->run_ns = instant_diff_ns(clock_now(NULL), agent->started);
    line->run_id = config->rdzv_id;
    line->role = config->role;
    line->host = agent->host;
    line->backend = config->rdzv_backend;
    line->entry_point = config->program;
    line->restarts = agent->round.world.restart_count;
    line->group_rank = agent->round.world.group_rank;
    line->group_world_size = agent->round.world.group_world_size;
    if (event_line_format(line, &text) < 0)
        return; /* no memory: an event is lost, the job goes on */
    if (!agent->events) {
        pump_print(agent->pump, STDERR_FILENO, text.data, text.length);
        return;
    }
    struct write_queue_piece piece = {.target = agent->events->target,
                                      .data = text.data,
                                      .length = text.length,
                                      .lines = 1,
                                      .starts = true,
                                      .ends = true,
                                      .keep = true};
    (void)write_queue_put(agent->events->outlet, &piece); /* if it is refused it is counted */
}

static bool events_wanted(const struct agent *agent)
{
    return agent->events || !strcmp(agent->config->event_log_handler, "console");
}

static void tell_state(struct agent *agent, enum event_state state, int64_t duration_ns)
{
    write_line(agent, &(struct event_line){.state = state, .duration_ns = duration_ns});
}

static void tell_end(struct agent *agent, const struct agent_event *event)
{
    write_line(agent, &(struct event_line){.state = event->code ? EVENT_FAILED : EVENT_SUCCEEDED,
                                           .duration_ns = event->duration_ns,
                                           .ended = true,
                                           .exit_code = event->code,
                                           .error = event->text});
}

/* failure: if it ended by itself, with an error. */
static void tell_worker(struct agent *agent, const struct worker *worker,
                        const struct worker_failure *failure)
{
    char what[MUSTER_ERROR_TEXT];
    bool exited = worker->end_code == CLD_EXITED;
    struct event_line line = {.of_worker = true,
                              .state = EVENT_TERMINATED,
                              .duration_ns = instant_diff_ns(worker->ended, worker->begun),
                              .ended = true,
                              .exit_code = exited ? worker->end_status : -worker->end_status,
                              .rank = worker->rank,
                              .local_rank = worker->local_rank,
                              .role_rank = agent->round.world.role_rank_base + worker->local_rank,
                              .role_world_size = agent->round.world.role_world_size,
                              .pid = (int)worker->pid};
    if (failure) {
        line.state = EVENT_FAILED;
        failure_describe(failure, what, sizeof what);
        line.error = what;
    } else if (exited && worker->end_status == 0) {
        line.state = EVENT_SUCCEEDED;
    }
    write_line(agent, &line);
}

static void events_event(struct agent *agent, const struct agent_event *event)
{
    if (!events_wanted(agent))
        return;
    switch (event->kind) {
    case AGENT_WORLD:
        tell_state(agent, EVENT_RENDEZVOUS, event->duration_ns);
        break;
    case AGENT_STARTED:
        tell_state(agent, EVENT_START, event->duration_ns);
        break;
    case AGENT_NOTICE:
        tell_state(agent, EVENT_NOTICE, event->duration_ns);
        break;
    case AGENT_SERVER_MOVED:
        write_line(agent, &(struct event_line){.state = EVENT_SERVER, .error = event->text});
        break;
    case AGENT_WORKER_ENDED:
        tell_worker(agent, event->worker, event->failure);
        break;
    case AGENT_ENDED:
        tell_end(agent, event);
        break;
    default:
        break;
    }
}

const struct agent_part agent_events_part = {"events", events_create, NULL,
                                             NULL,     events_event,  events_destroy};
