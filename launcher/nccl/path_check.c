/* path_check.c - see path_check.h. */
#include "launcher/nccl/path_check.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "proto/base/thread.h"
#include "rendezvous/net/tcp_listen.h"
#include "rendezvous/tcpstore/tcpstore_client.h"

static void path_receiver_stop(struct path_receiver *receiver);

static struct path_receiver *path_receiver_start(uint16_t *port, unsigned char token[PATH_TOKEN],
                                                 struct muster_error *err);

static void path_probe_run(struct path_probe *probes, int count, struct instant deadline);

static const int64_t patience_ns = 60 * NS_PER_S; /* for nodes that are slow to start their workers */
static const int64_t probe_ns = 3 * NS_PER_S;     /* the kernel sends again after 0.2, 0.6 and 1.4 s */

/* As it is in the store. */
struct path_listing {
    char host[PATH_CHECK_NAME], address[64];
    unsigned char token[PATH_TOKEN];
    uint16_t port;
};

/* Sizes of packets in use: Ethernet's, with the headers of tunnels less, and the least that IPv6 and IPv4
 * promise. */
static const int sizes[] = {9000, 8950, 8900, 8500, 4096, 2048, 1500, 1492, 1480,
                            1476, 1460, 1450, 1440, 1430, 1420, 1410, 1400, 1390,
                            1380, 1370, 1350, 1320, 1300, 1280, 1200, 1000, 576};
enum { SIZES = sizeof sizes / sizeof *sizes };

int path_check_peers(int rank, int count, int peers[PATH_CHECK_PEERS])
{
    int found = 0;
    for (int distance = 1; distance < count && found < PATH_CHECK_PEERS;
         distance = count <= PATH_CHECK_PEERS ? distance + 1 : 2 * distance)
        peers[found++] = (rank + distance) % count;
    return found;
}

/* The largest of the sizes below a packet's that arrives; 0: none does. */
static int largest_that_passes(const struct path_probe *stalled)
{
    struct path_probe probes[SIZES];
    int count = 0, largest = 0;
    for (int i = 0; i < SIZES; i++)
        if (sizes[i] < stalled->packet) {
            probes[count] = *stalled;
            probes[count++].largest = sizes[i];
        }
    path_probe_run(probes, count, instant_add(clock_now(NULL), probe_ns));
    for (int i = 0; i < count; i++)
        if (probes[i].result == PATH_PASSES && probes[i].largest > largest)
            largest = probes[i].largest;
    return largest;
}

static void describe_path(struct path_check *check, const struct path_listing *own,
                          const struct path_listing *peer, const struct path_probe *probe)
{
    struct path_probe again = *probe;
    if (probe->result ==
        PATH_STALLS) /* once more: a router's report may have come late, or the loss was by chance */
        path_probe_run(&again, 1, instant_add(clock_now(NULL), probe_ns));
    if (again.result == PATH_PASSES)
        return;
    int passes = again.result == PATH_STALLS ? largest_that_passes(&again) : 0;
    buffer_printf(&check->findings, "from %s (%s) to %s (%s) ", own->host, own->address, peer->host,
                  peer->address);
    if (again.result == PATH_UNREACHED)
        buffer_printf(
            &check->findings,
            "no connection opens (port %u): a firewall or a NetworkPolicy keeps the workers apart as well\n",
            (unsigned)peer->port);
    else if (passes)
        buffer_printf(
            &check->findings,
            "packets of %d bytes are lost and no router reports it, packets of %d bytes arrive: gloo and "
            "NCCL hang there. Give the interfaces an MTU of %d, or let the ICMP messages "
            "\"fragmentation needed\" and \"packet too big\" pass\n",
            again.packet, passes, passes);
    else
        buffer_printf(&check->findings, "a connection opens, and packets of any size are lost on it\n");
}

static int take_listing(struct tcpstore_client *client, int rank, struct path_listing *out,
                        struct muster_error *err)
{
    scope_buffer data = {0};
    char key[16];
    (void)snprintf(key, sizeof key, "%d", rank);
    if (tcpstore_client_get(client, key, &data, patience_ns, err) < 0)
        return -1;
    if (data.length != sizeof *out)
        return error_set(err, MUSTER_E_PROTOCOL, "rank %d's agent is of another version", rank);
    memcpy(out, data.data, sizeof *out);
    out->host[sizeof out->host - 1] = out->address[sizeof out->address - 1] = '\0';
    return 0;
}

static int probe_peers(struct path_check *check, struct tcpstore_client *client,
                       const struct path_listing *own)
{
    int ranks[PATH_CHECK_PEERS], count = path_check_peers(check->rank, check->count, ranks);
    scope_free struct path_listing *peers = mem_calloc(PATH_CHECK_PEERS, sizeof *peers);
    struct path_probe probes[PATH_CHECK_PEERS] = {0};
    if (!peers)
        return error_set(&check->err, MUSTER_E_NOMEM, "no memory for the nodes of a path check");
    for (int i = 0; i < count; i++) {
        if (take_listing(client, ranks[i], &peers[i], &check->err) < 0)
            return -1;
        (void)snprintf(probes[i].address, sizeof probes[i].address, "%s", peers[i].address);
        memcpy(probes[i].token, peers[i].token, PATH_TOKEN);
        probes[i].port = peers[i].port;
    }
    check->peers = count;
    path_probe_run(probes, count, instant_add(clock_now(NULL), probe_ns));
    for (int i = 0; i < count; i++)
        describe_path(check, own, &peers[i], &probes[i]);
    return 0;
}

static int exchange_probes(struct path_check *check, struct tcpstore_client *client, struct path_listing *own)
{
    char key[16];
    int64_t done = 0;
    scope_buffer nothing = {0};
    (void)snprintf(own->host, sizeof own->host, "%s", check->host);
    (void)snprintf(own->address, sizeof own->address, "%s", check->address);
    (void)snprintf(key, sizeof key, "%d", check->rank);
    if ((!*own->address &&
         tcpstore_client_address(client, own->address, sizeof own->address, &check->err) < 0) ||
        tcpstore_client_set(client, key, own, sizeof *own, &check->err) < 0 ||
        probe_peers(check, client, own) < 0 || tcpstore_client_add(client, "done", 1, &done, &check->err) < 0)
        return -1;
    if (done == check->count)
        return tcpstore_client_set(client, "over", "1", 1, &check->err);
    return tcpstore_client_get(client, "over", &nothing, patience_ns,
                               &check->err); /* others send to us at the same time */
}

void path_check_run(struct path_check *check)
{
    const struct tcpstore_client_options options = {.host = check->store,
                                                    .port = check->port,
                                                    .prefix = check->prefix,
                                                    .key = check->has_key ? check->key : NULL,
                                                    .timeout_ns = patience_ns};
    struct path_listing own = {0};
    struct path_receiver *receiver = path_receiver_start(&own.port, own.token, &check->err);
    struct tcpstore_client *client GUARD(guard_tcpstore_client) =
        receiver ? tcpstore_client_connect(&options, &check->err) : NULL;
    if (client)
        (void)exchange_probes(check, client, &own); /* check->err is the caller's */
    path_receiver_stop(receiver);
}

/* --- the probe --- */

enum {
    AMOUNT = 32 << 10, /* some packets of every size in use */
    CALLERS = 64,
    HEADERS_4 = 40, /* bytes of IP and TCP, without options */
    HEADERS_6 = 60,
};

/* --- sending --- */

static void end_probe(struct path_probe *probe, enum path_result result)
{
    if (probe->fd >= 0)
        (void)close(probe->fd); /* the request was answered, or never will be */
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

/* Sends to all of them at once, until each has answered or the deadline has come. */
static void path_probe_run(struct path_probe *probes, int count, struct instant deadline)
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
        const int ready = poll(entries, (nfds_t)count, left > 0 ? (int)left : 0);
        if ((ready < 0 && errno != EINTR) ||
            (ready <= 0 && left <= 0)) /* after a last look: we may have been starved */
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

/* Answers probes on a thread. *port and token are for path_probe. */
static struct path_receiver *path_receiver_start(uint16_t *port, unsigned char token[PATH_TOKEN],
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

/* Accepts NULL. */
static void path_receiver_stop(struct path_receiver *receiver)
{
    if (!receiver)
        return;
    (void)eventfd_write(receiver->stop, 1);     /* the first write has room */
    (void)pthread_join(receiver->thread, NULL); /* a thread of ours, joined once */
    close_receiver(receiver);
}
