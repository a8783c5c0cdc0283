/* resolver.c - see resolver.h: a background job, and what calls it off. */
#include "launcher/loop/resolver.h"

#include <errno.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "launcher/loop/background_job.h"
#include "proto/base/address.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"

enum { FIRST_PAUSE_MS = 250, LONGEST_PAUSE_MS = 4000, PLACES = 4 /* values of resolver_place */ };

/* The job's payload. */
struct look_up {
    int cancel_fd; /* the caller has released the job */
    struct instant deadline;
    char *host;
    char addresses[RESOLVER_ADDRESSES_KEPT][ADDRESS_TEXT];
    int count;
    int failure;  /* getaddrinfo's; 0: there is an address */
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

/* Whether this machine has a route to it; nothing is sent. */
static bool has_route(const struct addrinfo *to)
{
    scope_close int fd = socket(to->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct sockaddr_storage there;
    if (fd < 0 || to->ai_addrlen > sizeof there)
        return false;
    memcpy(&there, to->ai_addr, to->ai_addrlen);
    in_port_t *port = to->ai_family == AF_INET6 ? &((struct sockaddr_in6 *)&there)->sin6_port
                                                : &((struct sockaddr_in *)&there)->sin_port;
    *port = htons(9); /* discard: some kernels refuse port 0 */
    return connect(fd, (struct sockaddr *)&there, to->ai_addrlen) == 0;
}

/* The place of an address in the order in which they are tried: IPv4 first if there is a choice, since
 * clusters route it; but first of all the addresses to which this machine has a route. */
static int resolver_place(const struct addrinfo *address)
{
    return 2 * !has_route(address) + (address->ai_family != AF_INET);
}

int resolver_ask(const char *host, char addresses[RESOLVER_ADDRESSES_KEPT][ADDRESS_TEXT])
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
    int failure = getaddrinfo(host, NULL, &hints, &list), count = 0;
    if (failure)
        return failure;
    for (int place = 0; place < PLACES; place++)
        for (const struct addrinfo *at = list; at && count < RESOLVER_ADDRESSES_KEPT; at = at->ai_next)
            if (resolver_place(at) == place && *address_text(at->ai_addr, addresses[count]))
                count++;
    freeaddrinfo(list);
    return count ? count : EAI_NONAME;
}

static int look_up_once(struct look_up *l)
{
    int count = resolver_ask(l->host, l->addresses);
    l->count = count > 0 ? count : 0;
    return count > 0 ? 0 : count;
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
    (void)snprintf(address, size, "%s", l->addresses[0]); /* ADDRESS_TEXT holds every address */
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
    (void)eventfd_write(r->look_up->cancel_fd, 1); /* an eventfd that refuses is readable already */
    background_job_release(r->job);
    mem_free(r);
}

/* --- addresses of this machine --- */

/* Whether an interface has the address. The kernel lists an address before it may be used: IPv6 looks for its
 * double first, which takes a second in a new pod. */
static bool is_listed(const char *text)
{
    struct ifaddrs *list = NULL;
    char listed[ADDRESS_TEXT];
    bool found = false;
    if (getifaddrs(&list)) /* a sandbox may forbid it */
        return false;
    for (const struct ifaddrs *at = list; at && !found; at = at->ifa_next)
        found = at->ifa_addr && *address_text(at->ifa_addr, listed) && address_same(listed, text);
    freeifaddrs(list);
    return found;
}

/* Only an address of this machine can be bound; no port is taken, since none is requested by number. */
bool resolver_is_local(const char *text)
{
    struct address address;
    if (!address_parse(text, 0, &address))
        return false;
    if (address_is_loopback(text))
        return true;
    scope_close int fd = socket(address.of.any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    return (fd >= 0 && bind(fd, &address.of.any, address.length) == 0) || is_listed(text);
}
