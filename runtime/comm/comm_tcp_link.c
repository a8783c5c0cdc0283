/* comm_tcp_link.c - how the ranks of a TCP comm find and authenticate each other: see comm_tcp.h.
 *
 * Connections wait in the backlog, so no order of start-up can block the others. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/base/address.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "runtime/comm/comm_tcp_internal.h"

enum { TOKEN_BYTES = 16, UNKNOWN_MAX = 32 };
#define HELLO_MAGIC UINT64_C(0x3170637473756d31)
/* Limit for a caller that connects and sends nothing. Our ranks send at once, but TCP may have to
 * retransmit their first bytes more than once. */
#define GREETING_NS (20 * NS_PER_S)
/* And how long it keeps its place if others wait for one. */
#define PLACE_NS (1 * NS_PER_S)

/* First message of a caller; the rank that it calls answers with its own rank. */
struct hello {
    uint64_t magic;
    unsigned char token[TOKEN_BYTES]; /* of the rank that is called */
    int32_t rank, size, role, reserved;
};

/* What a rank publishes in the store, as it lies there. */
struct listing {
    char address[TCP_ADDRESS];
    char host[64]; /* for people */
    unsigned char token[TOKEN_BYTES];
    uint16_t port;
};

/* A connection that has not identified itself yet. */
struct caller {
    int fd;
    struct instant since;
};

struct opening {
    struct tcp_comm *tcp;
    struct listing mine;
    /* Oldest first. There is a place for every connection of a higher rank, so those never compete with each
     * other, and some for unknown peers. */
    struct caller *callers;
    int caller_count, places;
    struct pollfd *entries; /* [1 + places]: the listener, callers */
};

/* The ranks that we connect to are those below this one; and we are connected to by so many. */
static int callees(const struct tcp_comm *tcp)
{
    return tcp->star && tcp->comm.rank > 1 ? 1 : tcp->comm.rank;
}
static int expected(const struct tcp_comm *tcp)
{
    return tcp->star && tcp->comm.rank > 0 ? 0 : tcp->comm.size - tcp->comm.rank - 1;
}

/* ---- addresses ---- */

static int parse(const char *text, uint16_t port, struct address *out, struct muster_error *err)
{
    return address_parse(text, port, out)
               ? 0
               : error_set(err, MUSTER_E_INVALID, "'%.60s' is not a numeric address of a rank", text);
}

/* Our local address on the route to another address. Sends nothing. */
static int address_towards(const char *other, char out[TCP_ADDRESS], struct muster_error *err)
{
    struct address address;
    if (parse(other, 9, &address, err)) /* any port */
        return -1;
    scope_close int fd = socket(address.of.any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, &address.of.any, address.length))
        return error_errno(err, "finding a route to %s", other);
    socklen_t length = sizeof address.of;
    if (getsockname(fd, &address.of.any, &length))
        return error_errno(err, "finding our address towards %s", other);
    (void)address_text(&address.of.any, out);
    return 0;
}

/* ---- the store ---- */

static int publish(const struct opening *o, const char *what, struct muster_error *err)
{
    return comm_board_put(&o->tcp->board, what, &o->mine, sizeof o->mine, err);
}

static int look_up(const struct opening *o, const char *what, int rank, struct listing *out,
                   struct muster_error *err)
{
    if (comm_board_get(&o->tcp->board, what, rank, "has not published its address", out, sizeof *out, err))
        return -1;
    out->address[sizeof out->address - 1] = out->host[sizeof out->host - 1] = '\0';
    return 0;
}

static int begin(struct opening *o, struct muster_error *err)
{
    if (getrandom(o->mine.token, TOKEN_BYTES, 0) != TOKEN_BYTES)
        return error_errno(err, "getrandom");
    if (gethostname(o->mine.host, sizeof o->mine.host - 1))
        (void)snprintf(o->mine.host, sizeof o->mine.host, "?"); /* perhaps the name is too long */
    return comm_board_open(&o->tcp->board, err);
}

/* If the store is on our node we may have reached it by loopback, on which no other node can reach us. */
static int settle_address(struct opening *o, struct muster_error *err)
{
    struct tcp_comm *tcp = o->tcp;
    (void)snprintf(o->mine.address, sizeof o->mine.address, "%s", tcp->address); /* fits */
    if (publish(o, "seen", err))
        return -1;
    for (int rank = 0; address_is_loopback(tcp->address) && rank < tcp->comm.size; rank++) {
        struct listing other;
        if (rank == tcp->comm.rank)
            continue;
        if (look_up(o, "seen", rank, &other, err))
            return -1;
        if (!address_is_loopback(other.address) && address_towards(other.address, tcp->address, err))
            return error_wrap(err, "rank %d runs on host %.63s", rank, other.host);
    }
    return 0;
}

/* ---- sockets ---- */

static int set_option(int fd, int level, int name, int value, struct muster_error *err)
{
    return setsockopt(fd, level, name, &value, sizeof value)
               ? error_errno(err, "setting socket option %d", name)
               : 0;
}

/* A node that dies silently is detected within a minute while we wait for it. */
static int prepare_socket(int fd, enum tcp_role role, struct muster_error *err)
{
    int low =
        role == TCP_NEWS ? (int)sizeof(struct muster_error) : 1; /* the reader wakes for whole reports only */
    return set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1, err) ||
                   set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1, err) ||
                   set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 20, err) ||
                   set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 5, err) ||
                   set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 8, err) ||
                   set_option(fd, SOL_SOCKET, SO_RCVLOWAT, low, err)
               ? -1
               : 0;
}

static void describe_address(char out[160], int rank, const struct listing *listing)
{
    (void)snprintf(out, 160, "connecting to rank %d at %s port %u", rank, listing->address, listing->port);
}

static int send_hello(int fd, const struct hello *hello, const char *what, struct muster_error *err)
{
    /* The first bytes of a connection: there is room. */
    if (send(fd, hello, sizeof *hello, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)sizeof *hello)
        return 0;
    return errno == EPIPE || errno == ECONNRESET
               ? error_set(err, MUSTER_E_PEER, "%s: it closed the connection", what)
               : error_errno(err, "%s: sending", what);
}

static struct hello hello_of(const struct tcp_comm *tcp, const unsigned char *token, int role)
{
    struct hello hello = {.magic = HELLO_MAGIC, .rank = tcp->comm.rank, .size = tcp->comm.size, .role = role};
    memcpy(hello.token, token, sizeof hello.token);
    return hello;
}

/* ---- calling ---- */

static int dial(struct opening *o, int rank, const struct listing *theirs, enum tcp_role role,
                struct muster_error *err)
{
    char what[160];
    struct address address;
    describe_address(what, rank, theirs);
    if (parse(theirs->address, theirs->port, &address, err))
        return error_wrap(err, "rank %d", rank);
    scope_close int fd = socket(address.of.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return error_errno(err, "a TCP socket");
    if (connect(fd, &address.of.any, address.length) && errno != EINPROGRESS && errno != EINTR)
        return error_errno(err, "%s", what);
    o->tcp->peers[rank].fds[role] = take_fd(&fd);
    return 0;
}

/* The connection succeeded or failed: send our hello. */
static int introduce(struct opening *o, int rank, const struct listing *theirs, enum tcp_role role,
                     struct muster_error *err)
{
    char what[160];
    int fd = o->tcp->peers[rank].fds[role], failure = 0;
    socklen_t size = sizeof failure;
    describe_address(what, rank, theirs);
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &failure, &size))
        return error_errno(err, "%s", what);
    if (failure == ECONNREFUSED)
        return error_set(err, MUSTER_E_PEER, "%s: connection refused; the rank has ended", what);
    errno = failure;
    if (failure)
        return error_errno(err, "%s on host %s", what, theirs->host);
    const struct hello hello = hello_of(o->tcp, theirs->token, role);
    return prepare_socket(fd, role, err) || send_hello(fd, &hello, what, err) ? -1 : 0;
}

/* Completes all outgoing connections in the order in which they are established, and sends the hello on
 * each at once. */
static int introduce_all(struct opening *o, const struct listing *listings, struct muster_error *err)
{
    int count = TCP_ROLE_COUNT * callees(o->tcp), next = 0;
    struct pollfd *entries = o->tcp->polls;
    for (int i = 0; i < count; i++)
        entries[i] = (struct pollfd){.fd = o->tcp->peers[i / TCP_ROLE_COUNT].fds[i % TCP_ROLE_COUNT],
                                     .events = POLLOUT};
    for (;;) {
        char what[160];
        while (next < count && entries[next].fd < 0)
            next++;
        if (next == count)
            return 0;
        describe_address(what, next / TCP_ROLE_COUNT, &listings[next / TCP_ROLE_COUNT]);
        if (comm_await(entries, count, o->tcp->board.deadline, what, err))
            return -1;
        for (int i = next; i < count; i++) {
            int rank = i / TCP_ROLE_COUNT;
            if (!entries[i].revents)
                continue;
            if (introduce(o, rank, &listings[rank], (enum tcp_role)(i % TCP_ROLE_COUNT), err))
                return -1;
            entries[i].fd = -1;
        }
    }
}

/* One round trip is waited for in all, not one for each rank. */
static int call_all(struct opening *o, struct muster_error *err)
{
    int lower = callees(o->tcp);
    scope_free struct listing *listings = mem_calloc((size_t)lower + 1, sizeof *listings);
    if (!listings)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the addresses of %d ranks", lower);
    for (int rank = 0; rank < lower; rank++) {
        if (look_up(o, "at", rank, &listings[rank], err))
            return -1;
    }
    for (int rank = 0; rank < lower; rank++) {
        if (dial(o, rank, &listings[rank], TCP_DATA, err) || dial(o, rank, &listings[rank], TCP_NEWS, err))
            return -1;
    }
    return introduce_all(o, listings, err);
}

/* The answer of a rank that we connected to. */
static int hear(struct opening *o, int rank, enum tcp_role role, struct muster_error *err)
{
    char what[64];
    struct hello hello = {0};
    int fd = o->tcp->peers[rank].fds[role];
    size_t have = 0;
    (void)snprintf(what, sizeof what, "connecting to rank %d", rank);
    /* Byte by byte if need be: the low-water mark of the report connection is not that of a hello. */
    if (set_option(fd, SOL_SOCKET, SO_RCVLOWAT, 1, err))
        return -1;
    while (have < sizeof hello) {
        struct pollfd entry = {.fd = fd, .events = POLLIN};
        if (comm_await(&entry, 1, o->tcp->board.deadline, what, err))
            return -1;
        ssize_t got = recv(fd, (char *)&hello + have, sizeof hello - have, MSG_DONTWAIT);
        if (got < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (got <= 0)
            return error_set(err, MUSTER_E_PEER, "%s: it closed the connection", what);
        have += (size_t)got;
    }
    if (hello.magic == HELLO_MAGIC && hello.rank == rank && hello.size == o->tcp->comm.size &&
        hello.role == (int)role)
        return prepare_socket(fd, role, err);
    return error_set(
        err, MUSTER_E_PROTOCOL,
        "%s: it reports rank %d of %d, expected rank %d of %d; do all ranks run the same version?", what,
        hello.rank, hello.size, rank, o->tcp->comm.size);
}

/* ---- being called ---- */

static int listen_here(struct opening *o, struct muster_error *err)
{
    struct address address;
    struct tcp_comm *tcp = o->tcp;
    if (parse(tcp->address, 0, &address, err))
        return -1;
    scope_close int fd = socket(address.of.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return error_errno(err, "a TCP socket");
    /* Unknown peers must not fill the backlog either. */
    if (bind(fd, &address.of.any, address.length) || listen(fd, SOMAXCONN))
        return error_errno(err, "listening at %s", tcp->address);
    socklen_t length = sizeof address.of;
    if (getsockname(fd, &address.of.any, &length))
        return error_errno(err, "the port of a listening socket");
    o->mine.port = address_port(&address.of.any);
    (void)snprintf(o->mine.address, sizeof o->mine.address, "%s", tcp->address); /* fits */
    return take_fd(&fd);
}

static int make_places(struct opening *o, struct muster_error *err)
{
    o->places = TCP_ROLE_COUNT * expected(o->tcp) + UNKNOWN_MAX;
    o->callers = mem_calloc((size_t)o->places, sizeof *o->callers);
    o->entries = mem_calloc((size_t)o->places + 1, sizeof *o->entries);
    return o->callers && o->entries ? 0
                                    : error_set(err, MUSTER_E_NOMEM, "no memory for %d callers", o->places);
}

static void forget_caller(struct opening *o, int i)
{
    --o->caller_count;
    memmove(o->callers + i, o->callers + i + 1, (size_t)(o->caller_count - i) * sizeof *o->callers);
}

static void drop_caller(struct opening *o, int i)
{
    (void)close(o->callers[i].fd); /* an unknown peer */
    forget_caller(o, i);
}

static struct instant caller_limit(const struct opening *o, int i)
{
    return instant_add(o->callers[i].since, GREETING_NS);
}

/* Whether all places are taken, and by callers that may keep them until *until. */
static bool places_are_kept(const struct opening *o, struct instant *until)
{
    *until = instant_add(o->callers[0].since, PLACE_NS);
    return o->caller_count == o->places && !instant_reached(clock_now(NULL), *until);
}

/* As many as there are places; the others wait in the backlog until these are checked. */
static void accept_callers(struct opening *o, int listener)
{
    if (o->caller_count == o->places)
        drop_caller(o, 0); /* an unknown peer: ours speaks as soon as it runs */
    while (o->caller_count < o->places) {
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0)
            return; /* no connection pending, or it is closed again; if descriptors have run out the callers
                       wait */
        o->callers[o->caller_count++] = (struct caller){fd, clock_now(NULL)};
    }
}

/* Whether a caller is one of our ranks: right token, a rank that has not connected yet. */
static bool caller_is_ours(const struct opening *o, const struct hello *hello)
{
    const struct tcp_comm *tcp = o->tcp;
    return hello->magic == HELLO_MAGIC && !memcmp(hello->token, o->mine.token, sizeof hello->token) &&
           hello->size == tcp->comm.size && hello->rank > tcp->comm.rank && hello->rank < tcp->comm.size &&
           hello->role >= 0 && hello->role < TCP_ROLE_COUNT && tcp->peers[hello->rank].fds[hello->role] < 0;
}

/* Checks a caller: it stays while its hello is incomplete, becomes a peer, or is dropped. */
static int look_at(struct opening *o, int i, int *missing, struct muster_error *err)
{
    struct hello hello;
    int fd = o->callers[i].fd;
    ssize_t got = recv(fd, &hello, sizeof hello, MSG_PEEK | MSG_DONTWAIT);
    bool waits = (got < 0 && (errno == EAGAIN || errno == EINTR)) || (got > 0 && got < (ssize_t)sizeof hello);
    if (waits && !instant_reached(clock_now(NULL), caller_limit(o, i)))
        return 0;
    if (got != (ssize_t)sizeof hello || !caller_is_ours(o, &hello)) {
        drop_caller(o, i);
        return 0;
    }
    char what[64];
    (void)snprintf(what, sizeof what, "connecting to rank %d", hello.rank);
    (void)recv(fd, &hello, sizeof hello, MSG_DONTWAIT); /* it is connected */
    o->tcp->peers[hello.rank].fds[hello.role] = fd;
    forget_caller(o, i);
    --*missing;
    const struct hello answer = hello_of(o->tcp, hello.token, hello.role);
    return prepare_socket(fd, (enum tcp_role)hello.role, err) || send_hello(fd, &answer, what, err) ? -1 : 0;
}

static int name_missing(const struct opening *o, struct muster_error *err)
{
    struct comm_ranks ranks = {0};
    for (int rank = o->tcp->comm.rank + 1; rank < o->tcp->comm.size; rank++) {
        const int *fds = o->tcp->peers[rank].fds;
        if (fds[TCP_DATA] < 0 || fds[TCP_NEWS] < 0)
            comm_ranks_add(&ranks, rank);
    }
    return error_wrap(err, "rank %s has not connected to rank %d", comm_ranks_text(&ranks),
                      o->tcp->comm.rank);
}

/* Waits until a caller speaks, its time is over, or the next one can be accepted. */
static int await_callers(struct opening *o, int listener, struct muster_error *err)
{
    struct instant deadline = o->tcp->board.deadline, limit = deadline, until;
    bool kept = places_are_kept(o, &until);
    if (kept)
        limit = instant_min(limit, until);
    o->entries[0] = (struct pollfd){.fd = kept ? -1 : listener, .events = POLLIN};
    for (int i = 0; i < o->caller_count; i++) {
        o->entries[1 + i] = (struct pollfd){.fd = o->callers[i].fd, .events = POLLIN};
        limit = instant_min(limit, caller_limit(o, i));
    }
    struct muster_error late = {0};
    if (!comm_await(o->entries, 1 + o->caller_count, limit, "waiting for higher ranks", &late) ||
        (late.code == MUSTER_E_TIMEOUT && !instant_reached(clock_now(NULL), deadline)))
        return 0;
    if (err)
        *err = late;
    return late.code == MUSTER_E_TIMEOUT ? name_missing(o, err) : -1;
}

static int answer_all(struct opening *o, int listener, struct muster_error *err)
{
    int missing = TCP_ROLE_COUNT * expected(o->tcp);
    while (missing > 0) {
        if (await_callers(o, listener, err))
            return -1;
        for (int i = o->caller_count - 1; i >= 0; i--) {
            if (look_at(o, i, &missing, err))
                return -1;
        }
        if (o->entries[0].revents)
            accept_callers(o, listener);
    }
    return 0;
}

static int meet(struct opening *o, int listener, struct muster_error *err)
{
    if (publish(o, "at", err))
        return error_wrap(err, "publishing the address of rank %d", o->tcp->comm.rank);
    if (call_all(o, err) || answer_all(o, listener, err))
        return -1;
    for (int rank = 0; rank < callees(o->tcp); rank++) {
        if (hear(o, rank, TCP_DATA, err) || hear(o, rank, TCP_NEWS, err))
            return -1;
    }
    return 0;
}

int tcp_connect(struct tcp_comm *tcp, bool faces_store, struct muster_error *err)
{
    struct opening o = {.tcp = tcp};
    tcp->board.deadline = instant_add(clock_now(NULL), tcp->comm.timeout_ns);
    scope_close int listener = -1;
    int failed = make_places(&o, err) || begin(&o, err) || (faces_store && settle_address(&o, err)) ||
                 (listener = listen_here(&o, err)) < 0 || meet(&o, listener, err);
    while (o.caller_count)
        drop_caller(&o, 0);
    mem_free(o.callers);
    mem_free(o.entries);
    return failed ? -1 : 0;
}
