/* comm_nccl.h - collectives between GPUs by NCCL: the table "nccl" of comm.h. Run on a GPU with one rank
 * only.
 *
 * Making. Rank 0 puts a unique id into the store. Every rank makes a first communicator without blocking and
 * asks for its state until the deadline. It carries no operation: the comm's own is split from it, shares its
 * resources, and blocks, which costs a call an operation and no thread. A split is an ncclCommSplit, after
 * all ranks have put color and key into the store. Colors are 0 or more. All comms that come from one create
 * are a family (comm_nccl_internal.h).
 *
 * Operations. issue enqueues on the stream and returns; at most COMM_CALLS are under way in one comm, then it
 * waits. Buffers in device memory are used as they are. Other buffers (a host's variables) go through buffers
 * of the comm's own: pinned, then the device. Reductions follow NCCL's order, which depends on the number of
 * ranks, the size and the links, not on timing. NCCL's order is not the order of the ranks, so sums agree
 * with the other kinds of comm up to rounding. Further differences: an average multiplies each input by
 * 1/size before the sum; 16 bits are rounded at every step, not once; a maximum may lose a NaN. all_to_all is
 * sends and receives in one group; a barrier is an all-reduce of one number. exchange is a group, too, of
 * device memory alone: each of its operations counts, and all of them begin and end together.
 *
 * NCCL cannot accumulate. The result goes to comm_options.sums, and a kernel adds it from there, for f32
 * only. Memory outside the arenas: both sides of the operation (twice) for host memory, and NCCL's own
 * memory. The first comm is made with room for 64 KB of host memory. Larger operations on it, and results to
 * be added without comm_options.sums, have a buffer made at the first that needs it.
 *
 * Order. Two communicators of one device whose operations run at once can wait for each other's place on it.
 * So every operation of a family waits on the device for the previously issued operation: the schedule, the
 * same on all ranks, is the order. MUSTER_NCCL_ORDER=free leaves the order to the streams; no communicator
 * shares anything or blocks then.
 *
 * Failure. A thread of the family watches: see comm_nccl_internal.h. The end of one comm ends the family:
 * the reason goes to device_ops->fail and to every other rank, all communicators are aborted in one group,
 * and the streams run empty.
 *
 * Environment: MUSTER_NCCL_ORDER=schedule|free, NCCL_RAS_ADDR (address to ask after a time-out;
 * localhost:28028). The arenas are not registered with NCCL: they are cudaMalloc's, for which NCCL has that
 * switched off. */
#ifndef MUSTER_RUNTIME_CUDA_COMM_NCCL_H
#define MUSTER_RUNTIME_CUDA_COMM_NCCL_H

#include "runtime/comm/comm.h"

#ifdef __cplusplus
extern "C" {
#endif

const struct comm_ops *comm_nccl(void);

#ifdef __cplusplus
}
#endif
#endif
