/* agent_notices.c - stop notices, and the regrouping of workers that stay. See agent_notices.h. */
#include "launcher/agent/agent_notices.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launcher/agent/agent_membership.h"
#include "launcher/loop/channels.h"
#include "launcher/policy/stop_notice.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/exit_code.h"

struct agent_notices {
    struct channels *sockets;
    struct stop_notice_listener *listeners; /* one for each worker */
    struct instant lost_at;                 /* when a worker has lost a peer; NEVER: none has */
    struct instant miss_at;                 /* when that is to be said next; NEVER: the same */
};

/* After a worker has lost a peer: a failure may be reported meanwhile. The server is told again and again: a
 * node may be done a little later, and a message may be lost. */
static const int64_t lost_patience_ns = NS_PER_S, miss_every_ns = NS_PER_S / 2;

/* --- the sockets --- */

static void close_socket(struct agent *agent, int local_rank)
{
    (void)channels_close(agent->notices->sockets, local_rank);
    agent->notices->listeners[local_rank] = (struct stop_notice_listener){0};
}

/* A bounded read: a worker that writes without end must not keep the loop. */
static void read_socket(struct agent *agent, int local_rank)
{
    char bytes[512];
    ssize_t got = read(channels_fd(agent->notices->sockets, local_rank), bytes, sizeof bytes);
    struct stop_notice_listener *listener = &agent->notices->listeners[local_rank];
    if (got > 0)
        stop_notice_take(listener, bytes, (size_t)got);
    else if (got == 0 || (errno != EAGAIN && errno != EINTR))
        close_socket(agent, local_rank); /* no process has the other end any more */
    if (listener->lost && agent->group.state == GROUP_RUNNING &&
        agent->notices->lost_at.ns == INSTANT_NEVER.ns) {
        agent->notices->lost_at = clock_now(NULL);
        agent->notices->miss_at = instant_add(agent->notices->lost_at, miss_every_ns);
    }
}

static void socket_ready(void *context, int local_rank, uint32_t events)
{
    (void)events;
    read_socket(context, local_rank);
}

int agent_notices_open(struct agent *agent, struct worker *worker, int *theirs, struct muster_error *err)
{
    agent->notices->listeners[worker->local_rank] = (struct stop_notice_listener){0};
    return channels_open(agent->notices->sockets, worker->local_rank, theirs, err);
}

/* --- who listens --- */

static bool is_listening(struct agent *agent, const struct worker *worker)
{
    const struct stop_notice_listener *listener = &agent->notices->listeners[worker->local_rank];
    const bool open = channels_fd(agent->notices->sockets, worker->local_rank) >= 0;
    if (worker->alive && open && !listener->listens)
        read_socket(agent, worker->local_rank); /* it may have registered a moment ago */
    return worker->alive && listener->listens;
}

int agent_notices_listeners(struct agent *agent)
{
    int count = 0;
    for (int i = 0; agent->round.alive && i < agent->round.worker_count; i++)
        count += is_listening(agent, &agent->round.workers[i]);
    return count;
}

/* --- the notice --- */

enum membership_change agent_notices_coming(const struct agent *agent)
{
    if (agent->round.stop.given)
        return agent->round.stop.change;
    return agent->group.drains ? MEMBERSHIP_CHANGE_LEAVE : MEMBERSHIP_CHANGE_END;
}

/* A line always fits unless a worker has stopped reading after several of them. what: "the stop notice". */
static bool send_notice(struct agent *agent, const struct worker *worker, const char *what,
                        const struct buffer *line)
{
    const int fd = channels_fd(agent->notices->sockets, worker->local_rank);
    if (send(fd, line->data, line->length, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)line->length)
        return true;
    log_warning(&agent->log, "rank %d (pid %d) cannot get %s: %s", worker->rank, (int)worker->pid, what,
                fd < 0 ? "it has closed its socket" : strerror(errno));
    close_socket(agent, worker->local_rank);
    return false;
}

static void signal_worker(struct agent *agent, const struct worker *worker)
{
    worker_signal(worker, agent->group.signal, (enum signal_scope)agent->config->signal_scope);
    worker_signal(worker, SIGCONT, agent->config->signal_scope); /* a stopped process handles nothing */
}

void agent_notices_announce(struct agent *agent)
{
    const struct round_stop *stop = &agent->round.stop;
    const struct stop_notice notice =
        (struct stop_notice){.change = agent_notices_coming(agent),
                             .round = agent->round.world.id.round,
                             .nodes = agent->round.world.group_world_size,
                             .next_nodes = stop->next_nodes,
                             .deadline = agent->group.deadline,
                             .reason = stop->given ? stop->reason : "the agent of this node was stopped"};
    const struct instant now = clock_now(NULL);
    scope_buffer line = {.limit = STOP_NOTICE_LINE_LIMIT};
    int notified = 0, others = 0;
    (void)stop_notice_format(&notice, now, &line); /* without memory all get a signal */
    for (int i = 0; i < agent->round.worker_count; i++) {
        const struct worker *worker = &agent->round.workers[i];
        if (!worker->alive)
            continue;
        if (!line.failed && is_listening(agent, worker) &&
            send_notice(agent, worker, "the stop notice", &line)) {
            notified++;
        } else {
            signal_worker(agent, worker);
            others++;
        }
    }
    const int64_t left_ns = instant_diff_ns(notice.deadline, now);
    log_info(&agent->log, "stop notice sent to %d worker%s (deadline in %.4g s)%s", notified,
             notified == 1 ? "" : "s", (double)left_ns / NS_PER_S,
             others ? "; sent the stop signal to the others, which do not handle notices" : "");
    agent_emit(agent, &(struct agent_event){.kind = AGENT_NOTICE, .duration_ns = left_ns});
}

/* --- workers that stay --- */

static bool can_stay(struct agent *agent, const struct worker *worker)
{
    (void)is_listening(agent, worker); /* reads its lines */
    return worker->alive && channels_fd(agent->notices->sockets, worker->local_rank) >= 0 &&
           agent->notices->listeners[worker->local_rank].regroups &&
           !agent->round.beats[worker->local_rank].stalled; /* a hung one is to end */
}

int agent_notices_stayers(struct agent *agent)
{
    int count = 0;
    for (int i = 0; agent->round.alive && i < agent->round.worker_count; i++)
        count += can_stay(agent, &agent->round.workers[i]);
    return count;
}

bool agent_notices_resize(struct agent *agent)
{
    bool all = true;
    for (int i = 0; i < agent->round.worker_count; i++)
        all = all && (!agent->round.workers[i].alive || agent->notices->listeners[i].resizes);
    return all;
}

bool agent_notices_move(struct agent *agent, enum membership_change change, int next_nodes)
{
    const int nodes = agent->round.world.group_world_size;
    const bool joins = change == MEMBERSHIP_CHANGE_JOIN;
    /* the only node has all of the state: it would be lost with it */
    bool all = agent->round.alive > 0 && next_nodes > 0 &&
               (joins || (change == MEMBERSHIP_CHANGE_LEAVE && nodes > 1));
    for (int i = 0; i < agent->round.worker_count; i++) {
        const struct stop_notice_listener *listener = &agent->notices->listeners[i];
        all = all && (!agent->round.workers[i].alive || (can_stay(agent, &agent->round.workers[i]) &&
                                                         (joins ? listener->grows : listener->moves)));
    }
    return all && (next_nodes == nodes || agent_notices_resize(agent));
}

void agent_notices_hold(struct agent *agent)
{
    const struct round_stop *stop = &agent->round.stop;
    scope_buffer line = {.limit = STOP_NOTICE_LINE_LIMIT};
    int told = 0, others = 0;
    (void)stop_notice_format_regroup(agent->round.world.id.round, agent->group.hold_ns,
                                     stop->given ? stop->reason : "a worker of this node failed",
                                     &line); /* without memory all get a signal */
    for (int i = 0; i < agent->round.worker_count; i++) {
        const struct worker *worker = &agent->round.workers[i];
        if (!worker->alive)
            continue;
        agent->notices->listeners[i].held = agent->notices->listeners[i].lost = false;
        if (!line.failed && can_stay(agent, worker) && send_notice(agent, worker, "word to regroup", &line)) {
            worker_signal(worker, SIGCONT, agent->config->signal_scope);
            told++;
        } else {
            signal_worker(agent, worker);
            others++;
        }
    }
    log_info(&agent->log, "%d worker%s can stay and %s asked to regroup (within %.4g s)%s", told,
             told == 1 ? "" : "s", told == 1 ? "is" : "are", (double)agent->group.hold_ns / NS_PER_S,
             others ? "; the others got the stop signal and are started anew" : "");
}

static bool has_answered(struct agent *agent, const struct worker *worker)
{
    if (worker->alive && channels_fd(agent->notices->sockets, worker->local_rank) >= 0)
        read_socket(agent, worker->local_rank);
    return agent->notices->listeners[worker->local_rank].held;
}

bool agent_notices_are_held(struct agent *agent)
{
    for (int i = 0; i < agent->round.worker_count; i++)
        if (agent->round.workers[i].alive && !has_answered(agent, &agent->round.workers[i]))
            return false;
    return true;
}

void agent_notices_cull(struct agent *agent)
{
    for (int i = 0; i < agent->round.worker_count; i++) {
        const struct worker *worker = &agent->round.workers[i];
        if (!worker->alive || has_answered(agent, worker))
            continue;
        log_warning(&agent->log,
                    "rank %d (pid %d) has not let go of its communicators: it is killed and started anew",
                    worker->rank, (int)worker->pid);
        worker_signal(worker, SIGKILL, agent->config->signal_scope);
    }
}

void agent_notices_place(struct agent *agent, struct worker *worker)
{
    scope_buffer line = {.limit = STOP_NOTICE_LINE_LIMIT};
    const struct round *round = &agent->round;
    struct stop_notice_listener *listener = &agent->notices->listeners[worker->local_rank];
    if (agent->moves) /* who has whose state is another matter in this world: the worker writes them again */
        listener->moves = listener->grows = false;
    (void)stop_notice_format_place(&round->world, worker->local_rank, round->worker_count, &line);
    if (worker->alive && (line.failed || !send_notice(agent, worker, "its place in the round", &line)))
        worker_signal(worker, SIGKILL, agent->config->signal_scope); /* its end is a failure of this round */
}

/* --- peers that have gone without a failure --- */

/* A worker that exited 0 in this round while others run. */
static struct worker *find_done(const struct agent *agent)
{
    for (int i = 0; i < agent->round.worker_count; i++) {
        struct worker *worker = &agent->round.workers[i];
        if (worker->pid && !worker->alive && worker->end_code == CLD_EXITED && worker->end_status == 0)
            return worker;
    }
    return NULL;
}

static const struct worker *find_lost(const struct agent *agent)
{
    for (int i = 0; i < agent->round.worker_count; i++)
        if (agent->round.workers[i].alive && agent->notices->listeners[i].lost)
            return &agent->round.workers[i];
    return NULL;
}

static struct instant notices_deadline(const struct agent *agent)
{
    return agent->notices->miss_at;
}

/* The failure of a worker that has lost a peer would take its state along. Where no worker has exited with 0,
 * its error may be of another kind: it ends with that. With several nodes the lost peer may be on a node that
 * is lost, too: the server decides (membership_miss). */
static void notices_tick(struct agent *agent, struct instant now)
{
    if (!instant_reached(now, notices_deadline(agent)))
        return;
    struct worker *done = find_done(agent);
    const struct worker *lost = find_lost(agent);
    char text[80];
    agent->notices->miss_at = lost ? instant_add(now, miss_every_ns) : INSTANT_NEVER;
    if (!lost)
        return;
    if (agent->round.world.group_world_size > 1) {
        agent_membership_miss(agent, lost->rank);
        return;
    }
    if (!done || !instant_reached(now, instant_add(agent->notices->lost_at, lost_patience_ns)))
        return;
    agent->notices->miss_at = INSTANT_NEVER;
    (void)snprintf(text, sizeof text, "its own code was 0, but rank %d still needs it",
                   lost->rank); /* fits */
    agent_emit(agent, &(struct agent_event){
                          .kind = AGENT_ABORTED, .worker = done, .code = EXIT_CODE_FAILURE, .text = text});
}

/* --- the part --- */

static int notices_create(struct agent *agent, struct muster_error *err)
{
    const int count = agent->round.worker_count;
    struct agent_notices *notices = agent->notices = mem_calloc(1, sizeof *notices);
    if (notices) {
        notices->lost_at = notices->miss_at = INSTANT_NEVER;
        notices->sockets =
            channels_create(&agent->loop, count, CHANNEL_SOCKET, "notice socket", socket_ready, agent);
        notices->listeners = mem_calloc((size_t)count, sizeof *notices->listeners);
    }
    if (!notices || !notices->sockets || !notices->listeners)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the notices to %d workers", count);
    return 0;
}

static void notices_event(struct agent *agent, const struct agent_event *event)
{
    if (event->kind == AGENT_STATE)
        agent->notices->lost_at = agent->notices->miss_at = INSTANT_NEVER;
    if (event->kind == AGENT_STATE && event->code == GROUP_SAVING) {
        /* SAVING is over: logs the workers that did not use the time. */
        for (int i = 0; i < agent->round.worker_count; i++)
            if (is_listening(agent, &agent->round.workers[i]))
                log_warning(&agent->log,
                            "rank %d (pid %d) got the stop notice but still runs: sending the stop signal",
                            agent->round.workers[i].rank, (int)agent->round.workers[i].pid);
    } else if (event->kind == AGENT_ROUND_ENDS) {
        for (int i = 0; i < agent->round.worker_count; i++)
            if (!agent->round.workers[i].kept)
                close_socket(agent, i);
    }
}

static void notices_destroy(struct agent *agent)
{
    struct agent_notices *notices = agent->notices;
    if (!notices)
        return;
    channels_destroy(notices->sockets);
    mem_free(notices->listeners);
    mem_free(notices);
    agent->notices = NULL;
}

const struct agent_part agent_notices_part = {"notices",    notices_create, notices_deadline,
                                              notices_tick, notices_event,  notices_destroy};
