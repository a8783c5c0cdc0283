/* nccl_library.h - the functions of NCCL that comm_nccl calls, from libnccl.so.2, opened at first use.
 *
 * Compiled against nccl.h 2.28.9; from 2.18 on (the first with ncclCommSplit) any version is taken. */
#ifndef MUSTER_RUNTIME_CUDA_NCCL_LIBRARY_H
#define MUSTER_RUNTIME_CUDA_NCCL_LIBRARY_H

#include <nccl.h>

#include "proto/include/muster_error.h"

struct nccl_calls {
    ncclResult_t (*get_version)(int *version);
    const char *(*error_string)(ncclResult_t result);
    const char *(*last_error)(ncclComm_t comm);
    ncclResult_t (*unique_id)(ncclUniqueId *id);
    ncclResult_t (*init)(ncclComm_t *comm, int size, ncclUniqueId id, int rank, ncclConfig_t *config);
    ncclResult_t (*split)(ncclComm_t comm, int color, int key, ncclComm_t *part, ncclConfig_t *config);
    ncclResult_t (*finalize)(ncclComm_t comm);
    ncclResult_t (*destroy)(ncclComm_t comm);
    ncclResult_t (*abort)(ncclComm_t comm);
    ncclResult_t (*async_error)(ncclComm_t comm, ncclResult_t *result);
    ncclResult_t (*all_gather)(const void *send, void *recv, size_t count, ncclDataType_t type,
                               ncclComm_t comm, cudaStream_t stream);
    ncclResult_t (*reduce_scatter)(const void *send, void *recv, size_t count, ncclDataType_t type,
                                   ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);
    ncclResult_t (*all_reduce)(const void *send, void *recv, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);
    ncclResult_t (*broadcast)(const void *send, void *recv, size_t count, ncclDataType_t type, int root,
                              ncclComm_t comm, cudaStream_t stream);
    ncclResult_t (*send)(const void *send, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                         cudaStream_t stream);
    ncclResult_t (*recv)(void *recv, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                         cudaStream_t stream);
    ncclResult_t (*group_start)(void);
    ncclResult_t (*group_end)(void);
};

/* The same for every caller; from any thread. NULL with err where there is no usable library. */
const struct nccl_calls *nccl_library(struct muster_error *err);

/* Whether there is one: 0, or -1 with err. */
int nccl_library_probe(struct muster_error *err);

/* Fills err with "<what>: NCCL: <its text>: <its last message>" and returns -1. comm may be NULL. */
int nccl_error(const struct nccl_calls *calls, ncclComm_t comm, ncclResult_t result, const char *what,
               struct muster_error *err);

#endif
