/* comm_nccl_internal.h - shared by comm_nccl.c (object), comm_nccl_issue.c (operations), comm_nccl_stage.c
 * (buffers), comm_nccl_family.c (state of all comms of one create) and comm_nccl_watch.c (its thread). */
#ifndef MUSTER_RUNTIME_CUDA_COMM_NCCL_INTERNAL_H
#define MUSTER_RUNTIME_CUDA_COMM_NCCL_INTERNAL_H

#include <cuda_runtime_api.h>
#include <pthread.h>

#include "runtime/comm/comm_internal.h"
#include "runtime/comm/comm_meet.h"
#include "runtime/comm/comm_tcp_internal.h"
#include "runtime/cuda/comm_nccl.h"
#include "runtime/cuda/comm_nccl_news.h"
#include "runtime/cuda/nccl_library.h"

/* Device and pinned memory of one comm for buffers that NCCL cannot use as they are. It grows at an operation
 * that needs more. Old blocks stay until the comm ends, since their work may be under way. */
enum { STAGE_BLOCKS = 24 };
struct nccl_stage {
    struct device_arena blocks[STAGE_BLOCKS];
    int count;
    struct device_arena *device, *pinned; /* the largest so far */
};

/* Events of one operation under way. */
struct nccl_slot {
    cudaEvent_t begun, ended;
};

/* A copy on the stream's own time between a host's buffer and a pinned buffer. Once the family has failed no
 * copy is made: the caller's buffer may have gone. NCCL then sends bytes that are no number in any float
 * type: the peers do not know of the failure yet, and would take the block's old content for a result. */
struct nccl_copy {
    struct nccl_family *family;
    void *to;
    const void *from; /* NULL: bytes of 0xff; under the family's copying */
    size_t bytes;     /* 0: nothing is to be done; under the family's copying */
};

struct nccl_comm {
    struct comm comm; /* calls[] are those under way, oldest at finished */
    struct nccl_family *family;
    struct nccl_comm *next; /* in the family */
    int number;             /* in the family, the same on all ranks; the first is 0 */
    int color;              /* 0 for the first */
    int *members;           /* [size]: ranks in the family's first comm */
    ncclComm_t handle;      /* under the family's lock; NULL: none any more */
    void **registered;      /* [registered_count] */
    int registered_count;
    cudaStream_t own;            /* for run */
    struct device_arena barrier; /* the number that a barrier sums up */
    struct nccl_slot slots[COMM_CALLS];
    struct nccl_copy copies_in[COMM_CALLS], copies_out[COMM_CALLS];
    struct nccl_stage stage;
    struct comm_board board; /* for splits; generation 0: not opened */
    uint32_t splits;
    /* Number and hash of the collectives, which all ranks number alike. The issuing thread writes them under
     * the family's lock. */
    uint64_t collectives, chain;
    uint64_t place[COMM_CALLS], chains[COMM_CALLS]; /* both with the call in this slot */
    bool issuing;         /* NCCL has the call in the slot after the last that counts; family's lock */
    struct nccl_watched { /* owned by the watching thread */
        struct instant changed, begun; /* since when nothing has moved; since when the oldest is at work */
        uint64_t issued, finished, posted_issued, posted_finished;
        bool posted, timing;
        struct instant asked;
    } watched;
    int missing[NEWS_MISSING], missing_count; /* the last answer, of collective missing_for; family's lock */
    uint64_t missing_for;
    struct { /* the rank of the family that left the comm after the fewest collectives; pid 0: none has */
        int rank, pid;
        uint64_t at;
    } left;
};

static inline struct nccl_comm *nccl_comm_of(struct comm *comm)
{
    return (struct nccl_comm *)comm; /* comm is its first member */
}

/* Shared by a create and the splits from it; see comm_nccl_family.h. */
struct nccl_family {
    pthread_mutex_t telling; /* before the lock: the failure is sent once, and before a leaving */
    pthread_mutex_t lock;    /* every NCCL call on a communicator, the list of comms, and the failure */
    pthread_mutex_t copying; /* after the lock: copies of the host's buffers */
    int references;
    const struct nccl_calls *calls;
    struct device *device;
    const struct device_ops *device_ops;
    int cuda_device, rank, size;
    char name[COMM_NAME];
    bool by_schedule, registers;
    struct nccl_comm *comms;
    int numbers; /* given so far */
    struct nccl_making {
        /* NCCL's thread stores the communicator here, until the making is done: also after the end of the
         * comm, and also where it has stored it before. Read with nccl_made. */
        ncclComm_t handle;
        bool taken;         /* a comm has or had the handle, or the handle is aborted */
    } makings[NEWS_COMMS];  /* index: a comm's number */
    cudaEvent_t last_ended; /* end of the operation issued last, on last_stream; issuing thread only */
    cudaStream_t last_stream;
    struct nccl_comm *last_comm;
    /* Set once, under the lock: */
    _Atomic(bool) failed;
    bool sent, aborted; /* to the peers; the communicators are aborted */
    bool from_peer;     /* a peer sent it */
    struct muster_error error;
    char *report; /* what else is known about the failure, for people; owned */
    pthread_t watcher;
    bool watching;
    _Atomic(bool) ends;
    int wake;               /* eventfd */
    struct pollfd *polls;   /* the watching thread's: [size + 1] */
    struct nccl_news *news; /* NULL: one rank */
};

/* ---- comm_nccl_family.c ---- */

struct nccl_family *nccl_family_create(const struct comm_options *options, struct muster_error *err);
/* Collective: connects it with the other ranks' and starts its thread. */
int nccl_family_connect(struct nccl_family *family, const struct comm_options *options,
                        struct muster_error *err);
void nccl_family_drop(struct nccl_family *family); /* accepts NULL; the last one ends the thread */
/* Adds a comm, complete but for its communicator, and gives it its number; -1: there are NEWS_COMMS already.
 */
int nccl_family_add(struct nccl_family *family, struct nccl_comm *comm, struct muster_error *err);
void nccl_family_remove(struct nccl_family *family, struct nccl_comm *comm);
/* The first reason counts: the device fails, the watching thread informs the peers and aborts. From any
 * thread.
 */
void nccl_family_fail(struct nccl_family *family, const struct muster_error *error);
/* Makes the calling thread use the family's device: before streams and events are made and kernels launched.
 */
int nccl_family_use(const struct nccl_family *family, struct muster_error *err);
/* 0, or -1 with the reason once the family has failed. */
int nccl_family_check(struct nccl_family *family, struct muster_error *err);
/* Waits until the communicator's state is no more ncclInProgress. */
int nccl_family_wait(struct nccl_family *family, ncclComm_t handle, struct instant deadline, const char *what,
                     struct muster_error *err);
/* The lock is held by the caller of these. */
/* Gives the comm the communicator that NCCL has put into its making; there may be none. */
void nccl_family_take(struct nccl_family *family, struct nccl_comm *comm);
/* Aborts handles, all in one group, and waits for it. */
void nccl_family_abort(struct nccl_family *family, ncclComm_t *handles, int count);
/* Aborts the communicators that no comm has taken: of splits that went on when this rank had given them up.
 * The communicators that were split are aborted or destroyed, so that NCCL writes no more. */
void nccl_family_abort_rest(struct nccl_family *family);
/* After a failure, by the thread that gets there first: aborts all communicators in one group, once. */
void nccl_family_abort_all(struct nccl_family *family);

/* ---- comm_nccl_watch.c ---- */

int nccl_watch_start(struct nccl_family *family, struct muster_error *err);
void nccl_watch_end(struct nccl_family *family);
void nccl_watch_wake(struct nccl_family *family);
/* Informs the peers that this rank has destroyed the comm; NULL: all of them. */
void nccl_watch_left(struct nccl_family *family, const struct nccl_comm *comm);

/* After NCCL's error err on this rank, and without the lock. Where the end of a peer causes such an error,
 * too (NCCL: "remote process exited or there was a network error"), the peers get a moment: a rank reports
 * its failure before it ends, and that is the reason, which takes err's place. -1 always. */
int nccl_watch_hear(struct nccl_family *family, ncclResult_t result, struct muster_error *err);

/* ---- comm_nccl_issue.c ---- */

int nccl_issue(struct comm *comm, const struct comm_op *op, const void *send, void *recv,
               struct device_stream *stream, struct muster_error *err);
int nccl_run(struct comm *comm, const struct comm_op *op, const void *send, void *recv,
             struct muster_error *err);
/* Counts operations that have ended on the device; under the family's lock. */
int nccl_advance(struct nccl_comm *comm, struct muster_error *err);

/* ---- comm_nccl_stage.c ---- */

/* The buffers that NCCL gets. */
struct nccl_buffers {
    const void *send;
    void *recv;
    bool stage_in, stage_out; /* through the host's memory */
    bool of_device;           /* send is memory that CUDA knows: work on the device may write it until then */
    bool add;                 /* recv is the stage, to be added to the caller's */
};
int nccl_stage_prepare(struct nccl_comm *comm, const struct comm_call *call, struct nccl_buffers *buffers,
                       struct muster_error *err);
/* Enqueue the copies before and after the operation itself. On the comm's own stream the caller's
 * memory is read and written by the calling thread alone, before the operation and in nccl_stage_end.
 * So nothing touches that memory after the call has returned, even if the operation fails. */
int nccl_stage_in(struct nccl_comm *comm, const struct comm_call *call, int slot,
                  const struct nccl_buffers *buffers, cudaStream_t stream, struct muster_error *err);
int nccl_stage_out(struct nccl_comm *comm, const struct comm_call *call, int slot,
                   const struct nccl_buffers *buffers, cudaStream_t stream, struct muster_error *err);
void nccl_stage_end(struct nccl_comm *comm, int slot); /* for an operation that has ended well */
/* No copy of the host's buffers is made from here on. Under the family's lock. */
void nccl_stage_disarm(struct nccl_comm *comm);
void nccl_stage_free(struct nccl_comm *comm);

#endif
