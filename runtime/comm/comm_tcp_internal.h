/* comm_tcp_internal.h - what comm_tcp.c (object), comm_tcp_link.c (connections), comm_tcp_wire.c (bytes and
 * failures) and comm_tcp_move.c (operations) share. */
#ifndef MUSTER_RUNTIME_COMM_COMM_TCP_INTERNAL_H
#define MUSTER_RUNTIME_COMM_COMM_TCP_INTERNAL_H

#include <netdb.h>
#include <sys/uio.h>

#include "proto/base/clock.h"
#include "runtime/comm/comm_internal.h"
#include "runtime/comm/comm_meet.h"
#include "runtime/comm/comm_tcp.h"

enum { TCP_ADDRESS = 64 };

/* In front of each operation's data, in the byte order of the machine; another one fails the magic. */
struct tcp_header {
    uint32_t magic;
    uint8_t kind, dtype, reduction, accumulate;
    int32_t root;
    uint32_t tag;
    int64_t count;
    uint64_t sequence;
};

/* Transfers still open between us and one peer: a header, then data. */
struct tcp_flow {
    struct iovec out[2], in[2];
    struct tcp_header mine, theirs;
    bool heard; /* the peer's header has arrived and matches */
};

enum tcp_role { TCP_DATA, TCP_NEWS, TCP_ROLE_COUNT };

struct tcp_peer {
    int fds[TCP_ROLE_COUNT]; /* -1: ourselves, or not connected yet */
    bool ended, left;        /* no further data from it; left: it closed deliberately */
    uint64_t sequence;       /* of sends and receives with it */
    _Atomic(bool) awaited;   /* its header has not arrived, and we wait for it */
    struct tcp_flow flow;
};

struct tcp_comm {
    struct comm comm;
    char address[TCP_ADDRESS]; /* numeric, of this rank */
    struct comm_board board;   /* its key is the comm's name */
    uint32_t splits;
    uint64_t sequence; /* of collectives */
    int wake;          /* eventfd: the comm was aborted */
    _Atomic(bool) aborted, notified;
    bool star;              /* connect rank 0 with every other rank, and those not with each other */
    struct tcp_peer *peers; /* [size] */
    struct pollfd *polls;   /* [1 + 2 * size] */
    char *scratch;          /* [size] chunks */
    int64_t chunk_bytes;
};

/* One operation while it runs. */
struct tcp_run {
    struct tcp_comm *tcp;
    const struct comm_call *call;
    uint64_t sequence;
};

static inline struct tcp_comm *tcp_comm_of(struct comm *comm)
{
    return (struct tcp_comm *)comm; /* comm is its first member */
}

/* ---- comm_tcp_link.c ---- */

/* Collective: fills address and the peers' descriptors. faces_store: the address is that of the connection
 * to the store and may be loopback; otherwise it is final. */
int tcp_connect(struct tcp_comm *tcp, bool faces_store, struct muster_error *err);

/* ---- comm_tcp_wire.c ---- */

/* Begins an operation with a peer: headers both ways; nothing is transferred yet. */
void tcp_greet(const struct tcp_run *run, int peer);
/* Appends data to a direction; at most one piece, and only if none is pending. */
void tcp_give(const struct tcp_run *run, int peer, const void *data, int64_t bytes);
void tcp_take(const struct tcp_run *run, int peer, void *data, int64_t bytes);
/* Transfers bytes until all data has arrived and, with `sent`, all of ours has been sent. On -1 the comm
 * is broken for every rank. */
int tcp_drive(const struct tcp_run *run, bool sent, struct muster_error *err);
/* The first call notifies every peer (code 0: we leave) and closes our side. From any thread. */
void tcp_tell(struct tcp_comm *tcp, const struct muster_error *error);

/* ---- comm_tcp_move.c ---- */

/* Does one operation; called on the stream's thread. */
int tcp_run_call(struct comm *comm, const struct comm_call *call, struct muster_error *err);

#endif
