/* comm_tcp_wire.c - transfers between a rank and its peers, and the reasons that end them: see
 * comm_tcp_internal.h. */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "runtime/comm/comm_tcp_internal.h"

enum { NEWS_MS = 2000 };
#define HEADER_MAGIC UINT32_C(0x7063746d)
/* A rank whose predecessor takes part waits this much longer than timeout_ns, at most: the rank next to the
 * missing one knows better who is missing, and its report is to come first. */
#define GRACE_NS (1 * NS_PER_S)

/* The operation in headers and messages. */
static const struct comm_call *shown_call(const struct tcp_run *run)
{
    return run->group ? run->group->shown : run->call;
}

/* ---- transfers ---- */

static bool is_left(const struct iovec parts[TCP_PARTS])
{
    return parts[0].iov_len || parts[1].iov_len || parts[2].iov_len;
}

void tcp_begin(const struct tcp_run *run, int peer)
{
    struct tcp_comm *tcp = run->tcp;
    tcp->open_in = tcp->open_out = 0;
    if (peer >= 0)
        tcp->peers[peer].flow = (struct tcp_flow){0};
    for (int i = 0; peer < 0 && i < tcp->link_count; i++)
        tcp->peers[tcp->links[i]].flow = (struct tcp_flow){0};
}

static void set_header(const struct tcp_run *run, struct tcp_flow *flow)
{
    const struct comm_op *op = &shown_call(run)->op;
    flow->mine = (struct tcp_header){.magic = HEADER_MAGIC,
                                     .kind = run->splits ? TCP_SPLIT_KIND : (uint8_t)op->kind,
                                     .dtype = (uint8_t)op->dtype,
                                     .reduction = (uint8_t)op->reduction,
                                     .accumulate = op->accumulate,
                                     .root = op->root,
                                     .tag = op->tag,
                                     .count = op->count,
                                     .sequence = run->sequence};
    flow->out[0] = (struct iovec){&flow->mine, sizeof flow->mine};
    flow->greets = true;
}

static void give_parts(const struct tcp_run *run, int rank, struct iovec a, struct iovec b)
{
    struct tcp_flow *flow = &run->tcp->peers[rank].flow;
    bool was_open = is_left(flow->out);
    if (!flow->greets)
        set_header(run, flow);
    flow->out[1] = a;
    flow->out[2] = b;
    run->tcp->open_out += !was_open && is_left(flow->out);
    flow->may_send = true;
}

static void take_parts(const struct tcp_run *run, int rank, struct iovec a, struct iovec b)
{
    struct tcp_peer *peer = &run->tcp->peers[rank];
    struct tcp_flow *flow = &peer->flow;
    bool was_open = is_left(flow->in);
    if (!flow->expects) {
        flow->in[0] = (struct iovec){&flow->theirs, sizeof flow->theirs};
        flow->expects = true;
        atomic_store(&peer->awaited, true);
    }
    flow->in[1] = a;
    flow->in[2] = b;
    run->tcp->open_in += !was_open && is_left(flow->in);
    flow->may_receive = true;
}

static struct iovec iovec_of(const void *data, int64_t bytes)
{
    return (struct iovec){(void *)(uintptr_t)data, (size_t)bytes};
}

void tcp_give(const struct tcp_run *run, int rank, const void *data, int64_t bytes)
{
    give_parts(run, rank, iovec_of(data, bytes), (struct iovec){0});
}

void tcp_take(const struct tcp_run *run, int rank, void *data, int64_t bytes)
{
    take_parts(run, rank, iovec_of(data, bytes), (struct iovec){0});
}

/* The blocks of a ring as two runs. */
static void cut_ring(const struct tcp_run *run, const char *all, int64_t bytes, int first, int count,
                     struct iovec parts[2])
{
    int size = run->tcp->comm.size, from = (first + size) % size;
    int until_end = count < size - from ? count : size - from;
    int64_t begin = tcp_block(run, from);
    parts[0] = iovec_of(all + begin * bytes, (tcp_block(run, from + until_end) - begin) * bytes);
    parts[1] = iovec_of(all, tcp_block(run, count - until_end) * bytes);
}

void tcp_give_blocks(const struct tcp_run *run, int rank, const char *all, int64_t bytes, int first,
                     int count)
{
    struct iovec parts[2];
    cut_ring(run, all, bytes, first, count, parts);
    give_parts(run, rank, parts[0], parts[1]);
}

void tcp_take_blocks(const struct tcp_run *run, int rank, char *all, int64_t bytes, int first, int count)
{
    struct iovec parts[2];
    cut_ring(run, all, bytes, first, count, parts);
    take_parts(run, rank, parts[0], parts[1]);
}

bool tcp_gives(const struct tcp_run *run, int rank)
{
    return is_left(run->tcp->peers[rank].flow.out);
}

bool tcp_takes(const struct tcp_run *run, int rank)
{
    return is_left(run->tcp->peers[rank].flow.in);
}

static void advance(struct iovec parts[TCP_PARTS], size_t bytes)
{
    for (int i = 0; i < TCP_PARTS; i++) {
        size_t step = bytes < parts[i].iov_len ? bytes : parts[i].iov_len;
        parts[i].iov_base = step ? (char *)parts[i].iov_base + step : parts[i].iov_base;
        parts[i].iov_len -= step;
        bytes -= step;
    }
}

static struct msghdr message_of(struct iovec parts[TCP_PARTS], size_t *bytes)
{
    *bytes = parts[0].iov_len + parts[1].iov_len + parts[2].iov_len;
    return (struct msghdr){.msg_iov = parts, .msg_iovlen = TCP_PARTS};
}

/* ---- failures ---- */

void tcp_tell(struct tcp_comm *tcp, const struct muster_error *error)
{
    (void)pthread_mutex_lock(&tcp->lock);
    for (int i = 0; !tcp->notified && i < tcp->link_count; i++) {
        const int *fds = tcp->peers[tcp->links[i]].fds;
        if (fds[TCP_DATA] < 0 || fds[TCP_NEWS] < 0)
            continue;
        /* Nothing was ever sent on it, so there is room; a peer that misses it sees both connections
         * close. */
        (void)send(fds[TCP_NEWS], error, sizeof *error, MSG_NOSIGNAL | MSG_DONTWAIT);
        (void)shutdown(fds[TCP_NEWS], SHUT_WR);
        (void)shutdown(fds[TCP_DATA], SHUT_WR);
    }
    tcp->notified = true;
    (void)pthread_mutex_unlock(&tcp->lock);
}

int tcp_watch(struct tcp_comm *tcp, int rank, struct muster_error *err)
{
    struct epoll_event event = {.events = EPOLLIN, .data = {.u64 = (uint64_t)rank}};
    bool linked = false, ended;
    if (epoll_ctl(tcp->watch, EPOLL_CTL_ADD, tcp->peers[rank].fds[TCP_NEWS], &event))
        return error_errno(err, "watching rank %d", rank);
    (void)pthread_mutex_lock(&tcp->lock);
    ended = tcp->notified;
    for (int i = 0; i < tcp->link_count; i++)
        linked = linked || tcp->links[i] == rank;
    if (!linked)
        tcp->links[tcp->link_count++] = rank;
    (void)pthread_mutex_unlock(&tcp->lock);
    return ended ? error_set(err, MUSTER_E_PEER, "comm %s has ended", tcp->comm.name) : 0;
}

/* Reads the final report of a peer, if any: true, and *error is its failure. */
static bool hear_news(struct tcp_comm *tcp, int rank, struct muster_error *error)
{
    struct tcp_peer *peer = &tcp->peers[rank];
    struct muster_error news;
    ssize_t got;
    do {
        got = recv(peer->fds[TCP_NEWS], &news, sizeof news, MSG_DONTWAIT);
    } while (got < 0 && errno == EINTR);
    if (got < 0 && errno == EAGAIN)
        return false;
    peer->ended = true;
    (void)epoll_ctl(tcp->watch, EPOLL_CTL_DEL, peer->fds[TCP_NEWS], NULL); /* it was added */
    if (got != (ssize_t)sizeof news)
        return false;
    peer->left = news.code == 0;
    if (peer->left)
        return false;
    *error = news;
    error->text[sizeof error->text - 1] = '\0';
    return true;
}

/* All reports that have come. */
static bool hear_all_news(struct tcp_comm *tcp, struct muster_error *error)
{
    enum { EVENTS = 16 };
    struct epoll_event events[EVENTS];
    int count = epoll_wait(tcp->watch, events, EVENTS, 0);
    for (int i = 0; i < count; i++) {
        if (events[i].data.u64 < (uint64_t)tcp->comm.size && hear_news(tcp, (int)events[i].data.u64, error))
            return true;
    }
    return false;
}

int tcp_interrupted(const struct tcp_run *run, struct muster_error *error)
{
    const struct comm *comm = &run->tcp->comm;
    if (atomic_load(&run->tcp->aborted))
        return comm_aborted(shown_call(run), run->sequence, error);
    if (hear_all_news(run->tcp, error))
        return -1;
    if (comm->device_ops->poll_error(comm->device,
                                     error)) /* another comm failed: free the peers of this one */
        return error_wrap(error, "rank %d stopped", comm_named(comm, comm->rank));
    return 0;
}

/* A peer's data connection has closed. Its reason travels on the other connection, so it may still be on
 * its way. */
static int gone(const struct tcp_run *run, int rank, struct muster_error *error)
{
    struct tcp_peer *peer = &run->tcp->peers[rank];
    char text[COMM_CALL_TEXT];
    if (!peer->ended) {
        struct pollfd entry = {.fd = peer->fds[TCP_NEWS], .events = POLLIN};
        (void)poll(&entry, 1, NEWS_MS); /* complete or not: arrived bytes count */
        if (hear_news(run->tcp, rank, error))
            return -1;
    }
    if (peer->left)
        return error_set(error, MUSTER_E_PEER, "rank %d had left the comm before %s",
                         comm_named(&run->tcp->comm, rank),
                         comm_call_text(text, shown_call(run), run->sequence));
    return error_set(error, MUSTER_E_PEER, "rank %d exited during %s", comm_named(&run->tcp->comm, rank),
                     comm_call_text(text, shown_call(run), run->sequence));
}

static int late(const struct tcp_run *run, struct muster_error *error)
{
    struct comm_ranks missing = {0};
    for (int rank = 0; rank < run->tcp->comm.size; rank++) {
        if (tcp_takes(run, rank) || tcp_gives(run, rank))
            comm_ranks_add(&missing, comm_named(&run->tcp->comm, rank));
    }
    return comm_late(shown_call(run), run->sequence, &missing, error);
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

/* Either rank splits the comm. */
static int splits_differ(const struct tcp_run *run, int rank, const struct tcp_header *theirs,
                         struct muster_error *error)
{
    bool both = run->splits && theirs->kind == TCP_SPLIT_KIND;
    if (both)
        return error_set(error, MUSTER_E_PEER,
                         "rank %d splits another comm or uses another name; all ranks must split alike",
                         rank);
    const struct comm_op other = op_of(theirs);
    char text[COMM_TEXT];
    return error_set(error, MUSTER_E_PEER, "ranks differ in comm %s: rank %d splits it, rank %d issued %s",
                     run->tcp->comm.name, run->splits ? run->tcp->comm.rank : rank,
                     run->splits ? rank : run->tcp->comm.rank,
                     comm_op_text(text, run->splits ? &other : &run->call->op));
}

/* A peer's header has arrived: does it match ours? */
static int match(const struct tcp_run *run, int rank, struct muster_error *error)
{
    const struct tcp_header *theirs = &run->tcp->peers[rank].flow.theirs;
    if (theirs->magic != HEADER_MAGIC)
        return error_set(error, MUSTER_E_PROTOCOL,
                         "rank %d sends no header in comm %s; do all ranks run the same version on the same "
                         "kind of machine?",
                         comm_named(&run->tcp->comm, rank), run->tcp->comm.name);
    const struct comm_op *mine = &shown_call(run)->op, other = op_of(theirs);
    bool same_kind = run->splits == (theirs->kind == TCP_SPLIT_KIND);
    if ((run->splits || !same_kind) &&
        !(same_kind && theirs->sequence == run->sequence && theirs->count == mine->count))
        return splits_differ(run, rank, theirs, error);
    if (run->splits)
        return 0;
    bool alike = mine->kind != COMM_ALL_REDUCE ||
                 mine->accumulate == other.accumulate; /* they use other connections */
    if (theirs->sequence == run->sequence && comm_fits(mine, &other) && alike)
        return 0;
    const struct comm *comm = &run->tcp->comm;
    const struct comm_issued ours = {comm_named(comm, comm->rank), run->sequence, mine};
    const struct comm_issued its = {comm_named(comm, rank), theirs->sequence, &other};
    bool first = comm->rank < rank;
    return comm_differ(run->tcp->comm.name, first ? ours : its, first ? its : ours, error);
}

/* ---- moving ---- */

/* Sends as much as the connection takes. A broken connection is detected when reading, after the data that
 * arrived before. Where nothing more is to come from that peer, nothing reads, and the connection counts as
 * ready from then on: no wait for it would ever end. */
static int push(const struct tcp_run *run, int rank, bool *moved, struct muster_error *error)
{
    struct tcp_peer *peer = &run->tcp->peers[rank];
    struct tcp_flow *flow = &peer->flow;
    while (flow->may_send && is_left(flow->out)) {
        size_t bytes;
        struct msghdr message = message_of(flow->out, &bytes);
        ssize_t sent = sendmsg(peer->fds[TCP_DATA], &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0 && errno != EAGAIN && errno != ENOBUFS && errno != ENOMEM && !is_left(flow->in))
            return tcp_interrupted(run, error) ? -1 : gone(run, rank, error); /* an abort ends it, too */
        flow->may_send = sent == (ssize_t)bytes;
        if (sent <= 0)
            break;
        advance(flow->out, (size_t)sent);
        run->tcp->open_out -= !is_left(flow->out);
        *moved = true;
    }
    return 0;
}

static int pull(const struct tcp_run *run, int rank, bool *moved, struct muster_error *error)
{
    struct tcp_peer *peer = &run->tcp->peers[rank];
    struct tcp_flow *flow = &peer->flow;
    while (flow->may_receive && is_left(flow->in)) {
        size_t bytes;
        struct msghdr message = message_of(flow->in, &bytes);
        ssize_t got = recvmsg(peer->fds[TCP_DATA], &message, MSG_DONTWAIT);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && errno == EAGAIN) {
            flow->may_receive = false;
            return 0;
        }
        if (got <= 0)
            return gone(run, rank, error);
        advance(flow->in, (size_t)got);
        run->tcp->open_in -= !is_left(flow->in);
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
    struct tcp_comm *tcp = run->tcp;
    int count = 0;
    tcp->polls[count++] = (struct pollfd){.fd = tcp->watch, .events = POLLIN};
    for (int i = 0; i < tcp->link_count; i++) {
        const struct tcp_peer *peer = &tcp->peers[tcp->links[i]];
        short events =
            (short)((is_left(peer->flow.in) ? POLLIN : 0) | (is_left(peer->flow.out) ? POLLOUT : 0));
        if (!events)
            continue;
        tcp->polled[count] = tcp->links[i];
        tcp->polls[count++] = (struct pollfd){.fd = peer->fds[TCP_DATA], .events = events};
    }
    return count;
}

/* Sleeps until something can be transferred, at most a slice. -1: there is a reason to stop. */
static int wait_for_peers(const struct tcp_run *run, struct instant deadline, struct muster_error *error)
{
    struct tcp_comm *tcp = run->tcp;
    int count = list_waits(run);
    int64_t left = instant_diff_ns(deadline, clock_now(NULL));
    left = left < 0 ? 0 : left < COMM_SLICE_NS ? left : COMM_SLICE_NS;
    struct timespec limit = {.tv_nsec = (long)left};
    int ready = ppoll(tcp->polls, (nfds_t)count, &limit, NULL);
    if (ready < 0 && errno != EINTR)
        return error_errno(error, "waiting for the peers of comm %s", tcp->comm.name);
    for (int i = 1; ready > 0 && i < count; i++) {
        struct tcp_flow *flow = &tcp->peers[tcp->polled[i]].flow;
        flow->may_receive |= (tcp->polls[i].revents & ~POLLOUT) != 0;
        flow->may_send |= (tcp->polls[i].revents & ~POLLIN) != 0;
    }
    if ((ready <= 0 || tcp->polls[0].revents) && tcp_interrupted(run, error))
        return -1;
    return ready <= 0 && instant_reached(clock_now(NULL), deadline) ? late(run, error) : 0;
}

/* Transfers everything that can be transferred now. */
static int move_bytes(const struct tcp_run *run, bool *moved, struct muster_error *error)
{
    struct tcp_comm *tcp = run->tcp;
    for (int i = 0; tcp->open_out && i < tcp->link_count; i++) {
        if (push(run, tcp->links[i], moved, error))
            return -1;
    }
    for (int i = tcp->link_count - 1; tcp->open_in && i >= 0; i--) {
        if (pull(run, tcp->links[i], moved, error))
            return -1;
    }
    return 0;
}

/* When to give up after a byte has moved now. */
static struct instant next_deadline(const struct tcp_run *run)
{
    const struct tcp_comm *tcp = run->tcp;
    int64_t limit = tcp->comm.timeout_ns, grace = limit / 8 < GRACE_NS ? limit / 8 : GRACE_NS;
    bool told = tcp_is_sparse(tcp) && !comm_is_pair(run->call->op.kind) &&
                tcp->peers[tcp_rank_after(tcp, -1)].flow.heard;
    return instant_add(clock_now(NULL), limit + (told ? grace : 0));
}

static int drive(const struct tcp_run *run, enum tcp_until until, struct muster_error *error)
{
    const struct tcp_comm *tcp = run->tcp;
    const int before = tcp->open_in + tcp->open_out;
    struct instant deadline = {0};
    if (atomic_load(&tcp->aborted))
        return comm_aborted(shown_call(run), run->sequence, error);
    for (bool first = true;; first = false) {
        bool moved = false;
        if (move_bytes(run, &moved, error))
            return -1;
        if ((until == TCP_ONE && tcp->open_in + tcp->open_out < before) ||
            (!tcp->open_in && (!tcp->open_out || until == TCP_RECEIVED)))
            return 0;
        if (moved || first)
            deadline = next_deadline(run);
        if (wait_for_peers(run, deadline, error))
            return -1;
    }
}

int tcp_break(const struct tcp_run *run, struct muster_error *error, struct muster_error *err)
{
    if (atomic_load(&run->tcp->aborted) && error->code != MUSTER_E_CANCELLED)
        (void)comm_aborted(shown_call(run), run->sequence,
                           error); /* the apparent failure followed from that one */
    tcp_tell(run->tcp, error);
    for (int rank = 0; rank < run->tcp->comm.size; rank++)
        atomic_store(&run->tcp->peers[rank].awaited, false);
    if (err)
        *err = *error;
    return -1;
}

int tcp_drive(const struct tcp_run *run, enum tcp_until until, struct muster_error *err)
{
    struct muster_error error = {0};
    return drive(run, until, &error) ? tcp_break(run, &error, err) : 0;
}
