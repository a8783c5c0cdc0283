/* path_probe.c - see path_probe.h. */
#include "launcher/nccl/path_probe.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "proto/base/thread.h"
#include "rendezvous/net/tcp_listen.h"

enum {
    AMOUNT = 32 << 10, /* some packets of every size in use */
    CALLERS = 64,
    HEADERS_4 = 40, /* of IP and TCP, without options */
    HEADERS_6 = 60,
};

/* --- sending --- */

static void end_probe(struct path_probe *probe, enum path_result result)
{
    if (probe->fd >= 0)
        (void)close(probe->fd); /* what was sent was answered, or never will be */
    probe->fd = -1;
    probe->result = result;
}

static void begin_probe(struct path_probe *probe)
{
    struct address to;
    int most = probe->largest - (address_is_six(probe->address) ? HEADERS_6 : HEADERS_4);
    probe->fd = -1;
    probe->sent = 0;
    probe->connected = false;
    probe->packet = probe->largest;
    probe->result = PATH_UNREACHED;
    if (!address_parse(probe->address, probe->port, &to))
        return;
    probe->fd = socket(to.of.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (probe->fd >= 0 &&
        ((probe->largest && setsockopt(probe->fd, IPPROTO_TCP, TCP_MAXSEG, &most, sizeof most)) ||
         (connect(probe->fd, &to.of.any, to.length) && errno != EINPROGRESS)))
        end_probe(probe, PATH_UNREACHED);
}

/* The size that the kernel knows for the path: of the interface, or less if a router has reported it. */
static int path_mtu(const struct path_probe *probe)
{
    const bool six = address_is_six(probe->address);
    int mtu = 0;
    socklen_t size = sizeof mtu;
    return getsockopt(probe->fd, six ? IPPROTO_IPV6 : IPPROTO_IP, six ? IPV6_MTU : IP_MTU, &mtu, &size) ? 0
                                                                                                        : mtu;
}

static void send_more(struct path_probe *probe)
{
    static const char zeros[4096];
    while (probe->sent < AMOUNT) {
        const bool greets = probe->sent < PATH_TOKEN;
        const char *data = greets ? (const char *)probe->token + probe->sent : zeros;
        size_t length = greets ? PATH_TOKEN - probe->sent : AMOUNT - probe->sent;
        ssize_t got = send(probe->fd, data, length < sizeof zeros ? length : sizeof zeros, MSG_NOSIGNAL);
        if (got < 0 && errno != EAGAIN && errno != EINTR)
            end_probe(probe, PATH_UNREACHED); /* the receiver has gone */
        if (got <= 0)
            return;
        probe->sent += (size_t)got;
    }
}

static void step_probe(struct path_probe *probe, short events)
{
    int failure = 0;
    char answer;
    socklen_t size = sizeof failure;
    if (!probe->connected && (getsockopt(probe->fd, SOL_SOCKET, SO_ERROR, &failure, &size) || failure)) {
        end_probe(probe, PATH_UNREACHED);
        return;
    }
    if (!probe->connected && !probe->largest)
        probe->packet = path_mtu(probe);
    probe->connected = true;
    if (events & POLLOUT)
        send_more(probe);
    if (probe->fd < 0 || !(events & (POLLIN | POLLERR | POLLHUP)))
        return;
    ssize_t got = recv(probe->fd, &answer, 1, 0);
    if (got == 1 || (got < 0 && errno != EAGAIN && errno != EINTR) || got == 0)
        end_probe(probe, got == 1 ? PATH_PASSES : PATH_UNREACHED);
}

void path_probe_run(struct path_probe *probes, int count, struct instant deadline)
{
    scope_free struct pollfd *entries = mem_calloc((size_t)count + 1, sizeof *entries);
    int open = 0;
    for (int i = 0; i < count; i++) {
        begin_probe(&probes[i]);
        open += probes[i].fd >= 0;
    }
    while (open && entries) {
        int64_t left = instant_diff_ns(deadline, clock_now(NULL)) / NS_PER_MS;
        for (int i = 0; i < count; i++)
            entries[i] =
                (struct pollfd){probes[i].fd, (short)(POLLIN | (probes[i].sent < AMOUNT ? POLLOUT : 0)), 0};
        if (left <= 0 || (poll(entries, (nfds_t)count, (int)left) < 0 && errno != EINTR))
            break;
        open = 0;
        for (int i = 0; i < count; i++) {
            if (probes[i].fd >= 0 && entries[i].revents)
                step_probe(&probes[i], entries[i].revents);
            open += probes[i].fd >= 0;
        }
    }
    for (int i = 0; i < count; i++)
        if (probes[i].fd >= 0)
            end_probe(&probes[i], probes[i].connected ? PATH_STALLS : PATH_UNREACHED);
}

/* --- receiving --- */

struct path_receiver {
    pthread_t thread;
    int listener, stop;
    unsigned char token[PATH_TOKEN];
};

struct path_caller {
    int fd;
    size_t got;
};

/* Whether the caller goes on. */
static bool receive_from(const struct path_receiver *receiver, struct path_caller *caller)
{
    char data[4096];
    size_t wanted = caller->got < PATH_TOKEN ? PATH_TOKEN - caller->got : sizeof data;
    ssize_t got = recv(caller->fd, data, wanted, MSG_DONTWAIT);
    if (got < 0)
        return errno == EAGAIN || errno == EINTR;
    if (got == 0 ||
        (caller->got < PATH_TOKEN && memcmp(data, receiver->token + caller->got, (size_t)got) != 0))
        return false;
    caller->got += (size_t)got;
    if (caller->got >= AMOUNT) /* one byte: there is room */
        (void)send(caller->fd, "", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    return true;
}

static void *receive_all(void *context)
{
    struct path_receiver *receiver = context;
    struct path_caller callers[CALLERS];
    int count = 0;
    for (;;) {
        struct pollfd entries[CALLERS + 2] = {{receiver->stop, POLLIN, 0},
                                              {receiver->listener, count < CALLERS ? POLLIN : 0, 0}};
        for (int i = 0; i < count; i++)
            entries[i + 2] = (struct pollfd){callers[i].fd, POLLIN, 0};
        if ((poll(entries, (nfds_t)count + 2, -1) < 0 && errno != EINTR) || entries[0].revents)
            break;
        for (int i = count - 1; i >= 0; i--)
            if (entries[i + 2].revents && !receive_from(receiver, &callers[i])) {
                (void)close(callers[i].fd); /* nothing is owed to it */
                callers[i] = callers[--count];
            }
        int fd =
            entries[1].revents ? accept4(receiver->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK) : -1;
        if (fd >= 0)
            callers[count++] = (struct path_caller){fd, 0};
    }
    for (int i = 0; i < count; i++)
        (void)close(callers[i].fd); /* the same */
    return NULL;
}

static void close_receiver(struct path_receiver *receiver)
{
    if (receiver->listener >= 0)
        (void)close(receiver->listener); /* a listener has nothing to flush */
    if (receiver->stop >= 0)
        (void)close(receiver->stop); /* an eventfd */
    mem_free(receiver);
}

struct path_receiver *path_receiver_start(uint16_t *port, unsigned char token[PATH_TOKEN],
                                          struct muster_error *err)
{
    struct path_receiver *receiver = mem_calloc(1, sizeof *receiver);
    if (!receiver) {
        error_set(err, MUSTER_E_NOMEM, "no memory to receive probes");
        return NULL;
    }
    receiver->listener = tcp_listen(NULL, 0, port, err);
    receiver->stop = receiver->listener < 0 ? -1 : eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int failed = receiver->listener < 0 ? -1 : 0;
    if (!failed && (receiver->stop < 0 || getrandom(receiver->token, PATH_TOKEN, 0) != PATH_TOKEN))
        failed = error_errno(err, "cannot receive probes");
    int refused = failed ? 0 : thread_start(&receiver->thread, 0, receive_all, receiver);
    if (refused)
        failed = thread_error(err, refused, "the receiver of probes");
    if (failed) {
        close_receiver(receiver);
        return NULL;
    }
    memcpy(token, receiver->token, PATH_TOKEN);
    return receiver;
}

void path_receiver_stop(struct path_receiver *receiver)
{
    if (!receiver)
        return;
    (void)eventfd_write(receiver->stop, 1);     /* the first write has room */
    (void)pthread_join(receiver->thread, NULL); /* a thread of ours, joined once */
    close_receiver(receiver);
}
