/* futex.c - see futex.h. */
#include "proto/base/futex.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "proto/base/error.h"

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

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

enum look { LOOK_VAIN, LOOK_SEEN, LOOK_SEEN_AFTER_YIELD };

static enum look look_until(struct futex_word *word, uint32_t seen, struct instant limit, bool crowded)
{
    enum { LOOKS = 32 };             /* between two at the clock: about a microsecond */
    int looks = crowded ? 1 : LOOKS; /* before the first yield */
    bool yielded = false;
    do {
        for (int i = 0; i < looks; i++) {
            if (atomic_load_explicit(&word->value, memory_order_acquire) != seen)
                return yielded && i == 0 ? LOOK_SEEN_AFTER_YIELD : LOOK_SEEN;
            relax();
        }
        (void)sched_yield(); /* the thread that is waited for may be on this processor; cannot fail */
        yielded = true;
        looks = LOOKS;
    } while (!instant_reached(clock_now(NULL), limit));
    return LOOK_VAIN;
}

/* Whether to sleep so that the scheduler may move this thread. Threads that only yield to each other stay on
 * one processor for a long time although another one is idle; a thread that is woken is put on the idle one.
 */
static bool spreads(struct futex_patience *patience)
{
    enum { CROWDED = 16, SPREADS_MAX = 6 };
    if (!patience->moves || patience->crowded < (uint32_t)CROWDED << patience->spreads)
        return false;
    patience->crowded = 0;
    if (patience->spreads < SPREADS_MAX)
        patience->spreads++;
    return true;
}

bool futex_look(struct futex_word *word, uint32_t seen, struct futex_patience *patience)
{
    enum { LOOK_NS = 60 * NS_PER_US, PENALTY_MAX = 64 };
    if (atomic_load_explicit(&word->value, memory_order_acquire) != seen)
        return true;
    if (patience->skip) {
        patience->skip--;
        return false;
    }
    if (spreads(patience))
        return false;
    struct instant limit = instant_add(clock_now(NULL), LOOK_NS);
    switch (look_until(word, seen, limit, patience->crowded > 1)) {
    case LOOK_SEEN:
        patience->penalty = patience->crowded = patience->spreads = 0;
        return true;
    case LOOK_SEEN_AFTER_YIELD:
        patience->penalty = 0;
        patience->crowded++;
        return true;
    case LOOK_VAIN:
        break;
    }
    if (patience->penalty < PENALTY_MAX)
        patience->penalty = patience->penalty ? 2 * patience->penalty : 1;
    patience->skip = patience->penalty;
    return false;
}

int futex_check(struct muster_error *err)
{
    uint32_t word = 0;
    if (syscall(SYS_futex, &word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1, NULL, NULL, 0) >= 0)
        return 0;
    return error_errno(err,
                       "the system call futex is refused (by a seccomp profile?), without which no program "
                       "with threads can run: allow it");
}

void futex_wake(struct futex_word *word, enum futex_scope scope)
{
    futex_store_load();
    if (atomic_load(&word->waiters))
        (void)syscall(SYS_futex, &word->value, operation(FUTEX_WAKE, scope), INT_MAX, NULL, NULL,
                      0); /* cannot fail on a mapped word */
}
