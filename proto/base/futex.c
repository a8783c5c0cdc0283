/* futex.c - see futex.h. */
#include "proto/base/futex.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

static int operation(int command, enum futex_scope scope)
{
    return scope == FUTEX_PRIVATE ? command | FUTEX_PRIVATE_FLAG : command;
}

bool futex_wait(struct futex_word *word, uint32_t seen, struct instant deadline, enum futex_scope scope)
{
    /* FUTEX_WAIT_BITSET takes an absolute time of the monotonic clock; FUTEX_WAIT a duration. */
    struct timespec until = instant_timespec(deadline);
    const struct timespec *limit = deadline.ns == INSTANT_NEVER.ns ? NULL : &until;
    atomic_fetch_add(&word->waiters, 1);
    bool late = false;
    if (atomic_load(&word->value) == seen &&
        syscall(SYS_futex, &word->value, operation(FUTEX_WAIT_BITSET, scope), seen, limit, NULL,
                FUTEX_BITSET_MATCH_ANY))
        late = errno == ETIMEDOUT; /* EAGAIN: the word changed; EINTR: the caller looks again */
    atomic_fetch_sub(&word->waiters, 1);
    return late;
}

void futex_wake(struct futex_word *word, enum futex_scope scope)
{
    if (atomic_load(&word->waiters))
        (void)syscall(SYS_futex, &word->value, operation(FUTEX_WAKE, scope), INT_MAX, NULL, NULL,
                      0); /* cannot fail on a mapped word */
}
