/* loop.h - the only blocking wait of an agent: descriptors by epoll, time by one timerfd. One thread. */
#ifndef MUSTER_LAUNCHER_LOOP_LOOP_H
#define MUSTER_LAUNCHER_LOOP_LOOP_H

#include <signal.h>
#include <stdint.h>
#include <sys/epoll.h>

#include "proto/base/clock.h"
#include "proto/include/muster_error.h"

/* Owned by its adder; must stay in place until it is removed. */
struct loop_source {
    int fd;
    void (*ready)(void *context, uint32_t events); /* EPOLLIN, EPOLLHUP, ... */
    void *context;
};

enum { LOOP_BATCH = 32 };

struct loop {
    int epoll_fd, timer_fd;
    struct instant armed;                  /* time that the timer is set to */
    struct epoll_event events[LOOP_BATCH]; /* events of the present turn */
    int count;
};

int loop_init(struct loop *loop, struct muster_error *err);
/* Closes what loop_init opened; sources' descriptors stay their owners'. */
void loop_close(struct loop *loop);

/* events: EPOLLIN and the like, level-triggered; 0 for errors and hang-up only. */
int loop_add(struct loop *loop, struct loop_source *source, uint32_t events, struct muster_error *err);
int loop_modify(struct loop *loop, struct loop_source *source, uint32_t events, struct muster_error *err);
/* Blocks the wanted signals, SIGCHLD and SIGPIPE for this thread and those it starts, and adds a signalfd of
 * the wanted ones and SIGCHLD: ready reads struct signalfd_siginfo from source->fd, which the caller closes.
 * SIGPIPE is blocked so that a closed console is an error of write, not an end. */
int loop_add_signals(struct loop *loop, struct loop_source *source, const sigset_t *wanted,
                     struct muster_error *err);
/* The source's ready is not called again, not even for an event that this turn has already seen. */
void loop_remove(struct loop *loop, struct loop_source *source);

/* One turn: waits until a source is ready or the deadline is reached, and calls the ready sources. */
int loop_turn(struct loop *loop, struct instant deadline, struct muster_error *err);

#endif
