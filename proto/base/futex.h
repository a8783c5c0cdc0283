/* futex.h - waiting for a 32-bit word to change, between threads of one process or between processes.
 *
 * The pattern everywhere: the waiter adds itself to `waiters`, looks at the word again and sleeps; the
 * waker changes the word and makes a system call only if a waiter is counted. Both sides are sequentially
 * consistent, so at least one sees the other's change.
 *
 * A sleep and a wake-up take longer (5 us, on a virtual machine 20 us and more) than most waits between the
 * threads of a collective. Where that is so, look at the word for a moment before sleeping: futex_look. */
#ifndef MUSTER_PROTO_BASE_FUTEX_H
#define MUSTER_PROTO_BASE_FUTEX_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "proto/base/clock.h"
#include "proto/include/muster_error.h"

enum futex_scope {
    FUTEX_PRIVATE, /* threads of one process */
    FUTEX_SHARED,  /* the word lies in memory that several processes map */
};

/* Zeroed memory is a word of value 0 without waiters. */
struct futex_word {
    _Atomic(uint32_t) value;
    _Atomic(uint32_t) waiters;
};

/* Whether the kernel lets this process sleep on a word: without it the C library ends the process at the
 * first lock that is taken. */
int futex_check(struct muster_error *err);
/* Sleeps while the word is `seen`, at most until the deadline (system clock). Returns whether the deadline
 * passed with the word unchanged; a return of false may be early (signals, wake-ups meant for another
 * waiter): check the word again. */
bool futex_wait(struct futex_word *word, uint32_t seen, struct instant deadline, enum futex_scope scope);
/* Experience of a waiting place with looks; zeroed at first. It belongs to one thread at a time. */
struct futex_patience {
    uint32_t skip;    /* so many waits from now on do not look */
    uint32_t penalty; /* what skip was set to by the last look in vain; 0: the last one was not */
    uint32_t crowded; /* looks in a row that succeeded only after this thread gave up its processor */
    uint32_t spreads; /* sleeps that this has led to since it was last otherwise */
    bool moves;       /* set by the owner: see below */
};
/* Looks at the word for a few wake-ups' time at most, and lets other threads of this processor run.
 * Returns whether the word is no more `seen`; if not, sleep. After a look in vain the next waits do not look,
 * 1, 2, 4 ... 64 of them: long waits pay next to nothing. With `moves`, where looks succeed only because the
 * thread yields, a wait now and then does not look either (the 17th, then more rarely): waking up is how a
 * thread gets to an idle processor. For threads of different processes, which have no other bond. */
bool futex_look(struct futex_word *word, uint32_t seen, struct futex_patience *patience);
/* After the value was changed with atomic_store or atomic_fetch_add: wakes all waiters. */
void futex_wake(struct futex_word *word, enum futex_scope scope);

/* Between a store and a load of something else, both sequentially consistent, on which a wake-up depends as
 * above. Processors keep their order. QEMU (7.2), as aarch64 on x86-64, does not: in 2,202 of 2,000,000
 * rounds of two threads neither saw the other's store; with this, in none. */
static inline void futex_store_load(void)
{
#ifdef __aarch64__
    atomic_thread_fence(memory_order_seq_cst);
#endif
}

/* Whether a counter that may wrap has reached target. */
static inline bool futex_reached(uint32_t value, uint32_t target)
{
    return (int32_t)(value - target) >= 0;
}

#endif
