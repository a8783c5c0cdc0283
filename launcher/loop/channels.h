/* channels.h - a pipe or a socket to each worker of a node. The loop watches the agent's end, and the worker
 * inherits the other end. */
#ifndef MUSTER_LAUNCHER_LOOP_CHANNELS_H
#define MUSTER_LAUNCHER_LOOP_CHANNELS_H

#include <stdbool.h>

#include "launcher/loop/loop.h"

enum channel_kind {
    CHANNEL_PIPE,           /* from the worker; neither side blocks */
    CHANNEL_SOCKET,         /* neither side blocks */
    CHANNEL_BLOCKING_SOCKET /* each side blocks where it does not say otherwise */
};

struct channels;

/* events: EPOLLIN, EPOLLHUP, ... */
typedef void (*channel_ready)(void *context, int local_rank, uint32_t events);

/* All channels are closed at first. name: "heartbeat pipe", for errors; not copied. NULL: no memory. */
struct channels *channels_create(struct loop *loop, int count, enum channel_kind kind, const char *name,
                                 channel_ready ready, void *context);
void channels_destroy(struct channels *channels); /* closes all; accepts NULL */

/* Opens a closed channel. *theirs is the worker's end, to be closed by the caller. */
int channels_open(struct channels *channels, int local_rank, int *theirs, struct muster_error *err);
/* The agent's end; -1: the channel is closed. */
int channels_fd(const struct channels *channels, int local_rank);
/* Has `ready` called for these events from now on. */
int channels_watch(struct channels *channels, int local_rank, uint32_t events, struct muster_error *err);
/* The worker can still read from a socket what was sent before. Returns whether the channel was open. */
bool channels_close(struct channels *channels, int local_rank);

#endif
