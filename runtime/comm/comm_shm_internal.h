/* comm_shm_internal.h - collectives over shared memory inside one node: the protocol, and the parts that
 * its files share.
 *
 * Ranks are processes or threads, of one user, on one node and in one network namespace. Two things are
 * shared; neither has a name in /dev/shm or in any file system:
 *   - the COMM arenas: every rank maps every other rank's, to read only. Their memfds travel once, over Unix
 *     sockets with abstract names of 128 random bits that are exchanged through the kv_store
 *     (comm_shm_link.c). The sockets stay open and show when a peer dies.
 *   - one control memfd for each comm, with a channel (comm_shm_channel.c) for the collectives and one for
 *     each pair of ranks.
 *
 * A channel moves in phases. In phase p each member writes a record (its operation, the place of its data)
 * and perhaps data into its own slot p mod 2, arrives, and waits until all members have arrived; then all
 * may read all slots p mod 2, until they arrive at p+1. So one futex barrier a phase is the whole
 * protocol.
 *   - Small operations (HOST_EAGER_BYTES) put data and record into the first phase and are done after it.
 *   - Where every rank's buffer lies in a COMM arena, ranks copy and reduce straight out of their peers'
 *     arenas and pass one more barrier, so that buffers may be reused when the operation has finished.
 *   - Otherwise the data passes through the slots, chunk by chunk, one phase each.
 * The choice is a function of all records, so all ranks choose alike.
 *
 * send and recv are a rendezvous: a send finishes when its peer has copied the data. Two ranks that send
 * to each other first and receive then wait for each other, and the mismatch is reported.
 *
 * The reason that ends an operation early is written into the control memory for all ranks: a lost peer
 * (seen within COMM_SLICE_NS), operations that do not match, a time-out, an abort, a failure of the
 * device. */
#ifndef MUSTER_RUNTIME_COMM_COMM_SHM_INTERNAL_H
#define MUSTER_RUNTIME_COMM_COMM_SHM_INTERNAL_H

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "proto/base/clock.h"
#include "proto/base/futex.h"
#include "proto/base/guard.h"
#include "runtime/comm/comm.h"
#include "runtime/comm/comm_internal.h"

enum {
    HOST_RANKS_MAX = 256,             /* in a comm */
    HOST_ARENAS_MAX = 8,              /* for each rank */
    HOST_EAGER_BYTES = 16 * 1024,     /* in a rank's part of the slot */
    HOST_SLOT_BYTES = 256 * 1024,     /* collectives: each of a member's two slots */
    HOST_PAIR_SLOT_BYTES = 64 * 1024, /* send and recv */
};

/* ---- comm_shm_channel.c: the control memory of a comm ----
 *
 * Members of a channel have indices 0..count-1: ranks for the channel of the collectives; the lower and the
 * higher rank for the channel of a pair. */

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

/* ---- comm_shm_link.c: connections between the ranks of a node ----
 *
 * One Unix socket between each two ranks, and every rank's COMM arenas mapped by every other. Shared by a
 * comm and every comm split from it. Messages pass on the sockets only while comms are made (create and
 * split), by the thread that makes them; afterwards any thread may poll them for the peer's end. */

struct host_map {
    char *base;
    int64_t bytes;
};

struct host_peer {
    int socket;  /* -1: ourselves */
    int process; /* pidfd; -1 where the system has none, or for a thread of our own process */
    pid_t pid;   /* as seen from here; 0: in a PID namespace that we cannot see */
    int arena_count;
    struct host_map arenas[HOST_ARENAS_MAX]; /* for ourselves: our own mapping */
};

struct host_link {
    _Atomic(int) references;
    int rank, size;
    struct host_peer peers[]; /* [size] */
};

/* A hash that is equal for ranks that can share memory: of this machine and network namespace. */
uint64_t host_link_machine(void);
/* Collective over options->size ranks; needs store, key, arenas and timeout_ns of options. One reference. */
struct host_link *host_link_create(const struct comm_options *options, struct muster_error *err);
struct host_link *host_link_keep(struct host_link *link); /* one reference more */
void host_link_drop(struct host_link *link);              /* accepts NULL */
GUARD_DEFINE(host_link, struct host_link *, host_link_drop);

/* A message of at most HOST_MESSAGE_BYTES to a peer, with a descriptor where fd >= 0. */
enum { HOST_MESSAGE_BYTES = 256 };
int host_link_send(struct host_link *link, int peer, const void *data, size_t length, int fd,
                   struct muster_error *err);
/* The next message of exactly length bytes. fd (may be NULL) gets its descriptor or -1. */
int host_link_receive(struct host_link *link, int peer, void *data, size_t length, int *fd,
                      struct instant deadline, struct muster_error *err);
/* Whether the peer's process has ended or closed its side. Does not wait. */
bool host_link_gone(const struct host_link *link, int peer);
/* The arena of ours that holds all the bytes, or arena -1. */
void host_link_place(const struct host_link *link, const void *data, int64_t bytes, struct host_place *place);
/* Address at which a peer's buffer is mapped here; NULL if it is not wholly inside the arena. */
const char *host_link_at(const struct host_link *link, int peer, const struct host_place *place,
                         int64_t bytes);

/* ---- comm_shm.c, comm_shm_wait.c, comm_shm_move.c: object, barrier and failures, data ---- */

struct host_comm {
    struct comm comm;
    struct host_link *link;
    struct host_page *page; /* NULL with one rank */
    int *link_ranks;        /* [size] this comm's ranks in the link's numbering */
    uint64_t id;            /* distinguishes messages for this comm and its splits */
    uint32_t splits;
    _Atomic(uint32_t) aborted;
    struct futex_patience patience; /* state of the thread that runs its operations */
    _Atomic(int) waits_on;          /* HOST_WAITS_ON_NOBODY, HOST_WAITS_ON_ALL or the peer of a pair */
};
enum { HOST_WAITS_ON_NOBODY = -2, HOST_WAITS_ON_ALL = -1 };

/* One operation while it runs. */
struct host_run {
    struct host_comm *comm;
    const struct comm_call *call;
    struct host_channel channel;
    uint64_t sequence;
};

/* Arrives at the next phase and waits for the others. On -1 the comm is broken for every rank. */
int host_meet(const struct host_run *run, struct muster_error *err);
/* Reports to every rank why the comm ended (the first reason is kept), fills err with that reason, returns
 * -1. */
int host_break(const struct host_run *run, const struct muster_error *error, struct muster_error *err);

/* Whether the members' records match. */
int host_match(const struct host_run *run, struct muster_error *err);
/* Does one operation; called on the stream's thread. */
int host_run_call(struct comm *comm, const struct comm_call *call, struct muster_error *err);

static inline struct host_comm *host_comm_of(struct comm *comm)
{
    return (struct host_comm *)comm; /* comm is its first member */
}

#endif
