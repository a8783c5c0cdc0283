/* failure_signs.c - how a worker's last words tell a failure of its own from one that it fell over.
 *
 * When a worker dies, its peers' collectives, connections and look-ups in the store fail, and each library
 * says so in its own words. Those words are a sign of a follower unless the same text also tells of trouble
 * at home: NCCL, for one, reports an error of its own GPU as an "NCCL error" too. */
#include <string.h>

#include "rendezvous/failure.h"

/* The other end went away, or never came. */
static const char *const peer_gone[] = {
    /* NCCL and PyTorch's process group over it */
    "ncclRemoteError",
    "ncclSystemError",
    "ncclInternalError",
    "NCCL error",
    "remote process exited or there was a network error",
    "Watchdog caught collective operation timeout",
    "watchdog thread terminated with exception",
    "watchdog got stuck",
    "ProcessGroupNCCL's watchdog",
    "Some NCCL operations have failed or timed out",
    "NCCL communicator was aborted",
    "taking the entire process down",
    "socketStartConnect: Connect to",
    "socketProgress: Connection closed by remote peer",
    /* PyTorch's exceptions of this kind */
    "DistBackendError",
    "DistNetworkError",
    "DistStoreError",
    /* its store */
    "recvValue failed",
    "sendBytes failed",
    "sendValue failed",
    "failed to recv, got 0 bytes",
    "Stop_waiting response is expected",
    "The client socket has failed to connect",
    "The client socket has timed out",
    "wait timeout after",
    "Socket Timeout",
    /* gloo */
    "gloo/transport",
    "Gloo connectFullMesh failed",
    "Connection closed by peer",
    "for recv operation to complete", /* "Timed out waiting 1800000ms" stands before it */
    "for send operation to complete",
    /* the system's words for it, as strerror, Python and Go say them */
    "Connection reset by peer",
    "ConnectionResetError",
    "ConnectionRefusedError",
    "Connection refused",
    "ConnectionAbortedError",
    "Broken pipe",
    "BrokenPipeError",
    "Transport endpoint is not connected",
    "No route to host",
    "ECONNRESET",
    "EPIPE",
    /* libmuster: a wait on a peer that ended or said nothing */
    ") is gone in ",
    ": it has gone",
};

/* Trouble of its own, whatever its communication says. */
static const char *const at_home[] = {
    "CUDA out of memory",
    "OutOfMemoryError",
    "CUDA error: ",
    "Cuda failure",
    "unhandled cuda error",
    "ncclUnhandledCudaError",
    "ncclInvalidUsage",
    "ncclInvalidArgument",
    "device-side assert",
    "an illegal memory access",
    "uncorrectable ECC error",
    "No space left on device",
    "Cannot allocate memory",
    "MemoryError",
};

static const char *first_of(const char *text, const char *const *signs, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const char *at = strstr(text, signs[i]);
        if (at)
            return at;
    }
    return NULL;
}

bool failure_says_peer_gone(const char *text)
{
    return first_of(text, peer_gone, sizeof peer_gone / sizeof *peer_gone) &&
           !first_of(text, at_home, sizeof at_home / sizeof *at_home);
}

bool failure_shows_trouble(const struct worker_failure *failure)
{
    static const char traceback[] = "Traceback (most recent call last)";
    if (failure_says_peer_gone(failure->tail) || failure_says_peer_gone(failure->message) ||
        failure_says_peer_gone(failure->traceback))
        return false;
    return *failure->message || strstr(failure->tail, traceback);
}

const char *failure_telling_line(const char *text, size_t *length)
{
    const char *at = first_of(text, at_home, sizeof at_home / sizeof *at_home);
    if (!at)
        at = first_of(text, peer_gone, sizeof peer_gone / sizeof *peer_gone);
    if (!at) { /* the last line that holds anything */
        size_t end = strlen(text);
        while (end && strchr("\n ", text[end - 1]))
            end--;
        at = text + (end ? end - 1 : 0);
    }
    while (at > text && at[-1] != '\n')
        at--;
    *length = strcspn(at, "\n");
    return at;
}
