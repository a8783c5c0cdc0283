/* step_worker.c - a worker that behaves as training does towards its launcher, and leaves a record.
 *
 * It finds its peers through the store at MASTER_ADDR:MASTER_PORT, connects to each of them, and then takes
 * steps that no rank can end without all others, as with NCCL or gloo: it hangs where a peer is silent, and
 * dies of a connection error where one is gone. A signal has its default effect.
 *
 * STEP_FOLDER is where its record goes, one file a worker, one line an event: its name, the time in
 * nanoseconds on the machine's monotonic clock, which all nodes of a test share, and what follows.
 *
 *     begin TIME world=ID rank=R size=N round=K restarts=M host=NAME
 *     step TIME N
 *     mixed TIME
 *     end TIME N
 *
 * "begin": all ranks of this world have met; ID is theirs alone. "step": this rank has heard step N, from 0,
 * from every other. "mixed": a peer was of another world, which must never be. "end": the job is done after N
 * steps, with the step in which rank 0 has seen the file STEP_FOLDER/finish. A rank R for which there is
 * STEP_FOLDER/linger.R then stays until that is gone. STEP_MS is the length of a step (default 20). */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/base/buffer.h"
#include "proto/base/clock.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "proto/base/text.h"
#include "rendezvous/tcpstore_client.h"

#define STORE_TIMEOUT (300 * NS_PER_S)

enum { RANK_LIMIT = 1024 };

/* What peers say to each other, first when they meet (step -1), then once a step. */
struct message {
    uint64_t world;
    int64_t step;
    int32_t rank, last;
};

struct worker {
    int rank, size;
    int64_t round, restarts, step_ms;
    const char *folder;
    uint64_t world;
    int record;
    int peers[RANK_LIMIT]; /* connections; -1 for this rank */
};

static int number_of(const char *name, int64_t fallback, int64_t *value, struct muster_error *err)
{
    const char *text = getenv(name);
    *value = fallback;
    if (!text && fallback < 0)
        return error_set(err, MUSTER_E_INVALID, "%s is not set: start this under a launcher", name);
    if (text && (!text_int64(text, value) || *value < 0 || *value > INT32_MAX))
        return error_set(err, MUSTER_E_INVALID, "%s='%s' is not a number from 0", name, text);
    return 0;
}

static void record(const struct worker *w, const char *what, const char *more)
{
    char line[512];
    int n = snprintf(line, sizeof line, "%s %" PRId64 " %s\n", what, clock_now(NULL).ns, more);
    struct muster_error err = {0};
    if (io_write_all(w->record, line, (size_t)n, "the record", &err))
        fprintf(stderr, "step_worker: %s\n", err.text);
}

static int open_record(struct worker *w, struct muster_error *err)
{
    char path[4096];
    if (snprintf(path, sizeof path, "%s/record.XXXXXX", w->folder) >= (int)sizeof path)
        return error_set(err, MUSTER_E_LIMIT, "STEP_FOLDER is too long");
    w->record = mkostemp(path, O_APPEND | O_CLOEXEC);
    return w->record < 0 ? error_errno(err, "cannot make %s", path) : 0;
}

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
    if (fd < 0 || bind(fd, (struct sockaddr *)&any, sizeof any) || listen(fd, RANK_LIMIT) ||
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
    return error_wrap(err, "rank %d lost rank %d in step %" PRId64, w->rank, peer, step);
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
    if (heard->world != w->world || heard->step != step || heard->rank != peer) {
        record(w, "mixed", "");
        return error_set(err, MUSTER_E_PROTOCOL, "rank %d heard of step %" PRId64 " of another world",
                         w->rank, heard->step);
    }
    return 0;
}

static int connect_to(struct worker *w, int peer, struct tcpstore_client *store, struct muster_error *err)
{
    scope_buffer text = {0};
    char key[32];
    snprintf(key, sizeof key, "address/%d", peer);
    if (tcpstore_client_get(store, key, &text, STORE_TIMEOUT, err))
        return -1;
    struct sockaddr_in to;
    if (text.length != sizeof to)
        return error_set(err, MUSTER_E_PROTOCOL, "the address of rank %d has %zu bytes", peer, text.length);
    memcpy(&to, text.data, sizeof to);
    int yes = 1;
    w->peers[peer] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (w->peers[peer] < 0 || connect(w->peers[peer], (struct sockaddr *)&to, sizeof to) ||
        setsockopt(w->peers[peer], IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes))
        return error_errno(err, "rank %d cannot reach rank %d", w->rank, peer);
    return 0;
}

/* One of the higher ranks; it says who it is. */
static int accept_one(struct worker *w, int listener, struct muster_error *err)
{
    struct message hello;
    int yes = 1, fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0)
        return error_errno(err, "accept");
    if (io_read_all(fd, &hello, sizeof hello, "a peer's greeting", err) || hello.world != w->world ||
        hello.rank <= w->rank || hello.rank >= w->size || w->peers[hello.rank] >= 0 ||
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes)) {
        close(fd);
        return error_set(err, MUSTER_E_PROTOCOL, "rank %d was greeted by a stranger", w->rank);
    }
    w->peers[hello.rank] = fd;
    return 0;
}

static int agree_on_world(struct worker *w, struct tcpstore_client *store, struct muster_error *err)
{
    scope_buffer text = {0};
    if (w->rank == 0) {
        if (getrandom(&w->world, sizeof w->world, 0) != sizeof w->world)
            return error_errno(err, "getrandom");
        return tcpstore_client_set(store, "world", &w->world, sizeof w->world, err);
    }
    if (tcpstore_client_get(store, "world", &text, STORE_TIMEOUT, err))
        return -1;
    if (text.length != sizeof w->world)
        return error_set(err, MUSTER_E_PROTOCOL, "the world's id has %zu bytes", text.length);
    memcpy(&w->world, text.data, sizeof w->world);
    return 0;
}

/* Ends when all ranks have met: nobody is alone in a world. */
static int meet(struct worker *w, struct muster_error *err)
{
    const char *master = getenv("MASTER_ADDR");
    int64_t port;
    struct sockaddr_in own;
    char key[32];
    if (!master)
        return error_set(err, MUSTER_E_INVALID, "MASTER_ADDR is not set: start this under a launcher");
    if (number_of("MASTER_PORT", -1, &port, err))
        return -1;
    struct tcpstore_client_options options = {.host = master, .port = (uint16_t)port};
    GUARD(guard_tcpstore_client) struct tcpstore_client *store = tcpstore_client_connect(&options, err);
    if (!store || own_address(master, &own, err))
        return -1;
    scope_close int listener = open_listener(&own, err);
    snprintf(key, sizeof key, "address/%d", w->rank);
    if (listener < 0 || tcpstore_client_set(store, key, &own, sizeof own, err) ||
        agree_on_world(w, store, err))
        return -1;
    struct message hello = {.world = w->world, .step = -1, .rank = w->rank};
    for (int peer = 0; peer < w->rank; peer++) {
        if (connect_to(w, peer, store, err) || send_to(w, peer, &hello, err))
            return -1;
    }
    for (int missing = w->size - 1 - w->rank; missing > 0; missing--) {
        if (accept_one(w, listener, err))
            return -1;
    }
    return tcpstore_client_barrier(store, "met", w->size, STORE_TIMEOUT, err);
}

/* 1 where this was the last step, 0 where not, -1 */
static int step(struct worker *w, int64_t number, struct muster_error *err)
{
    char text[4200];
    snprintf(text, sizeof text, "%s/finish", w->folder);
    struct message ours = {.world = w->world, .step = number, .rank = w->rank}, heard;
    ours.last = w->rank == 0 && access(text, F_OK) == 0;
    int last = ours.last;
    for (int peer = 0; peer < w->size; peer++) {
        if (peer != w->rank && send_to(w, peer, &ours, err))
            return -1;
    }
    for (int peer = 0; peer < w->size; peer++) {
        if (peer == w->rank)
            continue;
        if (hear(w, peer, number, &heard, err))
            return -1;
        last |= heard.last;
    }
    snprintf(text, sizeof text, "%" PRId64, number);
    record(w, "step", text);
    return last;
}

static int linger(const struct worker *w)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/linger.%d", w->folder, w->rank);
    while (access(path, F_OK) == 0)
        clock_sleep_until(instant_add(clock_now(NULL), 20 * NS_PER_MS));
    return 0;
}

static int train(struct worker *w, struct muster_error *err)
{
    char text[512], host[256] = "?";
    (void)gethostname(host, sizeof host - 1); /* "?" says that there is none */
    snprintf(text, sizeof text,
             "world=%016" PRIx64 " rank=%d size=%d round=%" PRId64 " restarts=%" PRId64 " host=%s", w->world,
             w->rank, w->size, w->round, w->restarts, host);
    record(w, "begin", text);
    for (int64_t number = 0;; number++) {
        struct instant end = instant_add(clock_now(NULL), w->step_ms * NS_PER_MS);
        int last = step(w, number, err);
        if (last < 0)
            return -1;
        if (last) {
            snprintf(text, sizeof text, "%" PRId64, number + 1);
            record(w, "end", text);
            return linger(w);
        }
        clock_sleep_until(end);
    }
}

static int run(struct worker *w, struct muster_error *err)
{
    int64_t rank, size;
    w->folder = getenv("STEP_FOLDER");
    if (!w->folder)
        return error_set(err, MUSTER_E_INVALID, "STEP_FOLDER is not set");
    if (number_of("RANK", -1, &rank, err) || number_of("WORLD_SIZE", -1, &size, err) ||
        number_of("MUSTER_ROUND", 0, &w->round, err) ||
        number_of("TORCHELASTIC_RESTART_COUNT", 0, &w->restarts, err) ||
        number_of("STEP_MS", 20, &w->step_ms, err))
        return -1;
    if (size < 1 || size > RANK_LIMIT || rank >= size)
        return error_set(err, MUSTER_E_INVALID, "RANK=%" PRId64 " of WORLD_SIZE=%" PRId64 " (up to %d)", rank,
                         size, RANK_LIMIT);
    w->rank = (int)rank;
    w->size = (int)size;
    return open_record(w, err) || meet(w, err) || train(w, err) ? -1 : 0;
}

int main(void)
{
    struct worker worker = {.record = -1};
    struct muster_error err = {0};
    for (int i = 0; i < RANK_LIMIT; i++)
        worker.peers[i] = -1;
    signal(SIGPIPE, SIG_IGN);
    if (run(&worker, &err)) {
        fprintf(stderr, "step_worker: %s\n", err.text);
        return 1;
    }
    return 0;
}
