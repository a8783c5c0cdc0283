/* tcpstore_loop.c - see tcpstore_loop.h.
 *
 * Level-triggered epoll, with one read for each peer and iteration (a few while it sends a large value),
 * so that a busy client cannot starve the others. An iteration first reads and serves all requests, then
 * sends all replies together (send_batch.h). A peer closed during an iteration is freed at its end, because a
 * later event may still point to it. While requests without replies stream in, the loop sleeps briefly
 * between iterations (nap.h).
 *
 * Nine tenths of a request are the kernel's TCP, the switch to the server and the wake-up of the client.
 * Tried, and slower or without a gain: edge-triggered epoll (with 64 clients the second look lets more
 * requests gather), recv before epoll_wait, sched_yield after a reply, a second epoll_wait before the
 * replies, io_uring, reads in one io_submit. */
#include "rendezvous/tcpstore/tcpstore_loop.h"

#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>

#include "proto/base/address.h"
#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "rendezvous/tcpstore/tcpstore_loop_internal.h"

enum {
    READ_SIZE = 64 << 10,     /* bytes in a recv: a default socket buffer */
    VALUE_READS = 16,         /* reads of a peer in an iteration, while they fill a value */
    EVENTS = 64,              /* events in an epoll_wait */
    MEMORY_KEPT = 8 << 20,    /* freed bytes that stay the process's */
    VALUE_PAGES = 256 << 10,  /* bytes of a value that has pages of its own */
    LOG_LINES = 10,           /* warnings within one period */
    LONGEST_SLEEP_MS = 60000, /* fits an int; waking early is harmless */
};
/* Period of the log's rate limit; doubled while warnings exceed it, so that a day of them fills no disk. */
#define LOG_PERIOD_NS      (10 * NS_PER_S)
#define LOG_PERIOD_MOST_NS (3600 * NS_PER_S)
#define GREETING_NS        (30 * NS_PER_S) /* torch's client sends VALIDATE at once; a port probe never does */

/* Naps while requests without replies stream in; received is in bytes. */
static const struct nap_limits pace_limits = {.longest_ns = 200 * NS_PER_US,
                                              .shortest_ns = 50 * NS_PER_US,
                                              .gap_ns = 200 * NS_PER_US,
                                              .alone_ns = 10 * NS_PER_MS,
                                              .plenty = 16 << 10};

/* --- peers --- */

static void peer_close(struct tcpstore_loop *loop, struct peer *p)
{
    if (p->fd < 0)
        return;
    tcpstore_loop_leave_greeting(loop, p);
    tcpstore_close(p->connection);
    p->connection = NULL;
    /* Closing alone does not remove it from the epoll set while a process that another thread is just
     * starting has a copy of it. Neither call has a failure that could be handled. */
    (void)epoll_ctl(loop->epoll, EPOLL_CTL_DEL, p->fd, NULL);
    (void)close(p->fd);
    p->fd = -1;
    p->next = loop->closed;
    loop->closed = p;
    loop->connections--;
    (void)tcpstore_loop_set_accepting(loop, true); /* a failure leaves it paused until the next close */
}

static void free_closed(struct tcpstore_loop *loop)
{
    while (loop->closed) {
        struct peer *p = loop->closed;
        loop->closed = p->next;
        mem_free(p);
    }
}

bool tcpstore_loop_may_log(struct tcpstore_loop *loop)
{
    struct instant now = clock_now(NULL);
    if (instant_diff_ns(now, loop->log_period) > loop->log_period_ns) {
        int64_t longer = loop->log_lost ? 2 * loop->log_period_ns : LOG_PERIOD_NS;
        loop->log_period_ns = longer < LOG_PERIOD_MOST_NS ? longer : LOG_PERIOD_MOST_NS;
        if (loop->log_lost)
            log_warning(loop->log, "TCPStore on port %u: suppressed %u more warnings", loop->port,
                        loop->log_lost);
        loop->log_period = now;
        loop->log_lines = loop->log_lost = 0;
    }
    if (loop->log_lines < LOG_LINES) {
        loop->log_lines++;
        return true;
    }
    loop->log_lost++;
    return false;
}

static const char *peer_name(const struct peer *p, char *text, size_t size)
{
    struct sockaddr_storage name;
    socklen_t length = sizeof name;
    char host[ADDRESS_TEXT];
    if (getpeername(p->fd, (struct sockaddr *)&name, &length) ||
        !*address_text((struct sockaddr *)&name, host))
        return "a disconnected peer";
    (void)snprintf(text, size, "%s port %u", host, (unsigned)address_port((struct sockaddr *)&name));
    return text;
}

void tcpstore_loop_drop(struct tcpstore_loop *loop, struct peer *p, const char *why)
{
    char name[80];
    loop->dropped++;
    if (tcpstore_loop_may_log(loop))
        log_warning(loop->log, "TCPStore on port %u: closed the connection of %s: %s", loop->port,
                    peer_name(p, name, sizeof name), why);
    peer_close(loop, p);
}

static void peer_watch(struct tcpstore_loop *loop, struct peer *p)
{
    uint32_t events = tcpstore_wants_input(p->connection) ? EPOLLIN : EPOLLRDHUP;
    if (tcpstore_output(p->connection).length > 0)
        events |= EPOLLOUT;
    if (events == p->events)
        return;
    struct epoll_event event = {.events = events, .data.ptr = p};
    p->events = events;
    if (epoll_ctl(loop->epoll, EPOLL_CTL_MOD, p->fd, &event))
        tcpstore_loop_drop(loop, p, "epoll_ctl failed");
}

/* After sending replies: closes a peer that is broken or disconnected, else updates its epoll events. A
 * broken connection is checked first: its reason explains more than the socket's error. */
static void peer_settle(struct tcpstore_loop *loop, struct peer *p, bool connected)
{
    const struct muster_error *reason = tcpstore_broken_reason(p->connection);
    if (reason && reason->code != MUSTER_E_CANCELLED)
        tcpstore_loop_drop(loop, p, reason->text);
    else if (reason || !connected)
        peer_close(loop, p);
    else
        peer_watch(loop, p);
}

/* The number-th job of a batch; count 0: nothing to send. */
static struct send_job reply_job(struct tcpstore_loop *loop, struct peer *p, size_t number)
{
    struct iovec *parts = loop->parts[number];
    return (struct send_job){.fd = p->fd,
                             .parts = parts,
                             .count = tcpstore_output_runs(p->connection, parts, TCPSTORE_LOOP_PARTS),
                             .owner = p};
}

/* Sends replies. The rest of a partial send waits for EPOLLOUT. */
static void send_replies(struct tcpstore_loop *loop, struct send_job *jobs, size_t count)
{
    send_batch_run(&loop->sends, jobs, count);
    loop->replied |= count > 0;
    for (size_t i = 0; i < count; i++) {
        struct peer *p = jobs[i].owner;
        ssize_t sent = jobs[i].result;
        if (sent > 0)
            tcpstore_sent(p->connection, (size_t)sent); /* may serve requests, never closes a connection */
        peer_settle(loop, p, sent >= 0 || sent == -EAGAIN || sent == -EINTR);
    }
}

/* Sends the replies of all touched connections and closes the broken ones. */
static void settle(struct tcpstore_loop *loop)
{
    size_t count;
    do {
        struct send_job jobs[SEND_BATCH_MAX];
        struct tcpstore_connection *c;
        count = 0;
        while (count < SEND_BATCH_MAX && (c = tcpstore_next_touched(loop->engine))) {
            jobs[count] = reply_job(loop, tcpstore_owner(c), count);
            if (jobs[count].count > 0)
                count++;
            else
                peer_settle(loop, tcpstore_owner(c), true);
        }
        send_replies(loop, jobs, count);
    } while (count > 0); /* sending makes room in outputs, so more requests may have been served */
}

/* Returns whether bytes came that are only a part of a large value. */
static bool peer_read(struct tcpstore_loop *loop, struct peer *p)
{
    ssize_t got = recv(p->fd, loop->scratch, READ_SIZE, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        return false;
    if (got <= 0) {
        peer_close(loop, p);
        return false;
    }
    loop->received += (size_t)got;
    loop->others |= p->fd != loop->reader;
    loop->reader = p->fd;
    tcpstore_feed(p->connection, loop->scratch, (size_t)got);
    if (tcpstore_state(p->connection) != TCPSTORE_STATE_GREETING)
        tcpstore_loop_leave_greeting(loop, p);
    return tcpstore_fills_value(p->connection);
}

static void peer_event(struct tcpstore_loop *loop, struct peer *p, uint32_t events)
{
    if (p->fd < 0)
        return;
    if (events & EPOLLOUT) {
        struct send_job job = reply_job(loop, p, 0);
        send_replies(loop, &job, job.count > 0);
    }
    if (p->fd >= 0 && events & EPOLLIN)
        for (int reads = 0; reads < VALUE_READS && peer_read(loop, p); reads++)
            ;
    else if (p->fd >= 0 && events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR))
        peer_close(loop, p);
}

/* --- the loop --- */

/* Freed memory stays the process's until it is needed again: after a crowd it goes back. */
static void give_memory_back(struct tcpstore_loop *loop)
{
    const size_t held = tcpstore_held(loop->engine);
    if (held > loop->most_held)
        loop->most_held = held;
    if (loop->most_held - held < MEMORY_KEPT)
        return;
#ifdef __GLIBC__
    (void)malloc_trim(0); /* a hint */
#endif
    loop->most_held = held;
}

/* Large values have pages of their own, which go back to the system at once and grow without a copy. By
 * itself glibc keeps such memory for later values after the first one was freed, in holes that fit none of
 * them. */
static void tune_memory(void)
{
#ifdef __GLIBC__
    (void)mallopt(M_MMAP_THRESHOLD, VALUE_PAGES); /* a hint, of the whole process */
#endif
}

static int guard_engine(struct tcpstore *engine, const unsigned char *key, struct muster_error *err)
{
    unsigned char random[MAC_KEY_SIZE];
    if (getrandom(random, sizeof random, 0) != sizeof random)
        return error_errno(err, "getrandom");
    tcpstore_guard(engine, key, random);
    return 0;
}

struct tcpstore_loop *tcpstore_loop_create(const struct tcpstore_server_options *options, uint16_t port,
                                           int *listener, int wakeup, bool (*on_wakeup)(void *context),
                                           void *context, struct muster_error *err)
{
    struct tcpstore_loop *loop = mem_calloc(1, sizeof *loop);
    /* Not cleared: unused pages take no memory. */
    char *scratch = mem_realloc(NULL, READ_SIZE, 1);
    struct iovec(*parts)[TCPSTORE_LOOP_PARTS] = mem_realloc(NULL, SEND_BATCH_MAX, sizeof *parts);
    if (!loop || !scratch || !parts) {
        error_set(err, MUSTER_E_NOMEM, "no memory for the TCPStore's loop");
        mem_free(loop);
        mem_free(scratch);
        mem_free(parts);
        return NULL;
    }
    *loop = (struct tcpstore_loop){
        .epoll = -1,
        .listener = -1,
        .wakeup = wakeup,
        .port = port,
        .on_wakeup = on_wakeup,
        .context = context,
        .log = options->log,
        .greeting_ns = options->greeting_ns ? options->greeting_ns : GREETING_NS,
        .accepting = true,
        .accept_again = INSTANT_NEVER,
        .log_period = clock_now(NULL),
        .log_period_ns = LOG_PERIOD_NS,
        .scratch = scratch,
        .parts = parts,
    };
    tcpstore_loop_set_limits(loop, options);
    tune_memory();
    struct epoll_event new_peer = {.events = EPOLLIN, .data.ptr = &loop->listener};
    struct epoll_event command = {.events = EPOLLIN, .data.ptr = &loop->wakeup};
    loop->engine = tcpstore_create(&options->limits, err);
    if (loop->engine && options->key && guard_engine(loop->engine, options->key, err))
        (void)0; /* err is filled */
    else if (loop->engine && ((loop->epoll = epoll_create1(EPOLL_CLOEXEC)) < 0 ||
                              epoll_ctl(loop->epoll, EPOLL_CTL_ADD, *listener, &new_peer) ||
                              epoll_ctl(loop->epoll, EPOLL_CTL_ADD, wakeup, &command)))
        error_errno(err, "cannot set up epoll for the TCPStore");
    else if (loop->engine) {
        loop->listener = take_fd(listener);
        return loop;
    }
    tcpstore_loop_destroy(loop);
    return NULL;
}

static void close_all(struct tcpstore_loop *loop)
{
    /* A wipe breaks every connection, and settle closes all broken ones. */
    tcpstore_wipe(loop->engine);
    settle(loop);
}

void tcpstore_loop_destroy(struct tcpstore_loop *loop)
{
    if (!loop)
        return;
    send_batch_free(&loop->sends);
    loop->sends.refused = true; /* SIGPIPE may not be blocked in this thread */
    if (loop->engine)
        close_all(loop);
    free_closed(loop);
    tcpstore_destroy(loop->engine);
    if (loop->epoll >= 0)
        close(loop->epoll);
    if (loop->listener >= 0)
        close(loop->listener);
    mem_free(loop->scratch);
    mem_free(loop->parts);
    mem_free(loop);
}

int tcpstore_loop_listener(const struct tcpstore_loop *loop)
{
    return loop->listener;
}

void tcpstore_loop_new_round(struct tcpstore_loop *loop)
{
    close_all(loop);
    tcpstore_loop_empty_backlog(loop);
}

void tcpstore_loop_stats(const struct tcpstore_loop *loop, struct tcpstore_server_stats *stats)
{
    *stats = (struct tcpstore_server_stats){
        .store = tcpstore_stats(loop->engine),
        .connections = loop->connections,
        .accepted = loop->accepted,
        .dropped = loop->dropped,
        .requests = tcpstore_served(loop->engine),
        .crowded_out = tcpstore_crowded_out(loop->engine),
        .held = tcpstore_held(loop->engine),
        .budget = tcpstore_bound(loop->engine),
    };
}

/* The earliest deadline. */
static struct instant next_due(const struct tcpstore_loop *loop)
{
    return loop->greeting_first ? instant_min(loop->accept_again, loop->greeting_first->greeted_by)
                                : loop->accept_again;
}

/* Milliseconds for epoll_wait until then, rounded up; -1 for never. */
static int next_timeout(const struct tcpstore_loop *loop)
{
    struct instant due = next_due(loop);
    if (due.ns == INSTANT_NEVER.ns)
        return -1;
    int64_t left = instant_diff_ns(due, clock_now(NULL));
    if (left <= 0)
        return 0;
    left = (left + NS_PER_MS - 1) / NS_PER_MS;
    return left > LONGEST_SLEEP_MS ? LONGEST_SLEEP_MS : (int)left;
}

static void run_deadlines(struct tcpstore_loop *loop)
{
    if (next_due(loop).ns == INSTANT_NEVER.ns)
        return;
    struct instant now = clock_now(NULL);
    tcpstore_loop_drop_silent(loop, now);
    if (instant_reached(now, loop->accept_again))
        (void)tcpstore_loop_set_accepting(loop, true); /* a failure is retried in the next iteration */
}

/* Sleeps while requests stream in and no client waits for a reply or a key: see nap.h. */
static void nap_between_iterations(struct tcpstore_loop *loop)
{
    if (loop->replied || tcpstore_stats(loop->engine).parked > 0) {
        nap_stop(&loop->pace);
    } else if (loop->received > 0) {
        struct instant now = clock_now(NULL);
        int64_t nap = nap_take(&loop->pace, &pace_limits, loop->received, loop->others, now);
        if (nap > 0)
            clock_sleep_until(instant_add(now, nap));
    }
    loop->replied = loop->others = false;
    loop->received = 0;
}

static bool is_peer(const struct tcpstore_loop *loop, const struct epoll_event *event)
{
    return event->data.ptr != &loop->listener && event->data.ptr != &loop->wakeup;
}

int tcpstore_loop_run(struct tcpstore_loop *loop, struct muster_error *err)
{
    struct epoll_event events[EVENTS];
    bool running = true;
    while (running) {
        int count = epoll_wait(loop->epoll, events, EVENTS, next_timeout(loop));
        if (count < 0 && errno != EINTR)
            return error_errno(err, "epoll_wait of the TCPStore on port %u", loop->port);
        for (int i = 0; i < count; i++) {
            if (is_peer(loop, &events[i]))
                peer_event(loop, events[i].data.ptr, events[i].events);
            else if (events[i].data.ptr == &loop->listener)
                tcpstore_loop_accept(loop);
            else
                running = loop->on_wakeup(loop->context);
        }
        settle(loop);
        for (int i = 0; i < count; i++) {
            struct peer *p = is_peer(loop, &events[i]) ? events[i].data.ptr : NULL;
            if (p && p->fd >= 0)
                peer_watch(loop, p); /* a parked peer's input may be full now, which does not touch it */
        }
        run_deadlines(loop);
        free_closed(loop);
        give_memory_back(loop);
        nap_between_iterations(loop);
    }
    return 0;
}
