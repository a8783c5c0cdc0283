/* agent_heartbeats.c - heartbeats of the workers, and actions on hung ones. See agent_heartbeats.h. */
#include "launcher/agent/agent_heartbeats.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "launcher/loop/background_job.h"
#include "launcher/loop/channels.h"
#include "launcher/policy/hang.h"
#include "launcher/process/hang_dump.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"

static const int64_t early_exit_ns = 60 * NS_PER_S;
enum { LATE_PERIODS = 4 }; /* a look that takes so long hangs in /proc */

struct agent_heartbeats {
    struct channels *pipes;
    bool *named; /* one for each worker: the log names it as exited early */
    struct hang hang;
    int slowest;                    /* local rank of the worker that is reported as hung */
    struct background_watch asking; /* while the kernel's view of it is read */
    struct hang_dump *dump;         /* result of asking */

    bool unarmed_noted;          /* no worker sends heartbeats, or none can be looked at */
    struct activity *activities; /* one for each worker of this round, as seen from outside */
    struct instant probe_at;     /* the next look */
    struct background_watch probing;
    struct instant late_at; /* probing takes too long from then on */
    bool late_noted;
    struct activity_probe *probe; /* result of probing */
    bool outside;                 /* the hang was seen from outside */
};

static struct heartbeat *beat_of(const struct agent *agent, int local_rank)
{
    return &agent->round.beats[local_rank];
}

/* --- the pipes --- */

/* Reads the present content of a pipe and no more: a worker that never stops writing must not keep the agent
 * from everything else. */
static void drain_pipe(struct agent *agent, int local_rank)
{
    enum { PIPE_HOLDS = 64 << 10 };
    struct channels *pipes = agent->heartbeats->pipes;
    char bytes[512];
    struct instant now = clock_now(NULL);
    size_t taken = 0;
    for (ssize_t got; channels_fd(pipes, local_rank) >= 0 && taken < PIPE_HOLDS;) {
        got = read(channels_fd(pipes, local_rank), bytes, sizeof bytes);
        if (got > 0) {
            heartbeat_take(beat_of(agent, local_rank), bytes, (size_t)got, now);
            taken += (size_t)got;
        } else if (got < 0 && errno == EINTR)
            continue;
        else if (got < 0 && errno == EAGAIN)
            return;
        else
            (void)channels_close(pipes, local_rank); /* no process can send heartbeats any more */
    }
}

static void pipe_ready(void *context, int local_rank, uint32_t events)
{
    (void)events;
    drain_pipe(context, local_rank);
}

int agent_heartbeats_open(struct agent *agent, struct worker *worker, int *writer, struct muster_error *err)
{
    heartbeat_init(beat_of(agent, worker->local_rank));
    return channels_open(agent->heartbeats->pipes, worker->local_rank, writer, err);
}

void agent_heartbeats_renew(struct agent *agent, const struct worker *worker)
{
    drain_pipe(agent, worker->local_rank);
    heartbeat_init(beat_of(agent, worker->local_rank));
}

void agent_heartbeats_end(struct agent *agent, const struct worker *worker)
{
    drain_pipe(agent, worker->local_rank); /* its last step */
    beat_of(agent, worker->local_rank)->over = true;
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

static void answered(void *context)
{
    struct agent *agent = context;
    int asked = agent->heartbeats->dump->asked;
    /* Among equally slow workers the stopped one is the cause. */
    const int64_t step = agent->round.beats[agent->heartbeats->slowest].step;
    for (int i = 0; agent->heartbeats->dump->stopped && i < agent->round.worker_count; i++)
        if (agent->round.workers[i].pid == agent->heartbeats->dump->stopped &&
            agent->round.beats[i].stalled && agent->round.beats[i].step == step) {
            agent->heartbeats->slowest = i;
            log_error(&agent->log, "rank %d (pid %d) was stopped by a signal or a debugger",
                      agent->round.workers[i].rank, (int)agent->heartbeats->dump->stopped);
        }
    log_lines(agent, agent->heartbeats->dump->text.data ? agent->heartbeats->dump->text.data : "");
    background_watch_end(&agent->heartbeats->asking);
    if (!asked) /* else their output takes a moment: the deadline ends it */
        take_hang_step(agent, HANG_ANSWERED);
}

static void ask_kernel(struct agent *agent)
{
    const struct worker *slowest = &agent->round.workers[agent->heartbeats->slowest];
    struct muster_error err = {0};
    scope_buffer steps = {0};
    const int count = agent->round.worker_count;
    scope_free pid_t *sessions = mem_calloc((size_t)count, sizeof *sessions);
    size_t found = 0;
    for (int i = 0; sessions && i < count; i++)
        if (agent->round.beats[i].stalled)
            sessions[found++] = agent->round.workers[i].pid;
    const int base = agent->round.world.rank_base;
    (void)(agent->heartbeats->outside ? activities_format(agent->heartbeats->activities, count,
                                                          agent->heartbeats->slowest, base, &steps)
                                      : heartbeats_format(agent->round.beats, count, base, &steps));
    log_error(&agent->log, "rank %d (pid %d) is hung: %s for %.4g s; %s%s", slowest->rank, (int)slowest->pid,
              agent->heartbeats->outside ? "no worker here used 1% of a processor or wrote output"
                                         : "no heartbeat",
              agent->config->hang_timeout_s, agent->heartbeats->outside ? "" : "last steps here: ",
              steps.data && !steps.failed ? steps.data : "none reported");
    struct background_job *job =
        sessions ? hang_dump_start(sessions, found, &agent->heartbeats->dump, &err) : NULL;
    if (background_watch_begin(&agent->heartbeats->asking, &agent->loop, job, answered, agent, &err) < 0)
        log_warning(&agent->log, "%s", err.text); /* the deadline continues without it */
}

static void take_hang_step(struct agent *agent, enum hang_event event)
{
    enum hang_state before = agent->heartbeats->hang.state;
    enum hang_action action = hang_step(&agent->heartbeats->hang, event, clock_now(NULL));
    if (agent->heartbeats->hang.state != before)
        log_debug(&agent->log, "hang: %s -> %s", hang_state_name(before),
                  hang_state_name(agent->heartbeats->hang.state));
    if (action == HANG_ASK)
        ask_kernel(agent);
    else if (action == HANG_ABORT) {
        background_watch_end(&agent->heartbeats->asking); /* /proc did not respond in time */
        for (int i = 0; i < agent->round.worker_count; i++)
            if (agent->round.beats[i].stalled && agent->round.workers[i].alive) {
                (void)kill(-agent->round.workers[i].pid,
                           SIGABRT); /* it is not reaped: the number is its own */
                (void)kill(-agent->round.workers[i].pid, SIGCONT); /* a stopped process handles nothing */
            }
    } else if (action == HANG_TELL) {
        const int slowest = agent->heartbeats->slowest;
        const struct instant since = agent->heartbeats->outside
                                         ? agent->heartbeats->activities[slowest].quiet_since
                                         : beat_of(agent, slowest)->last;
        agent_emit(agent, &(struct agent_event){.kind = AGENT_HUNG,
                                                .worker = &agent->round.workers[slowest],
                                                .duration_ns = instant_diff_ns(clock_now(NULL), since)});
    }
}

bool agent_heartbeats_hold_ends(struct agent *agent)
{
    if (agent->heartbeats->hang.state == HANG_WATCHING)
        return false;
    for (int i = 0; i < agent->round.worker_count; i++)
        if (agent->round.beats[i].stalled && agent->round.workers[i].alive)
            return true;
    take_hang_step(agent, HANG_GONE);
    return true; /* all were handled by the failure */
}

/* --- workers without heartbeats --- */

/* Whether any worker of this round has sent one: then heartbeats decide, also while they are disarmed. */
static bool any_heartbeat(const struct agent *agent)
{
    for (int i = 0; i < agent->round.worker_count; i++)
        if (agent->round.beats[i].last.ns)
            return true;
    return false;
}

/* The time of the warning that nothing is watched, or of the next look from outside. */
static struct instant unarmed_deadline(const struct agent *agent)
{
    const struct agent_heartbeats *heartbeats = agent->heartbeats;
    const bool outside = agent->config->hang_watch == HANG_WATCH_OUTSIDE;
    const struct worker *first = &agent->round.workers[0];
    if (agent->config->hang_timeout_s <= 0 || !first->pid || (!outside && heartbeats->unarmed_noted) ||
        any_heartbeat(agent))
        return INSTANT_NEVER;
    if (heartbeats->probing.job)
        return heartbeats->late_noted ? INSTANT_NEVER : heartbeats->late_at;
    return outside ? heartbeats->probe_at : instant_add(first->begun, timeout_ns(agent));
}

/* A worker that has ended is no longer waited for. */
static void take_probe(struct agent *agent, struct instant now)
{
    struct agent_heartbeats *heartbeats = agent->heartbeats;
    const struct activity_probe *probe = heartbeats->probe;
    for (size_t i = 0; i < probe->count; i++) {
        struct worker *worker = &agent->round.workers[i];
        struct activity_sample sample = probe->workers[i].sample;
        for (int fd = 1; fd <= 2; fd++)
            sample.output += pump_bytes(worker->streams[fd]);
        heartbeats->activities[i].over = !worker->alive;
        activity_take(&heartbeats->activities[i], &sample, now);
    }
}

static void probed(void *context)
{
    struct agent *agent = context;
    struct agent_heartbeats *heartbeats = agent->heartbeats;
    const struct instant now = clock_now(NULL);
    take_probe(agent, now);
    background_watch_end(&heartbeats->probing);
    heartbeats->probe_at = instant_add(now, activity_period_ns(timeout_ns(agent)));
    const int suspect =
        agent->group.state == GROUP_RUNNING && !any_heartbeat(agent)
            ? activities_hung(heartbeats->activities, agent->round.worker_count, timeout_ns(agent))
            : -1;
    if (suspect < 0 || heartbeats->hang.state != HANG_WATCHING)
        return;
    heartbeats->outside = true;
    heartbeats->slowest = suspect;
    for (int i = 0; i < agent->round.worker_count; i++)
        agent->round.beats[i].stalled = agent->round.workers[i].alive;
    take_hang_step(agent, HANG_STALLED);
}

static void look_from_outside(struct agent *agent, struct instant now)
{
    struct agent_heartbeats *heartbeats = agent->heartbeats;
    struct muster_error err = {0};
    const size_t count = (size_t)agent->round.worker_count;
    scope_free pid_t *sessions = mem_calloc(count, sizeof *sessions);
    for (size_t i = 0; sessions && i < count; i++)
        sessions[i] = agent->round.workers[i].pid;
    heartbeats->probe_at = instant_add(now, activity_period_ns(timeout_ns(agent)));
    struct background_job *job =
        sessions ? activity_probe_start(sessions, count, &heartbeats->probe, &err) : NULL;
    heartbeats->late_at = instant_add(now, LATE_PERIODS * activity_period_ns(timeout_ns(agent)));
    if (background_watch_begin(&heartbeats->probing, &agent->loop, job, probed, agent, &err) == 0)
        return;
    if (!heartbeats->unarmed_noted) /* once: the next look may succeed, and the reason lasts */
        log_warning(&agent->log, "--hang-watch=outside cannot look at the workers now: %s", err.text);
    heartbeats->unarmed_noted = true;
}

static void watch_unarmed(struct agent *agent, struct instant now)
{
    if (!instant_reached(now, unarmed_deadline(agent)))
        return;
    if (agent->heartbeats->probing.job) {
        agent->heartbeats->late_noted = true; /* once: the next one may be late for the same reason */
        log_warning(
            &agent->log,
            "--hang-watch=outside: /proc has not answered for %.3g s, and no hang is detected until it "
            "does: look for processes in state D (ps -eo pid,stat,wchan,cmd)",
            (double)(LATE_PERIODS * activity_period_ns(timeout_ns(agent))) / (double)NS_PER_S);
        return;
    }
    for (int i = 0; i < agent->round.worker_count; i++)
        drain_pipe(agent, i);
    if (any_heartbeat(agent))
        return;
    if (agent->config->hang_watch == HANG_WATCH_OUTSIDE) {
        look_from_outside(agent, now);
        return;
    }
    agent->heartbeats->unarmed_noted = true;
    log_warning(
        &agent->log,
        "--hang-timeout=%.4g detects no hang: no worker of this node has sent a heartbeat so far; call "
        "muster.log(step=...) in the script, or give --hang-watch=outside",
        agent->config->hang_timeout_s);
}

/* --- workers that exited early --- */

static struct instant early_exit_deadline(const struct agent *agent)
{
    struct instant first = INSTANT_NEVER;
    for (int i = 0; i < agent->round.worker_count; i++) {
        const struct worker *worker = &agent->round.workers[i];
        if (worker->pid && !worker->alive && !agent->heartbeats->named[i])
            first = instant_min(first, instant_add(worker->ended, early_exit_ns));
    }
    return first;
}

/* --- the part --- */

static int beats_create(struct agent *agent, struct muster_error *err)
{
    const int count = agent->round.worker_count;
    struct agent_heartbeats *heartbeats = agent->heartbeats = mem_calloc(1, sizeof *heartbeats);
    if (heartbeats)
        heartbeats->pipes =
            channels_create(&agent->loop, count, CHANNEL_PIPE, "heartbeat pipe", pipe_ready, agent);
    if (heartbeats)
        heartbeats->named = mem_calloc((size_t)count, sizeof *heartbeats->named);
    if (heartbeats)
        heartbeats->activities = mem_calloc((size_t)count, sizeof *heartbeats->activities);
    if (!heartbeats || !heartbeats->pipes || !heartbeats->named || !heartbeats->activities)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the heartbeats of %d workers", count);
    heartbeats->hang.deadline = INSTANT_NEVER;
    return 0;
}

static struct instant beats_deadline(const struct agent *agent)
{
    if (agent->group.state != GROUP_RUNNING)
        return INSTANT_NEVER;
    if (agent->heartbeats->hang.state != HANG_WATCHING)
        return agent->heartbeats->hang.deadline;
    return instant_min(instant_min(early_exit_deadline(agent), unarmed_deadline(agent)),
                       heartbeats_deadline(agent->round.beats, agent->round.worker_count, timeout_ns(agent)));
}

static void beats_tick(struct agent *agent, struct instant now)
{
    if (!instant_reached(now, beats_deadline(agent)))
        return;
    if (agent->heartbeats->hang.state != HANG_WATCHING) {
        take_hang_step(agent, HANG_DEADLINE);
        return;
    }
    for (int i = 0; i < agent->round.worker_count; i++) {
        const struct worker *worker = &agent->round.workers[i];
        if (!worker->pid || worker->alive || agent->heartbeats->named[i] ||
            !instant_reached(now, instant_add(worker->ended, early_exit_ns)))
            continue;
        agent->heartbeats->named[i] = true;
        log_info(&agent->log, "rank %d (pid %d) exited 0 %d s ago; of %d workers here %d still run",
                 worker->rank, (int)worker->pid, (int)(early_exit_ns / NS_PER_S), agent->round.worker_count,
                 agent->round.alive);
    }
    if (instant_reached(
            now, heartbeats_deadline(agent->round.beats, agent->round.worker_count, timeout_ns(agent)))) {
        for (int i = 0; i < agent->round.worker_count; i++)
            drain_pipe(agent, i); /* this agent may have been the stopped process */
        agent->heartbeats->slowest =
            heartbeats_stalled(agent->round.beats, agent->round.worker_count, timeout_ns(agent), now);
        if (agent->heartbeats->slowest >= 0)
            take_hang_step(agent, HANG_STALLED);
    }
    watch_unarmed(agent, now);
}

static void close_pipes(struct agent *agent)
{
    for (int i = 0; i < agent->round.worker_count; i++) {
        if (!agent->round.workers[i].kept)
            (void)channels_close(agent->heartbeats->pipes, i);
        agent->heartbeats->named[i] = false;
    }
}

static void beats_event(struct agent *agent, const struct agent_event *event)
{
    if (event->kind == AGENT_STATE && agent->group.state != GROUP_RUNNING) {
        /* The workers are being stopped: a hang does not matter any more. */
        take_hang_step(agent, HANG_RESET);
        background_watch_end(&agent->heartbeats->asking);
        background_watch_end(&agent->heartbeats->probing);
        agent->heartbeats->outside = false;
        memset(agent->heartbeats->activities, 0,
               (size_t)agent->round.worker_count * sizeof *agent->heartbeats->activities);
        agent->heartbeats->probe_at = (struct instant){0};
    } else if (event->kind == AGENT_ROUND_ENDS)
        close_pipes(agent);
}

static void beats_destroy(struct agent *agent)
{
    struct agent_heartbeats *heartbeats = agent->heartbeats;
    if (!heartbeats)
        return;
    background_watch_end(&heartbeats->asking);
    background_watch_end(&heartbeats->probing);
    channels_destroy(heartbeats->pipes);
    mem_free(heartbeats->named);
    mem_free(heartbeats->activities);
    mem_free(heartbeats);
    agent->heartbeats = NULL;
}

const struct agent_part agent_heartbeats_part = {"heartbeats", beats_create, beats_deadline,
                                                 beats_tick,   beats_event,  beats_destroy};
