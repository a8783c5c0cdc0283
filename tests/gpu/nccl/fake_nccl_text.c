/* fake_nccl_text.c - names, texts and errors of the fake NCCL. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/nccl/fake_nccl.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char last_refusal[FAKE_TEXT];

const char *fake_kind_name(int kind)
{
    static const char *const names[] = {"AllGather", "ReduceScatter", "AllReduce",
                                        "Broadcast", "Send",          "Recv"};
    return (unsigned)kind < sizeof names / sizeof *names ? names[kind] : "?";
}

const char *fake_signature_text(char out[128], const struct fake_signature *signature)
{
    (void)snprintf(out, 128, "%s count %llu type %d op %d %s %d", fake_kind_name(signature->kind),
                   (unsigned long long)signature->count, signature->dtype, signature->op,
                   fake_is_pair(signature->kind) ? "peer" : "root", signature->root);
    return out;
}

static void warn(int rank, const char *text)
{
    if (getenv("NCCL_DEBUG"))
        (void)fprintf(stderr, "fake NCCL WARN rank %d: %s\n", rank, text);
}

ncclResult_t fake_refuse_call(struct ncclComm *comm, ncclResult_t result, const char *format, ...)
{
    char text[FAKE_TEXT];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    (void)pthread_mutex_lock(&lock);
    memcpy(last_refusal, text, sizeof text);
    (void)pthread_mutex_unlock(&lock);
    if (comm) {
        (void)pthread_mutex_lock(&comm->lock);
        memcpy(comm->last, text, sizeof text);
        (void)pthread_mutex_unlock(&comm->lock);
    }
    warn(comm ? comm->rank : -1, text);
    return result;
}

void fake_fail(struct ncclComm *comm, ncclResult_t result, const char *format, ...)
{
    char text[FAKE_TEXT];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    (void)pthread_mutex_lock(&comm->lock);
    int state = atomic_load(&comm->state);
    if (state == ncclSuccess || state == ncclInProgress) {
        memcpy(comm->last, text, sizeof text);
        atomic_store(&comm->state, result);
        warn(comm->rank, text);
    }
    (void)pthread_mutex_unlock(&comm->lock);
    fake_ring_bell(comm->shared);
}

/* The text stays until the thread asks again. */
const char *fake_last_error(struct ncclComm *comm)
{
    static _Thread_local char text[FAKE_TEXT];
    (void)pthread_mutex_lock(comm ? &comm->lock : &lock);
    memcpy(text, comm ? comm->last : last_refusal, sizeof text);
    (void)pthread_mutex_unlock(comm ? &comm->lock : &lock);
    return text;
}

FAKE_EXPORT const char *ncclGetErrorString(ncclResult_t result)
{
    static const char *const texts[] = {"no error",
                                        "unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
                                        "unhandled system error (run with NCCL_DEBUG=INFO for details)",
                                        "internal error - please report this issue to the NCCL developers",
                                        "invalid argument (run with NCCL_DEBUG=WARN for details)",
                                        "invalid usage (run with NCCL_DEBUG=WARN for details)",
                                        "remote process exited or there was a network error",
                                        "NCCL operation in progress"};
    return (unsigned)result < sizeof texts / sizeof *texts ? texts[result] : "unknown result code";
}

FAKE_EXPORT const char *ncclGetLastError(ncclComm_t comm)
{
    return fake_last_error(comm);
}

FAKE_EXPORT ncclResult_t ncclGetVersion(int *version)
{
    if (fake_refuse("ncclGetVersion"))
        return fake_refuse_call(NULL, ncclSystemError, "ncclGetVersion is refused by FAKE_CUDA_FAIL");
    if (!version)
        return fake_refuse_call(NULL, ncclInvalidArgument, "ncclGetVersion: no place for the version");
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}
