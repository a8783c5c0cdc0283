/* shard_fault.c - see shard_fault.h. */
#include "runtime/shard/shard_fault.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>

#include "proto/base/error.h"

/* A handler has no argument, hence the globals. Entries come and go under the lock; the handler only reads.
 */
static pthread_mutex_t watch_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(struct shard_ranges *) watched_ranges[SHARD_FAULT_WATCHES];
static struct sigaction action_before;
static bool handler_installed;

static struct shard_ranges *watched_at(const char *at)
{
    for (int i = 0; i < SHARD_FAULT_WATCHES; i++) {
        struct shard_ranges *r = atomic_load(&watched_ranges[i]);
        if (r && at >= (char *)r->reserved && at < (char *)r->reserved + r->reserved_bytes)
            return r;
    }
    return NULL;
}

/* NaNs in every floating dtype, from the page table that the address is in. Returns -1 where the address is
 * in no range. The fault is synchronous, in code that computes: mprotect and memset are safe there. */
static int fill_with_nan(const struct shard_ranges *ranges, char *at)
{
    for (int i = 0; i < ranges->group_count; i++) {
        char *first = ranges->ranges[i];
        if (at < first || at >= first + ranges->range_bytes[i])
            continue;
        char *page = first + (at - first) / SHARD_PAGE_BYTES * SHARD_PAGE_BYTES;
        if (mprotect(page, (size_t)SHARD_PAGE_BYTES, PROT_READ | PROT_WRITE))
            return -1;
        memset(page, 0xff, (size_t)SHARD_PAGE_BYTES);
        return 0;
    }
    return -1;
}

static void pass_on(int signal, siginfo_t *info, void *context)
{
    if (action_before.sa_flags & SA_SIGINFO) {
        action_before.sa_sigaction(signal, info, context);
        return;
    }
    if (action_before.sa_handler != SIG_DFL && action_before.sa_handler != SIG_IGN) {
        action_before.sa_handler(signal);
        return;
    }
    const struct sigaction end = {.sa_handler = SIG_DFL};
    (void)sigaction(signal, &end, NULL); /* the access is repeated, and ends the process as it would have */
}

static void take_fault(int signal, siginfo_t *info, void *context)
{
    int number = errno;
    char *at = info->si_addr;
    struct shard_ranges *ranges = info->si_code > 0 ? watched_at(at) : NULL; /* 0, less: a sent signal */
    if (ranges && fill_with_nan(ranges, at) == 0) {
        char *none = NULL;
        if (atomic_compare_exchange_strong(&ranges->touched, &none, at) && ranges->notify)
            (void)ranges->notify(ranges->notify_argument);
    } else {
        pass_on(signal, info, context);
    }
    errno = number;
}

static int install_handler(struct muster_error *err)
{
    struct sigaction ours = {.sa_sigaction = take_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    if (handler_installed)
        return 0;
    if (sigaction(SIGSEGV, NULL, &action_before) || sigaction(SIGSEGV, &ours, NULL))
        return error_errno(err, "cannot handle SIGSEGV");
    handler_installed = true;
    return 0;
}

int shard_fault_watch(struct shard_ranges *ranges, int (*notify)(int argument), int argument,
                      struct muster_error *err)
{
    shard_fault_forget(ranges);
    ranges->notify = notify;
    ranges->notify_argument = argument;
    (void)pthread_mutex_lock(&watch_lock); /* static, not recursive: cannot fail */
    int failed = install_handler(err), at = 0;
    while (at < SHARD_FAULT_WATCHES && atomic_load(&watched_ranges[at]))
        at++;
    if (!failed && at == SHARD_FAULT_WATCHES)
        failed =
            error_set(err, MUSTER_E_LIMIT, "%d sharded models are watched in this process, no more can be",
                      SHARD_FAULT_WATCHES);
    else if (!failed)
        atomic_store(&watched_ranges[at], ranges);
    (void)pthread_mutex_unlock(&watch_lock);
    return failed;
}

void shard_fault_forget(struct shard_ranges *ranges)
{
    (void)pthread_mutex_lock(&watch_lock);
    for (int i = 0; i < SHARD_FAULT_WATCHES; i++) {
        if (atomic_load(&watched_ranges[i]) == ranges)
            atomic_store(&watched_ranges[i], NULL);
    }
    (void)pthread_mutex_unlock(&watch_lock);
}

char *shard_fault_take(struct shard_ranges *ranges)
{
    char *at = atomic_exchange(&ranges->touched, NULL);
    if (at)
        shard_ranges_protect(ranges);
    return at;
}
