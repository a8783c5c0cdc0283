/* comm_staged.h - a comm over host memory for devices whose memory the host does not reach.
 *
 * A collective is done on the calling thread: its data is copied into pinned memory on its stream, the
 * stream is waited for, the comm beneath moves host memory, and the result is copied back on the stream. So
 * nothing overlaps it but what other streams were given before. It is never done by a host function of the
 * stream: those may run one after the other on one thread, and a collective that waits for peers there can
 * wait for ever. Results have the bits of the inner comm.
 *
 * It lets ranks share one device, and is what there is without NCCL. */
#ifndef MUSTER_RUNTIME_COMM_COMM_STAGED_H
#define MUSTER_RUNTIME_COMM_COMM_STAGED_H

#include "runtime/comm/comm.h"

/* Over comm_shm(), comm_tcp() or comm_node(); its `run` is MUSTER_E_UNSUPPORTED: there is no stream to copy
 * on. Its options' arenas are not used. */
const struct comm_ops *comm_staged(const struct comm_ops *inner);

#endif
