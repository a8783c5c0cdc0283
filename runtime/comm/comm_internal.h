/* comm_internal.h - shared by all kinds of comm: checks of operations and options, membership of a split,
 * the ring of calls in progress, counters. A kind embeds `struct comm` as its first member. */
#ifndef MUSTER_RUNTIME_COMM_COMM_INTERNAL_H
#define MUSTER_RUNTIME_COMM_COMM_INTERNAL_H

#include <stdatomic.h>
#include <stddef.h>

#include "proto/base/futex.h"
#include "runtime/comm/comm.h"
#include "runtime/comm/comm_text.h"

/* ---- pure (comm.c) ---- */

static inline bool comm_reduces(enum comm_kind kind)
{
    return kind == COMM_REDUCE_SCATTER || kind == COMM_ALL_REDUCE;
}
/* Between this rank and root; no other rank takes part. */
static inline bool comm_is_pair(enum comm_kind kind)
{
    return kind == COMM_SEND || kind == COMM_RECV;
}
/* Whether each rank gives every rank a block of its own. */
static inline bool comm_sends_blocks(enum comm_kind kind)
{
    return kind == COMM_REDUCE_SCATTER || kind == COMM_ALL_TO_ALL;
}
/* Bytes of count elements; 0 for a barrier. */
int64_t comm_part_bytes(const struct comm_op *op);
/* to may be from, and then may be NULL with no bytes; otherwise they do not overlap. */
void comm_copy(void *to, const void *from, int64_t bytes);
/* Bytes that one rank receives from its peers: size-1 shards for all_gather, reduce_scatter and all_to_all,
 * two passes of (size-1)/size for all_reduce, count for broadcast and recv, none for send and barrier. */
int64_t comm_received_bytes(const struct comm_op *op, int size);
/* Whether the operation is valid on this rank: known kind, dtype and reduction, count, root, buffers. */
int comm_check(const struct comm_op *op, int rank, int size, const void *send, const void *recv,
               struct muster_error *err);
/* Whether the operations issued by two ranks match: a send and a receive, or the same operation. */
bool comm_fits(const struct comm_op *a, const struct comm_op *b);
/* Does the operation as if every rank had this rank's data: right for a size of 1, and what comm_delay does.
 * recv of a COMM_RECV is left as it is. */
void comm_mirror(const struct comm_op *op, int rank, int size, const void *send, void *recv);

/* One rank's vote in a split. */
struct comm_vote {
    int32_t color, key;
};
/* members gets the old ranks of our color, ordered by key, then by old rank; rank our place among them.
 * Returns how many they are. votes and members have size entries. */
int comm_members(const struct comm_vote *votes, int size, int me, int *members, int *rank);

/* All of these: 0, or -1 with the value, the limit and the way out. what: "a host comm". */
enum { COMM_RANKS_ANY = INT32_MAX }; /* no limit of its own */
int comm_check_ranks(const struct comm_options *options, const char *what, int ranks,
                     struct muster_error *err);
/* The same for a comm between cpu devices for at most `ranks` ranks. */
int comm_check_options(const struct comm_options *options, const char *what, int ranks,
                       struct muster_error *err);

/* ---- the object and its calls in progress (comm_call.c) ---- */

enum { COMM_CALLS = 64, COMM_NAME = 128 }; /* calls of one comm in progress at once: a further issue waits */
/* How long a wait sleeps before it checks its peers and its device. */
#define COMM_SLICE_NS (50 * NS_PER_MS)

struct comm_call {
    struct comm *comm;
    struct comm_op op;
    const void *send;
    void *recv;
    struct device_stream *stream; /* NULL: the operation runs on the calling thread alone */
};

typedef int comm_run(struct comm *comm, const struct comm_call *call, struct muster_error *err);

struct comm {
    int rank, size;
    char name[COMM_NAME]; /* for messages: its key, truncated if too long; "alone" without one */
    const int *names;     /* [size] its ranks in messages, of a comm inside another; NULL: as they are */
    int64_t timeout_ns;
    struct device *device;
    const struct device_ops *device_ops;
    comm_run *run; /* on the stream */
    _Atomic(uint64_t) issued, finished;
    _Atomic(uint64_t) last_issued, last_finished; /* struct comm_seen in one word */
    struct futex_word moved;                      /* changes whenever a call finishes */
    _Atomic(int64_t) busy_ns;
    struct comm_call calls[COMM_CALLS];
};

static inline int comm_named(const struct comm *comm, int rank)
{
    return comm->names ? comm->names[rank] : rank;
}
/* Fills a zeroed one; the options are already checked. */
void comm_init(struct comm *comm, const struct comm_options *options, comm_run *run);
/* Options of a split-off comm, with comm's time-out and device; its kind adds what else it needs. key is
 * borrowed. */
struct comm_options comm_part_options(const struct comm *comm, int rank, int size, const char *key);

/* Enqueues op; comm->run does it later on the stream's thread, and its error goes to the device. Waits while
 * COMM_CALLS operations are under way; fails with the device's error once the device has failed. */
int comm_call_issue(struct comm *comm, const struct comm_op *op, const void *send, void *recv,
                    struct device_stream *stream, struct muster_error *err);
/* The same on the calling thread, at once; fails where operations are still under way. */
int comm_call_run(struct comm *comm, const struct comm_op *op, const void *send, void *recv,
                  struct muster_error *err);
/* For a kind with a ring of its own: what status reports as issued and finished last. */
void comm_note_issued(struct comm *comm, const struct comm_op *op);
void comm_note_finished(struct comm *comm, const struct comm_op *op);
int64_t comm_busy_ns(struct comm *comm);
/* Operations issued and finished; no rank is reported missing yet. */
void comm_status_begin(struct comm *comm, struct comm_status *status);
void comm_status_add(struct comm_status *status, int missing);

#endif
