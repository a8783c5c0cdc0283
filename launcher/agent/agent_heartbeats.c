/* agent_heartbeats.c - the workers' heartbeats: their pipes, who has fallen silent and what is done about it
 * (hang.h), and who left early. See agent_internal.h. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "launcher/agent/agent_internal.h"
#include "launcher/process/hang_dump.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"

static const int64_t early_exit_ns = 60 * NS_PER_S;

/* --- the pipes --- */

static void drain(struct agent *agent, struct worker *worker)
{
    char bytes[512];
    struct instant now = clock_now(NULL);
    for (ssize_t got; worker->beats.fd >= 0;) {
        got = read(worker->beats.fd, bytes, sizeof bytes);
        if (got > 0)
            heartbeat_take(&agent->beats[worker->local_rank], bytes, (size_t)got, now);
        else if (got < 0 && errno == EINTR)
            continue;
        else if (got < 0 && errno == EAGAIN)
            return;
        else
            agent_close_beats(agent, worker); /* nobody can beat any more */
    }
}

static void beats_ready(void *context, uint32_t events)
{
    struct worker *worker = context;
    (void)events;
    drain(worker->agent, worker);
}

int agent_open_beats(struct agent *agent, struct worker *worker, int *writer, struct muster_error *err)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) <
        0) /* a worker is never held up by an agent that does not read */
        return error_errno(err, "cannot make a heartbeat pipe for local rank %d (ulimit -n limits them)",
                           worker->local_rank);
    scope_close int mine = ends[1];
    worker->agent = agent;
    worker->beats = (struct loop_source){ends[0], beats_ready, worker};
    heartbeat_init(&agent->beats[worker->local_rank]);
    if (loop_add(&agent->loop, &worker->beats, EPOLLIN, err) < 0) {
        (void)close(ends[0]); /* a pipe that nobody uses yet */
        worker->beats.fd = -1;
        return -1;
    }
    *writer = take_fd(&mine);
    return 0;
}

void agent_close_beats(struct agent *agent, struct worker *worker)
{
    if (worker->beats.fd < 0)
        return;
    loop_remove(&agent->loop, &worker->beats);
    (void)close(worker->beats.fd); /* a pipe's read end */
    worker->beats.fd = -1;
}

/* --- hangs --- */

static int64_t timeout_ns(const struct agent *agent)
{
    return agent_seconds_ns(agent->config->hang_timeout_s);
}

static void log_lines(struct agent *agent, const char *text)
{
    while (*text) {
        size_t length = strcspn(text, "\n");
        log_error(&agent->log, "  %.*s", (int)length, text);
        text += length + (text[length] == '\n');
    }
}

static void take_hang_step(struct agent *agent, enum hang_event event);

/* Of those that are equally far behind it is the one that cannot run for which the others wait. */
static void blame_stopped(struct agent *agent, pid_t pid)
{
    const int64_t step = agent->beats[agent->behind].step;
    for (int i = 0; pid && i < agent->config->nproc_per_node; i++)
        if (agent->workers[i].pid == pid && agent->beats[i].stalled && agent->beats[i].step == step) {
            agent->behind = i;
            log_error(&agent->log, "rank %d (pid %d) was stopped by a signal or a debugger",
                      agent->workers[i].rank, (int)pid);
        }
}

static void answered(void *context)
{
    struct agent *agent = context;
    int asked = agent->inquiry->asked;
    blame_stopped(agent, agent->inquiry->stopped);
    log_lines(agent, agent->inquiry->text.data ? agent->inquiry->text.data : "");
    background_watch_end(&agent->asking);
    if (!asked) /* else what they have to say takes a moment: the deadline ends it */
        take_hang_step(agent, HANG_ANSWERED);
}

static void ask(struct agent *agent)
{
    const struct worker *behind = &agent->workers[agent->behind];
    struct muster_error err = {0};
    scope_buffer steps = {0};
    const int count = agent->config->nproc_per_node;
    scope_free pid_t *sessions = mem_calloc((size_t)count, sizeof *sessions);
    size_t found = 0;
    for (int i = 0; sessions && i < count; i++)
        if (agent->beats[i].stalled)
            sessions[found++] = agent->workers[i].pid;
    (void)heartbeats_format(agent->beats, count, agent->world.rank_base, &steps);
    log_error(&agent->log, "rank %d (pid %d) hangs: no heartbeat for %.4g s; last steps here: %s",
              behind->rank, (int)behind->pid, agent->config->hang_timeout_s,
              steps.data && !steps.failed ? steps.data : "none was told");
    struct background_job *errand = sessions ? hang_dump_start(sessions, found, &agent->inquiry, &err) : NULL;
    if (background_watch_begin(&agent->asking, &agent->loop, errand, answered, agent, &err) < 0)
        log_warning(&agent->log, "%s", err.text); /* the deadline goes on without it */
}

static void abort_stalled(struct agent *agent)
{
    background_watch_end(&agent->asking); /* /proc did not answer in time */
    for (int i = 0; i < agent->config->nproc_per_node; i++)
        if (agent->beats[i].stalled && agent->workers[i].alive) {
            (void)kill(-agent->workers[i].pid, SIGABRT); /* it is not reaped: the number is its own */
            (void)kill(-agent->workers[i].pid, SIGCONT); /* a stopped process handles nothing */
        }
}

/* One failure for all that stood still: of the one that is furthest behind. */
static void tell(struct agent *agent)
{
    struct worker *behind = &agent->workers[agent->behind];
    const struct heartbeat *beat = &agent->beats[agent->behind];
    struct worker_failure failure;
    agent_describe_end(agent, behind, &failure);
    if (behind->alive ||
        !failure.signal) { /* it does not end, or ended in its own way when it was asked to */
        failure.exit_code = -1;
        failure.signal = SIGABRT;
    }
    failure.hung = true;
    failure.step = beat->step;
    failure.age_ns = instant_diff_ns(clock_now(NULL), beat->last);
    for (int i = 0; i < agent->config->nproc_per_node; i++)
        if (agent->beats[i].stalled && agent->workers[i].news) {
            agent->workers[i].news = false;
            agent_tell_worker(agent, &agent->workers[i], i == agent->behind ? &failure : NULL);
        }
    agent_event(agent, &(struct worker_group_event){.kind = GROUP_FAILURE}, &failure);
    agent_reap(agent); /* the others' ends were held back */
}

static void take_hang_step(struct agent *agent, enum hang_event event)
{
    enum hang_state before = agent->hang.state;
    enum hang_action action = hang_step(&agent->hang, event, clock_now(NULL));
    if (agent->hang.state != before)
        log_debug(&agent->log, "hang: %s -> %s", hang_state_name(before), hang_state_name(agent->hang.state));
    if (action == HANG_ASK)
        ask(agent);
    else if (action == HANG_ABORT)
        abort_stalled(agent);
    else if (action == HANG_TELL)
        tell(agent);
}

void agent_reset_hang(struct agent *agent)
{
    take_hang_step(agent, HANG_RESET);
    background_watch_end(&agent->asking);
}

bool agent_holds_ends(struct agent *agent)
{
    if (agent->hang.state == HANG_WATCHING)
        return false;
    for (int i = 0; i < agent->config->nproc_per_node; i++)
        if (agent->beats[i].stalled && agent->workers[i].alive)
            return true;
    take_hang_step(agent, HANG_GONE);
    return true; /* all were handled by the failure */
}

void agent_end_beats(struct agent *agent, struct worker *worker)
{
    drain(agent, worker); /* its last step */
    agent->beats[worker->local_rank].over = true;
    worker->ended = clock_now(NULL);
}

static void look_for_silence(struct agent *agent, struct instant now)
{
    if (!instant_reached(now,
                         heartbeats_deadline(agent->beats, agent->config->nproc_per_node, timeout_ns(agent))))
        return;
    for (int i = 0; i < agent->config->nproc_per_node; i++)
        drain(agent, &agent->workers[i]); /* we may be the one that was stopped */
    agent->behind = heartbeats_stalled(agent->beats, agent->config->nproc_per_node, timeout_ns(agent), now);
    if (agent->behind >= 0)
        take_hang_step(agent, HANG_STALLED);
}

/* --- who left early --- */

static struct instant early_exit_deadline(const struct agent *agent)
{
    struct instant first = INSTANT_NEVER;
    for (int i = 0; i < agent->config->nproc_per_node; i++) {
        const struct worker *worker = &agent->workers[i];
        if (worker->pid && !worker->alive && !worker->named)
            first = instant_min(first, instant_add(worker->ended, early_exit_ns));
    }
    return first;
}

static void name_early_exits(struct agent *agent, struct instant now)
{
    for (int i = 0; i < agent->config->nproc_per_node; i++) {
        struct worker *worker = &agent->workers[i];
        if (!worker->pid || worker->alive || worker->named ||
            !instant_reached(now, instant_add(worker->ended, early_exit_ns)))
            continue;
        worker->named = true;
        log_info(&agent->log, "rank %d (pid %d) exited 0 %d s ago; of %d workers here %d still run",
                 worker->rank, (int)worker->pid, (int)(early_exit_ns / NS_PER_S),
                 agent->config->nproc_per_node, agent->alive);
    }
}

/* --- time --- */

struct instant agent_beats_deadline(const struct agent *agent)
{
    if (agent->group.state != GROUP_RUNNING)
        return INSTANT_NEVER;
    if (agent->hang.state != HANG_WATCHING)
        return agent->hang.deadline;
    return instant_min(early_exit_deadline(agent),
                       heartbeats_deadline(agent->beats, agent->config->nproc_per_node, timeout_ns(agent)));
}

void agent_beats_tick(struct agent *agent, struct instant now)
{
    if (!instant_reached(now, agent_beats_deadline(agent)))
        return;
    if (agent->hang.state != HANG_WATCHING) {
        take_hang_step(agent, HANG_DEADLINE);
        return;
    }
    name_early_exits(agent, now);
    look_for_silence(agent, now);
}
