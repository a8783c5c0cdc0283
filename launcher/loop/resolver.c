/* resolver.c - see resolver.h: a background job, and what calls it off. */
#include "launcher/loop/resolver.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "launcher/loop/background_job.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"

enum { FIRST_PAUSE_MS = 250, LONGEST_PAUSE_MS = 4000 };

/* The job's payload. */
struct look_up {
    int cancel_fd; /* the caller has released the job */
    struct instant deadline;
    char *host;
    char addresses[RESOLVER_ADDRESSES_KEPT][RESOLVER_ADDRESS_LIMIT];
    int count;
    int failure;  /* of getaddrinfo; 0: there is an address */
    int troubled; /* atomic: failure of the last attempt that is over; 0: there is none yet */
};

struct resolver {
    struct background_job *job;
    struct look_up *look_up; /* the job's as well */
};

static void look_up_free(void *payload)
{
    struct look_up *l = payload;
    if (l->cancel_fd >= 0)
        (void)close(l->cancel_fd); /* an eventfd */
    mem_free(l->host);
    mem_free(l);
}

static int look_up_keep(struct look_up *l, const struct addrinfo *list, bool four)
{
    for (const struct addrinfo *at = list; at; at = at->ai_next) {
        if ((at->ai_family == AF_INET) != four || l->count == RESOLVER_ADDRESSES_KEPT)
            continue;
        int failure = getnameinfo(at->ai_addr, at->ai_addrlen, l->addresses[l->count], RESOLVER_ADDRESS_LIMIT,
                                  NULL, 0, NI_NUMERICHOST);
        if (failure)
            return failure;
        l->count++;
    }
    return 0;
}

/* IPv4 first if there is a choice: clusters route it. */
static int look_up_once(struct look_up *l)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
    int failure = getaddrinfo(l->host, NULL, &hints, &list);
    if (failure)
        return failure;
    l->count = 0;
    failure = look_up_keep(l, list, true);
    if (!failure)
        failure = look_up_keep(l, list, false);
    freeaddrinfo(list);
    return failure;
}

/* Whether another attempt is due: waits for the pause, the deadline or the release. */
static bool look_up_pause(struct look_up *l, int pause_ms)
{
    int64_t left_ms = instant_diff_ns(l->deadline, clock_now(NULL)) / NS_PER_MS;
    struct pollfd cancel = {.fd = l->cancel_fd, .events = POLLIN};
    if (left_ms <= 0)
        return false;
    int ready = poll(&cancel, 1, pause_ms < left_ms ? pause_ms : (int)left_ms);
    return ready == 0 || (ready < 0 && errno == EINTR);
}

static void look_up_run(void *payload)
{
    struct look_up *l = payload;
    int pause_ms = FIRST_PAUSE_MS;
    l->failure = look_up_once(l);
    while (l->failure) {
        __atomic_store_n(&l->troubled, l->failure, __ATOMIC_RELAXED);
        if (!look_up_pause(l, pause_ms))
            break;
        l->failure = look_up_once(l);
        pause_ms = pause_ms * 2 < LONGEST_PAUSE_MS ? pause_ms * 2 : LONGEST_PAUSE_MS;
    }
}

struct resolver *resolver_start(const char *host, struct instant deadline, struct muster_error *err)
{
    scope_free struct resolver *r = mem_calloc(1, sizeof *r);
    struct look_up *l = r ? mem_calloc(1, sizeof *l) : NULL;
    if (!l) {
        error_set(err, MUSTER_E_NOMEM, "no memory to resolve %s", host);
        return NULL;
    }
    *l = (struct look_up){.deadline = deadline, .host = mem_strdup(host)};
    l->cancel_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (!l->host || l->cancel_fd < 0) {
        error_errno(err, "cannot prepare to resolve %s", host);
        look_up_free(l);
        return NULL;
    }
    r->look_up = l;
    r->job = background_job_start("looking up the server's name", look_up_run, l, look_up_free, err);
    return r->job ? take_pointer(&r) : NULL;
}

const char *resolver_trouble(const struct resolver *resolver)
{
    int failure = __atomic_load_n(&resolver->look_up->troubled, __ATOMIC_RELAXED);
    return failure ? gai_strerror(failure) : NULL;
}

int resolver_fd(const struct resolver *resolver)
{
    return background_job_fd(resolver->job);
}

int resolver_result(struct resolver *r, char *address, size_t size, struct muster_error *err)
{
    const struct look_up *l = r->look_up;
    if (!background_job_is_done(r->job))
        return error_set(err, MUSTER_E_STATE, "%s is not resolved yet", l->host);
    if (l->failure)
        return error_set(err, MUSTER_E_TIMEOUT, "the host name %s could not be resolved: %s", l->host,
                         gai_strerror(l->failure));
    (void)snprintf(address, size, "%s", l->addresses[0]); /* RESOLVER_ADDRESS_LIMIT holds every address */
    return 0;
}

const char *resolver_address(const struct resolver *r, int index)
{
    return index >= 0 && index < r->look_up->count ? r->look_up->addresses[index] : NULL;
}

void resolver_destroy(struct resolver *r)
{
    if (!r)
        return;
    (void)eventfd_write(r->look_up->cancel_fd, 1); /* one that refuses is readable already */
    background_job_release(r->job);
    mem_free(r);
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

/* Only an address of this machine can be bound; no port is taken, since none is requested by number. */
bool resolver_is_local(const char *text)
{
    struct sockaddr_storage address;
    socklen_t length = parse(text, &address);
    if (!length)
        return false;
    if (address.ss_family == AF_INET && !strncmp(text, "127.", 4))
        return true;
    scope_close int fd = socket(address.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    return fd >= 0 && bind(fd, (struct sockaddr *)&address, length) == 0;
}
