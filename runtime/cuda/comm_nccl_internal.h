/* comm_nccl_internal.h - a create of comm_nccl and the comms that were split from it are a family: one
 * failure, one thread that watches, one order of operations.
 *
 * Files, each of which calls only those above it:
 *   comm_nccl_family.c  the state of a family: its comms, its failure, the abort
 *   comm_nccl_stage.c   buffers
 *   comm_nccl_look.c    progress of a comm: ended operations, a late operation, NCCL's own error
 *   comm_nccl_peers.c   messages with the peers: received, sent
 *   comm_nccl_end.c     the end of communicators
 *   comm_nccl_issue.c   operations
 *   comm_nccl_watch.c   the family's thread, from its start to its end
 *   comm_nccl.c         the comm object
 *
 * Work of the thread, every tenth of a second and after each wake-up:
 *  - asks NCCL for each communicator's asynchronous error;
 *  - looks which operations have begun and ended (events around each). An operation that has run for the
 * comm's time-out is reported with its number, its kind, and the ranks that have not issued it - if all
 * have, the text states that, and the thread asks NCCL's RAS service for its knowledge (the report of
 * comm.h);
 *  - notices that another rank has ended, failed or left (comm_nccl_news.h), and that this rank's device has
 *    failed, which it reports to the others;
 *  - prefers a peer's report to an NCCL error that this peer's end has caused (nccl_peers_reason);
 *  - after the first failure aborts all communicators in one group: one by one, an abort would wait for
 * device work that waits for another communicator's. Work on the streams then ends, with nothing computed.
 * A thread that destroys a comm of a failed family does the same where it gets there first.
 *
 * Why a thread: the issuing thread may be waiting for a full stream, or for the device.
 *
 * NCCL's communicators. The first, the base, does not block, so that its making can be given up. It makes the
 * comms' communicators by splits that share its resources, its abort flag among them, and carries no
 * operation. Those block: NCCL starts a thread for each operation of a communicator that does not, and the
 * caller has to ask until it is done. With MUSTER_NCCL_ORDER=free nothing is shared: no communicator blocks,
 * and the first comm has the base itself.
 *
 * NCCL is called by the issuing, the watching and the destroying thread. Questions, makings and aborts do not
 * wait, and are made under the family's lock. Operations, splits of parts and ends of parts may wait: the
 * thread enters the comm (nccl_family_enter), and calls without the lock. No other thread uses that
 * communicator until it has left. An abort raises the base's flag first, which ends the call inside, and
 * takes the communicator after that. */
#ifndef MUSTER_RUNTIME_CUDA_COMM_NCCL_INTERNAL_H
#define MUSTER_RUNTIME_CUDA_COMM_NCCL_INTERNAL_H

#include <cuda_runtime_api.h>
#include <pthread.h>

#include "proto/base/buffer.h"
#include "proto/include/muster_error.h"
#include "runtime/comm/comm_internal.h"
#include "runtime/comm/comm_meet.h"
#include "runtime/comm/comm_tcp_internal.h"
#include "runtime/cuda/comm_nccl.h"
#include "runtime/cuda/comm_nccl_news.h"
#include "runtime/cuda/nccl_library.h"

#define NCCL_TICK_NS    (100 * NS_PER_MS) /* between looks */
#define NCCL_STILL_NS   (300 * NS_PER_MS) /* a comm without progress for so long is posted */
#define NCCL_ASK_NS     (500 * NS_PER_MS) /* time between questions about a comm without progress */
#define NCCL_VOTE_NS    (200 * NS_PER_MS) /* a splitting rank looks for failures of others this often */
#define NCCL_DESTROY_NS (5 * NS_PER_S)    /* at most, for the others' ends */
#define NCCL_OUTSIDE_NS (3 * NS_PER_S)    /* within which an abort flag has ended a call inside */
#define NCCL_REPORT_NS  (100 * NS_PER_MS) /* messages that a peer sent before its end take no longer */

/* Device and pinned memory of one comm for buffers that NCCL cannot use as they are. It grows at an operation
 * that needs more; the former memory stays until the comm ends, since work on it may be under way. */
enum { STAGE_BLOCKS = 24 };
struct nccl_stage {
    struct device_arena blocks[STAGE_BLOCKS];
    int count;
    struct device_arena *device, *pinned; /* the largest so far */
};

/* Events of one operation under way. */
struct nccl_slot {
    cudaEvent_t begun, ended;
    bool counts; /* its time: a group's counts once, as that of its first operation */
};

/* A copy on the stream's own time between a host's buffer and a pinned one. Once the family has failed none
 * is made: the caller's buffer may have gone. NCCL sends a pattern in place of it that is no number in any
 * float type: the peers do not know yet, and would take the last operation's data in the block for a result.
 */
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
    struct nccl_inside {    /* a call that may wait; under the family's lock */
        const char *what;   /* a name for messages; NULL: no thread is inside */
        struct instant since;
        int64_t limit_ns; /* after which the watching thread takes the call for hung */
        bool ends;        /* the call that ends the communicator */
    } inside;
    cudaEvent_t last_ended; /* end of the operation issued last, on last_stream; issuing thread only */
    cudaStream_t last_stream;
    cudaStream_t own;            /* for run */
    struct device_arena barrier; /* summands of barriers */
    struct nccl_slot slots[COMM_CALLS];
    struct nccl_copy copies_in[COMM_CALLS], copies_out[COMM_CALLS];
    struct nccl_stage stage;
    struct comm_board board; /* for splits; generation 0: not opened */
    uint32_t splits;
    /* Collectives' number, equal on all ranks: written by the issuing thread under the family's lock. */
    uint64_t collectives, chain;
    struct comm_op last;                            /* the last of them; the same */
    uint64_t place[COMM_CALLS], chains[COMM_CALLS]; /* both with the call in this slot */
    bool issuing;         /* NCCL has the call in the slot after the last that counts; family's lock */
    struct nccl_watched { /* state of the watching thread */
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

/* State of a create and of the splits from it. */
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
    void *sums; /* comm_options.sums */
    int64_t sums_bytes;
    int64_t end_ns;             /* an ending rank waits so long for the others' ends */
    bool by_schedule, blocking; /* blocking: communicators but for the base are */
    ncclComm_t base;            /* where blocking; under the lock; NULL: none (any more) */
    struct nccl_comm *comms;
    int numbers; /* given so far */
    struct nccl_making {
        /* Where NCCL puts the communicator that it makes, until its own thread has finished it:
         * also after the end of the comm, and again where it has put it there before. Read with
         * nccl_made. */
        ncclComm_t handle;
        bool taken;              /* it is or was a comm's, or is aborted */
    } makings[NEWS_COMMS + 1];   /* by number; the last is the base's */
    struct nccl_comm *last_comm; /* of the operation issued last; issuing thread only */
    /* Set once, under the lock: */
    _Atomic(bool) failed;
    bool sent, aborted; /* to the peers; the communicators are aborted */
    bool from_peer;     /* a peer sent it */
    bool of_device;     /* this rank's device had failed before */
    struct muster_error error;
    struct muster_error given_up; /* why all were aborted without a failure; code 0: they were not */
    char *report;                 /* what else is known about the failure, for people; owned */
    pthread_t watcher;
    bool watching;
    _Atomic(bool) ends;
    int wake;               /* eventfd */
    struct pollfd *polls;   /* for the watching thread: [size + 1] */
    struct nccl_news *news; /* NULL: one rank */
};

/* ---- comm_nccl_family.c ---- */

struct nccl_family *nccl_family_create(const struct comm_options *options, struct muster_error *err);
void nccl_family_free(struct nccl_family *family); /* for nccl_watch_drop */
void nccl_family_wake(struct nccl_family *family); /* wakes its thread */
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
/* The lock is held by the caller of these. */
enum { NCCL_BASE = NEWS_COMMS }; /* number of the base's making */
/* Puts the communicator that NCCL has put into a making into *handle; there may be none. */
void nccl_family_take(struct nccl_family *family, int number, ncclComm_t *handle);
/* For a call on the comm's communicator that may wait for peers: releases the lock until nccl_family_leave.
 * The call's `since` is filled in. */
void nccl_family_enter(struct nccl_family *family, struct nccl_comm *comm, struct nccl_inside call);
void nccl_family_leave(struct nccl_family *family, struct nccl_comm *comm);
/* For a call on a communicator that is no more, where the family has not failed. -1. */
int nccl_family_ended(struct nccl_family *family, const char *what, struct muster_error *err);
/* Aborts handles, all in one group, and waits for it. */
void nccl_family_abort(struct nccl_family *family, ncclComm_t *handles, int count);
/* Aborts the communicators that no comm has taken: of splits that went on when this rank had given them up.
 * The communicators that were split are aborted or destroyed, so that NCCL writes no more. */
void nccl_family_abort_rest(struct nccl_family *family);
/* After a failure, by the thread that gets there first: aborts all communicators in one group, once. */
void nccl_family_abort_all(struct nccl_family *family);
/* The same where a communicator could not be ended in order, which is no failure: later operations are
 * refused, with the first such reason. */
void nccl_family_give_up(struct nccl_family *family, const struct muster_error *why);

/* ---- comm_nccl_look.c: under the family's lock ---- */

/* Counts the operations that have ended on the device. */
int nccl_look_advance(struct nccl_comm *comm, struct muster_error *err);
/* The operation that has run the longest, as text; NULL: none is under way. */
const char *nccl_look_waiting_text(struct nccl_family *family, char text[COMM_CALL_TEXT]);
/* ", after broadcast #8 (...)": the last ended operation of a comm; "" if there is none. */
const char *nccl_look_last_text(struct nccl_family *family, char text[COMM_CALL_TEXT]);

/* Result of a look at a comm. */
struct nccl_look {
    struct nccl_note note; /* to be sent; kind NOTE_KIND_COUNT: nothing */
    struct muster_error error;
    ncclResult_t result; /* NCCL's result, where the error is NCCL's */
    bool late;
    bool given_up; /* the end of a communicator takes too long: all are aborted, and error is no failure */
};
void nccl_look_at(struct nccl_comm *comm, struct instant now, struct nccl_look *look);
/* Without the lock: a failure of the device for a reason of its own becomes the family's; the peers would
 * wait for us. */
void nccl_look_at_device(struct nccl_family *family);

/* ---- comm_nccl_peers.c: without the lock ---- */

void nccl_peers_serve(struct nccl_family *family); /* receives, and sends waiting messages */
void nccl_peers_send(struct nccl_family *family, struct nccl_note *note);
/* Sends the family's failure, once, and before any leaving: the peers would take that for the reason. */
void nccl_peers_send_failure(struct nccl_family *family);
/* Informs the peers that this rank has destroyed the comm; NULL: all of them. */
void nccl_peers_leave(struct nccl_family *family, const struct nccl_comm *comm);
/* After NCCL's error err on this rank. Where the end of a peer may cause such an error (NCCL: "remote process
 * exited or there was a network error"), the peers get a moment: a rank reports its failure before it ends,
 * and that report takes err's place. -1 always. */
int nccl_peers_reason(struct nccl_family *family, ncclResult_t result, struct muster_error *err);
/* Waits until the communicator's state is no more ncclInProgress. */
int nccl_peers_wait(struct nccl_family *family, ncclComm_t handle, struct instant deadline, const char *what,
                    struct muster_error *err);

/* ---- comm_nccl_end.c: without the lock ---- */

/* Ends the comm's communicator: in order, or by an abort after a failure. */
void nccl_end_comm(struct nccl_comm *comm);
/* Ends the base, after all that were split from it. */
void nccl_end_base(struct nccl_family *family);

/* ---- comm_nccl_issue.c ---- */

int nccl_exchange(struct comm *comm, const struct comm_transfer *transfers, int count,
                  struct device_stream *stream, struct muster_error *err);
int nccl_issue(struct comm *comm, const struct comm_op *op, const void *send, void *recv,
               struct device_stream *stream, struct muster_error *err);
int nccl_run(struct comm *comm, const struct comm_op *op, const void *send, void *recv,
             struct muster_error *err);

/* ---- comm_nccl_stage.c ---- */

/* The buffers that NCCL gets. */
struct nccl_buffers {
    const void *send;
    void *recv;
    bool stage_in, stage_out; /* through the host's memory */
    bool of_device;           /* the source is memory that CUDA knows: its work may write it until then */
    bool add;                 /* recv is the stage, to be added to the caller's */
};
/* Makes the smallest buffers, so that no operation of a step has to. */
int nccl_stage_open(struct nccl_comm *comm, struct muster_error *err);
int nccl_stage_prepare(struct nccl_comm *comm, const struct comm_call *call, struct nccl_buffers *buffers,
                       struct muster_error *err);
/* Enqueues the copies before and after the operation itself. On the comm's own stream the caller's
 * memory is read and written by the calling thread alone, before the operation and in nccl_stage_end:
 * nothing touches it after the call's return, even if the operation fails. */
int nccl_stage_in(struct nccl_comm *comm, const struct comm_call *call, int slot,
                  const struct nccl_buffers *buffers, cudaStream_t stream, struct muster_error *err);
int nccl_stage_out(struct nccl_comm *comm, const struct comm_call *call, int slot,
                   const struct nccl_buffers *buffers, cudaStream_t stream, struct muster_error *err);
void nccl_stage_end(struct nccl_comm *comm, int slot); /* after an operation without an error */
/* No copy of the host's buffers is made from here on. Under the family's lock. */
void nccl_stage_disarm(struct nccl_comm *comm);
void nccl_stage_free(struct nccl_comm *comm);

/* ---- comm_nccl_watch.c ---- */

/* Collective: connects the family with the other ranks' and starts its thread. */
int nccl_watch_connect(struct nccl_family *family, const struct comm_options *options,
                       struct muster_error *err);
void nccl_watch_drop(
    struct nccl_family *family); /* accepts NULL; the last reference ends thread and family */

/* ---- comm_nccl_ras.c ---- */

/* Asks NCCL's own service (RAS, from 2.24 on) how the communicators of the job are. Every
 * process with a communicator may answer for all, at a TCP port of its host. */

/* Appends the answer to "verbose status" from NCCL_RAS_ADDR (host:port; localhost:28028), up to out's limit,
 * within three seconds. -1: there is no answer, which is no failure of the job. */
int nccl_ras_ask(struct buffer *out, struct muster_error *err);

#endif
