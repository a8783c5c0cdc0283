/* comm.h - collectives between ranks: asynchronous on a stream, numbered, and an error rather than a hang
 * when a peer dies.
 *
 * A comm is one communicator: an ordered channel between `size` ranks. All ranks issue the same operations in
 * the same order; each carries a sequence number and a signature (kind, count, dtype, reduction, root), and a
 * mismatch is an error on every rank that names both ranks and both signatures. A comm belongs to one stream
 * at a time. Overlap needs two comms (comm_split).
 *
 * Reductions run in rank order 0..size-1 in the dtype's own arithmetic, so that results do not depend on
 * timing. */
#ifndef MUSTER_RUNTIME_COMM_COMM_H
#define MUSTER_RUNTIME_COMM_COMM_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/kernels.h"
#include "proto/include/muster_error.h"
#include "rendezvous/store/kv_store.h"
#include "runtime/device/device.h"

enum { COMM_ABI = 6 };

#define COMM_KINDS(X)                                                                                        \
    X(COMM_ALL_GATHER, "all_gather")                                                                         \
    X(COMM_REDUCE_SCATTER, "reduce_scatter")                                                                 \
    X(COMM_ALL_REDUCE, "all_reduce")                                                                         \
    X(COMM_BROADCAST, "broadcast")                                                                           \
    X(COMM_ALL_TO_ALL, "all_to_all")                                                                         \
    X(COMM_SEND, "send")                                                                                     \
    X(COMM_RECV, "recv")                                                                                     \
    X(COMM_BARRIER, "barrier")
enum comm_kind {
#define COMM_KIND_ENUM(symbol, name) symbol,
    COMM_KINDS(COMM_KIND_ENUM)
#undef COMM_KIND_ENUM
        COMM_KIND_COUNT
};
const char *comm_kind_name(enum comm_kind kind);

enum comm_reduction { REDUCE_SUM, REDUCE_AVERAGE, REDUCE_MAX };
const char *comm_reduction_name(enum comm_reduction reduction);

/* count: elements that one rank contributes or gets.
 *   all_gather      send (count), recv (size*count) in rank order; in place: send == recv + rank*count
 *   reduce_scatter  send (size*count), recv (count); recv may be send + rank*count
 *   all_reduce      send (count), recv (count); may be equal
 *   broadcast       recv (count) of root goes into recv of all; send is not read
 *   all_to_all      send (size*count), recv (size*count): block j of rank i becomes block i of rank j
 *   send, recv      count, root is the peer
 * Accumulate (reduce_scatter, all_reduce): recv += result instead of =. */
struct comm_op {
    enum comm_kind kind;
    enum dtype dtype;
    enum comm_reduction reduction;
    bool accumulate;
    int root;
    uint32_t tag; /* the caller's own number: equal on all ranks, or an error names both; 0: none */
    int64_t count;
};

/* A record of an operation that has ended. */
struct comm_seen {
    enum comm_kind kind;
    enum dtype dtype;
    int64_t count; /* below 2^48 */
};
struct comm_status {
    uint64_t issued,
        finished; /* sequence numbers of the last issued and the last finished operation; 0: none */
    struct comm_seen last_issued, last_finished;
    int missing[8],
        missing_count; /* ranks that have not reached operation finished+1 although we have, at most 8 */
};

/* One operation of a group, of at most COMM_TRANSFERS. */
enum { COMM_TRANSFERS = 64 };
struct comm_transfer {
    struct comm_op op; /* COMM_SEND or COMM_RECV */
    const void *send;
    void *recv;
};

struct comm;

struct comm_options {
    int rank, size;
    const struct kv_store
        *store;         /* how ranks find each other; kept for split, used by its caller's thread only */
    const char *key;    /* prefix of the keys, unique for this comm */
    int64_t timeout_ns; /* limit for create, and for an operation's wait for peers */
    struct device *device;
    const struct device_ops *device_ops;
    /* Arenas of COMM memory whose bytes may be sent (operations on other memory are staged through a copy).
     */
    const struct device_arena *arenas;
    int arena_count;
    const char *address; /* for comm_tcp: numeric, this rank's as the store sees it; NULL: loopback */
    int node;            /* for comm_node: only ranks of a machine with the same number share memory */
    /* Device memory for the reductions of a comm that adds apart, shared with its splits: as large as the
     * largest result. NULL: the comm makes it at the first operation that needs it. The caller adds on one
     * stream at a time. */
    void *sums;
    int64_t sums_bytes;
};

struct comm_ops {
    uint32_t abi, size;
    const char *name; /* "host", "tcp", "node", "delay", "nccl" */
    bool serial; /* operations of all comms of a device run one after another, so that several streams lose
                  * nothing by sharing one */
    bool adds_apart; /* a result that is added to its buffer goes to comm_options.sums first */
    struct comm *(*create)(const struct comm_options *options, struct muster_error *err);
    void (*destroy)(struct comm *comm); /* accepts NULL; its stream must be empty */
    /* Collective: ranks of one color form a new comm, ranked by key, then by old rank. */
    struct comm *(*split)(struct comm *comm, int color, int key, const char *name, struct muster_error *err);
    /* Enqueues on the stream and returns. Errors found later go to device_ops->fail. The buffers are read and
     * written on the stream's time; but a host's own memory, which the device's work cannot write, may be
     * read before this returns. */
    int (*issue)(struct comm *comm, const struct comm_op *op, const void *send, void *recv,
                 struct device_stream *stream, struct muster_error *err);
    /* Enqueues sends and receives that begin and end together: none of them waits for another one. Between
     * two ranks they meet in the order of the groups, and in their order within a group. NULL where
     * operations on several streams run side by side: there each direction has a stream. */
    int (*exchange)(struct comm *comm, const struct comm_transfer *transfers, int count,
                    struct device_stream *stream, struct muster_error *err);
    /* Does op on the calling thread and returns when it is done: for a caller that would wait for it at once,
     * two hand-overs between threads less (half of the time of 64 KB). Everything issued before must have
     * finished. An error goes to device_ops->fail as well. */
    int (*run)(struct comm *comm, const struct comm_op *op, const void *send, void *recv,
               struct muster_error *err);
    void (*status)(struct comm *comm, struct comm_status *status); /* from any thread */
    int64_t (*busy_ns)(
        struct comm *comm); /* time spent inside operations so far: the total that exposure is held against */
    /* From any thread: makes every waiting and later operation fail at once. */
    void (*abort)(struct comm *comm);
    /* Appends lines of text on the comm's failure that are too long for an error; NULL: there never are any.
     * From any thread. */
    int (*report)(struct comm *comm, struct buffer *out);
};

/* Shared memory inside one node. */
const struct comm_ops *comm_shm(void);

/* TCP between nodes, on the CPU device; see comm_tcp_internal.h. */
const struct comm_ops *comm_tcp(void);

/* Shared memory inside each node and TCP between nodes, in one comm; see comm_node.h. */
const struct comm_ops *comm_node(void);

/* Between GPUs: comm_nccl of the CUDA module (runtime/cuda/comm_nccl.h). */

/* Every operation completes `latency_ns + bytes * ns_per_byte` after it could start (bytes: what one rank
 * would receive), and costs no CPU while it waits: proves overlap where two busy cores cannot. There are
 * no peers: every other rank is assumed to hold this rank's data (a gather repeats this rank's shard; a
 * reduction multiplies by the size). */
struct comm_delay_options {
    int64_t latency_ns;
    double ns_per_byte;
};
struct comm *comm_delay_create(const struct comm_options *options, const struct comm_delay_options *delay,
                               struct muster_error *err);
const struct comm_ops *comm_delay(void); /* its create uses zero delay; use comm_delay_create */

#endif
