/* warm_reaper_link.c - the agent's half of warm_reaper.h. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "launcher/warm/warm_reaper.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"

static void lose(struct warm_reaper_link *link)
{
    link->gone = true;
    loop_remove(link->loop, &link->source);
    guard_close(&link->source.fd);
    link->source.fd = -1;
}

static void take_message(struct warm_reaper_link *link, const struct warm_reaper_message *message)
{
    switch (message->kind) {
    case WARM_REAPER_READY:
        link->pid = message->pid;
        link->keeper = message->value;
        break;
    case WARM_REAPER_ENDED:
        link->ended_waits = true;
        link->ended = (struct warm_end){message->pid, message->code, message->value};
        break;
    case WARM_REAPER_EMPTY:
        link->empty = message->value == link->orders; /* else there was a child after it */
        break;
    default:
        break;
    }
}

/* One message, if there is one; -1: the reaper has gone. */
static int reaper_receive(struct warm_reaper_link *link)
{
    struct warm_reaper_message message;
    ssize_t got;
    if (link->gone)
        return -1;
    do
        got = recv(link->source.fd, &message, sizeof message, MSG_DONTWAIT);
    while (got < 0 && errno == EINTR);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return 0;
    if (got != sizeof message) {
        lose(link);
        return -1;
    }
    take_message(link, &message);
    return 1;
}

static void readable(void *context, uint32_t events)
{
    struct warm_reaper_link *link = context;
    (void)events;
    while (reaper_receive(link) > 0)
        ;
    link->changed(link->context);
}

int warm_reaper_open(struct warm_reaper_link *link, int fd, struct loop *loop, void (*changed)(void *context),
                     void *context, struct muster_error *err)
{
    *link = (struct warm_reaper_link){
        .loop = loop, .source = {fd, readable, link}, .changed = changed, .context = context, .empty = true};
    link->workers = mem_calloc(WARM_REAPER_WORKERS_LIMIT, sizeof *link->workers);
    if (!link->workers)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the workers of a kept template");
    return loop_add(loop, &link->source, EPOLLIN, err);
}

void warm_reaper_close(struct warm_reaper_link *link)
{
    if (!link->loop)
        return;
    if (!link->gone)
        lose(link);
    mem_free(link->workers);
    *link = (struct warm_reaper_link){.source.fd = -1};
}

int warm_reaper_add(struct warm_reaper_link *link, pid_t worker)
{
    if (link->count == WARM_REAPER_WORKERS_LIMIT)
        return -1;
    link->workers[link->count++] = worker;
    link->empty = false;
    return 0;
}

static void reaper_forget(struct warm_reaper_link *link, pid_t pid)
{
    for (int i = 0; i < link->count; i++)
        if (link->workers[i] == pid) {
            link->workers[i] = link->workers[--link->count];
            return;
        }
}

bool warm_reaper_take(struct warm_reaper_link *link, struct warm_end *end)
{
    const struct warm_reaper_message reap = {.kind = WARM_REAPER_REAP};
    while (!link->ended_waits && reaper_receive(link) > 0)
        ;
    if (link->ended_waits) {
        *end = link->ended;
        link->ended_waits = false;
        link->empty = false;
        link->orders++;
        reaper_forget(link, end->pid);
        if (!link->gone &&
            send(link->source.fd, &reap, sizeof reap, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof reap) {
            /* Its answer to an order; a reaper that is stopped does so later, in the loop. */
            enum { PATIENCE_MS = 100 };
            struct pollfd wait = {link->source.fd, POLLIN, 0};
            if (poll(&wait, 1, PATIENCE_MS) > 0)
                (void)reaper_receive(link);
        }
        return true;
    }
    if (link->gone && link->count) { /* the kernel killed them: their parent ended */
        *end = (struct warm_end){link->workers[--link->count], CLD_KILLED, SIGKILL};
        return true;
    }
    return false;
}

/* Earlier messages may not be read yet: a look, and no message is taken. */
bool warm_reaper_has_ended(const struct warm_reaper_link *link)
{
    struct pollfd look = {link->source.fd, 0, 0};
    return link->gone || (poll(&look, 1, 0) > 0 && (look.revents & POLLHUP));
}

bool warm_reaper_is_empty(const struct warm_reaper_link *link)
{
    return !link->count && (link->gone || link->empty);
}
