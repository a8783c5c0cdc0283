/* comm_nccl_news.c - see comm_nccl_news.h. */
#include "runtime/cuda/comm_nccl_news.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "runtime/comm/comm_tcp_internal.h"

enum { NOTE_MAGIC = 0x6e636c31, OUT_LIMIT = 1 << 20 };

struct news_peer {
    int fd; /* -1: none, or it has ended */
    bool left;
    int32_t pid;
    struct buffer in, out;
    struct nccl_note posts[NEWS_COMMS]; /* magic 0: none */
};

struct nccl_news {
    pthread_mutex_t lock; /* before a family's */
    int rank, size;
    struct news_peer *peers; /* [size]; on other ranks than 0 only peer 0 is connected */
};

/* ---- making ---- */

static void free_peers(struct nccl_news *news)
{
    for (int rank = 0; news->peers && rank < news->size; rank++) {
        buffer_free(&news->peers[rank].in);
        buffer_free(&news->peers[rank].out);
        if (news->peers[rank].fd >= 0)
            (void)close(news->peers[rank].fd); /* all notes are sent */
    }
    mem_free(news->peers);
}

/* Takes the connections of role DATA; the other role's are not needed. */
static void take_connections(struct nccl_news *news, struct tcp_comm *tcp)
{
    for (int rank = 0; rank < news->size; rank++) {
        struct tcp_peer *peer = &tcp->peers[rank];
        news->peers[rank].fd = take_fd(&peer->fds[TCP_DATA]);
        if (peer->fds[TCP_NEWS] >= 0)
            (void)close(take_fd(&peer->fds[TCP_NEWS])); /* both sides close it */
    }
}

static int connect_all(struct nccl_news *news, const struct comm_options *options, struct muster_error *err)
{
    struct tcp_comm tcp = {.star = true};
    comm_init(&tcp.comm, options, NULL);
    (void)snprintf(tcp.address, sizeof tcp.address, "%s", options->address ? options->address : "127.0.0.1");
    tcp.board = (struct comm_board){
        .store = options->store, .key = options->key, .kind = "nccl-news", .rank = options->rank};
    int failed = tcp_allocate(&tcp, false, err) || tcp_meet(&tcp, true, err);
    if (tcp.peers)
        take_connections(news, &tcp);
    tcp_free(&tcp);
    return failed ? -1 : 0;
}

struct nccl_news *nccl_news_open(const struct comm_options *options, struct muster_error *err)
{
    struct nccl_news *news = mem_calloc(1, sizeof *news);
    if (!news || !(news->peers = mem_calloc((size_t)options->size, sizeof *news->peers))) {
        mem_free(news);
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for the news of %d ranks", options->size);
        return NULL;
    }
    (void)pthread_mutex_init(&news->lock, NULL);
    news->rank = options->rank;
    news->size = options->size;
    for (int rank = 0; rank < news->size; rank++) {
        news->peers[rank].fd = -1;
        news->peers[rank].out.limit = OUT_LIMIT;
    }
    if (connect_all(news, options, err)) {
        nccl_news_close(news);
        return NULL;
    }
    return news;
}

void nccl_news_close(struct nccl_news *news)
{
    if (!news)
        return;
    free_peers(news);
    (void)pthread_mutex_destroy(&news->lock);
    mem_free(news);
}

int nccl_news_polls(struct nccl_news *news, struct pollfd *entries)
{
    int count = 0;
    (void)pthread_mutex_lock(&news->lock);
    for (int rank = 0; rank < news->size; rank++) {
        struct news_peer *peer = &news->peers[rank];
        if (peer->fd >= 0)
            entries[count++] =
                (struct pollfd){.fd = peer->fd, .events = (short)(POLLIN | (peer->out.length ? POLLOUT : 0))};
    }
    (void)pthread_mutex_unlock(&news->lock);
    return count;
}

/* ---- sending ---- */

static void flush_peer(struct news_peer *peer)
{
    while (peer->fd >= 0 && peer->out.length) {
        ssize_t sent = send(peer->fd, peer->out.data, peer->out.length, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0) /* full: later; broken: reading will tell */
            return;
        buffer_consume(&peer->out, (size_t)sent);
    }
}

static void news_put(struct news_peer *peer, const struct nccl_note *note)
{
    if (peer->fd < 0)
        return;
    (void)buffer_append(&peer->out, note, sizeof *note); /* a peer with 1 MB of unread notes misses some */
    flush_peer(peer);
}

static void put_all(struct nccl_news *news, const struct nccl_note *note)
{
    for (int rank = 0; rank < news->size; rank++) {
        if (rank != note->rank)
            news_put(&news->peers[rank], note);
    }
}

/* ---- rank 0 ---- */

static void compare_posts(struct nccl_news *news, const struct nccl_note *mine,
                          const struct nccl_news_events *events)
{
    for (int rank = 0; rank < news->size; rank++) {
        const struct nccl_note *theirs = &news->peers[rank].posts[mine->comm];
        if (!theirs->magic || theirs->color != mine->color || theirs->at != mine->at ||
            theirs->chain == mine->chain)
            continue;
        struct nccl_note note = {
            .magic = NOTE_MAGIC, .kind = NOTE_FAILURE, .rank = -1, .comm = mine->comm, .color = mine->color};
        if (comm_fits(&mine->op, &theirs->op))
            (void)error_set(&note.error, MUSTER_E_PEER,
                            "rank %d and rank %d issued different operations in comm %s before #%llu", rank,
                            mine->rank, mine->name, (unsigned long long)mine->at);
        else
            (void)comm_differ(mine->name, (struct comm_issued){rank, theirs->at, &theirs->op},
                              (struct comm_issued){mine->rank, mine->at, &mine->op}, &note.error);
        put_all(news, &note);
        events->hear(events->context, &note);
        return;
    }
}

static void news_answer(struct nccl_news *news, const struct nccl_note *ask,
                        const struct nccl_news_events *events)
{
    struct nccl_note note = *ask;
    note.kind = NOTE_ANSWER;
    note.missing_count = 0;
    for (int rank = 0; rank < news->size; rank++) {
        const struct nccl_note *post = &news->peers[rank].posts[ask->comm];
        if (post->magic && post->color == ask->color && post->issued < ask->issued &&
            note.missing_count < NEWS_MISSING)
            note.missing[note.missing_count++] = rank;
    }
    if (ask->rank == news->rank)
        events->hear(events->context, &note);
    else
        news_put(&news->peers[ask->rank], &note);
}

/* A note that came to rank 0, its own ones included. */
static void news_handle(struct nccl_news *news, const struct nccl_note *note,
                        const struct nccl_news_events *events)
{
    struct news_peer *peer = &news->peers[note->rank];
    bool of_one = note->comm >= 0 && note->comm < NEWS_COMMS;
    switch (note->kind) {
    case NOTE_POST:
        peer->pid = note->pid;
        if (of_one) {
            peer->posts[note->comm] = *note;
            compare_posts(news, note, events);
        }
        break;
    case NOTE_ASK:
        if (of_one)
            news_answer(news, note, events);
        break;
    case NOTE_FAILURE:
    case NOTE_LEFT:
        peer->left |= note->kind == NOTE_LEFT && note->comm < 0;
        if (of_one && note->kind == NOTE_LEFT)
            peer->posts[note->comm] = *note;
        put_all(news, note);
        if (note->rank != news->rank)
            events->hear(events->context, note);
        break;
    default: /* nothing that a rank sends */
        break;
    }
}

/* ---- receiving ---- */

static void ended(struct nccl_news *news, int rank, const struct nccl_news_events *events)
{
    struct news_peer *peer = &news->peers[rank];
    (void)close(peer->fd); /* the other side has */
    peer->fd = -1;
    if (peer->left)
        return;
    peer->left = true;
    const struct nccl_note note = {
        .magic = NOTE_MAGIC, .kind = NOTE_GONE, .rank = rank, .pid = peer->pid, .comm = -1};
    if (news->rank == 0)
        put_all(news, &note);
    events->hear(events->context, &note);
}

static bool is_valid(const struct nccl_news *news, const struct nccl_note *note, int from)
{
    return note->magic == NOTE_MAGIC && note->kind < NOTE_KIND_COUNT && note->rank < news->size &&
           (from == 0 || note->rank == from);
}

static void take_notes(struct nccl_news *news, int from, const struct nccl_news_events *events)
{
    struct news_peer *peer = &news->peers[from];
    while (peer->in.length >= sizeof(struct nccl_note)) {
        struct nccl_note note;
        memcpy(&note, peer->in.data, sizeof note);
        buffer_consume(&peer->in, sizeof note);
        note.name[sizeof note.name - 1] = note.error.text[sizeof note.error.text - 1] = '\0';
        if (!is_valid(news, &note, from))
            continue;
        if (news->rank == 0) {
            news_handle(news, &note, events);
            continue;
        }
        peer->pid = note.rank == 0 && note.pid ? note.pid : peer->pid;
        peer->left |= note.kind == NOTE_LEFT && note.rank == 0 && note.comm < 0;
        if (note.kind != NOTE_POST)
            events->hear(events->context, &note);
    }
}

/* Whether the connection still stands. */
static bool receive(struct news_peer *peer)
{
    for (;;) {
        char *to = buffer_reserve(&peer->in, 4096);
        if (!to)
            return false;
        ssize_t got = recv(peer->fd, to, 4096, MSG_DONTWAIT);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return errno == EAGAIN || errno == EWOULDBLOCK;
        if (got == 0)
            return false;
        peer->in.length += (size_t)got;
    }
}

void nccl_news_serve(struct nccl_news *news, const struct nccl_news_events *events)
{
    (void)pthread_mutex_lock(&news->lock);
    for (int rank = 0; rank < news->size; rank++) {
        struct news_peer *peer = &news->peers[rank];
        if (peer->fd < 0)
            continue;
        bool stands = receive(peer);
        take_notes(news, rank, events);
        if (stands)
            flush_peer(peer);
        else
            ended(news, rank, events);
    }
    (void)pthread_mutex_unlock(&news->lock);
}

void nccl_news_tell(struct nccl_news *news, struct nccl_note *note, const struct nccl_news_events *events)
{
    note->magic = NOTE_MAGIC;
    note->rank = news->rank;
    note->pid = (int32_t)getpid();
    (void)pthread_mutex_lock(&news->lock);
    if (news->rank == 0 && note->kind == NOTE_POST && note->comm < 0)
        put_all(news, note); /* who we are */
    else if (news->rank == 0)
        news_handle(news, note, events);
    else
        news_put(&news->peers[0], note);
    (void)pthread_mutex_unlock(&news->lock);
}
