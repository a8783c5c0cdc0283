/* comm_nccl_family.h - a create of comm_nccl and all comms split from it: one failure, one watching thread,
 * one order of operations.
 *
 * The thread's work, every tenth of a second and when it is woken:
 *  - asks NCCL for each communicator's asynchronous error;
 *  - looks which operations have begun and ended (events around each). An operation that has been at work for
 * the comm's time-out is reported with its number, its name, and the ranks that have not issued it. If all
 * ranks have issued it, the text states that, and the thread adds the report of NCCL's RAS service (the
 * report of comm.h);
 *  - notices that another rank has ended, failed or left (comm_nccl_news.h), and that this rank's device has
 *    failed, which it reports to the others;
 *  - prefers a peer's report to an NCCL error that this peer's end has caused (nccl_watch_hear);
 *  - after the first failure aborts all communicators in one group. An abort of a single communicator would
 * wait for device work that waits for another communicator. Work on the streams then ends, with nothing
 * computed. A thread that destroys a comm of a failed family does the same where it gets there first.
 *
 * The work needs its own thread: the issuing thread may be waiting for a full stream, or for the device.
 *
 * Three threads call NCCL, each under the family's lock: the issuing thread, the watching thread and the
 * destroying thread. No such call waits: communicators do not block, and the state of work under way is asked
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
#define NCCL_HEAR_NS    (100 * NS_PER_MS) /* a peer's message sent before its end arrives within this time */

#endif
