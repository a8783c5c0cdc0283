/* comm_shm_channel.h - the control memory of a comm: its layout, its channels, the barrier, the first
 * failure. The protocol is described in comm_shm.h.
 *
 * Members of a channel have indices 0..count-1: ranks for the channel of the collectives; the lower and the
 * higher rank for the channel of a pair. */
#ifndef MUSTER_RUNTIME_COMM_COMM_SHM_CHANNEL_H
#define MUSTER_RUNTIME_COMM_COMM_SHM_CHANNEL_H

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "proto/base/futex.h"
#include "runtime/comm/comm.h"

/* Where a buffer lies: arena of its rank (-1: in none, so peers cannot read it) and offset in it. */
struct host_place {
    int32_t arena;
    int64_t offset;
};

/* What one member issued, as its peers see it. */
struct host_record {
    struct comm_op op;
    uint64_t sequence; /* operations on this channel, from 1 */
    bool direct;       /* its peers may read all they need in its arenas */
    struct host_place send, recv;
};

struct host_member {
    alignas(128) _Atomic(uint32_t) phase; /* the last one it arrived at, from 1 */
    _Atomic(uint32_t) left;     /* 1: it has destroyed its comm; in the channel of the collectives only */
    _Atomic(uint64_t) sequence; /* operations it has begun */
    struct host_record record[2];
};

/* Shared, at the start of the control memory. */
struct host_page {
    uint64_t magic;
    int32_t size;
    _Atomic(uint32_t) failed; /* 0, then HOST_FAILURE_WRITING, then HOST_FAILURE_SET */
    struct muster_error failure;
};
enum { HOST_FAILURE_WRITING = 1, HOST_FAILURE_SET };
#define HOST_PAGE_MAGIC UINT64_C(0x316d6d6f6374736d)

/* A view of one channel, made when needed; everything that lasts is in the shared memory. */
struct host_channel {
    struct futex_word *arrived; /* arrivals ever: phase * count once all have come */
    struct host_member *members;
    char *slots;
    int64_t slot_bytes;
    int count, me;
    int ranks[2]; /* the two of a pair; a collective's members are the ranks themselves */
    bool pair;
};

/* Pure: bytes of the control memory of a comm of `size` ranks. Most of it is never touched. */
int64_t host_page_bytes(int size);
/* peer -1: the channel of the collectives. */
struct host_channel host_channel_of(struct host_page *page, int size, int rank, int peer);
static inline int host_channel_rank(const struct host_channel *channel, int member)
{
    return channel->pair ? channel->ranks[member] : member;
}
/* The slot of a member in a phase. */
static inline char *host_channel_slot(const struct host_channel *channel, int member, uint32_t phase)
{
    return channel->slots + (2 * member + (int)(phase & 1)) * channel->slot_bytes;
}
static inline uint32_t host_channel_phase(const struct host_channel *channel, int member)
{
    return atomic_load_explicit(&channel->members[member].phase, memory_order_acquire);
}

/* This member arrives at its next phase; its earlier writes are visible to every rank that passes that
 * phase. */
void host_channel_arrive(const struct host_channel *channel);
/* Whether all have arrived at this member's phase. If not, *seen is the value for futex_wait on arrived. */
bool host_channel_passed(const struct host_channel *channel, uint32_t *seen);

/* The first call wins. Wakes all waiters of collectives; waiters of a pair, and ranks about to sleep,
 * check again after COMM_SLICE_NS. (Waking every pair would touch all of their pages.) */
void host_page_fail(struct host_page *page, const struct muster_error *error);
/* Whether a rank failed, and why. patient: a failure whose text is still being written does not count yet. */
bool host_page_failed(struct host_page *page, bool patient, struct muster_error *error);

#endif
