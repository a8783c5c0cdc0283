/* server_loop.c - the serving agent's thread: connections, the agent's commands, time, and the end. See
 * server_internal.h. */
#include <errno.h>
#include <limits.h>
#include <malloc.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "rendezvous/server/server_internal.h"
#include "rendezvous/zmq/zmq_calls.h"

enum {
    PROGRESS_EVERY_MS = 500,
    CONFIRM_AFTER_MS = 100,
    TRIM_AFTER_MS = 200, /* libzmq has closed them by then */
    TURN_EVERY_MS = 250, /* while there are nodes to judge */
};

static void handle_connection(struct transport *c, int event, int value, struct instant now)
{
    admission_watch(&c->admission, event, value, now);
    if (event == ZMQ_EVENT_ACCEPTED)
        inflow_accepted(&c->inflow, value);
    else if (event == ZMQ_EVENT_DISCONNECTED)
        inflow_ended(&c->inflow, value);
    int slot = event == ZMQ_EVENT_DISCONNECTED ? routes_find_fd(&c->routes, value) : -1;
    if (slot < 0 || server_is_cut_off(c, slot))
        return;
    c->suspect = slot;
    c->suspect_session = c->routes.slots[slot].session;
    c->confirm_at = instant_add(now, CONFIRM_AFTER_MS * NS_PER_MS);
}

static void watch_connections(struct transport *c, struct instant now)
{
    int event, value;
    while (zmq_socket_next_event(&c->socket, &event, &value)) {
        c->handled++;
        handle_connection(c, event, value, now);
    }
    c->handled += admission_answer(&c->admission, &c->socket, now);
    if (!instant_reached(now, c->confirm_at))
        return;
    c->confirm_at = INSTANT_NEVER;
    if (c->routes.slots[c->suspect].session == c->suspect_session && c->suspect_session)
        (void)server_is_cut_off(c, c->suspect); /* if not, its silence will show it */
}

static void run_commands(struct transport *c)
{
    pthread_mutex_lock(&c->lock);
    struct command *command = c->first;
    c->first = NULL;
    c->last = &c->first;
    pthread_mutex_unlock(&c->lock);
    struct sender local = {.session = SERVER_LOCAL_SESSION};
    while (command) {
        struct command *next = command->next;
        command->event.session = SERVER_LOCAL_SESSION;
        command->event.member = c->local_member;
        if (command->kind != COMMAND_EVENT)
            server_obey(c, command);
        else if (c->roster)
            (void)server_step(c, &command->event, &local);
        server_free_command(command);
        command = next;
    }
}

/* How long the server of a job that is over stays for agents on their way: they get the verdict, and do not
 * wait for a job that is over. After an election an agent at the endpoint may just have been told of the new
 * server. A node that was lost in the last seconds may live: it looks for the server as soon as it is heard
 * again. */
static struct instant newcomers_limit(const struct transport *c)
{
    static const int64_t stay_ns = NS_PER_S, lately_ns = 5 * NS_PER_S;
    const bool missed = c->missed_at.ns != INSTANT_NEVER.ns &&
                        !instant_reached(c->closing_at, instant_add(c->missed_at, lately_ns));
    const int64_t ns = (c->elected ? stay_ns : 0) + (missed ? stay_ns : 0);
    return instant_min(c->close_deadline, instant_add(c->closing_at, ns));
}

static bool awaits_newcomers(const struct transport *c, struct instant now)
{
    return c->roster && roster_state(c->roster) > JOB_DEPARTED && !instant_reached(now, newcomers_limit(c));
}

/* The server leaves last: after a verdict or a handover it stays until the others have left, within the
 * linger. The linger begins when all agents that are being stopped for its end have stopped. */
static bool has_parted(struct transport *c, struct instant now)
{
    const bool held = c->roster && roster_holds_server(c->roster);
    pthread_mutex_lock(&c->lock);
    c->others = c->roster ? roster_remote_count(c->roster) : 0;
    c->missed_at = c->roster ? roster_last_missed(c->roster) : INSTANT_NEVER;
    if (c->closing && held)
        c->close_deadline = instant_add(now, c->linger_ns);
    bool closing = c->closing && !c->first, broken = c->fatal.code != 0;
    struct instant deadline = c->close_deadline;
    const bool stays = held || (c->closing && awaits_newcomers(c, now));
    pthread_mutex_unlock(&c->lock);
    if (broken)
        return true;
    if (stays)
        return false;
    return closing && (!c->roster || roster_state(c->roster) < JOB_DEPARTED ||
                       !roster_remote_count(c->roster) || instant_reached(now, deadline));
}

/* Whether the thread ends. An agent that votes afterwards parts from its office only. */
static bool may_end(struct transport *c, struct instant now)
{
    if (!has_parted(c, now))
        return false;
    pthread_mutex_lock(&c->lock);
    const bool retires = c->retires && !c->fatal.code;
    if (retires) {
        c->retires = c->closing = false;
        c->retired = true;
    }
    pthread_mutex_unlock(&c->lock);
    if (!retires)
        return true;
    server_end_office(c);
    server_signal_fd(c->ready_fd);
    return false;
}

static struct instant roster_due(const struct transport *c)
{
    return c->roster ? roster_deadline(c->roster) : INSTANT_NEVER;
}

static int wait_for_work(struct transport *c)
{
    pthread_mutex_lock(&c->lock);
    struct instant due = c->closing ? c->close_deadline : INSTANT_NEVER;
    if (c->closing && awaits_newcomers(c, clock_now(c->clock)))
        due = instant_min(due, newcomers_limit(c));
    pthread_mutex_unlock(&c->lock);
    due = instant_min(due, instant_min(c->confirm_at, roster_due(c)));
    due = instant_min(due, admission_deadline(&c->admission));
    due = instant_min(due, instant_min(c->inflow.look_at, c->trim_at));
    const struct instant now = clock_now(c->clock);
    const bool judges = c->roster && roster_has_remote(c->roster);
    due = instant_min(due, judges ? instant_add(now, TURN_EVERY_MS * NS_PER_MS) : INSTANT_NEVER);
    if (!judges)
        c->turned_at = INSTANT_NEVER;
    int64_t left = instant_diff_ns(due, now);
    int64_t timeout = -1;
    if (c->broken)
        timeout = 0; /* there was more to read than one turn reads */
    else if (due.ns != INT64_MAX)
        timeout = left <= 0 ? 0 : (left + NS_PER_MS - 1) / NS_PER_MS;
    /* while connections are looked at by the clock, newly busy connections wait for that */
    const int fds[] = {c->wake_fd, c->inflow.look_at.ns == INSTANT_NEVER.ns ? c->inflow.epoll : -1};
    if (zmq_socket_wait(&c->socket, fds, 2, timeout < INT_MAX ? (int)timeout : INT_MAX) && errno != EINTR)
        return -1;
    (void)server_now(c);
    return 0;
}

/* Called after all messages were received: bytes that libzmq holds then are no whole message. */
static void watch_inflow(struct transport *c, struct instant now)
{
    if (c->inflow.look_at.ns == INSTANT_NEVER.ns || instant_reached(now, c->inflow.look_at))
        inflow_look(&c->inflow, now);
    for (int fd; (fd = inflow_excess(&c->inflow)) >= 0;) {
        admission_close_endless(&c->admission, fd, now);
        c->trim_at = instant_add(now, TRIM_AFTER_MS * NS_PER_MS);
    }
    if (!instant_reached(now, c->trim_at))
        return;
    c->trim_at = INSTANT_NEVER;
#ifdef __GLIBC__
    (void)malloc_trim(0); /* a hint */
#endif
}

/* It costs a scan of all slots, so not with every message. */
static void refresh_progress(struct transport *c, struct instant now)
{
    if (!c->roster || !instant_reached(now, c->progress_at))
        return;
    c->progress_at = instant_add(now, PROGRESS_EVERY_MS * NS_PER_MS);
    pthread_mutex_lock(&c->lock);
    roster_describe_progress(c->roster, c->progress, sizeof c->progress);
    size_t length = strlen(c->progress);
    if (length)
        admission_describe(&c->admission, c->progress + length, sizeof c->progress - length);
    pthread_mutex_unlock(&c->lock);
}

/* A crowd of agents wakes this thread for each of them, and the wake-ups cost both sides more than the
 * work. Due work is delayed by as much. */
static void let_gather(struct transport *c)
{
    static const struct nap_limits limits = {.longest_ns = 2 * NS_PER_MS,
                                             .shortest_ns = 100 * NS_PER_US,
                                             .gap_ns = 5 * NS_PER_MS,
                                             .alone_ns = INT64_MAX,
                                             .plenty = 1000};
    if (c->handled > 0) {
        struct instant now = clock_now(NULL);
        int64_t nap = nap_take(&c->pace, &limits, c->handled, true, now);
        if (nap > 0)
            clock_sleep_until(instant_add(now, nap));
    }
    c->handled = 0;
}

void *server_run(void *context)
{
    struct transport *c = context;
    struct sender nobody = {0};
    while (!may_end(c, clock_now(c->clock))) {
        refresh_progress(c, clock_now(c->clock));
        if (wait_for_work(c)) {
            pthread_mutex_lock(&c->lock);
            error_set(&c->fatal, MUSTER_E_IO, "the rendezvous server cannot wait for messages: %s",
                      strerror(errno));
            pthread_mutex_unlock(&c->lock);
            server_signal_fd(c->ready_fd);
            break;
        }
        /* All messages before the clock: after a freeze all members would look lost. */
        server_drain_fd(c->wake_fd);
        watch_connections(c, clock_now(c->clock));
        server_receive_many(c);
        admission_tick(&c->admission, clock_now(c->clock)); /* who has registered is known */
        watch_inflow(c, clock_now(c->clock));
        run_commands(c);
        if (instant_reached(clock_now(c->clock), roster_due(c))) {
            struct roster_event tick = {.kind = ROSTER_TICK};
            (void)server_step(c, &tick, &nobody);
        }
        server_drop_broken(c);
        let_gather(c);
    }
    pthread_mutex_lock(&c->lock);
    c->ended = true;
    pthread_mutex_unlock(&c->lock);
    server_signal_fd(c->ready_fd);
    return NULL;
}
