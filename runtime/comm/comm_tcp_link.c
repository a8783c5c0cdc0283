/* comm_tcp_link.c - how the ranks of a TCP comm find and call each other: see comm_tcp_internal.h. */
#include <errno.h>
#include <netinet/in.h>
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

/* A rank that we call, and where it listens. */
struct callee {
    int rank;
    struct tcp_listing at;
};

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

int tcp_open_listener(const char *at, struct tcp_listing *mine, struct muster_error *err)
{
    struct address address;
    if (getrandom(mine->token, TCP_TOKEN_BYTES, 0) != TCP_TOKEN_BYTES)
        return error_errno(err, "getrandom");
    if (gethostname(mine->host, sizeof mine->host - 1))
        (void)snprintf(mine->host, sizeof mine->host, "?"); /* perhaps the name is too long */
    if (parse(at, 0, &address, err))
        return -1;
    scope_close int fd = socket(address.of.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return error_errno(err, "a TCP socket");
    /* Unknown peers must not fill the backlog either. */
    if (bind(fd, &address.of.any, address.length) || listen(fd, SOMAXCONN))
        return error_errno(err, "listening at %s", at);
    socklen_t length = sizeof address.of;
    if (getsockname(fd, &address.of.any, &length))
        return error_errno(err, "the port of a listening socket");
    mine->port = address_port(&address.of.any);
    (void)snprintf(mine->address, sizeof mine->address, "%s", at); /* fits */
    return take_fd(&fd);
}

/* ---- the store ---- */

static int look_up(const struct tcp_comm *tcp, const char *what, int rank, struct tcp_listing *out,
                   struct muster_error *err)
{
    if (comm_board_get(&tcp->board, what, rank, "has not published its address", out, sizeof *out, err))
        return -1;
    out->address[sizeof out->address - 1] = out->host[sizeof out->host - 1] = '\0';
    return 0;
}

/* If the store is on our node we may have reached it by loopback, on which no other node can reach us. The
 * first address that is not loopback travels up a tree of ranks, in which the parent of a rank is the rank
 * without its lowest bit; rank 0 publishes it for all. */
static int settle_address(struct tcp_comm *tcp, struct muster_error *err)
{
    struct tcp_listing seen = {0}, other;
    int me = tcp->comm.rank, size = tcp->comm.size;
    (void)snprintf(seen.address, sizeof seen.address, "%s", tcp->address); /* fits */
    if (gethostname(seen.host, sizeof seen.host - 1))
        (void)snprintf(seen.host, sizeof seen.host, "?"); /* perhaps the name is too long */
    for (int bit = 1; bit < size && !(me & bit); bit *= 2) {
        if (me + bit >= size)
            break;
        if (look_up(tcp, "seen", me + bit, &other, err))
            return -1;
        if (address_is_loopback(seen.address))
            seen = other;
    }
    if (comm_board_put(&tcp->board, "seen", &seen, sizeof seen, err))
        return -1;
    if (!address_is_loopback(tcp->address))
        return 0;
    if (me && look_up(tcp, "seen", 0, &seen, err))
        return -1;
    if (!address_is_loopback(seen.address) && address_towards(seen.address, tcp->address, err))
        return error_wrap(err, "a rank runs on host %.63s", seen.host);
    return 0;
}

/* ---- calling ---- */

static void describe_address(char out[160], const struct callee *callee)
{
    (void)snprintf(out, 160, "connecting to rank %d at %s port %u", callee->rank, callee->at.address,
                   callee->at.port);
}

static int dial(struct tcp_comm *tcp, const struct callee *callee, enum tcp_role role,
                struct muster_error *err)
{
    char what[160];
    struct address address;
    describe_address(what, callee);
    if (parse(callee->at.address, callee->at.port, &address, err))
        return error_wrap(err, "rank %d", callee->rank);
    scope_close int fd = socket(address.of.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return error_errno(err, "a TCP socket");
    if (connect(fd, &address.of.any, address.length) && errno != EINPROGRESS && errno != EINTR)
        return error_errno(err, "%s", what);
    tcp->peers[callee->rank].fds[role] = take_fd(&fd);
    return 0;
}

/* The connection succeeded or failed: send our hello. */
static int introduce(struct tcp_comm *tcp, const struct callee *callee, enum tcp_role role,
                     struct muster_error *err)
{
    char what[160];
    int fd = tcp->peers[callee->rank].fds[role], failure = 0;
    socklen_t size = sizeof failure;
    describe_address(what, callee);
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &failure, &size))
        return error_errno(err, "%s", what);
    if (failure == ECONNREFUSED)
        return error_set(err, MUSTER_E_PEER, "%s: connection refused; the rank has ended", what);
    errno = failure;
    if (failure)
        return error_errno(err, "%s on host %s", what, callee->at.host);
    const struct tcp_hello hello = tcp_hello_of(tcp, callee->at.token, role);
    return tcp_prepare_socket(fd, role, err) || tcp_send_hello(fd, &hello, what, err) ? -1 : 0;
}

/* Completes all outgoing connections in the order in which they are established, and sends the hello on
 * each at once. */
static int introduce_all(struct tcp_comm *tcp, const struct tcp_run *run, const struct callee *callees,
                         int callee_count, struct instant deadline, struct muster_error *err)
{
    int count = TCP_ROLE_COUNT * callee_count, next = 0;
    struct pollfd *entries = tcp->polls;
    for (int i = 0; i < count; i++)
        entries[i] = (struct pollfd){
            .fd = tcp->peers[callees[i / TCP_ROLE_COUNT].rank].fds[i % TCP_ROLE_COUNT], .events = POLLOUT};
    for (;;) {
        char what[160];
        while (next < count && entries[next].fd < 0)
            next++;
        if (next == count)
            return 0;
        describe_address(what, &callees[next / TCP_ROLE_COUNT]);
        if (tcp_await(tcp, run, entries, count, deadline, what, err))
            return -1;
        for (int i = next; i < count; i++) {
            if (!entries[i].revents)
                continue;
            if (introduce(tcp, &callees[i / TCP_ROLE_COUNT], (enum tcp_role)(i % TCP_ROLE_COUNT), err))
                return -1;
            entries[i].fd = -1;
        }
    }
}

/* One round trip is waited for in all, not one for each rank. */
static int call_all(struct tcp_comm *tcp, const struct tcp_run *run, const struct callee *callees, int count,
                    struct instant deadline, struct muster_error *err)
{
    for (int i = 0; i < count; i++) {
        if (dial(tcp, &callees[i], TCP_DATA, err) || dial(tcp, &callees[i], TCP_NEWS, err))
            return -1;
    }
    return introduce_all(tcp, run, callees, count, deadline, err);
}

/* The answer of a rank that we connected to. */
static int hear(struct tcp_comm *tcp, const struct tcp_run *run, int rank, enum tcp_role role,
                struct instant deadline, struct muster_error *err)
{
    char what[64];
    struct tcp_hello hello = {0};
    int fd = tcp->peers[rank].fds[role];
    size_t have = 0;
    (void)snprintf(what, sizeof what, "connecting to rank %d", rank);
    /* Byte by byte if need be: the low-water mark of the report connection is not that of a hello. */
    if (setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &(int){1}, sizeof(int)))
        return error_errno(err, "a low-water mark");
    while (have < sizeof hello) {
        struct pollfd entry = {.fd = fd, .events = POLLIN};
        if (tcp_await(tcp, run, &entry, 1, deadline, what, err))
            return -1;
        ssize_t got = recv(fd, (char *)&hello + have, sizeof hello - have, MSG_DONTWAIT);
        if (got < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (got <= 0)
            return error_set(err, MUSTER_E_PEER, "%s: it closed the connection", what);
        have += (size_t)got;
    }
    if (hello.magic == TCP_HELLO_MAGIC && hello.rank == rank && hello.size == tcp->comm.size &&
        hello.role == (int)role)
        return tcp_prepare_socket(fd, role, err);
    return error_set(
        err, MUSTER_E_PROTOCOL,
        "%s: it reports rank %d of %d, expected rank %d of %d; do all ranks run the same version?", what,
        hello.rank, hello.size, rank, tcp->comm.size);
}

static int hear_callee(struct tcp_comm *tcp, const struct tcp_run *run, int rank, struct instant deadline,
                       struct muster_error *err)
{
    if (hear(tcp, run, rank, TCP_DATA, deadline, err) || hear(tcp, run, rank, TCP_NEWS, deadline, err))
        return -1;
    return tcp->watch >= 0 ? tcp_watch(tcp, rank, err) : 0;
}

/* ---- connecting ---- */

int tcp_connect(struct tcp_comm *tcp, struct muster_error *err)
{
    struct instant deadline = tcp->board.deadline = instant_add(clock_now(NULL), tcp->comm.timeout_ns);
    scope_free struct callee *callees = mem_calloc((size_t)tcp->link_count, sizeof *callees);
    int count = 0;
    if (!callees)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the addresses of %d ranks", tcp->link_count);
    for (int i = 0; i < tcp->link_count; i++) {
        struct callee *callee = &callees[count];
        callee->rank = tcp->links[i];
        if (callee->rank > tcp->comm.rank)
            continue; /* it calls us */
        count++;
        if (tcp->listings)
            callee->at = tcp->listings[callee->rank];
        else if (look_up(tcp, "at", callee->rank, &callee->at, err))
            return -1;
    }
    if (call_all(tcp, NULL, callees, count, deadline, err) || tcp_answer_links(tcp, err))
        return -1;
    for (int i = 0; i < count; i++) {
        if (hear_callee(tcp, NULL, callees[i].rank, deadline, err))
            return -1;
    }
    if (tcp_is_sparse(tcp))
        return 0;
    (void)close(take_fd(&tcp->listener)); /* nobody else calls */
    return 0;
}

int tcp_meet(struct tcp_comm *tcp, bool faces_store, struct muster_error *err)
{
    tcp->board.deadline = instant_add(clock_now(NULL), tcp->comm.timeout_ns);
    if (comm_board_open(&tcp->board, err) || (faces_store && settle_address(tcp, err)) ||
        (tcp->listener = tcp_open_listener(tcp->address, &tcp->mine, err)) < 0)
        return -1;
    if (comm_board_put(&tcp->board, "at", &tcp->mine, sizeof tcp->mine, err))
        return error_wrap(err, "publishing the address of rank %d", tcp->comm.rank);
    if (tcp_connect(tcp, err))
        return -1;
    if (!tcp_is_sparse(tcp))
        return 0;
    tcp->listings = mem_calloc((size_t)tcp->comm.size, sizeof *tcp->listings);
    if (!tcp->listings)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the addresses of %d ranks", tcp->comm.size);
    tcp->listings[tcp->comm.rank] = tcp->mine;
    return tcp_gather_records(tcp, tcp->listings, sizeof *tcp->listings, err);
}

static int reach(const struct tcp_run *run, int rank, struct muster_error *error)
{
    struct tcp_comm *tcp = run->tcp;
    struct instant deadline = instant_add(clock_now(NULL), tcp->comm.timeout_ns);
    const struct callee callee = {.rank = rank, .at = tcp->listings[rank]};
    if (rank > tcp->comm.rank)
        return tcp_answer_one(run, rank, deadline, error);
    return call_all(tcp, run, &callee, 1, deadline, error) || hear_callee(tcp, run, rank, deadline, error)
               ? -1
               : 0;
}

int tcp_reach(const struct tcp_run *run, int rank, struct muster_error *err)
{
    struct muster_error error = {0};
    struct comm_ranks missing = {0};
    struct tcp_peer *peer = &run->tcp->peers[rank];
    if (peer->fds[TCP_DATA] >= 0 && peer->fds[TCP_NEWS] >= 0)
        return 0;
    atomic_store(&peer->awaited, true);
    int failed = reach(run, rank, &error);
    atomic_store(&peer->awaited, false);
    if (!failed)
        return 0;
    comm_ranks_add(&missing, rank);
    if (error.code == MUSTER_E_TIMEOUT)
        (void)comm_late(run->call, run->sequence, &missing, &error);
    return tcp_break(run, &error, err);
}
