/* comm_internal.h - what every kind of comm has: checks of operations, a ring of calls that are under way,
 * counters. A kind embeds `struct comm` as its first member. */
#ifndef MUSTER_RUNTIME_COMM_INTERNAL_H
#define MUSTER_RUNTIME_COMM_INTERNAL_H

#include <stdatomic.h>
#include <stddef.h>

#include "runtime/comm.h"
#include "runtime/futex.h"

/* ---- pure (comm.c) ---- */

/* Bytes that one rank receives from its peers: size-1 shards for all_gather, reduce_scatter and all_to_all,
 * two passes of (size-1)/size for all_reduce, count for broadcast and recv, none for send and barrier. */
int64_t comm_received_bytes(const struct comm_op *op, int size);
/* Whether the operation makes sense on this rank: known kind, dtype and reduction, count, root, buffers. */
int comm_check(const struct comm_op *op, int rank, int size, const void *send, const void *recv,
               struct muster_error *err);
/* Whether what two ranks issued belongs together: a send and a receive, or the same operation. */
bool comm_fits(const struct comm_op *a, const struct comm_op *b);
/* "all_gather of 100 f32", "broadcast of 3 i32 from rank 2"; returns out. */
enum { COMM_TEXT = 96 };
const char *comm_op_text(char out[COMM_TEXT], const struct comm_op *op);
/* Does the operation as if every rank had this rank's data: right for a size of 1, and what comm_delay does.
 * recv of a COMM_RECV is left as it is. */
void comm_mirror(const struct comm_op *op, int rank, int size, const void *send, void *recv);

/* ---- calls under way (comm_call.c) ---- */

enum { COMM_CALLS = 64 }; /* of one comm at once; a further issue waits */
/* How long a wait sleeps before it looks whether its peers live and its device is well. */
#define COMM_SLICE_NS (50 * NS_PER_MS)

struct comm_call {
    struct comm *comm;
    struct comm_op op;
    const void *send;
    void *recv;
};

struct comm {
    int rank, size;
    int64_t timeout_ns;
    struct device *device;
    const struct device_ops *device_ops;
    int (*run)(struct comm *comm, const struct comm_call *call, struct muster_error *err); /* on the stream */
    _Atomic(uint64_t) issued, finished;
    struct futex_word moved; /* changes whenever a call finished */
    _Atomic(int64_t) busy_ns;
    struct comm_call calls[COMM_CALLS];
};

/* Enqueues op; comm->run does it later on the stream's thread, and its error goes to the device. Waits while
 * COMM_CALLS operations are under way; fails with the device's error once the device has failed. */
int comm_call_issue(struct comm *comm, const struct comm_op *op, const void *send, void *recv,
                    struct device_stream *stream, struct muster_error *err);

/* Of a comm between cpu devices for at most `ranks` ranks; what: "a host comm". 0, or -1 with the value, the
 * limit and the way out. */
int comm_check_options(const struct comm_options *options, const char *what, int ranks,
                       struct muster_error *err);

#endif
