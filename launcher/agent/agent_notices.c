/* agent_notices.c - sends workers the notice of a planned stop. See agent_notices.h. */
#include "launcher/agent/agent_notices.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "launcher/policy/stop_notice.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"

/* Our end of one worker's socket; at all times: in the loop if fd is not -1. */
struct notice_socket {
    struct agent *agent;
    struct loop_source source;
    struct stop_notice_listener listener;
};

struct agent_notices {
    struct notice_socket *sockets; /* one for each worker */
};

static struct notice_socket *socket_of(const struct agent *agent, const struct worker *worker)
{
    return &agent->notices->sockets[worker->local_rank];
}

/* --- the sockets --- */

static void close_socket(struct notice_socket *socket)
{
    if (socket->source.fd < 0)
        return;
    loop_remove(&socket->agent->loop, &socket->source);
    (void)close(socket->source.fd); /* a socket: sent notices stay readable */
    socket->source.fd = -1;
    socket->listener = (struct stop_notice_listener){0};
}

/* A bounded read: a worker that writes without end must not keep the loop. */
static void read_socket(struct notice_socket *socket)
{
    char bytes[512];
    ssize_t got = read(socket->source.fd, bytes, sizeof bytes);
    if (got > 0)
        stop_notice_take(&socket->listener, bytes, (size_t)got);
    else if (got == 0 || (errno != EAGAIN && errno != EINTR))
        close_socket(socket); /* no process has the other end any more */
}

static void socket_ready(void *context, uint32_t events)
{
    (void)events;
    read_socket(context);
}

int agent_notices_open(struct agent *agent, struct worker *worker, int *theirs, struct muster_error *err)
{
    struct notice_socket *socket = socket_of(agent, worker);
    int ends[2];
    /* neither side ever waits for the other */
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) < 0)
        return error_errno(err, "cannot make a notice socket for local rank %d (ulimit -n limits them)",
                           worker->local_rank);
    scope_close int mine = ends[1];
    socket->listener = (struct stop_notice_listener){0};
    socket->source = (struct loop_source){ends[0], socket_ready, socket};
    if (loop_add(&agent->loop, &socket->source, EPOLLIN, err) < 0) {
        (void)close(ends[0]); /* a socket without users yet */
        socket->source.fd = -1;
        return -1;
    }
    *theirs = take_fd(&mine);
    return 0;
}

/* --- who listens --- */

static bool is_listening(const struct agent *agent, const struct worker *worker)
{
    struct notice_socket *socket = socket_of(agent, worker);
    if (worker->alive && socket->source.fd >= 0 && !socket->listener.listens)
        read_socket(socket); /* it may have registered a moment ago */
    return worker->alive && socket->source.fd >= 0 && socket->listener.listens;
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

/* A line always fits unless a worker has stopped reading after several of them. */
static bool send_notice(struct agent *agent, const struct worker *worker, const struct buffer *line)
{
    if (send(socket_of(agent, worker)->source.fd, line->data, line->length, MSG_NOSIGNAL | MSG_DONTWAIT) ==
        (ssize_t)line->length)
        return true;
    log_warning(&agent->log, "rank %d (pid %d) cannot get the stop notice: %s", worker->rank,
                (int)worker->pid, strerror(errno));
    close_socket(socket_of(agent, worker));
    return false;
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
        if (!line.failed && is_listening(agent, worker) && send_notice(agent, worker, &line)) {
            notified++;
        } else {
            worker_signal(worker, agent->group.signal, (enum signal_scope)agent->config->signal_scope);
            worker_signal(worker, SIGCONT,
                          agent->config->signal_scope); /* a stopped process handles nothing */
            others++;
        }
    }
    const int64_t left_ns = instant_diff_ns(notice.deadline, now);
    log_info(&agent->log, "stop notice sent to %d worker%s (deadline in %.4g s)%s", notified,
             notified == 1 ? "" : "s", (double)left_ns / NS_PER_S,
             others ? "; sent the stop signal to the others, which do not handle notices" : "");
    agent_emit(agent, &(struct agent_event){.kind = AGENT_NOTICE, .duration_ns = left_ns});
}

/* --- the part --- */

static int notices_create(struct agent *agent, struct muster_error *err)
{
    const int count = agent->round.worker_count;
    struct agent_notices *notices = agent->notices = mem_calloc(1, sizeof *notices);
    if (notices)
        notices->sockets = mem_calloc((size_t)count, sizeof *notices->sockets);
    if (!notices || !notices->sockets)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the notices to %d workers", count);
    for (int i = 0; i < count; i++)
        notices->sockets[i] = (struct notice_socket){.agent = agent, .source = {.fd = -1}};
    return 0;
}

static void close_sockets(struct agent *agent)
{
    for (int i = 0; i < agent->round.worker_count; i++)
        close_socket(&agent->notices->sockets[i]);
}

static void notices_event(struct agent *agent, const struct agent_event *event)
{
    if (event->kind == AGENT_STATE && event->code == GROUP_SAVING) {
        /* SAVING is over: logs the workers that did not use the time. */
        for (int i = 0; i < agent->round.worker_count; i++)
            if (is_listening(agent, &agent->round.workers[i]))
                log_warning(&agent->log,
                            "rank %d (pid %d) got the stop notice but still runs: sending the stop signal",
                            agent->round.workers[i].rank, (int)agent->round.workers[i].pid);
    } else if (event->kind == AGENT_ROUND_ENDS)
        close_sockets(agent);
}

static void notices_destroy(struct agent *agent)
{
    struct agent_notices *notices = agent->notices;
    if (!notices)
        return;
    if (notices->sockets)
        close_sockets(agent);
    mem_free(notices->sockets);
    mem_free(notices);
    agent->notices = NULL;
}

const struct agent_part agent_notices_part = {"notices", notices_create, NULL,
                                              NULL,      notices_event,  notices_destroy};
