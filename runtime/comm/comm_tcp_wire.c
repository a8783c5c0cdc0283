/* comm_tcp_wire.c - transfers between a rank and all its peers at once, and the reasons that end them: see
 * comm_tcp.h. */
#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "runtime/comm/comm_tcp_internal.h"

enum { NEWS_MS = 2000 };
#define HEADER_MAGIC UINT32_C(0x7063746d)

/* ---- transfers ---- */

void tcp_greet(const struct tcp_run *run, int rank)
{
    const struct comm_op *op = &run->call->op;
    struct tcp_peer *peer = &run->tcp->peers[rank];
    peer->flow = (struct tcp_flow){.mine = {.magic = HEADER_MAGIC,
                                            .kind = (uint8_t)op->kind,
                                            .dtype = (uint8_t)op->dtype,
                                            .reduction = (uint8_t)op->reduction,
                                            .accumulate = op->accumulate,
                                            .root = op->root,
                                            .tag = op->tag,
                                            .count = op->count,
                                            .sequence = run->sequence}};
    peer->flow.out[0] = (struct iovec){&peer->flow.mine, sizeof peer->flow.mine};
    peer->flow.in[0] = (struct iovec){&peer->flow.theirs, sizeof peer->flow.theirs};
    atomic_store(&peer->awaited, true);
}

void tcp_give(const struct tcp_run *run, int rank, const void *data, int64_t bytes)
{
    run->tcp->peers[rank].flow.out[1] = (struct iovec){(void *)(uintptr_t)data, (size_t)bytes};
}

void tcp_take(const struct tcp_run *run, int rank, void *data, int64_t bytes)
{
    run->tcp->peers[rank].flow.in[1] = (struct iovec){data, (size_t)bytes};
}

static bool is_left(const struct iovec parts[2])
{
    return parts[0].iov_len || parts[1].iov_len;
}

static void advance(struct iovec parts[2], size_t bytes)
{
    for (int i = 0; i < 2; i++) {
        size_t step = bytes < parts[i].iov_len ? bytes : parts[i].iov_len;
        parts[i].iov_base = step ? (char *)parts[i].iov_base + step : parts[i].iov_base;
        parts[i].iov_len -= step;
        bytes -= step;
    }
}

static struct msghdr message_of(struct iovec parts[2])
{
    return (struct msghdr){.msg_iov = parts, .msg_iovlen = 2};
}

/* ---- failures ---- */

void tcp_tell(struct tcp_comm *tcp, const struct muster_error *error)
{
    if (atomic_exchange(&tcp->notified, true))
        return;
    for (int rank = 0; tcp->peers && rank < tcp->comm.size; rank++) {
        const int *fds = tcp->peers[rank].fds;
        if (fds[TCP_DATA] < 0 || fds[TCP_NEWS] < 0)
            continue;
        /* Nothing was ever sent on it, so there is room; a peer that misses it sees both connections
         * close. */
        (void)send(fds[TCP_NEWS], error, sizeof *error, MSG_NOSIGNAL | MSG_DONTWAIT);
        (void)shutdown(fds[TCP_NEWS], SHUT_WR);
        (void)shutdown(fds[TCP_DATA], SHUT_WR);
    }
}

/* Reads the final report of a peer, if any: true, and *error is its failure. */
static bool hear_news(struct tcp_peer *peer, struct muster_error *error)
{
    struct muster_error news;
    ssize_t got;
    do {
        got = recv(peer->fds[TCP_NEWS], &news, sizeof news, MSG_DONTWAIT);
    } while (got < 0 && errno == EINTR);
    if (got < 0 && errno == EAGAIN)
        return false;
    peer->ended = true;
    if (got != (ssize_t)sizeof news)
        return false;
    peer->left = news.code == 0;
    if (peer->left)
        return false;
    *error = news;
    error->text[sizeof error->text - 1] = '\0';
    return true;
}

/* A peer's data connection has closed. Its reason travels on the other connection, so it may still be on
 * its way. */
static int gone(const struct tcp_run *run, int rank, struct muster_error *error)
{
    struct tcp_peer *peer = &run->tcp->peers[rank];
    char text[COMM_CALL_TEXT];
    if (!peer->ended) {
        struct pollfd entry = {.fd = peer->fds[TCP_NEWS], .events = POLLIN};
        (void)poll(&entry, 1, NEWS_MS); /* complete or not: what has arrived counts */
        if (hear_news(peer, error))
            return -1;
    }
    if (peer->left)
        return error_set(error, MUSTER_E_PEER, "rank %d had left the comm before %s", rank,
                         comm_call_text(text, run->call, run->sequence));
    return error_set(error, MUSTER_E_PEER, "rank %d exited during %s", rank,
                     comm_call_text(text, run->call, run->sequence));
}

static int late(const struct tcp_run *run, struct muster_error *error)
{
    struct comm_ranks missing = {0};
    for (int rank = 0; rank < run->tcp->comm.size; rank++) {
        const struct tcp_flow *flow = &run->tcp->peers[rank].flow;
        if (is_left(flow->in) || is_left(flow->out))
            comm_ranks_add(&missing, rank);
    }
    return comm_late(run->call, run->sequence, &missing, error);
}

static struct comm_op op_of(const struct tcp_header *header)
{
    return (struct comm_op){.kind = (enum comm_kind)header->kind,
                            .dtype = (enum dtype)header->dtype,
                            .reduction = (enum comm_reduction)header->reduction,
                            .accumulate = header->accumulate,
                            .root = header->root,
                            .tag = header->tag,
                            .count = header->count};
}

/* A peer's header has arrived: does it match ours? */
static int match(const struct tcp_run *run, int rank, struct muster_error *error)
{
    const struct tcp_header *theirs = &run->tcp->peers[rank].flow.theirs;
    if (theirs->magic != HEADER_MAGIC)
        return error_set(error, MUSTER_E_PROTOCOL,
                         "rank %d sends no header in comm %s; do all ranks run the same version on the same "
                         "kind of machine?",
                         rank, run->tcp->comm.name);
    const struct comm_op *mine = &run->call->op, other = op_of(theirs);
    bool alike = mine->kind != COMM_ALL_REDUCE ||
                 mine->accumulate == other.accumulate; /* they use other connections */
    if (theirs->sequence == run->sequence && comm_fits(mine, &other) && alike)
        return 0;
    const struct comm_issued ours = {run->tcp->comm.rank, run->sequence, mine};
    const struct comm_issued its = {rank, theirs->sequence, &other};
    bool first = ours.rank < rank;
    return comm_differ(run->tcp->comm.name, first ? ours : its, first ? its : ours, error);
}

/* ---- moving ---- */

/* Sends as much as the connection takes. A broken connection is detected when reading, after the data that
 * arrived before. */
static bool push(struct tcp_peer *peer)
{
    bool moved = false;
    while (is_left(peer->flow.out)) {
        struct msghdr message = message_of(peer->flow.out);
        ssize_t sent = sendmsg(peer->fds[TCP_DATA], &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent <= 0)
            break;
        advance(peer->flow.out, (size_t)sent);
        moved = true;
    }
    return moved;
}

static int pull(const struct tcp_run *run, int rank, bool *moved, struct muster_error *error)
{
    struct tcp_peer *peer = &run->tcp->peers[rank];
    struct tcp_flow *flow = &peer->flow;
    while (is_left(flow->in)) {
        struct msghdr message = message_of(flow->in);
        ssize_t got = recvmsg(peer->fds[TCP_DATA], &message, MSG_DONTWAIT);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && errno == EAGAIN)
            return 0;
        if (got <= 0)
            return gone(run, rank, error);
        advance(flow->in, (size_t)got);
        *moved = true;
        if (flow->heard || flow->in[0].iov_len)
            continue;
        if (match(run, rank, error))
            return -1;
        flow->heard = true;
        atomic_store(&peer->awaited, false);
    }
    return 0;
}

/* Fills polls with the events to wait for; returns how many. */
static int list_waits(const struct tcp_run *run)
{
    struct pollfd *polls = run->tcp->polls;
    int count = 0;
    polls[count++] = (struct pollfd){.fd = run->tcp->wake, .events = POLLIN};
    for (int rank = 0; rank < run->tcp->comm.size; rank++) {
        const struct tcp_peer *peer = &run->tcp->peers[rank];
        short events =
            (short)((is_left(peer->flow.in) ? POLLIN : 0) | (is_left(peer->flow.out) ? POLLOUT : 0));
        /* An operation of a pair does not wait for the other ranks, but their failures end the comm. */
        polls[count++] = (struct pollfd){.fd = events ? peer->fds[TCP_DATA] : -1, .events = events};
        polls[count++] = (struct pollfd){.fd = peer->ended ? -1 : peer->fds[TCP_NEWS], .events = POLLIN};
    }
    return count;
}

/* Sleeps until something can be transferred, at most a slice. -1: there is a reason to stop. */
static int wait_for_peers(const struct tcp_run *run, struct instant deadline, struct muster_error *error)
{
    const struct comm *comm = &run->tcp->comm;
    int count = list_waits(run);
    int64_t left = instant_diff_ns(deadline, clock_now(NULL));
    left = left < 0 ? 0 : left < COMM_SLICE_NS ? left : COMM_SLICE_NS;
    struct timespec limit = {.tv_nsec = (long)left};
    int ready = ppoll(run->tcp->polls, (nfds_t)count, &limit, NULL);
    if (ready < 0 && errno != EINTR)
        return error_errno(error, "waiting for the peers of comm %s", run->tcp->comm.name);
    if (atomic_load(&run->tcp->aborted))
        return comm_aborted(run->call, run->sequence, error);
    for (int rank = 0; ready > 0 && rank < comm->size; rank++) {
        if (run->tcp->polls[2 + 2 * rank].revents && hear_news(&run->tcp->peers[rank], error))
            return -1;
    }
    if (ready > 0)
        return 0;
    if (comm->device_ops->poll_error(comm->device,
                                     error)) /* another comm failed: do not keep peers waiting here */
        return error_wrap(error, "rank %d stopped", comm->rank);
    return instant_reached(clock_now(NULL), deadline) ? late(run, error) : 0;
}

/* Transfers everything that can be transferred now. */
static int move_bytes(const struct tcp_run *run, bool *moved, struct muster_error *error)
{
    int size = run->tcp->comm.size, me = run->tcp->comm.rank;
    for (int i = 1; i < size; i++) /* so that not all ranks send to the same rank at once */
        *moved = push(&run->tcp->peers[(me + i) % size]) || *moved;
    for (int i = 1; i < size; i++) {
        if (pull(run, (me + size - i) % size, moved, error))
            return -1;
    }
    return 0;
}

static bool is_done(const struct tcp_run *run, bool sent)
{
    for (int rank = 0; rank < run->tcp->comm.size; rank++) {
        const struct tcp_flow *flow = &run->tcp->peers[rank].flow;
        if (is_left(flow->in) || (sent && is_left(flow->out)))
            return false;
    }
    return true;
}

static int drive(const struct tcp_run *run, bool sent, struct muster_error *error)
{
    struct instant deadline = instant_add(clock_now(NULL), run->tcp->comm.timeout_ns);
    if (atomic_load(&run->tcp->aborted))
        return comm_aborted(run->call, run->sequence, error);
    for (;;) {
        bool moved = false;
        if (move_bytes(run, &moved, error))
            return -1;
        if (is_done(run, sent))
            return 0;
        if (moved)
            deadline = instant_add(clock_now(NULL), run->tcp->comm.timeout_ns);
        if (wait_for_peers(run, deadline, error))
            return -1;
    }
}

int tcp_drive(const struct tcp_run *run, bool sent, struct muster_error *err)
{
    struct muster_error error = {0};
    if (!drive(run, sent, &error))
        return 0;
    if (atomic_load(&run->tcp->aborted) && error.code != MUSTER_E_CANCELLED)
        (void)comm_aborted(run->call, run->sequence,
                           &error); /* the apparent failure followed from that one */
    tcp_tell(run->tcp, &error);
    for (int rank = 0; rank < run->tcp->comm.size; rank++)
        atomic_store(&run->tcp->peers[rank].awaited, false);
    if (err)
        *err = error;
    return -1;
}
