/* regroup.c - see regroup.h. */
#include "runtime/world/regroup.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/base/clock.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "proto/base/thread.h"
#include "runtime/world/world_internal.h"

enum {
    LINES_BYTES = 64 << 10
}; /* for all lines that are not taken: a round has a few, of 1,024 bytes at most */

struct holder {
    void (*let_go)(void *context);
    void *context;
};

struct regroup {
    int fd, epoll, wake;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* under the lock */
    struct holder holders[REGROUP_HOLDERS];
    int64_t round;      /* this rank is in */
    size_t seen;        /* bytes in the socket that were read */
    _Atomic(bool) told; /* word has come, and no place was taken since; read without the lock, too */
    bool answered;      /* the last word was */
    bool busy;          /* between a place, or regroup_busy, and regroup_ready */
    bool ended;         /* the launcher has gone */
    bool placed;        /* a place has come after the last word */
    size_t place_end;   /* where its line ends, in the socket */
    struct world_place place;
    bool stops;
    char text[LINES_BYTES];
};

/* ---- lines ---- */

bool regroup_is(const char *line, const char *kind)
{
    char text[48];
    (void)snprintf(text, sizeof text, "\"coming\": \"%s\"", kind); /* fits */
    return strstr(line, text) != NULL;
}

static int read_address(const char *line, struct world_place *place, struct muster_error *err)
{
    static const char key[] = "\"master_addr\": \"";
    char host[WORLD_HOST];
    const char *at = strstr(line, key);
    const size_t length = at ? strcspn(at + sizeof key - 1, "\"") : 0;
    if (!length || length >= sizeof host)
        return error_set(err, MUSTER_E_PROTOCOL, "the launcher's line has no address: %.200s", line);
    memcpy(host, at + sizeof key - 1, length);
    host[length] = '\0';
    return world_place_host(place, host, err);
}

int regroup_read_place(const char *line, struct world_place *place, struct muster_error *err)
{
    static const char *const keys[] = {
        "\"round\": ",      "\"restarts\": ",         "\"rank\": ",       "\"world_size\": ",
        "\"local_rank\": ", "\"local_world_size\": ", "\"master_port\": "};
    enum { ROUND, RESTARTS, RANK, SIZE, LOCAL_RANK, LOCAL_SIZE, PORT, COUNT };
    static const int64_t most[COUNT] = {INT64_MAX,       INT64_MAX,       WORLD_RANKS_MAX, WORLD_RANKS_MAX,
                                        WORLD_RANKS_MAX, WORLD_RANKS_MAX, UINT16_MAX};
    int64_t number[COUNT];
    for (int i = 0; i < COUNT; i++) {
        number[i] = notice_number(line, keys[i], -1);
        if (number[i] < 0 || number[i] > most[i])
            return error_set(err, MUSTER_E_PROTOCOL,
                             "the launcher's line has no %s..., or a wrong one: %.200s", keys[i], line);
    }
    if (read_address(line, place, err) < 0)
        return -1;
    place->round = number[ROUND];
    place->restarts = number[RESTARTS];
    place->rank = (int)number[RANK];
    place->size = (int)number[SIZE];
    place->local_rank = (int)number[LOCAL_RANK];
    place->local_size = (int)number[LOCAL_SIZE];
    place->master_port = (uint16_t)number[PORT];
    return 0;
}

/* ---- under the lock ---- */

static void answer(struct regroup *r)
{
    static const char word[] = "held\n";
    if (!r->told || r->answered)
        return;
    for (int i = 0; i < REGROUP_HOLDERS;
         i++) /* also if busy: waits of communicators that are made end, too */
        if (r->holders[i].let_go)
            r->holders[i].let_go(r->holders[i].context);
    if (r->busy)
        return;
    r->answered = true;
    if (send(r->fd, word, sizeof word - 1, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)(sizeof word - 1))
        r->ended = true; /* the launcher does not read: it has gone, or will kill this rank */
}

static void take_word(struct regroup *r, const char *line, size_t end)
{
    struct muster_error ignored = {0};
    if (regroup_is(line, "regroup") && notice_number(line, "\"round\": ", -1) >= r->round) {
        r->told = true;
        r->answered = r->placed = false;
    } else if (r->told && regroup_is(line, "place") && regroup_read_place(line, &r->place, &ignored) == 0) {
        r->placed = true;
        r->place_end = end;
    }
}

/* Reads the lines that are new, and leaves them in the socket. */
static void look_for_word(struct regroup *r)
{
    const ssize_t got = recv(r->fd, r->text, sizeof r->text - 1, MSG_PEEK | MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR))
        r->ended = true;
    const size_t length = got > 0 ? (size_t)got : 0;
    r->text[length] = '\0';
    for (char *line = r->text + r->seen, *end; r->seen < length && (end = strchr(line, '\n'));
         line = end + 1) {
        *end = '\0';
        r->seen = (size_t)(end + 1 - r->text);
        take_word(r, line, r->seen);
    }
    answer(r);
    (void)pthread_cond_broadcast(&r->changed);
}

/* Takes the lines up to the place's out of the socket: they are of rounds that are over. */
static void consume(struct regroup *r)
{
    for (size_t left = r->place_end; left;) {
        const ssize_t got = recv(r->fd, r->text, left, MSG_DONTWAIT);
        if (got <= 0 && errno != EINTR)
            break; /* they were there */
        left -= got > 0 ? (size_t)got : 0;
    }
    r->seen -= r->place_end;
}

/* ---- the thread ---- */

static void *await_word(void *context)
{
    struct regroup *r = context;
    for (;;) {
        struct epoll_event events[2];
        if (epoll_wait(r->epoll, events, 2, -1) < 0 && errno != EINTR)
            return NULL; /* a descriptor was closed under us: without word the launcher restarts this rank */
        (void)pthread_mutex_lock(&r->lock);
        const bool stops = r->stops;
        if (!stops)
            look_for_word(r);
        (void)pthread_mutex_unlock(&r->lock);
        if (stops)
            return NULL;
    }
}

/* ---- the caller's side ---- */

static void regroup_free(struct regroup *r)
{
    if (!r)
        return;
    if (r->epoll >= 0)
        (void)close(r->epoll); /* nothing was written to either */
    if (r->wake >= 0)
        (void)close(r->wake);
    (void)pthread_cond_destroy(&r->changed); /* no thread uses them */
    (void)pthread_mutex_destroy(&r->lock);
    mem_free(r);
}
GUARD_DEFINE(regroup, struct regroup *, regroup_free);

static int add(const struct regroup *r, int fd, uint32_t events, struct muster_error *err)
{
    struct epoll_event event = {.events = events, .data.fd = fd};
    return epoll_ctl(r->epoll, EPOLL_CTL_ADD, fd, &event) < 0
               ? error_errno(err, "cannot wait for the launcher's word: epoll_ctl")
               : 0;
}

static int init(struct regroup *r, struct muster_error *err)
{
    pthread_condattr_t clock;
    r->wake = r->epoll = -1;
    (void)pthread_mutex_init(&r->lock, NULL); /* these cannot fail */
    (void)pthread_condattr_init(&clock);
    (void)pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&r->changed, &clock);
    (void)pthread_condattr_destroy(&clock);
    if ((r->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) < 0)
        return error_errno(err, "cannot wait for the launcher's word: eventfd");
    if ((r->epoll = epoll_create1(EPOLL_CLOEXEC)) < 0)
        return error_errno(err, "cannot wait for the launcher's word: epoll_create1");
    /* each line once: it stays in the socket */
    return add(r, r->fd, EPOLLIN | EPOLLRDHUP | EPOLLET, err) < 0 || add(r, r->wake, EPOLLIN, err) < 0 ? -1
                                                                                                       : 0;
}

static int write_word(const struct regroup *r, const char *word, struct muster_error *err)
{
    return send(r->fd, word, strlen(word), MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)strlen(word)
               ? 0
               : error_errno(err, "the launcher cannot be informed that this rank can stay");
}

int regroup_also(struct regroup *r, enum regroup_case which, struct muster_error *err)
{
    static const char *const words[] = {
        [REGROUP_MOVES] = "moves\n", [REGROUP_RESIZES] = "resize\n", [REGROUP_GROWS] = "grows\n"};
    return write_word(r, words[which], err);
}

int regroup_listen(int64_t round, struct regroup **out, struct muster_error *err)
{
    int fd;
    const int found = notice_find(&fd, err);
    if (found <= 0)
        return found;
    GUARD(guard_regroup) struct regroup *r = mem_calloc(1, sizeof *r);
    if (!r)
        return error_set(err, MUSTER_E_NOMEM, "no memory to wait for the launcher's word");
    r->fd = fd;
    r->round = round;
    if (init(r, err) < 0)
        return -1;
    const int failed = thread_start(&r->thread, 0, await_word, r);
    if (failed)
        return thread_error(err, failed, "the thread that waits for the launcher's word");
    struct regroup *made = take_pointer(&r);
    if (write_word(made, "regroup\n", err) < 0) {
        regroup_end(made);
        return -1;
    }
    *out = made;
    return 1;
}

void regroup_end(struct regroup *r)
{
    if (!r)
        return;
    (void)pthread_mutex_lock(&r->lock);
    r->stops = true;
    (void)pthread_mutex_unlock(&r->lock);
    (void)eventfd_write(r->wake, 1); /* cannot fail: it is 0 */
    (void)pthread_join(r->thread, NULL);
    regroup_free(r);
}

void regroup_lock(struct regroup *r)
{
    if (r)
        (void)pthread_mutex_lock(&r->lock);
}

void regroup_unlock(struct regroup *r)
{
    if (r)
        (void)pthread_mutex_unlock(&r->lock);
}

int regroup_hold(struct regroup *r, void (*let_go)(void *context), void *context, struct muster_error *err)
{
    struct holder *place = NULL;
    regroup_lock(r);
    for (int i = 0; i < REGROUP_HOLDERS && (!place || place->context != context); i++)
        if (r->holders[i].context == context || (!place && !r->holders[i].let_go))
            place = &r->holders[i];
    if (place && (let_go || place->context == context))
        *place = (struct holder){let_go, let_go ? context : NULL};
    if (place && let_go && r->told)
        let_go(context);
    regroup_unlock(r);
    return place || !let_go
               ? 0
               : error_set(err, MUSTER_E_LIMIT, "more than %d trainers and worlds of a rank that can stay",
                           REGROUP_HOLDERS);
}

bool regroup_is_told(void *regroup)
{
    const struct regroup *r = regroup;
    return atomic_load(&r->told);
}

bool regroup_busy(struct regroup *r)
{
    if (!r)
        return true;
    regroup_lock(r);
    const bool before = r->busy;
    r->busy = true;
    regroup_unlock(r);
    return before;
}

void regroup_ready(struct regroup *r)
{
    if (!r)
        return;
    regroup_lock(r);
    r->busy = false;
    answer(r);
    regroup_unlock(r);
}

int regroup_await(struct regroup *r, int64_t wait_ns, struct world_place *place, struct muster_error *err)
{
    const struct instant until = instant_add(clock_now(NULL), wait_ns);
    const struct timespec limit = {until.ns / NS_PER_S, until.ns % NS_PER_S};
    int result = 0;
    regroup_lock(r);
    r->busy = false;
    answer(r);
    if (!r->told && wait_ns > 0) /* the launcher may know no failure: a peer has exited with code 0, say */
        (void)write_word(r, "lost\n", NULL);
    while (!r->told && !r->ended && pthread_cond_timedwait(&r->changed, &r->lock, &limit) != ETIMEDOUT)
        ;
    while (r->told && !r->placed && !r->ended)
        (void)pthread_cond_wait(&r->changed, &r->lock);
    if (r->told && r->placed) {
        consume(r);
        const bool elastic = place->elastic, store = place->agent_store;
        *place = r->place;
        place->elastic = elastic;
        place->agent_store = store;
        r->round = place->round;
        r->told = false;
        r->answered = r->placed = false;
        r->busy = true;
        result = 1;
    } else if (r->told) {
        result = error_set(err, MUSTER_E_PEER, "the launcher has gone while this rank waited for its place");
    }
    regroup_unlock(r);
    return result;
}
