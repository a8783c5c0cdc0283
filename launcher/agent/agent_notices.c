/* agent_notices.c - telling workers of a stop that is planned (notice.md): their sockets, who listens, and
 * the notice itself. See agent_internal.h. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "launcher/agent/agent_internal.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"

/* --- the sockets --- */

/* A bounded read: a worker that writes without end must not keep the loop. */
static void hear(struct agent *agent, struct worker *worker)
{
    char bytes[512];
    ssize_t got = read(worker->notices.fd, bytes, sizeof bytes);
    if (got > 0)
        stop_notice_take(&worker->listener, bytes, (size_t)got);
    else if (got == 0 || (errno != EAGAIN && errno != EINTR))
        agent_close_notices(agent, worker); /* nobody has the other end any more */
}

static void notices_ready(void *context, uint32_t events)
{
    struct worker *worker = context;
    (void)events;
    hear(worker->agent, worker);
}

int agent_open_notices(struct agent *agent, struct worker *worker, int *theirs, struct muster_error *err)
{
    int ends[2];
    /* neither side ever waits for the other */
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) < 0)
        return error_errno(err, "cannot make a notice socket for local rank %d (ulimit -n limits them)",
                           worker->local_rank);
    scope_close int mine = ends[1];
    worker->agent = agent;
    worker->listener = (struct stop_notice_listener){0};
    worker->notices = (struct loop_source){ends[0], notices_ready, worker};
    if (loop_add(&agent->loop, &worker->notices, EPOLLIN, err) < 0) {
        (void)close(ends[0]); /* a socket that nobody uses yet */
        worker->notices.fd = -1;
        return -1;
    }
    *theirs = take_fd(&mine);
    return 0;
}

void agent_close_notices(struct agent *agent, struct worker *worker)
{
    if (worker->notices.fd < 0)
        return;
    loop_remove(&agent->loop, &worker->notices);
    (void)close(worker->notices.fd); /* a socket: what was sent stays readable */
    worker->notices.fd = -1;
    worker->listener.listens = false;
}

/* --- who listens --- */

static bool listens(struct agent *agent, struct worker *worker)
{
    if (worker->alive && worker->notices.fd >= 0 && !worker->listener.listens)
        hear(agent, worker); /* it may have said so a moment ago */
    return worker->alive && worker->notices.fd >= 0 && worker->listener.listens;
}

int agent_count_listeners(struct agent *agent)
{
    int count = 0;
    for (int i = 0; agent->alive && i < agent->config->nproc_per_node; i++)
        count += listens(agent, &agent->workers[i]);
    return count;
}

/* --- the notice --- */

enum membership_change agent_coming(const struct agent *agent)
{
    if (agent->stop.kind == MEMBERSHIP_EVENT_STOP)
        return agent->stop.change;
    return agent->group.drains ? MEMBERSHIP_CHANGE_LEAVE : MEMBERSHIP_CHANGE_END;
}

static struct stop_notice describe(const struct agent *agent)
{
    const bool said = agent->stop.kind == MEMBERSHIP_EVENT_STOP;
    return (struct stop_notice){.change = agent_coming(agent),
                                .round = agent->world.id.round,
                                .nodes = agent->world.group_world_size,
                                .next_nodes = agent->stop.next_nodes,
                                .deadline = agent->group.deadline,
                                .reason =
                                    said ? agent->stop.reason : "the agent of this node was asked to end"};
}

/* A line always fits but where a worker has stopped reading after several of them. */
static bool tell(struct agent *agent, struct worker *worker, const struct buffer *line)
{
    if (send(worker->notices.fd, line->data, line->length, MSG_NOSIGNAL | MSG_DONTWAIT) ==
        (ssize_t)line->length)
        return true;
    log_warning(&agent->log, "rank %d (pid %d) cannot be told of the stop: %s", worker->rank,
                (int)worker->pid, strerror(errno));
    agent_close_notices(agent, worker);
    return false;
}

static void terminate(const struct agent *agent, const struct worker *worker)
{
    (void)kill(-worker->pid, agent->group.signal); /* it is not reaped: the number is its own */
    (void)kill(-worker->pid, SIGCONT);             /* a stopped process handles nothing */
}

void agent_announce(struct agent *agent)
{
    const struct stop_notice notice = describe(agent);
    const struct instant now = clock_now(NULL);
    scope_buffer line = {.limit = STOP_NOTICE_LINE_LIMIT};
    int told = 0, others = 0;
    (void)stop_notice_format(&notice, now, &line); /* without memory all are told by a signal */
    for (int i = 0; i < agent->config->nproc_per_node; i++) {
        struct worker *worker = &agent->workers[i];
        if (!worker->alive)
            continue;
        if (!line.failed && listens(agent, worker) && tell(agent, worker, &line)) {
            told++;
        } else {
            terminate(agent, worker);
            others++;
        }
    }
    const int64_t left_ns = instant_diff_ns(notice.deadline, now);
    log_info(&agent->log, "%d worker%s told to save and end within %.4g s%s", told,
             told == 1 ? " was" : "s were", (double)left_ns / NS_PER_S,
             others ? "; the others, which do not listen for notices, were told to end" : "");
    agent_tell(agent, EVENT_NOTICE, left_ns);
}

void agent_end_notice(struct agent *agent)
{
    for (int i = 0; i < agent->config->nproc_per_node; i++)
        if (listens(agent, &agent->workers[i]))
            log_warning(&agent->log,
                        "rank %d (pid %d) was told of the stop and still runs: it is told to end now",
                        agent->workers[i].rank, (int)agent->workers[i].pid);
}
