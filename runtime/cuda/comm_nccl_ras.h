/* comm_nccl_ras.h - asks NCCL's own service (RAS, from 2.24 on) how the communicators of the job are. Every
 * process with a communicator may answer for all, at a TCP port of its host. */
#ifndef MUSTER_RUNTIME_CUDA_COMM_NCCL_RAS_H
#define MUSTER_RUNTIME_CUDA_COMM_NCCL_RAS_H

#include "proto/base/buffer.h"
#include "proto/include/muster_error.h"

/* Appends the answer to "verbose status" from NCCL_RAS_ADDR (host:port; localhost:28028), up to out's limit,
 * within three seconds. -1: there is no answer, which is no failure of the job. */
int nccl_ras_ask(struct buffer *out, struct muster_error *err);

#endif
