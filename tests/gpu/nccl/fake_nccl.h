/* fake_nccl.h - inside of a libnccl.so.2 that needs no GPU: ranks are processes, or threads of one, and data
 * goes through memory that they map together. Binary interface: nccl.h 2.28.9.
 *
 * It is stricter than NCCL: what NCCL would hang on or corrupt is an asynchronous error that names both ranks
 * and each rank's call (different count, type, order, kind or root; a collective against a send; ranks that
 * wait for each other in a circle, since a send waits for its receive and a group for all of its operations,
 * or since streams have the operations of several communicators in different orders),
 * or a refusal of the call (host memory, part overlap, a communicator that is not
 * ready, two threads in one communicator, an operation under way at a split or destroy). Like NCCL inside a
 * node it never notices by itself that a peer has died, and after an error its device work goes on spinning
 * until the communicator is aborted.
 *
 * A communicator's non-blocking calls really take time: the state is ncclInProgress, and the work that a call
 * enqueues reaches the stream only when the state is ncclSuccess again. ncclCommSplit fills the new handle as
 * late, and ncclCommInitRankConfig stores it once more then, as NCCL's own thread does. ncclCommAbort waits
 * for the communicator's device work, as NCCL does: of two communicators whose work waits for each other's on
 * the device the aborts belong in one group. Parts of a communicator with splitShare share its abort flag: an
 * abort ends the calls and the device work of all.
 *
 * Faults, by rank of the first communicator and number of the operation on that rank from 1 on (a send to
 * oneself or a group of several counts each operation), in the first round of a job alone:
 *   FAKE_NCCL_HANG=RANK:N        it never starts        FAKE_NCCL_DIE=RANK:N    the process kills itself
 *   FAKE_NCCL_SLOW=RANK:N:MS     it starts later        FAKE_NCCL_ASYNC=RANK:N  the communicator fails
 *   FAKE_NCCL_ONE_AT_A_TIME=1    one operation at a time on a device, over all communicators: an order of
 *                                launches that could deadlock is an error naming both communicators
 *   FAKE_NCCL_IN_PROGRESS=never|always   which calls of non-blocking communicators return early; else some
 *   FAKE_NCCL_INSIDE=RANK:N      a blocking communicator's operation stays inside of its call until an abort
 *   FAKE_NCCL_THREAD=US          every call that enqueues on a communicator that does not block begins a
 *                                thread, and is done after so many microseconds
 *   FAKE_NCCL_LINGER=MS          a call on a communicator stays inside for so long
 *   FAKE_NCCL_SETTLE=MS          so long after a split has stored its communicator the states are
 *                                ncclInProgress
 *   FAKE_NCCL_LATE=RANK:MS       the rank takes so long to begin with the making of a communicator, and to
 *                                learn that a split is done
 *   FAKE_NCCL_NO_ABORT=1         every abort is refused, and nothing it would end ends
 *   FAKE_NCCL_SHOW=NAME          the making of a communicator prints this variable of the environment
 *   NCCL_RAS_ADDR=HOST:PORT      rank 0 answers there, as NCCL's RAS does
 *   FAKE_CUDA_FAIL=ncclFunction:N        that call is refused (fake_refuse) */
#ifndef MUSTER_TESTS_FAKE_NCCL_H
#define MUSTER_TESTS_FAKE_NCCL_H

#include <nccl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "tests/gpu/cudart/fake_cudart.h"

#define FAKE_EXPORT __attribute__((visibility("default")))

ncclResult_t ncclGroupStart(void); /* nccl.h's declarations are no prototypes in C */
ncclResult_t ncclGroupEnd(void);
/* Number of communicators that this process has neither destroyed nor aborted, and number of uses of a
 * destroyed or aborted communicator, also by a call that began before that, whose memory NCCL would have
 * freed. For tests, by dlsym. */
int fake_nccl_living(void);
int fake_nccl_dead_uses(void);
/* Number of calls on a communicator that was not ready. */
int fake_nccl_early_uses(void);
/* Parts that were made to share their communicator's resources, and the bits of CTAPolicy that first
 * communicators were made with. */
int fake_nccl_sharing(void);
int fake_nccl_policies(void);

enum {
    FAKE_RANKS = 16,
    FAKE_SLOT = 256 << 10,  /* bytes of a rank's share of a collective in one pass */
    FAKE_LETTER = 64 << 10, /* for a send in one pass */
    FAKE_RING = 16,         /* signatures of a rank that others may still read */
    FAKE_GROUP = 512,       /* operations in one group */
    FAKE_ABORTS = 64,       /* the same */
    FAKE_QUEUE = 128,       /* works of a device that are not done, which others see */
    FAKE_TEXT = 480
};

enum fake_kind {
    FAKE_ALL_GATHER,
    FAKE_REDUCE_SCATTER,
    FAKE_ALL_REDUCE,
    FAKE_BROADCAST,
    FAKE_SEND,
    FAKE_RECV
};
static inline bool fake_is_pair(int kind)
{
    return kind >= FAKE_SEND;
}

/* Arguments that must be equal on all ranks. */
struct fake_signature {
    uint64_t count;
    int32_t kind, dtype, op, root; /* root: the peer of a send or receive */
};

/* A letter box from one rank to another. */
struct fake_letter {
    _Atomic(uint64_t) sent, taken; /* pieces */
    struct fake_signature signature;
    uint64_t number; /* the sender's operation's */
};

/* A work of a device, from its call to its end. */
struct fake_queued {
    _Atomic(uint64_t) order; /* on the device, from 1; 0: the place is free; UINT64_MAX: it is being taken */
    _Atomic(uint64_t) uid, stream;
    _Atomic(uint64_t) needs; /* bits of the devices that it waits for; 0: it moves */
    _Atomic(uint64_t) looks; /* how often it has looked for them in vain */
    _Atomic(bool) begun;
};

struct fake_member {
    _Atomic(uint64_t) arrived; /* phases of meetings */
    _Atomic(uint64_t) waits;   /* its device's wait: fake_waits_of; 0: nothing */
    _Atomic(uint64_t) looks;   /* how often it has looked for it in vain */
    _Atomic(uint64_t) open[2]; /* bits of the peers of its sends, and receives, that are not done */
    _Atomic(uint64_t) started; /* operations; first communicator only */
    _Atomic(uint64_t) holds;   /* the communicator whose operation its device runs; first communicator only */
    struct fake_queued queue[FAKE_QUEUE]; /* first communicator only */
    struct fake_signature ring[FAKE_RING];
    int32_t color, key, part_fd; /* a split's */
    int32_t pid;
    int32_t device_rank; /* in the first communicator */
};

/* One a communicator: a memfd that every rank opens through /proc of the process that made it, so that
 * nothing can be left over. */
struct fake_shared {
    struct { /* alone on its line */
        _Atomic(uint32_t) value, waiters;
    } bell; /* struct futex_word: rung whenever something here changes */
    _Atomic(int) joined, finalized, size;
    _Atomic(uint64_t) uid;
    struct fake_member members[FAKE_RANKS];
    struct fake_letter letters[FAKE_RANKS][FAKE_RANKS];
    char slot[FAKE_RANKS][FAKE_SLOT];
    char letter[FAKE_RANKS][FAKE_RANKS][FAKE_LETTER];
};

/* A rank's device as its communicators see it: one for a first communicator and all that were split from it.
 */
struct fake_rank {
    _Atomic(int) references;
    int rank;
    struct fake_shared *first;
    _Atomic(uint64_t) operations; /* started so far: what faults are counted by */
    _Atomic(uint64_t) orders;     /* works so far */
    pthread_mutex_t one;          /* held by the operation that runs, where only one may */
};

struct ncclComm {
    struct fake_shared *shared;
    struct fake_rank *device;
    int rank, size, cuda_device;
    bool blocking, split_share; /* split_share: parts share its resources, the abort flag among them */
    struct ncclComm *shares;    /* the communicator whose resources it uses; NULL: its own */
    _Atomic(int) state;         /* ncclResult_t */
    _Atomic(bool) *aborted;     /* its own, or that of the communicator whose resources it shares */
    _Atomic(bool) own_aborted, gone, finalized;
    _Atomic(bool) busy; /* a thread is inside a call */
    uint64_t issued;    /* pieces of device work */
    _Atomic(uint64_t) done;
    uint64_t phase, collectives; /* the device's thread's */
    int place;                   /* the same: of its work in the queue; -1: none */
    uint64_t splits, calls;
    pthread_mutex_t lock; /* for last */
    char last[FAKE_TEXT];
    pthread_t helper; /* does the rest of a non-blocking call */
    bool has_helper;
    struct ncclComm *next; /* all that ever were: a destroyed one must be known as such */
};

struct fake_op {
    struct fake_signature signature;
    const void *send;
    void *recv;
    uint64_t number; /* on this rank, for faults */
    uint64_t moved;  /* bytes of a send or receive so far */
    bool done;
};

/* What one launch enqueues: the operations of one communicator in a group. */
struct fake_work {
    struct ncclComm *comm;
    cudaStream_t stream;
    uint64_t sequence;
    int place; /* in the device's queue; -1: none */
    int count;
    struct fake_op ops[];
};

/* ---- fake_nccl_text.c ---- */

const char *fake_kind_name(int kind);
const char *fake_signature_text(char out[128], const struct fake_signature *signature);
/* Refuses a call: keeps the text for ncclGetLastError and returns result. comm may be NULL. */
ncclResult_t fake_refuse_call(struct ncclComm *comm, ncclResult_t result, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Makes the communicator fail, unless it has already. */
void fake_fail(struct ncclComm *comm, ncclResult_t result, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
const char *fake_last_error(struct ncclComm *comm);

/* ---- fake_nccl_math.c ---- */

size_t fake_type_size(int dtype); /* 0: not known here */
/* into = op(into, from); FAKE average is prepared by fake_average. */
void fake_combine(void *into, const void *from, size_t count, int dtype, int op);
/* values /= size as NCCL does it: every rank's input times 1/size, before the sum. */
void fake_average(void *values, size_t count, int dtype, int size);

/* ---- fake_nccl_shared.c ---- */

/* A new shared memory; its descriptor, or -1. */
int fake_shared_create(void);
struct fake_shared *fake_shared_map(int pid, int fd);
void fake_shared_unmap(struct fake_shared *shared);
void fake_ring_bell(struct fake_shared *shared);
/* Sleeps until the bell rings after `seen`, or some milliseconds. */
void fake_wait_bell(struct fake_shared *shared, uint32_t seen);
uint32_t fake_bell(const struct fake_shared *shared);
/* All ranks have come to this meeting; false: the communicator was aborted or has failed. */
bool fake_meet(struct ncclComm *comm, uint64_t waits);

/* A rank's wait for a peer: since when, counted in the peer's own looks. A peer that gets no processor still
 * stands in a wait that is long over, so that it counts as waiting only when it has looked again. */
struct fake_across {
    uint64_t orders, looks[FAKE_RANKS]; /* of works that seemed to wait for ever */
};
struct fake_patience {
    int slices;
    struct fake_across across;
    uint64_t waits[FAKE_RANKS], looks[FAKE_RANKS]; /* when the wait began, or was looked at last */
};
/* Once more in vain: this rank waits for the peer, among others. From time to time fails the communicator if
 * ranks wait for each other for ever. `patience` is zeroed where something has moved. */
void fake_wait_in_vain(struct ncclComm *comm, int peer, struct fake_patience *patience);
/* A rank's wait as one word; never 0. */
uint64_t fake_waits_of(int kind, int peer, uint64_t number);

/* ---- fake_nccl_queue.c ---- */

/* A work is issued: its place, or -1. It begins on its stream's thread, and leaves. */
int fake_queue_enter(struct ncclComm *comm, const void *stream);
void fake_queue_begin(struct ncclComm *comm, int place);
void fake_queue_leave(struct ncclComm *comm, int place);
/* The work that has begun has looked once more in vain for these devices (bits). */
void fake_queue_needs(struct ncclComm *comm, uint64_t devices);
/* Whether it waits for ever for another device's work, over several communicators, since the last look: that
 * device, and its communicator. */
bool fake_queue_waits_for_ever(struct ncclComm *comm, struct fake_across *before, int *device, uint64_t *uid);

/* ---- fake_nccl_move.c ---- */

void fake_work_run(void *work);     /* on the stream's thread */
void fake_work_dispose(void *work); /* after it, or in its place */

/* ---- fake_nccl_ras.c ---- */

void fake_ras_start(int pid, int fd, int size);

/* ---- fake_nccl_fault.c ---- */

/* Before an operation starts; false: the communicator was aborted in the meantime or has failed. */
bool fake_faults(struct ncclComm *comm, const struct fake_op *op);
bool fake_one_at_a_time(void);
/* Within a blocking call, before it enqueues; false: an abort has ended it. */
bool fake_inside(struct ncclComm *comm);
/* FAKE_NCCL_THREAD; 0: not set. */
int64_t fake_thread_ns(void);

/* ---- fake_nccl_comm.c, fake_nccl_calls.c ---- */

/* The living communicator of this device by the uid of its memory; NULL: it is none of its. */
struct ncclComm *fake_find(const struct fake_rank *device, uint64_t uid);
/* For texts: which of its maker's communicators it is. */
static inline unsigned fake_number(const struct ncclComm *comm)
{
    return (unsigned)atomic_load(&comm->shared->uid);
}

/* Enters a call of function on comm; not ncclSuccess: it must be returned. Leave with fake_leave. */
ncclResult_t fake_enter(struct ncclComm *comm, const char *function);
void fake_leave(struct ncclComm *comm);
/* Runs a call's work: at once, or for a non-blocking communicator later on a thread of its own. */
ncclResult_t fake_later(struct ncclComm *comm, void *(*run)(void *), void *argument);
/* In a group: aborts are completed at its end. */
bool fake_group_open(void);
void fake_group_add_abort(struct ncclComm *comm);
ncclResult_t fake_finish_abort(struct ncclComm *comm);

#endif
