/* comm_nccl_family.h - a create of comm_nccl and all that was split from it: one failure, one thread that
 * watches, one order of operations.
 *
 * What the thread does, every tenth of a second and when it is woken:
 *  - asks NCCL for each communicator's asynchronous error;
 *  - looks which operations have begun and ended (events around each). One that has been at work for the
 * comm's time-out is reported with its number, what it is, and the ranks that have not issued it - if all
 * have, the text states that, and the thread asks NCCL's RAS service what it knows (the report of comm.h);
 *  - notices that another rank has ended, failed or left (comm_nccl_news.h), and that this rank's device has
 *    failed, which it reports to the others;
 *  - prefers what a peer reports to an NCCL error that this peer's end has caused (nccl_watch_hear);
 *  - after the first failure aborts all communicators in one group: one by one, an abort would wait for
 * device work that waits behind another communicator's. Work on the streams then ends, with nothing computed.
 * A thread that destroys a comm of a failed family does the same where it gets there first.
 *
 * Why a thread: the one that issues may be waiting for a full stream, or for the device.
 *
 * NCCL is called by the thread that issues, the one that watches and the one that destroys, each under the
 * family's lock. No call that is made there waits: communicators do not block, and what is under way is asked
 * for with the lock released in between. So an abort never waits for another call. */
#ifndef MUSTER_RUNTIME_CUDA_COMM_NCCL_FAMILY_H
#define MUSTER_RUNTIME_CUDA_COMM_NCCL_FAMILY_H

#include "runtime/cuda/comm_nccl_internal.h"

#define NCCL_TICK_NS  (100 * NS_PER_MS) /* between looks */
#define NCCL_STILL_NS (300 * NS_PER_MS) /* a comm that has not moved for so long is posted */
#define NCCL_ASK_NS   (500 * NS_PER_MS) /* and asked for, and again after as long */
#define NCCL_VOTE_NS                                                                                         \
    (200 * NS_PER_MS)                  /* a rank that splits looks so often whether another one has failed   \
                                        */
#define NCCL_DESTROY_NS (5 * NS_PER_S) /* a rank that ends waits so long for the others' ends */
#define NCCL_HEAR_NS    (100 * NS_PER_MS) /* what a peer sent before it ended takes no longer */

#endif
