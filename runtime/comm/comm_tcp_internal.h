/* comm_tcp_internal.h - collectives over TCP: the protocol, and the parts that its files share.
 *
 * Connections. Up to TCP_FULL_RANKS ranks every two have some. In larger comms rank r has them to the ranks
 * r + 2^k and r - 2^k, which makes at most 2 log2(size) peers; another pair connects when it first sends and
 * receives. Each two peers have two connections: one for data, one on which a rank reports why it failed, or
 * that it leaves.
 *
 * Meeting. Every rank listens and publishes its address, port and a random token in the store. Of two peers
 * the higher rank calls, and presents the token of the rank that it calls; connections without it are
 * dropped. A rank makes O(log size) requests to the store. Larger comms then exchange all addresses over
 * their own connections, and so does every split, which needs no store. A rank's address is the local
 * address of its connection to the store; ranks on the store's own node may see only loopback there and then
 * take the address that faces a rank on another node.
 *
 * Operations. The first data that passes between two ranks in an operation has a header in front: the
 * sender's operation. Headers that do not match end the comm on every rank. Results have the bits of the host
 * comm: every sum is made in rank order.
 *   - Up to TCP_FULL_RANKS ranks: all connections at once. Blocks go straight to the rank that needs them; a
 *     large all_reduce is summed in slices.
 *   - More ranks, small: by doubling. In step k rank r sends all values that it has to r + 2^k. After
 * log2(size) steps it has the values of all ranks and sums them by itself.
 *   - More ranks, large: along the chain 0, 1, 2, ..., piece by piece. A rank adds its values to the sum that
 *     comes from the rank before. The last rank sends the result back along the chain. All connections of the
 *     chain work at once, in both directions.
 *
 * Failures. A rank that fails reports the reason to its peers, and they pass the report on to theirs, so that
 * every rank ends with the first reason. Reasons are: a lost peer (its connection closes; if its node died
 * silently, keep-alive detects it after a minute and the launcher sooner), operations that do not match,
 * timeout_ns without a byte, an abort, a failure of the device. */
#ifndef MUSTER_RUNTIME_COMM_COMM_TCP_INTERNAL_H
#define MUSTER_RUNTIME_COMM_COMM_TCP_INTERNAL_H

#include <netdb.h>
#include <pthread.h>
#include <sys/uio.h>

#include "proto/base/clock.h"
#include "runtime/comm/comm_internal.h"
#include "runtime/comm/comm_meet.h"

enum {
    TCP_FULL_RANKS = 8,           /* up to so many ranks all have connections to each other */
    TCP_CHUNK_BYTES = 256 * 1024, /* a peer's part of scratch: data that waits to be summed */
    TCP_SCRATCH_BYTES = 2 << 20,  /* for each comm */
    TCP_EAGER_BYTES = 16 * 1024,  /* an all_reduce up to this size sends everything to all ranks */
    /* More ranks than TCP_FULL_RANKS: */
    /* All ranks' data together, up to which operations double. A sum of all values by every rank costs more
     * than the rest: at 64 ranks and 1 KB it takes 3 times a chain's processor time, for 6 steps in place of
     * 126. */
    TCP_DOUBLING_BYTES = 512 * 1024,
    TCP_SUMMED_BYTES = 64 * 1024, /* the same for all_reduce */
    TCP_PIECE_BYTES = 64 * 1024,  /* a message of a chain */
    TCP_GROUP_BYTES = 256 * 1024, /* as TCP_DOUBLING_BYTES, where ranks stand for several: see comm_node.h */
};

enum { TCP_ADDRESS = 64, TCP_TOKEN_BYTES = 16 };

/* The record that a rank publishes in the store. */
struct tcp_listing {
    char address[TCP_ADDRESS];
    char host[64]; /* for people */
    unsigned char token[TCP_TOKEN_BYTES];
    uint16_t port;
};

/* In front of an operation's first data between two ranks, in the byte order of the machine; another one
 * fails the magic. */
struct tcp_header {
    uint32_t magic;
    uint8_t kind, dtype, reduction, accumulate;
    int32_t root;
    uint32_t tag;
    int64_t count;
    uint64_t sequence;
};
enum { TCP_SPLIT_KIND = 255 }; /* the exchange of votes and addresses of a split; no enum comm_kind */

/* Transfers still open between us and one peer: a header, then data in at most two places. */
enum { TCP_PARTS = 3 };
struct tcp_flow {
    struct iovec out[TCP_PARTS], in[TCP_PARTS];
    struct tcp_header mine, theirs;
    bool greets, expects;       /* our header is on its way or was sent; theirs was asked for */
    bool heard;                 /* the peer's header has arrived and matches */
    bool may_send, may_receive; /* false: the last try found no room, or no data */
};

enum tcp_role { TCP_DATA, TCP_NEWS, TCP_ROLE_COUNT };

struct tcp_peer {
    int fds[TCP_ROLE_COUNT]; /* -1: ourselves, or not connected */
    bool ended, left;        /* no further data from it; left: it closed deliberately */
    uint64_t sequence;       /* counts sends and receives with it */
    _Atomic(bool) awaited;   /* its header has not arrived, and we wait for it */
    struct tcp_flow flow;
};

struct tcp_comm {
    struct comm comm;
    char address[TCP_ADDRESS]; /* numeric, of this rank */
    struct comm_board board;   /* its key is the comm's name */
    uint32_t splits;
    uint64_t sequence; /* counts collectives */
    bool star;         /* connect rank 0 with every other rank, and those not with each other */
    int wake;          /* eventfd: the comm was aborted */
    int watch;         /* epoll of wake and the peers' reports; -1: none, of a caller without operations */
    int listener;      /* -1: none, as all connections are made */
    _Atomic(bool) aborted;
    struct tcp_callers *callers; /* callers since the comm was made; NULL: not asked yet */
    struct tcp_listing mine;
    struct tcp_listing *listings; /* [size] of all ranks; NULL while they are in the store */
    pthread_mutex_t lock;         /* protects notified, links and link_count */
    bool notified;                /* tcp_tell was called */
    int *links, link_count;       /* ranks that we have connections to, or make them; room for size */
    struct tcp_peer *peers;       /* [size] */
    struct pollfd *polls;         /* [1 + 2 * size] */
    int *polled;                  /* [size] the ranks of polls, while waiting */
    int open_out, open_in;        /* flows that still send, and that still receive */
    const void **sources;         /* [size] */
    char *scratch;                /* scratch_bytes */
    int64_t scratch_bytes;
    int64_t chunk_bytes; /* each rank's part of scratch, in a comm with all connections */
};

/* The values of a local rank: block b begins at at + b * stride. */
struct tcp_given {
    const char *at;
    int64_t stride; /* bytes */
};

/* An operation in which each rank stands for a run of ranks of another comm: see comm_node.h. */
struct tcp_group {
    const struct comm_call *shown; /* the other comm's operation: in headers and messages */
    const int *first;              /* [size + 1] the first of each rank's run */
    const struct tcp_given *given; /* [length of ours] */
    int64_t count;                 /* elements of a block that pass here */
    bool gathers;                  /* an all_reduce: all values instead of their sum */
    char *result;                  /* see tcp_run_group */
};

/* One operation while it runs. */
struct tcp_run {
    struct tcp_comm *tcp;
    const struct comm_call *call;
    uint64_t sequence;
    bool splits;                   /* the exchange of a split in place of an operation */
    const struct tcp_group *group; /* NULL: ranks stand for themselves */
};
/* The first block of a rank; of size: how many there are. */
static inline int tcp_block(const struct tcp_run *run, int rank)
{
    return run->group ? run->group->first[rank] : rank;
}

static inline struct tcp_comm *tcp_comm_of(struct comm *comm)
{
    return (struct tcp_comm *)comm; /* comm is its first member */
}
/* Whether a rank has connections to some others only. */
static inline bool tcp_is_sparse(const struct tcp_comm *tcp)
{
    return tcp->comm.size > TCP_FULL_RANKS && !tcp->star;
}
/* The rank so many places after ours, round the end. */
static inline int tcp_rank_after(const struct tcp_comm *tcp, int places)
{
    return (int)(((int64_t)tcp->comm.rank + places + tcp->comm.size) % tcp->comm.size);
}

/* ---- comm_tcp.c ---- */

/* Memory and descriptors of a zeroed comm whose comm, address and board are set; free also after an error. */
int tcp_allocate(struct tcp_comm *tcp, bool operations, struct muster_error *err);
void tcp_free(struct tcp_comm *tcp);

/* ---- comm_tcp_link.c ---- */

/* A listening socket at address, or -1; *mine is to be published. */
int tcp_open_listener(const char *address, struct tcp_listing *mine, struct muster_error *err);
/* Collective: finds the peers in the store and connects. faces_store: the address is that of the connection
 * to the store and may be loopback; otherwise it is final. */
int tcp_meet(struct tcp_comm *tcp, bool faces_store, struct muster_error *err);
/* Collective, with listener and mine set: connects to the links, by the listings or by those in the store. */
int tcp_connect(struct tcp_comm *tcp, struct muster_error *err);
/* Connects to a rank that is no link yet; that rank does the same. On -1 the comm is broken. */
int tcp_reach(const struct tcp_run *run, int rank, struct muster_error *err);

/* ---- comm_tcp_answer.c ---- */

/* First message of a caller; the rank that it calls answers with its own rank. */
struct tcp_hello {
    uint64_t magic;
    unsigned char token[TCP_TOKEN_BYTES]; /* the called rank's */
    int32_t rank, size, role, reserved;
};
#define TCP_HELLO_MAGIC UINT64_C(0x3170637473756d31)
struct tcp_hello tcp_hello_of(const struct tcp_comm *tcp, const unsigned char *token, int role);
int tcp_send_hello(int fd, const struct tcp_hello *hello, const char *what, struct muster_error *err);
int tcp_prepare_socket(int fd, enum tcp_role role, struct muster_error *err);
/* Answers callers until all higher links have both connections, by the board's deadline. */
int tcp_answer_links(struct tcp_comm *tcp, struct muster_error *err);
/* The same for one higher rank that is no link, while an operation runs. */
int tcp_answer_one(const struct tcp_run *run, int rank, struct instant deadline, struct muster_error *err);
void tcp_forget_callers(struct tcp_comm *tcp);
/* As comm_await_peer; with a run, as comm_await, and a reason to stop ends it, too. */
int tcp_await(const struct tcp_comm *tcp, const struct tcp_run *run, struct pollfd *entries, int count,
              struct instant deadline, const char *what, struct muster_error *err);

/* ---- comm_tcp_wire.c ---- */

/* Waits for reports of a peer that is connected now; makes it a link if it is none. */
int tcp_watch(struct tcp_comm *tcp, int rank, struct muster_error *err);
/* Begins an operation: with one peer, or with all links (peer -1). Nothing is transferred yet. */
void tcp_begin(const struct tcp_run *run, int peer);
/* Appends data to a direction; at most one piece, and only if none is pending. The operation's first has a
 * header in front, also if it has no data. */
void tcp_give(const struct tcp_run *run, int peer, const void *data, int64_t bytes);
void tcp_take(const struct tcp_run *run, int peer, void *data, int64_t bytes);
/* Blocks first..first+count-1 of `all`, which is a ring of size blocks; first may be below 0. */
void tcp_give_blocks(const struct tcp_run *run, int peer, const char *all, int64_t bytes, int first,
                     int count);
void tcp_take_blocks(const struct tcp_run *run, int peer, char *all, int64_t bytes, int first, int count);
bool tcp_gives(const struct tcp_run *run, int peer); /* still */
bool tcp_takes(const struct tcp_run *run, int peer);
/* Transfers bytes until all data has arrived, until all of ours has been sent, too, or until a pending
 * direction is done. On -1 the comm is broken for every rank. */
enum tcp_until { TCP_RECEIVED, TCP_ALL, TCP_ONE };
int tcp_drive(const struct tcp_run *run, enum tcp_until until, struct muster_error *err);
/* A reason to stop that came from elsewhere: an abort, a peer's report, the device. */
int tcp_interrupted(const struct tcp_run *run, struct muster_error *error);
/* Reports error to all and fills err with it; returns -1. */
int tcp_break(const struct tcp_run *run, struct muster_error *error, struct muster_error *err);
/* The first call notifies every peer (code 0: we leave) and closes our side. From any thread. */
void tcp_tell(struct tcp_comm *tcp, const struct muster_error *error);

/* ---- comm_tcp_move.c, comm_tcp_doubling.c, comm_tcp_chain.c ---- */

/* Does one operation; called on the stream's thread. */
int tcp_run_call(struct comm *comm, const struct comm_call *call, struct muster_error *err);
/* Gathers records of all ranks, as part of a split or of meeting: all[rank] is ours already. */
int tcp_gather_records(struct tcp_comm *tcp, void *all, int64_t bytes, struct muster_error *err);

/* A collective of runs of ranks, all of which hand in their values at our rank. group->result gets
 *   all_gather      every rank's block, in rank order
 *   all_reduce      with `gathers` the same; else the sum, as comm_sum_end leaves it
 *   reduce_scatter  the sums of our run's blocks
 *   broadcast       the values; on the rank with the root they are there already; call->op.root is that rank
 */
int tcp_run_group(struct tcp_comm *tcp, const struct comm_call *call, uint64_t sequence,
                  const struct tcp_group *group, struct muster_error *err);
/* Collectives of a sparse comm after tcp_begin. blocks of `bytes` in rank order; ours is there. */
int tcp_gather_doubling(const struct tcp_run *run, char *all, int64_t bytes, struct muster_error *err);
/* Begins a collective of a comm whose ranks have connections to all; to neighbours and rank +- 2^k. */
void tcp_begin_full(const struct tcp_run *run);
void tcp_begin_sparse(const struct tcp_run *run);
/* All_gather and all_to_all where all ranks have connections; after tcp_begin_full. */
int tcp_gather_full(const struct tcp_run *run, struct muster_error *err);
int tcp_all_reduce_doubling(const struct tcp_run *run, struct muster_error *err);
int tcp_broadcast_doubling(const struct tcp_run *run, struct muster_error *err);
/* all_to_all and reduce_scatter: blocks pass by doubling. */
int tcp_blocks_doubling(const struct tcp_run *run, struct muster_error *err);
/* all_reduce and reduce_scatter: sums pass up the chain, results down. */
int tcp_reduce_chain(const struct tcp_run *run, struct muster_error *err);
int tcp_gather_ring(const struct tcp_run *run, struct muster_error *err);
int tcp_broadcast_chain(const struct tcp_run *run, struct muster_error *err);

#endif
