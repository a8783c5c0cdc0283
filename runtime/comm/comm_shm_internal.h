/* comm_shm_internal.h - what comm_shm.c (object), comm_shm_wait.c (barrier and failures) and
 * comm_shm_move.c (data) share. */
#ifndef MUSTER_RUNTIME_COMM_COMM_SHM_INTERNAL_H
#define MUSTER_RUNTIME_COMM_COMM_SHM_INTERNAL_H

#include "runtime/comm/comm_internal.h"
#include "runtime/comm/comm_shm.h"
#include "runtime/comm/comm_shm_channel.h"
#include "runtime/comm/comm_shm_link.h"

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
