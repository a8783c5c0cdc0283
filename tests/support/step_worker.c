/* step_worker.c - a worker that behaves as training does towards its launcher, and leaves a record
 * (step_record.h).
 *
 * It finds its peers through the store at MASTER_ADDR:MASTER_PORT, connects to each of them, and then takes
 * steps that no rank can end without all others, as with NCCL or gloo: it hangs where a peer is silent, and
 * dies of a connection error where one is gone. A signal has its default effect.
 *
 * "begin" is recorded when all ranks of this world have met, "step" when this rank has heard the step from
 * every other. The job is done with the step in which rank 0 has seen the file STEP_FOLDER/finish. A rank R
 * for which there is STEP_FOLDER/linger.R then stays until that is gone. */
#include <errno.h>
#include <inttypes.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/base/buffer.h"
#include "proto/base/clock.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "tests/support/step_record.h"

/* What peers say to each other, first when they meet (step -1), then once a step. */
struct message {
    uint64_t world;
    int64_t step;
    int32_t rank, last;
};

struct worker {
    struct step_record record;
    int peers[STEP_RANK_LIMIT]; /* connections; -1 for this rank */
};

/* A name or numeric address, IPv4. */
static int resolve(const char *host, uint16_t port, struct sockaddr_in *address, struct muster_error *err)
{
    struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *found;
    int failed = getaddrinfo(host, NULL, &hints, &found);
    if (failed)
        return error_set(err, MUSTER_E_IO, "%s: %s", host, gai_strerror(failed));
    memcpy(address, found->ai_addr, sizeof *address);
    address->sin_port = htons(port);
    freeaddrinfo(found);
    return 0;
}

/* The address of ours by which the master is reached. */
static int own_address(const char *master, struct sockaddr_in *own, struct muster_error *err)
{
    struct sockaddr_in to;
    socklen_t length = sizeof *own;
    scope_close int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (resolve(master, 9, &to, err))
        return -1;
    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to) ||
        getsockname(fd, (struct sockaddr *)own, &length))
        return error_errno(err, "no way to %s", master);
    return 0;
}

static int open_listener(struct sockaddr_in *own, struct muster_error *err)
{
    struct sockaddr_in any = {.sin_family = AF_INET};
    socklen_t length = sizeof any;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&any, sizeof any) || listen(fd, STEP_RANK_LIMIT) ||
        getsockname(fd, (struct sockaddr *)&any, &length)) {
        error_errno(err, "cannot listen");
        if (fd >= 0)
            close(fd);
        return -1;
    }
    own->sin_port = any.sin_port;
    return fd;
}

static int lost(const struct worker *w, int peer, int64_t step, struct muster_error *err)
{
    if (errno == 0)
        error_set(err, MUSTER_E_PEER, "Connection closed by peer");
    return error_wrap(err, "rank %d lost rank %d in step %" PRId64, w->record.rank, peer, step);
}

static int send_to(const struct worker *w, int peer, const struct message *message, struct muster_error *err)
{
    if (io_write_all(w->peers[peer], message, sizeof *message, "to a peer", err))
        return lost(w, peer, message->step, err);
    return 0;
}

static int hear(const struct worker *w, int peer, int64_t step, struct message *heard,
                struct muster_error *err)
{
    errno = 0; /* stays so where the connection was closed in order */
    if (io_read_all(w->peers[peer], heard, sizeof *heard, "from a peer", err))
        return lost(w, peer, step, err);
    if (heard->world != w->record.world || heard->step != step || heard->rank != peer) {
        step_record_mixed(&w->record);
        return error_set(err, MUSTER_E_PROTOCOL, "rank %d heard of step %" PRId64 " of another world",
                         w->record.rank, heard->step);
    }
    return 0;
}

static int connect_to(struct worker *w, int peer, struct tcpstore_client *store, struct muster_error *err)
{
    scope_buffer text = {0};
    char key[32];
    snprintf(key, sizeof key, "address/%d", peer);
    if (tcpstore_client_get(store, key, &text, STEP_STORE_TIMEOUT, err))
        return -1;
    struct sockaddr_in to;
    if (text.length != sizeof to)
        return error_set(err, MUSTER_E_PROTOCOL, "the address of rank %d has %zu bytes", peer, text.length);
    memcpy(&to, text.data, sizeof to);
    int yes = 1;
    w->peers[peer] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (w->peers[peer] < 0 || connect(w->peers[peer], (struct sockaddr *)&to, sizeof to) ||
        setsockopt(w->peers[peer], IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes))
        return error_errno(err, "rank %d cannot reach rank %d", w->record.rank, peer);
    return 0;
}

/* Accepts a higher rank, which sends its number. */
static int accept_one(struct worker *w, int listener, struct muster_error *err)
{
    struct message hello;
    int yes = 1, fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0)
        return error_errno(err, "accept");
    if (io_read_all(fd, &hello, sizeof hello, "a peer's greeting", err) || hello.world != w->record.world ||
        hello.rank <= w->record.rank || hello.rank >= w->record.size || w->peers[hello.rank] >= 0 ||
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes)) {
        close(fd);
        return error_set(err, MUSTER_E_PROTOCOL, "rank %d was greeted by an unknown peer", w->record.rank);
    }
    w->peers[hello.rank] = fd;
    return 0;
}

/* Ends when all ranks have met: nobody is alone in a world. */
static int meet(struct worker *w, struct muster_error *err)
{
    const struct step_record *r = &w->record;
    struct sockaddr_in own;
    char key[32];
    GUARD(guard_tcpstore_client) struct tcpstore_client *store = step_record_store(err);
    if (!store || own_address(getenv("MASTER_ADDR"), &own, err))
        return -1;
    scope_close int listener = open_listener(&own, err);
    snprintf(key, sizeof key, "address/%d", r->rank);
    if (listener < 0 || tcpstore_client_set(store, key, &own, sizeof own, err) ||
        step_record_agree(&w->record, store, err))
        return -1;
    struct message hello = {.world = r->world, .step = -1, .rank = r->rank};
    for (int peer = 0; peer < r->rank; peer++) {
        if (connect_to(w, peer, store, err) || send_to(w, peer, &hello, err))
            return -1;
    }
    for (int missing = r->size - 1 - r->rank; missing > 0; missing--) {
        if (accept_one(w, listener, err))
            return -1;
    }
    return tcpstore_client_barrier(store, "met", r->size, STEP_STORE_TIMEOUT, err);
}

/* 1 where this was the last step, 0 where not, -1 */
static int step(struct worker *w, int64_t number, struct muster_error *err)
{
    const struct step_record *r = &w->record;
    struct message ours = {.world = r->world, .step = number, .rank = r->rank}, heard;
    ours.last = r->rank == 0 && step_record_told(r, "finish");
    int last = ours.last;
    for (int peer = 0; peer < r->size; peer++) {
        if (peer != r->rank && send_to(w, peer, &ours, err))
            return -1;
    }
    for (int peer = 0; peer < r->size; peer++) {
        if (peer == r->rank)
            continue;
        if (hear(w, peer, number, &heard, err))
            return -1;
        last |= heard.last;
    }
    step_record_count(r, "step", number, clock_now(NULL));
    return last;
}

static int linger(const struct worker *w)
{
    char name[32];
    snprintf(name, sizeof name, "linger.%d", w->record.rank);
    while (step_record_told(&w->record, name))
        clock_sleep_until(instant_add(clock_now(NULL), 20 * NS_PER_MS));
    return 0;
}

static int train(struct worker *w, struct muster_error *err)
{
    step_record_begin(&w->record);
    for (int64_t number = 0;; number++) {
        struct instant end = instant_add(clock_now(NULL), w->record.step_ms * NS_PER_MS);
        int last = step(w, number, err);
        if (last < 0)
            return -1;
        if (last) {
            step_record_count(&w->record, "end", number + 1, clock_now(NULL));
            return linger(w);
        }
        clock_sleep_until(end);
    }
}

static int run(struct worker *w, struct muster_error *err)
{
    return step_record_open(&w->record, err) || meet(w, err) || train(w, err) ? -1 : 0;
}

int main(void)
{
    struct worker worker = {.record = {.fd = -1}};
    struct muster_error err = {0};
    for (int i = 0; i < STEP_RANK_LIMIT; i++)
        worker.peers[i] = -1;
    signal(SIGPIPE, SIG_IGN);
    if (run(&worker, &err)) {
        fprintf(stderr, "step_worker: %s\n", err.text);
        return 1;
    }
    return 0;
}
