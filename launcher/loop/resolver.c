/* resolver.c - see resolver.h. The thread and its starter share the object by a count of two; the last one
 * out frees it. */
#include "launcher/loop/resolver.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "proto/base/thread.h"

enum { FIRST_PAUSE_MS = 250, LONGEST_PAUSE_MS = 4000 };

struct resolver {
    int references; /* atomic */
    int done_fd;    /* the outcome is there */
    int cancel_fd;  /* nobody waits any more */
    struct instant deadline;
    char *host;
    /* written by the thread before done_fd */
    char addresses[RESOLVER_ADDRESSES_KEPT][RESOLVER_ADDRESS_LIMIT];
    int count;
    int failure;  /* of getaddrinfo; 0: there is an address */
    int troubled; /* atomic: failure of the last attempt that is over; 0: there is none yet */
};

static void release(struct resolver *r)
{
    if (__atomic_sub_fetch(&r->references, 1, __ATOMIC_ACQ_REL))
        return;
    if (r->done_fd >= 0)
        (void)close(r->done_fd);
    if (r->cancel_fd >= 0)
        (void)close(r->cancel_fd);
    mem_free(r->host);
    mem_free(r);
}

static void raise_fd(int fd)
{
    uint64_t one = 1;
    ssize_t done = write(fd, &one, sizeof one);
    (void)done; /* an eventfd that refuses is readable already */
}

static int keep(struct resolver *r, const struct addrinfo *list, bool four)
{
    for (const struct addrinfo *at = list; at; at = at->ai_next) {
        if ((at->ai_family == AF_INET) != four || r->count == RESOLVER_ADDRESSES_KEPT)
            continue;
        int failure = getnameinfo(at->ai_addr, at->ai_addrlen, r->addresses[r->count], RESOLVER_ADDRESS_LIMIT,
                                  NULL, 0, NI_NUMERICHOST);
        if (failure)
            return failure;
        r->count++;
    }
    return 0;
}

/* IPv4 first where there is a choice: it is what clusters route. */
static int look_up(struct resolver *r)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
    int failure = getaddrinfo(r->host, NULL, &hints, &list);
    if (failure)
        return failure;
    r->count = 0;
    failure = keep(r, list, true);
    if (!failure)
        failure = keep(r, list, false);
    freeaddrinfo(list);
    return failure;
}

/* Whether it is worth another attempt: waits for the pause, the deadline or the end of interest. */
static bool pause_for(struct resolver *r, int pause_ms)
{
    int64_t left_ms = instant_diff_ns(r->deadline, clock_now(NULL)) / NS_PER_MS;
    struct pollfd cancel = {.fd = r->cancel_fd, .events = POLLIN};
    if (left_ms <= 0)
        return false;
    int ready = poll(&cancel, 1, pause_ms < left_ms ? pause_ms : (int)left_ms);
    return ready == 0 || (ready < 0 && errno == EINTR);
}

static void *resolver_thread(void *context)
{
    struct resolver *r = context;
    int pause_ms = FIRST_PAUSE_MS;
    r->failure = look_up(r);
    while (r->failure) {
        __atomic_store_n(&r->troubled, r->failure, __ATOMIC_RELAXED);
        if (!pause_for(r, pause_ms))
            break;
        r->failure = look_up(r);
        pause_ms = pause_ms * 2 < LONGEST_PAUSE_MS ? pause_ms * 2 : LONGEST_PAUSE_MS;
    }
    raise_fd(r->done_fd);
    release(r);
    return NULL;
}

struct resolver *resolver_start(const char *host, struct instant deadline, struct muster_error *err)
{
    struct resolver *r = mem_calloc(1, sizeof *r);
    if (!r) {
        error_set(err, MUSTER_E_NOMEM, "no memory to resolve %s", host);
        return NULL;
    }
    r->references = 1;
    r->deadline = deadline;
    r->host = mem_strdup(host);
    r->done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    r->cancel_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (!r->host || r->done_fd < 0 || r->cancel_fd < 0) {
        error_errno(err, "cannot prepare to resolve %s", host);
        release(r);
        return NULL;
    }
    r->references = 2;
    int failure = thread_start(NULL, 0, resolver_thread, r);
    if (failure) {
        errno = failure;
        error_errno(err, "cannot start a thread to resolve %s", host);
        r->references = 1;
        release(r);
        return NULL;
    }
    return r;
}

const char *resolver_trouble(const struct resolver *resolver)
{
    int failure = __atomic_load_n(&resolver->troubled, __ATOMIC_RELAXED);
    return failure ? gai_strerror(failure) : NULL;
}

int resolver_fd(const struct resolver *resolver)
{
    return resolver->done_fd;
}

int resolver_result(struct resolver *r, char *address, size_t size, struct muster_error *err)
{
    uint64_t count;
    if (read(r->done_fd, &count, sizeof count) < 0)
        return error_set(err, MUSTER_E_STATE, "%s is not resolved yet", r->host);
    if (r->failure)
        return error_set(err, MUSTER_E_TIMEOUT, "the host name %s could not be resolved: %s", r->host,
                         gai_strerror(r->failure));
    (void)snprintf(address, size, "%s", r->addresses[0]); /* RESOLVER_ADDRESS_LIMIT holds every address */
    return 0;
}

const char *resolver_address(const struct resolver *r, int index)
{
    return index >= 0 && index < r->count ? r->addresses[index] : NULL;
}

void resolver_destroy(struct resolver *r)
{
    if (!r)
        return;
    raise_fd(r->cancel_fd);
    release(r);
}

/* --- numeric addresses --- */

static socklen_t parse(const char *text, struct sockaddr_storage *out)
{
    struct sockaddr_in *four = (struct sockaddr_in *)out;
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)out;
    memset(out, 0, sizeof *out);
    if (inet_pton(AF_INET, text, &four->sin_addr) == 1) {
        four->sin_family = AF_INET;
        return sizeof *four;
    }
    if (inet_pton(AF_INET6, text, &six->sin6_addr) == 1) {
        six->sin6_family = AF_INET6;
        return sizeof *six;
    }
    return 0;
}

bool resolver_is_numeric(const char *text)
{
    struct sockaddr_storage address;
    return parse(text, &address) > 0;
}

/* Only an address of this machine can be bound; no port is taken, since none is asked for by number. */
bool resolver_is_local(const char *text)
{
    struct sockaddr_storage address;
    socklen_t length = parse(text, &address);
    if (!length)
        return false;
    scope_close int fd = socket(address.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    return fd >= 0 && bind(fd, (struct sockaddr *)&address, length) == 0;
}
