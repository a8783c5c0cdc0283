/* nccl_library.c - see nccl_library.h. */
#include "runtime/cuda/nccl_library.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"
#include "runtime/cuda/libraries.h"

static const struct cuda_library_function functions[] = {
    CUDA_LIBRARY_ROW(struct nccl_calls, get_version, ncclGetVersion, 0),
    CUDA_LIBRARY_ROW(struct nccl_calls, error_string, ncclGetErrorString, 0),
    CUDA_LIBRARY_ROW(struct nccl_calls, last_error, ncclGetLastError, 0),
    CUDA_LIBRARY_ROW(struct nccl_calls, unique_id, ncclGetUniqueId, 0),
    CUDA_LIBRARY_ROW(struct nccl_calls, init, ncclCommInitRankConfig, 0),
    CUDA_LIBRARY_ROW(struct nccl_calls, split, ncclCommSplit, 0),
    CUDA_LIBRARY_ROW(struct nccl_calls, finalize, ncclCommFinalize, 0),
    CUDA_LIBRARY_ROW(struct nccl_calls, destroy, ncclCommDestroy, 0),
    CUDA_LIBRARY_ROW(struct nccl_calls, abort, ncclCommAbort, 0),
    CUDA_LIBRARY_ROW(struct nccl_calls, async_error, ncclCommGetAsyncError, 0),
    CUDA_LIBRARY_ROW(struct nccl_calls, all_gather, ncclAllGather, 0),
    CUDA_LIBRARY_ROW(struct nccl_calls, reduce_scatter, ncclReduceScatter, 0),
    CUDA_LIBRARY_ROW(struct nccl_calls, all_reduce, ncclAllReduce, 0),
    CUDA_LIBRARY_ROW(struct nccl_calls, broadcast, ncclBroadcast, 0),
    CUDA_LIBRARY_ROW(struct nccl_calls, send, ncclSend, 0),
    CUDA_LIBRARY_ROW(struct nccl_calls, recv, ncclRecv, 0),
    CUDA_LIBRARY_ROW(struct nccl_calls, group_start, ncclGroupStart, 0),
    CUDA_LIBRARY_ROW(struct nccl_calls, group_end, ncclGroupEnd, 0),
};

static int ask_version(const void *loaded, int *version, struct muster_error *err)
{
    const struct nccl_calls *calls = loaded;
    ncclResult_t result = calls->get_version(version);
    return result == ncclSuccess ? 0 : nccl_error(calls, NULL, result, "ncclGetVersion", err);
}

static void version_text(int version, char *text, size_t size)
{
    (void)snprintf(text, size, "%d.%d.%d", version / 10000, version / 100 % 100, version % 100);
}

static const struct cuda_library library = {
    .name = "NCCL",
    .file = "libnccl.so.2",
    .from = "collectives between GPUs need NCCL (pip: nvidia-nccl-cu13; or train with comm host)",
    .functions = functions,
    .count = sizeof functions / sizeof *functions,
    .oldest = 21800,
    .version = ask_version,
    .version_text = version_text,
};

const struct nccl_calls *nccl_library(struct muster_error *err)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static struct nccl_calls calls;
    (void)pthread_mutex_lock(&lock);
    bool open = calls.get_version || !cuda_library_open(&library, &calls, sizeof calls, NULL, err);
    (void)pthread_mutex_unlock(&lock);
    return open ? &calls : NULL;
}

int nccl_library_probe(struct muster_error *err)
{
    return nccl_library(err) ? 0 : -1;
}

static enum muster_error_code code_of(ncclResult_t result)
{
    switch (result) {
    case ncclInvalidArgument:
        return MUSTER_E_INVALID;
    case ncclInvalidUsage:
    case ncclRemoteError:
        return MUSTER_E_PEER;
    case ncclInternalError:
        return MUSTER_E_STATE;
    default:
        return MUSTER_E_IO;
    }
}

int nccl_error(const struct nccl_calls *calls, ncclComm_t comm, ncclResult_t result, const char *what,
               struct muster_error *err)
{
    const char *last = calls->last_error ? calls->last_error(comm) : "";
    if (!*last && comm) /* some calls leave their message with no communicator */
        last = calls->last_error(NULL);
    return error_set(err, code_of(result), "%s: NCCL: %s%s%.300s", what, calls->error_string(result),
                     *last ? ": " : "", last);
}
