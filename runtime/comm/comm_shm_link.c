/* comm_shm_link.c - see comm_shm_internal.h.
 *
 * Every rank listens on a name of its own and publishes it in the store with a token that callers must
 * present. Rank r connects to all lower ranks, then answers all higher ones, then reads the answers of the
 * lower ones: connections wait in the backlog, so no order of start-up can block the others. */
#include "runtime/comm/comm_shm_internal.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "proto/base/buffer.h"
#include "proto/base/error.h"
#include "proto/base/io.h"
#include "proto/base/mem.h"
#include "proto/base/text.h"
#include "runtime/comm/comm_meet.h"
#include "runtime/comm/comm_text.h"

/* First message of a connecting rank. The descriptors of its arenas come with it. */
struct hello {
    char magic[8];
    int32_t rank, size, pid, arena_count;
    int64_t arena_bytes[HOST_ARENAS_MAX];
    char token[32]; /* callers: the token that the listener published */
};
static const char hello_magic[8] = "muster1";
#define GREETING_NS (2 * NS_PER_S) /* limit for a caller that connects and sends nothing */

enum { RANDOM_BYTES = 16, HEX_BYTES = 2 * RANDOM_BYTES };

/* The record that a rank publishes in the store. */
struct address {
    char name[HEX_BYTES], token[HEX_BYTES];
    char boot[40];    /* distinguishes hosts */
    char network[32]; /* distinguishes network namespaces, such as two pods of a host */
    char host[64];    /* for people */
};

struct opening {
    const struct comm_options *options;
    struct host_link *link;
    struct comm_board board;
    struct address address;
};

/* ---- small pieces ---- */

static int random_hex(char out[HEX_BYTES], struct muster_error *err)
{
    static const char digits[] = "0123456789abcdef";
    unsigned char bytes[RANDOM_BYTES];
    ssize_t got;
    do {
        got = getrandom(bytes, sizeof bytes, 0);
    } while (got < 0 && errno == EINTR);
    if (got != (ssize_t)sizeof bytes) /* messages of at most 256 bytes are never split */
        return error_errno(err, "getrandom");
    for (int i = 0; i < HEX_BYTES; i++)
        out[i] = digits[i % 2 ? bytes[i / 2] & 15 : bytes[i / 2] >> 4];
    return 0;
}

/* This boot of this host and our network namespace, outside of which our sockets do not exist; "" if /proc
 * cannot be read, and then hosts cannot be distinguished. */
static void name_host(struct address *address)
{
    scope_buffer boot = {0};
    if (readlink("/proc/self/ns/net", address->network, sizeof address->network - 1) < 0)
        address->network[0] = '\0';
    if (!io_read_file("/proc/sys/kernel/random/boot_id", 256, &boot, NULL) && boot.data)
        (void)snprintf(address->boot, sizeof address->boot, "%s", boot.data); /* an id has 36 characters */
    if (gethostname(address->host, sizeof address->host - 1))
        (void)snprintf(address->host, sizeof address->host, "?"); /* perhaps the name is too long */
}

uint64_t host_link_machine(void)
{
    struct address here = {0};
    name_host(&here);
    uint64_t hash = text_hash(TEXT_HASH_START, here.boot, strlen(here.boot));
    hash = text_hash(hash, here.network, strlen(here.network));
    return here.boot[0] ? hash : text_hash(hash, here.host, strlen(here.host));
}

static socklen_t socket_address(struct sockaddr_un *address, const char *name)
{
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    int length =
        snprintf(address->sun_path + 1, sizeof address->sun_path - 1, "muster-%.*s", HEX_BYTES, name);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

static int send_message(int socket, const void *data, size_t length, const int *fds, int fd_count,
                        const char *what, struct muster_error *err)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int) * HOST_ARENAS_MAX)];
    } control = {0};
    struct iovec part = {.iov_base = (void *)(uintptr_t)data, .iov_len = length};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (fd_count > 0) {
        size_t bytes = sizeof(int) * (size_t)fd_count;
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(bytes);
        *CMSG_FIRSTHDR(&message) =
            (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(bytes)};
        memcpy(CMSG_DATA(CMSG_FIRSTHDR(&message)), fds, bytes);
    }
    for (;;) {
        /* A message is small and atomic; the socket's buffer always has room for the few that are in
         * flight, so this never blocks. */
        if (sendmsg(socket, &message, MSG_NOSIGNAL) == (ssize_t)length)
            return 0;
        if (errno == EINTR)
            continue;
        if (errno == EPIPE || errno == ECONNRESET)
            return error_set(err, MUSTER_E_PEER, "%s: it closed the connection", what);
        return error_errno(err, "%s: sending", what);
    }
}

/* fds has room for HOST_ARENAS_MAX; *fd_count receives how many arrived and are now owned by the caller. */
static int receive_message(const struct kv_store *store, int socket, void *data, size_t length, int *fds,
                           int *fd_count, struct instant deadline, const char *what, struct muster_error *err)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int) * HOST_ARENAS_MAX)];
    } control;
    *fd_count = 0;
    for (;;) {
        if (comm_await_peer(store, &(struct pollfd){.fd = socket, .events = POLLIN}, 1, deadline, what, err))
            return -1;
        struct iovec part = {.iov_base = data, .iov_len = length};
        struct msghdr message = {.msg_iov = &part,
                                 .msg_iovlen = 1,
                                 .msg_control = control.bytes,
                                 .msg_controllen = sizeof control.bytes};
        ssize_t got = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        if (got < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (got == 0 || (got < 0 && errno == ECONNRESET))
            return error_set(err, MUSTER_E_PEER, "%s: it closed the connection", what);
        if (got < 0)
            return error_errno(err, "%s: receiving", what);
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        if (header && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS) {
            *fd_count = (int)((header->cmsg_len - CMSG_LEN(0)) / sizeof(int));
            memcpy(fds, CMSG_DATA(header), sizeof(int) * (size_t)*fd_count);
        }
        if (got == (ssize_t)length && !(message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)))
            return 0;
        for (int i = 0; i < *fd_count; i++)
            (void)close(fds[i]); /* closed together with the message */
        *fd_count = 0;
        return error_set(err, MUSTER_E_PROTOCOL, "%s: a message of %zd bytes in place of %zu", what, got,
                         length);
    }
}

/* ---- greetings ---- */

static void describe_peer(char out[64], int rank)
{
    (void)snprintf(out, 64, "connecting to rank %d", rank);
}

static struct hello our_hello(const struct opening *o, int fds[HOST_ARENAS_MAX], const char *token)
{
    struct hello hello = {.rank = o->options->rank, .size = o->options->size, .pid = (int32_t)getpid()};
    memcpy(hello.magic, hello_magic, sizeof hello.magic);
    memcpy(hello.token, token, sizeof hello.token);
    for (int i = 0; i < o->options->arena_count; i++) {
        fds[hello.arena_count] = o->options->arenas[i].fd;
        hello.arena_bytes[hello.arena_count++] = o->options->arenas[i].bytes;
    }
    return hello;
}

static int send_hello(const struct opening *o, int socket, const char *token, const char *what,
                      struct muster_error *err)
{
    int fds[HOST_ARENAS_MAX];
    const struct hello hello = our_hello(o, fds, token);
    return send_message(socket, &hello, sizeof hello, fds, hello.arena_count, what, err);
}

static int map_arena(struct host_map *map, int fd, int64_t bytes, struct muster_error *err)
{
    struct stat status;
    if (fstat(fd, &status))
        return error_errno(err, "examining a peer's arena");
    if (bytes < 1 || status.st_size < bytes) /* reading beyond the end would be SIGBUS */
        return error_set(err, MUSTER_E_PROTOCOL, "an arena of %lld bytes that is announced as %lld",
                         (long long)status.st_size, (long long)bytes);
    void *base = mmap(NULL, (size_t)bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED)
        return error_errno(err, "mapping %lld bytes of a peer's arena", (long long)bytes);
    (void)madvise(base, (size_t)bytes, MADV_HUGEPAGE); /* small pages do as well */
    *map = (struct host_map){base, bytes};
    return 0;
}

/* The process at the other end of a socket, as a descriptor that becomes readable when it ends: exact even if
 * a child of that process still holds the socket open. */
static void watch_process(struct host_peer *peer)
{
    struct ucred who = {0};
    socklen_t length = sizeof who;
    if (getsockopt(peer->socket, SOL_SOCKET, SO_PEERCRED, &who, &length))
        return; /* then the socket is the only indication */
    peer->pid = who.pid;
    if (who.pid > 0 && who.pid != getpid())
        peer->process = (int)syscall(SYS_pidfd_open, who.pid, 0); /* -1 on an old kernel: see above */
}

/* Adds the peer to the link; its descriptors and the socket are ours in any case. */
static int accept_hello(struct opening *o, const struct hello *hello, int socket, const int *fds,
                        int fd_count, struct muster_error *err)
{
    struct host_peer *peer = &o->link->peers[hello->rank];
    peer->socket = socket;
    watch_process(peer);
    int failed = 0;
    if (hello->arena_count != fd_count)
        failed = error_set(err, MUSTER_E_PROTOCOL, "rank %d announces %d arenas but sends %d", hello->rank,
                           hello->arena_count, fd_count);
    for (int i = 0; i < fd_count; i++) {
        if (!failed)
            failed = map_arena(&peer->arenas[i], fds[i], hello->arena_bytes[i], err);
        if (!failed)
            peer->arena_count = i + 1;
        (void)close(fds[i]); /* the mapping stays */
    }
    return failed;
}

/* ---- opening ---- */

static int listen_on(struct opening *o, struct muster_error *err)
{
    struct sockaddr_un address;
    name_host(&o->address);
    if (random_hex(o->address.name, err) || random_hex(o->address.token, err))
        return -1;
    scope_close int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return error_errno(err, "a Unix socket");
    socklen_t length = socket_address(&address, o->address.name);
    if (bind(fd, (struct sockaddr *)&address, length) || listen(fd, o->options->size + 16))
        return error_errno(err, "listening on an abstract Unix socket");
    return take_fd(&fd);
}

/* A rank's address from the store. */
static int look_up(struct opening *o, int rank, struct address *address, struct muster_error *err)
{
    if (comm_board_get(&o->board, "at", rank, "has not published its address", address, sizeof *address, err))
        return -1;
    if (memcmp(address->boot, o->address.boot, sizeof address->boot) != 0 ||
        memcmp(address->network, o->address.network, sizeof address->network) != 0)
        return error_set(err, MUSTER_E_UNSUPPORTED,
                         "rank %d runs on host %.63s and rank %d on host %s or in another container, so they "
                         "cannot share memory; set LOCAL_WORLD_SIZE to the number of ranks of each node",
                         rank, address->host, o->options->rank, o->address.host);
    return 0;
}

static bool is_our_user(int socket)
{
    struct ucred who = {0};
    socklen_t length = sizeof who;
    return !getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &who, &length) && who.uid == geteuid();
}

static int call(struct opening *o, int rank, struct muster_error *err)
{
    char what[64];
    struct address theirs;
    struct sockaddr_un address;
    describe_peer(what, rank);
    if (look_up(o, rank, &theirs, err))
        return -1;
    scope_close int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return error_errno(err, "a Unix socket");
    socklen_t length = socket_address(&address, theirs.name);
    while (connect(fd, (struct sockaddr *)&address, length)) {
        if (errno == ECONNREFUSED)
            return error_set(err, MUSTER_E_PEER, "%s: connection refused; the rank has ended", what);
        if (errno != EINTR)
            return error_errno(err, "%s", what);
    }
    if (!is_our_user(fd)) /* any user can take an abstract name that is free */
        return error_set(err, MUSTER_E_PEER, "%s: another user listens at its address; the rank has ended",
                         what);
    if (send_hello(o, fd, theirs.token, what, err))
        return -1;
    o->link->peers[rank].socket = take_fd(&fd);
    return 0;
}

/* The answer of a rank that we connected to. */
static int hear(struct opening *o, int rank, struct muster_error *err)
{
    struct hello hello;
    char what[64];
    int fds[HOST_ARENAS_MAX], fd_count, socket = o->link->peers[rank].socket;
    describe_peer(what, rank);
    if (receive_message(o->board.store, socket, &hello, sizeof hello, fds, &fd_count, o->board.deadline, what,
                        err))
        return -1;
    if (!memcmp(hello.magic, hello_magic, sizeof hello.magic) && hello.rank == rank &&
        hello.size == o->options->size)
        return accept_hello(o, &hello, socket, fds, fd_count, err);
    for (int i = 0; i < fd_count; i++)
        (void)close(fds[i]); /* not wanted */
    return error_set(
        err, MUSTER_E_PROTOCOL,
        "%s: it reports rank %d of %d, expected rank %d of %d; do all ranks run the same version?", what,
        hello.rank, hello.size, rank, o->options->size);
}

/* Whether a caller is a rank of ours: same user, right token, a rank that has not connected yet. */
static bool call_is_ours(const struct opening *o, int socket, const struct hello *hello)
{
    return is_our_user(socket) && !memcmp(hello->magic, hello_magic, sizeof hello->magic) &&
           !memcmp(hello->token, o->address.token, sizeof hello->token) && hello->size == o->options->size &&
           hello->rank > o->options->rank && hello->rank < o->options->size &&
           o->link->peers[hello->rank].socket < 0;
}

/* Accepts one connection; *taken: it is a rank of ours. */
static int answer(struct opening *o, int listener, bool *taken, struct muster_error *err)
{
    *taken = false;
    struct pollfd entry = {.fd = listener, .events = POLLIN};
    if (comm_await_peer(o->board.store, &entry, 1, o->board.deadline, "waiting for higher ranks", err))
        return -1;
    scope_close int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0) {
        bool again = errno == EINTR || errno == EAGAIN || errno == ECONNABORTED;
        return again ? 0 : error_errno(err, "accepting a rank");
    }
    struct hello hello;
    int fds[HOST_ARENAS_MAX], fd_count;
    struct instant limit = instant_min(o->board.deadline, instant_add(clock_now(NULL), GREETING_NS));
    if (receive_message(o->board.store, fd, &hello, sizeof hello, fds, &fd_count, limit, "a caller", NULL))
        return 0; /* unauthenticated peer; our own ranks reconnect only by starting again */
    if (!call_is_ours(o, fd, &hello)) {
        for (int i = 0; i < fd_count; i++)
            (void)close(fds[i]); /* not wanted */
        return 0;
    }
    char what[64];
    describe_peer(what, hello.rank);
    *taken = true;
    int socket = take_fd(&fd);
    if (accept_hello(o, &hello, socket, fds, fd_count, err))
        return -1;
    return send_hello(o, socket, hello.token, what, err);
}

static int name_missing(const struct opening *o, struct muster_error *err)
{
    struct comm_ranks ranks = {0};
    for (int rank = o->options->rank + 1; rank < o->options->size; rank++) {
        if (o->link->peers[rank].socket < 0)
            comm_ranks_add(&ranks, rank);
    }
    return error_wrap(err, "rank %s has not connected to rank %d", comm_ranks_text(&ranks), o->options->rank);
}

static int meet(struct opening *o, int listener, struct muster_error *err)
{
    int rank = o->options->rank, size = o->options->size;
    if (comm_board_open(&o->board, err) ||
        comm_board_put(&o->board, "at", &o->address, sizeof o->address, err))
        return error_wrap(err, "publishing the address of rank %d", rank);
    for (int peer = 0; peer < rank; peer++) {
        if (call(o, peer, err))
            return -1;
    }
    for (int missing = size - rank - 1; missing > 0;) {
        bool taken;
        if (answer(o, listener, &taken, err))
            return err && err->code == MUSTER_E_TIMEOUT ? name_missing(o, err) : -1;
        missing -= taken;
    }
    for (int peer = 0; peer < rank; peer++) {
        if (hear(o, peer, err))
            return -1;
    }
    return 0;
}

static int check_arenas(const struct comm_options *options, struct muster_error *err)
{
    if (options->arena_count < 0 || options->arena_count > HOST_ARENAS_MAX)
        return error_set(err, MUSTER_E_LIMIT, "%d arenas for a host comm, which takes at most %d",
                         options->arena_count, HOST_ARENAS_MAX);
    for (int i = 0; i < options->arena_count; i++) {
        if (options->arenas[i].memory != MEMORY_COMM || options->arenas[i].fd < 0)
            return error_set(err, MUSTER_E_INVALID,
                             "arena %d of a host comm is %s memory without a descriptor; only comm memory of "
                             "the cpu device can be read by other ranks",
                             i, memory_class_name(options->arenas[i].memory));
    }
    return 0;
}

static struct host_link *link_allocate(const struct comm_options *options, struct muster_error *err)
{
    struct host_link *link = mem_calloc(1, sizeof *link + (size_t)options->size * sizeof(struct host_peer));
    if (!link) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for %d ranks", options->size);
        return NULL;
    }
    atomic_store(&link->references, 1);
    link->rank = options->rank;
    link->size = options->size;
    for (int i = 0; i < options->size; i++)
        link->peers[i].socket = link->peers[i].process = -1;
    struct host_peer *me = &link->peers[options->rank];
    me->pid = getpid();
    for (int i = 0; i < options->arena_count; i++)
        me->arenas[me->arena_count++] = (struct host_map){options->arenas[i].base, options->arenas[i].bytes};
    return link;
}

struct host_link *host_link_create(const struct comm_options *options, struct muster_error *err)
{
    struct muster_error own; /* the code decides the text */
    if (!err)
        err = &own;
    if (check_arenas(options, err))
        return NULL;
    GUARD(guard_host_link) struct host_link *link = link_allocate(options, err);
    if (!link || options->size == 1)
        return take_pointer(&link);
    struct opening o = {.options = options,
                        .link = link,
                        .board = {.store = options->store,
                                  .key = options->key,
                                  .kind = "host",
                                  .rank = options->rank,
                                  .deadline = instant_add(clock_now(NULL), options->timeout_ns)}};
    scope_close int listener = listen_on(&o, err);
    if (listener < 0 || meet(&o, listener, err))
        return NULL;
    return take_pointer(&link);
}

struct host_link *host_link_keep(struct host_link *link)
{
    atomic_fetch_add(&link->references, 1);
    return link;
}

void host_link_drop(struct host_link *link)
{
    if (!link || atomic_fetch_sub(&link->references, 1) > 1)
        return;
    for (int i = 0; i < link->size; i++) {
        struct host_peer *peer = &link->peers[i];
        if (peer->socket >= 0)
            (void)close(peer->socket); /* no call is in progress */
        if (peer->process >= 0)
            (void)close(peer->process); /* read-only */
        for (int k = 0; i != link->rank && k < peer->arena_count; k++)
            (void)munmap(peer->arenas[k].base, (size_t)peer->arenas[k].bytes); /* whole mappings of ours */
    }
    mem_free(link);
}

/* ---- later ---- */

int host_link_send(struct host_link *link, int peer, const void *data, size_t length, int fd,
                   struct muster_error *err)
{
    char what[64];
    describe_peer(what, peer);
    return send_message(link->peers[peer].socket, data, length, &fd, fd >= 0, what, err);
}

int host_link_receive(struct host_link *link, int peer, void *data, size_t length, int *fd,
                      struct instant deadline, struct muster_error *err)
{
    char what[64];
    int fds[HOST_ARENAS_MAX], count;
    describe_peer(what, peer);
    if (receive_message(NULL, link->peers[peer].socket, data, length, fds, &count, deadline, what, err))
        return -1;
    int wanted = fd ? 1 : 0;
    for (int i = wanted; i < count; i++)
        (void)close(fds[i]); /* not wanted */
    if (fd)
        *fd = count ? fds[0] : -1;
    return 0;
}

bool host_link_gone(const struct host_link *link, int peer)
{
    const struct host_peer *p = &link->peers[peer];
    struct pollfd entries[] = {{.fd = p->socket, .events = POLLRDHUP}, {.fd = p->process, .events = POLLIN}};
    if (poll(entries, 2, 0) <= 0) /* negative descriptors are skipped */
        return false;
    return (entries[0].revents & (POLLHUP | POLLERR | POLLRDHUP)) || (entries[1].revents & POLLIN);
}

void host_link_place(const struct host_link *link, const void *data, int64_t bytes, struct host_place *place)
{
    const struct host_peer *me = &link->peers[link->rank];
    *place = (struct host_place){.arena = -1};
    for (int i = 0; i < me->arena_count; i++) {
        uintptr_t base = (uintptr_t)me->arenas[i].base, at = (uintptr_t)data;
        if (at >= base && at - base <= (uintptr_t)me->arenas[i].bytes &&
            bytes <= me->arenas[i].bytes - (int64_t)(at - base)) {
            *place = (struct host_place){.arena = i, .offset = (int64_t)(at - base)};
            return;
        }
    }
}

const char *host_link_at(const struct host_link *link, int peer, const struct host_place *place,
                         int64_t bytes)
{
    const struct host_peer *p = &link->peers[peer];
    if (place->arena < 0 || place->arena >= p->arena_count || place->offset < 0 ||
        place->offset > p->arenas[place->arena].bytes ||
        bytes > p->arenas[place->arena].bytes - place->offset)
        return NULL;
    return p->arenas[place->arena].base + place->offset;
}
