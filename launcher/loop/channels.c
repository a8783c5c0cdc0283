/* channels.c - see channels.h. A channel is in the loop at all times while its descriptor is not -1. */
#include "launcher/loop/channels.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"

struct channel {
    struct channels *all;
    int local_rank;
    struct loop_source source;
};

struct channels {
    struct loop *loop;
    enum channel_kind kind;
    const char *name;
    channel_ready ready;
    void *context;
    int count;
    struct channel one[];
};

static void one_ready(void *context, uint32_t events)
{
    const struct channel *channel = context;
    channel->all->ready(channel->all->context, channel->local_rank, events);
}

struct channels *channels_create(struct loop *loop, int count, enum channel_kind kind, const char *name,
                                 channel_ready ready, void *context)
{
    struct channels *all = mem_calloc(1, sizeof *all + (size_t)count * sizeof all->one[0]);
    if (!all)
        return NULL;
    *all = (struct channels){loop, kind, name, ready, context, count};
    for (int i = 0; i < count; i++)
        all->one[i] = (struct channel){all, i, {-1, one_ready, &all->one[i]}};
    return all;
}

void channels_destroy(struct channels *channels)
{
    for (int i = 0; channels && i < channels->count; i++)
        (void)channels_close(channels, i);
    mem_free(channels);
}

int channels_open(struct channels *channels, int local_rank, int *theirs, struct muster_error *err)
{
    struct channel *channel = &channels->one[local_rank];
    const int type = SOCK_STREAM | SOCK_CLOEXEC | (channels->kind == CHANNEL_SOCKET ? SOCK_NONBLOCK : 0);
    int ends[2];
    if ((channels->kind == CHANNEL_PIPE ? pipe2(ends, O_CLOEXEC | O_NONBLOCK)
                                        : socketpair(AF_UNIX, type, 0, ends)) < 0)
        return error_errno(err, "cannot make a %s for local rank %d (ulimit -n limits them)", channels->name,
                           local_rank);
    scope_close int other = ends[1];
    channel->source.fd = ends[0];
    if (loop_add(channels->loop, &channel->source, EPOLLIN, err) < 0) {
        (void)close(ends[0]); /* nothing was written to it */
        channel->source.fd = -1;
        return -1;
    }
    *theirs = take_fd(&other);
    return 0;
}

int channels_fd(const struct channels *channels, int local_rank)
{
    return channels->one[local_rank].source.fd;
}

int channels_watch(struct channels *channels, int local_rank, uint32_t events, struct muster_error *err)
{
    return loop_modify(channels->loop, &channels->one[local_rank].source, events, err);
}

bool channels_close(struct channels *channels, int local_rank)
{
    struct channel *channel = &channels->one[local_rank];
    if (channel->source.fd < 0)
        return false;
    loop_remove(channels->loop, &channel->source);
    (void)close(channel->source.fd); /* a pipe's read end, or a socket whose sent bytes stay readable */
    channel->source.fd = -1;
    return true;
}
