/* loop.c - see loop.h. */
#include "launcher/loop/loop.h"

#include <assert.h>
#include <errno.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"

int loop_init(struct loop *loop, struct muster_error *err)
{
    scope_close int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (epoll_fd < 0)
        return error_errno(err, "epoll_create1");
    scope_close int timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (timer_fd < 0)
        return error_errno(err, "timerfd_create");
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL}; /* NULL is the timer */
    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, timer_fd, &event) < 0)
        return error_errno(err, "cannot watch the timer");
    *loop = (struct loop){.epoll_fd = take_fd(&epoll_fd), .timer_fd = take_fd(&timer_fd)};
    loop->armed = INSTANT_NEVER;
    return 0;
}

void loop_close(struct loop *loop)
{
    (void)close(loop->timer_fd); /* nothing was written to either */
    (void)close(loop->epoll_fd);
    loop->timer_fd = loop->epoll_fd = -1;
}

static int control(struct loop *loop, int operation, struct loop_source *source, uint32_t events,
                   struct muster_error *err)
{
    struct epoll_event event = {.events = events, .data.ptr = source};
    if (epoll_ctl(loop->epoll_fd, operation, source->fd, &event) < 0)
        return error_errno(err, "cannot watch descriptor %d", source->fd);
    return 0;
}

int loop_add(struct loop *loop, struct loop_source *source, uint32_t events, struct muster_error *err)
{
    assert(source->fd < 0 || source->ready);
    return control(loop, EPOLL_CTL_ADD, source, events, err);
}

int loop_modify(struct loop *loop, struct loop_source *source, uint32_t events, struct muster_error *err)
{
    return control(loop, EPOLL_CTL_MOD, source, events, err);
}

void loop_remove(struct loop *loop, struct loop_source *source)
{
    (void)control(loop, EPOLL_CTL_DEL, source, 0, NULL); /* fails only where it was not added */
    for (int i = 0; i < loop->count; i++)
        if (loop->events[i].data.ptr == source)
            loop->events[i].events = 0;
}

static int arm(struct loop *loop, struct instant deadline, struct muster_error *err)
{
    if (deadline.ns == loop->armed.ns)
        return 0;
    struct itimerspec when = {0}; /* zero disarms */
    if (deadline.ns != INSTANT_NEVER.ns)
        when.it_value = instant_timespec(deadline);
    if (timerfd_settime(loop->timer_fd, TFD_TIMER_ABSTIME, &when, NULL) < 0)
        return error_errno(err, "timerfd_settime");
    loop->armed = deadline;
    return 0;
}

int loop_add_signals(struct loop *loop, struct loop_source *source, const sigset_t *wanted,
                     struct muster_error *err)
{
    struct sigaction initial = {.sa_handler = SIG_DFL};
    sigset_t watched = *wanted, blocked;
    if (sigaction(SIGCHLD, &initial, NULL) < 0) /* ignored, it would discard the children's status */
        return error_errno(err, "sigaction");
    sigaddset(&watched, SIGCHLD);
    blocked = watched;
    sigaddset(&blocked, SIGPIPE);
    (void)pthread_sigmask(SIG_BLOCK, &blocked, NULL); /* fails for a wrong first argument only */
    source->fd = signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK);
    if (source->fd < 0)
        return error_errno(err, "signalfd");
    return loop_add(loop, source, EPOLLIN, err);
}

int loop_turn(struct loop *loop, struct instant deadline, struct muster_error *err)
{
    bool due = instant_reached(clock_now(NULL), deadline);
    if (!due && arm(loop, deadline, err) < 0)
        return -1;
    int count = epoll_wait(loop->epoll_fd, loop->events, LOOP_BATCH, due ? 0 : -1);
    if (count < 0)
        return errno == EINTR ? 0 : error_errno(err, "epoll_wait");
    loop->count = count;
    for (int i = 0; i < count; i++) {
        struct loop_source *source = loop->events[i].data.ptr;
        if (!source) {
            uint64_t expirations;
            ssize_t got = read(loop->timer_fd, &expirations, sizeof expirations);
            (void)got; /* the count adds nothing to the clock */
            loop->armed = INSTANT_NEVER;
        } else if (loop->events[i].events) /* 0: removed in this turn */
            source->ready(source->context, loop->events[i].events);
    }
    loop->count = 0;
    return 0;
}
