/* comm_tcp_answer.c - being called: takes the connections of higher ranks and drops those of unknown peers.
 * See comm_tcp_internal.h.
 *
 * Connections wait in the backlog, so no order of start-up can block the others. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "runtime/comm/comm_tcp_internal.h"

enum { UNKNOWN_MAX = 32 };
/* Limit for a caller that connects and sends nothing. Our ranks send at once, but TCP may have to
 * retransmit their first bytes more than once. */
#define GREETING_NS (20 * NS_PER_S)
/* And how long it keeps its place if others wait for one. */
#define PLACE_NS (1 * NS_PER_S)

/* A connection that has not identified itself yet. */
struct caller {
    int fd;
    struct instant since;
};

struct tcp_callers {
    struct tcp_comm *tcp;
    const struct tcp_run *run; /* NULL while the comm is made */
    struct instant deadline;
    /* Oldest first. There is a place for every connection that is expected, so those never compete with each
     * other, and some for unknown peers. */
    struct caller *list;
    int count, places;
    struct pollfd *entries; /* [1 + places]: the listener, callers */
};

/* ---- greetings ---- */

static int set_option(int fd, int level, int name, int value, struct muster_error *err)
{
    return setsockopt(fd, level, name, &value, sizeof value)
               ? error_errno(err, "setting socket option %d", name)
               : 0;
}

/* A node that dies silently is detected within a minute while we wait for it. */
int tcp_prepare_socket(int fd, enum tcp_role role, struct muster_error *err)
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

int tcp_send_hello(int fd, const struct tcp_hello *hello, const char *what, struct muster_error *err)
{
    /* The first bytes of a connection: there is room. */
    if (send(fd, hello, sizeof *hello, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)sizeof *hello)
        return 0;
    return errno == EPIPE || errno == ECONNRESET
               ? error_set(err, MUSTER_E_PEER, "%s: it closed the connection", what)
               : error_errno(err, "%s: sending", what);
}

struct tcp_hello tcp_hello_of(const struct tcp_comm *tcp, const unsigned char *token, int role)
{
    struct tcp_hello hello = {
        .magic = TCP_HELLO_MAGIC, .rank = tcp->comm.rank, .size = tcp->comm.size, .role = role};
    memcpy(hello.token, token, sizeof hello.token);
    return hello;
}

/* ---- callers ---- */

static bool is_complete(const struct tcp_comm *tcp, int rank)
{
    return tcp->peers[rank].fds[TCP_DATA] >= 0 && tcp->peers[rank].fds[TCP_NEWS] >= 0;
}

static int expected(const struct tcp_comm *tcp)
{
    int count = 0;
    for (int i = 0; i < tcp->link_count; i++)
        count += tcp->links[i] > tcp->comm.rank && !is_complete(tcp, tcp->links[i]);
    return count;
}

static void forget_caller(struct tcp_callers *c, int i)
{
    --c->count;
    memmove(c->list + i, c->list + i + 1, (size_t)(c->count - i) * sizeof *c->list);
}

static void drop_caller(struct tcp_callers *c, int i)
{
    (void)close(c->list[i].fd); /* an unknown peer */
    forget_caller(c, i);
}

static struct instant caller_limit(const struct tcp_callers *c, int i)
{
    return instant_add(c->list[i].since, GREETING_NS);
}

/* Whether all places are taken, and by callers that may keep them until *until. */
static bool places_are_kept(const struct tcp_callers *c, struct instant *until)
{
    *until = instant_add(c->list[0].since, PLACE_NS);
    return c->count == c->places && !instant_reached(clock_now(NULL), *until);
}

/* As many as there are places; the others wait in the backlog until these are checked. */
static void accept_callers(struct tcp_callers *c)
{
    if (c->count == c->places)
        drop_caller(c, 0); /* an unknown peer: ours speaks as soon as it runs */
    while (c->count < c->places) {
        int fd = accept4(c->tcp->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0)
            return; /* no connection pending, or it is closed again; if descriptors have run out the callers
                       wait */
        c->list[c->count++] = (struct caller){fd, clock_now(NULL)};
    }
}

/* Whether a caller is a rank of ours: right token, a rank that has not connected yet. */
static bool caller_is_ours(const struct tcp_comm *tcp, const struct tcp_hello *hello)
{
    return hello->magic == TCP_HELLO_MAGIC && !memcmp(hello->token, tcp->mine.token, sizeof hello->token) &&
           hello->size == tcp->comm.size && hello->rank > tcp->comm.rank && hello->rank < tcp->comm.size &&
           hello->role >= 0 && hello->role < TCP_ROLE_COUNT && tcp->peers[hello->rank].fds[hello->role] < 0;
}

static int take_caller(struct tcp_callers *c, int i, const struct tcp_hello *hello, struct muster_error *err)
{
    struct tcp_comm *tcp = c->tcp;
    struct tcp_hello answer = tcp_hello_of(tcp, hello->token, hello->role);
    char what[64];
    int fd = c->list[i].fd;
    (void)snprintf(what, sizeof what, "connecting to rank %d", hello->rank);
    (void)recv(fd, &(struct tcp_hello){0}, sizeof *hello, MSG_DONTWAIT); /* it was looked at */
    tcp->peers[hello->rank].fds[hello->role] = fd;
    forget_caller(c, i);
    if (tcp_prepare_socket(fd, (enum tcp_role)hello->role, err) || tcp_send_hello(fd, &answer, what, err))
        return -1;
    return tcp->watch >= 0 && is_complete(tcp, hello->rank) ? tcp_watch(tcp, hello->rank, err) : 0;
}

/* Checks a caller: it stays while its hello is incomplete, becomes a peer, or is dropped. */
static int look_at(struct tcp_callers *c, int i, struct muster_error *err)
{
    struct tcp_hello hello;
    ssize_t got = recv(c->list[i].fd, &hello, sizeof hello, MSG_PEEK | MSG_DONTWAIT);
    bool waits = (got < 0 && (errno == EAGAIN || errno == EINTR)) || (got > 0 && got < (ssize_t)sizeof hello);
    if (waits && !instant_reached(clock_now(NULL), caller_limit(c, i)))
        return 0;
    if (got == (ssize_t)sizeof hello && caller_is_ours(c->tcp, &hello))
        return take_caller(c, i, &hello, err);
    drop_caller(c, i);
    return 0;
}

static int name_missing(const struct tcp_callers *c, int wanted, struct muster_error *err)
{
    const struct tcp_comm *tcp = c->tcp;
    struct comm_ranks ranks = {0};
    for (int rank = tcp->comm.rank + 1; rank < tcp->comm.size; rank++) {
        bool linked = rank == wanted;
        for (int i = 0; i < tcp->link_count; i++)
            linked = linked || tcp->links[i] == rank;
        if (linked && !is_complete(tcp, rank))
            comm_ranks_add(&ranks, rank);
    }
    return error_wrap(err, "rank %s has not connected to rank %d", comm_ranks_text(&ranks), tcp->comm.rank);
}

int tcp_await(const struct tcp_comm *tcp, const struct tcp_run *run, struct pollfd *entries, int count,
              struct instant deadline, const char *what, struct muster_error *err)
{
    if (!run)
        return comm_await_peer(tcp->board.store, entries, count, deadline, what, err);
    for (;;) {
        struct muster_error late = {0};
        struct instant slice = instant_min(deadline, instant_add(clock_now(NULL), COMM_SLICE_NS));
        if (!comm_await(entries, count, slice, what, &late))
            return 0;
        if (tcp_interrupted(run, err))
            return -1;
        if (late.code == MUSTER_E_TIMEOUT && !instant_reached(clock_now(NULL), deadline))
            continue;
        if (err)
            *err = late;
        return -1;
    }
}

/* Waits until a caller speaks, its time is over, or the next one can be accepted. */
static int await_callers(struct tcp_callers *c, int wanted, struct muster_error *err)
{
    struct instant limit = c->deadline, until;
    bool kept = places_are_kept(c, &until);
    if (kept)
        limit = instant_min(limit, until);
    c->entries[0] = (struct pollfd){.fd = kept ? -1 : c->tcp->listener, .events = POLLIN};
    for (int i = 0; i < c->count; i++) {
        c->entries[1 + i] = (struct pollfd){.fd = c->list[i].fd, .events = POLLIN};
        limit = instant_min(limit, caller_limit(c, i));
    }
    struct muster_error late = {0};
    if (!tcp_await(c->tcp, c->run, c->entries, 1 + c->count, limit, "waiting for higher ranks", &late) ||
        (late.code == MUSTER_E_TIMEOUT && !instant_reached(clock_now(NULL), c->deadline)))
        return 0;
    if (err)
        *err = late;
    return late.code == MUSTER_E_TIMEOUT ? name_missing(c, wanted, err) : -1;
}

static int answer_all(struct tcp_callers *c, int wanted, struct muster_error *err)
{
    while (wanted >= 0 ? !is_complete(c->tcp, wanted) : expected(c->tcp) > 0) {
        if (await_callers(c, wanted, err))
            return -1;
        for (int i = c->count - 1; i >= 0; i--) {
            if (look_at(c, i, err))
                return -1;
        }
        if (c->entries[0].revents)
            accept_callers(c);
    }
    return 0;
}

static void close_callers(struct tcp_callers *c)
{
    while (c->count)
        drop_caller(c, 0);
    mem_free(c->list);
    mem_free(c->entries);
    *c = (struct tcp_callers){0};
}

static int make_places(struct tcp_callers *c, int connections, struct muster_error *err)
{
    c->places = TCP_ROLE_COUNT * connections + UNKNOWN_MAX;
    c->list = mem_calloc((size_t)c->places, sizeof *c->list);
    c->entries = mem_calloc((size_t)c->places + 1, sizeof *c->entries);
    return c->list && c->entries ? 0 : error_set(err, MUSTER_E_NOMEM, "no memory for %d callers", c->places);
}

int tcp_answer_links(struct tcp_comm *tcp, struct muster_error *err)
{
    struct tcp_callers c = {.tcp = tcp, .deadline = tcp->board.deadline};
    int failed = make_places(&c, expected(tcp), err) || answer_all(&c, -1, err);
    close_callers(&c);
    return failed ? -1 : 0;
}

/* Callers that have not spoken are kept: another rank of ours may be among them. */
int tcp_answer_one(const struct tcp_run *run, int rank, struct instant deadline, struct muster_error *err)
{
    struct tcp_comm *tcp = run->tcp;
    struct tcp_callers *c = tcp->callers;
    if (!c) {
        tcp->callers = c = mem_calloc(1, sizeof *c);
        if (!c || make_places(c, tcp->comm.size, err)) {
            tcp_forget_callers(tcp);
            return error_set(err, MUSTER_E_NOMEM, "no memory for the callers of comm %s", tcp->comm.name);
        }
        c->tcp = tcp;
    }
    c->run = run;
    c->deadline = deadline;
    return answer_all(c, rank, err);
}

void tcp_forget_callers(struct tcp_comm *tcp)
{
    if (tcp->callers)
        close_callers(tcp->callers);
    mem_free(tcp->callers);
    tcp->callers = NULL;
}
