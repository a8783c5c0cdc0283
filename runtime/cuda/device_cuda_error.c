/* device_cuda_error.c - the device's first error, and which operations it may have come from. */
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "kernels/cuda/check.h"
#include "proto/base/error.h"
#include "runtime/cuda/cuda_query.h"
#include "runtime/cuda/device_cuda.h"

static void keep_error(struct device *device, const struct muster_error *error)
{
    int none = CUDA_FAILURE_NONE;
    if (!atomic_compare_exchange_strong(&device->failed, &none, CUDA_FAILURE_WRITING))
        return;
    cuda_device_under_way(device, device->under_way);
    device->error = *error;
    if (!device->error.code)
        device->error.code = MUSTER_E_STATE;
    atomic_store(&device->failed, CUDA_FAILURE_SET);
    atomic_store(&device->failing.value, 1);
    futex_wake(&device->failing, FUTEX_PRIVATE);
}

bool cuda_device_failed(const struct device *device)
{
    return atomic_load_explicit(&device->failed, memory_order_acquire) != CUDA_FAILURE_NONE;
}

int cuda_device_poll_error(struct device *device, struct muster_error *err)
{
    int failure;
    while ((failure = atomic_load_explicit(&device->failed, memory_order_acquire)) == CUDA_FAILURE_WRITING)
        (void)sched_yield(); /* another thread copies the text: a moment; cannot fail */
    if (failure == CUDA_FAILURE_NONE)
        return 0;
    if (err)
        *err = device->error;
    return -1;
}

/* ---- enqueued operations of a stream ---- */

/* Cut where it is too long. */
static void note_text(char *text, size_t size, const char *between, const char *more)
{
    const char *parts[] = {*text ? between : "", more};
    size_t used = strlen(text);
    for (int i = 0; i < 2; i++) {
        size_t length = strlen(parts[i]);
        length = length < size - 1 - used ? length : size - 1 - used;
        memcpy(text + used, parts[i], length);
        used += length;
    }
    text[used] = '\0';
}

void cuda_stream_pending(const struct device_stream *stream, char text[CUDA_NOTES_TEXT])
{
    const uint64_t finished = atomic_load(&stream->finished), noted = atomic_load(&stream->noted);
    const uint64_t open = noted - finished;
    const uint64_t kept = open < CUDA_NOTES ? open : CUDA_NOTES,
                   shown = kept < CUDA_NOTES_SHOWN ? kept : CUDA_NOTES_SHOWN;
    text[0] = '\0';
    for (uint64_t i = 0; i < shown; i++) /* oldest first: others wait for the failed one */
        note_text(text, CUDA_NOTES_TEXT, ", ",
                  atomic_load(&stream->notes[(noted - kept + 1 + i) % CUDA_NOTES]));
    char more[32];
    (void)snprintf(more, sizeof more, "and %llu more", (unsigned long long)(open - shown));
    if (open > shown)
        note_text(text, CUDA_NOTES_TEXT, ", ", more);
}

/* Lists all streams: CUDA reports an error to the next call on any stream. */
static void device_pending(const struct device *device, char *text, size_t size)
{
    char of_stream[CUDA_NOTES_TEXT];
    text[0] = '\0';
    for (int i = 0; i < CUDA_STREAMS; i++) {
        const struct device_stream *stream = atomic_load(&device->streams[i]);
        if (!stream || atomic_load(&stream->noted) == atomic_load(&stream->finished))
            continue;
        cuda_stream_pending(stream, of_stream);
        note_text(text, size, "; ", of_stream);
        note_text(text, size, " of stream ", stream->name);
    }
}

void cuda_device_under_way(struct device *device, char text[DEVICE_UNDER_WAY])
{
    if (atomic_load(&device->failed) == CUDA_FAILURE_SET) {
        if (text != device->under_way)
            memcpy(text, device->under_way, DEVICE_UNDER_WAY);
        return;
    }
    (void)pthread_mutex_lock(&device->listing); /* cannot fail: our own, never locked twice */
    for (int i = 0; i < CUDA_STREAMS; i++) {
        struct device_stream *stream = atomic_load(&device->streams[i]);
        if (stream)
            cuda_stream_look_at_marks(stream);
    }
    device_pending(device, text, DEVICE_UNDER_WAY);
    (void)pthread_mutex_unlock(&device->listing);
}

/* One operation is under way at a time, on all streams together. */
static void finish_streams(struct device *device)
{
    struct muster_error err;
    for (int i = 0; i < CUDA_STREAMS && !cuda_device_failed(device); i++)
        if (device->streams[i] && device->streams[i]->noted != device->streams[i]->finished)
            (void)cuda_stream_sync(device->streams[i], INSTANT_NEVER, &err); /* the device keeps err */
}

void cuda_stream_note(struct device_stream *stream, const char *operation)
{
    if (stream->records_work)
        return;
    if (stream->device->sync_errors)
        finish_streams(stream->device);
    cuda_stream_mark_note(stream);
    const uint64_t number = atomic_load(&stream->noted) + 1;
    atomic_store(&stream->notes[number % CUDA_NOTES], operation);
    atomic_store(&stream->noted, number);
}

/* Statuses that a call gives for work that was enqueued before it. */
static bool is_late(cudaError_t status)
{
    switch (status) {
    case cudaErrorIllegalAddress:
    case cudaErrorMisalignedAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorAssert:
    case cudaErrorLaunchTimeout:
    case cudaErrorIllegalInstruction:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorHardwareStackError:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContained:
    case cudaErrorExternalDevice:
    case cudaErrorMpsRpcFailure:
    case cudaErrorMpsClientTerminated:
    case cudaErrorTensorMemoryLeak:
        return true;
    default:
        return false;
    }
}

/* Adds the operations that may have caused an error, if it came later than its cause. */
static void add_pending(const struct device *device, cudaError_t status, struct muster_error *error)
{
    char pending[CUDA_NOTES_TEXT] = "", text[MUSTER_ERROR_TEXT];
    if (is_late(status))
        device_pending(device, pending, sizeof pending);
    if (!*pending)
        return;
    (void)snprintf(text, sizeof text, "%s", error->text);
    (void)error_set(error, (enum muster_error_code)error->code, "%s; under way: %s%s", text, pending,
                    device->sync_errors ? "" : " (training.sync_errors finds out which)");
}

/* The error that stays on the device, from work that was enqueued before; another status: there is none.
 * A library has a CUDA runtime of its own, so the thread's last error in ours does not know what it met: a
 * stream is asked. The answer is the same of every stream; a stream that records would end its record. */
static cudaError_t late_status(struct device *device)
{
    cudaError_t status = cudaPeekAtLastError();
    if (is_late(status))
        return status;
    (void)pthread_mutex_lock(&device->listing); /* no stream is destroyed meanwhile */
    for (int i = 0; i < CUDA_STREAMS && !is_late(status); i++) {
        const struct device_stream *stream = atomic_load(&device->streams[i]);
        if (stream && stream->handle.stream && !stream->records_work)
            status = cuda_query(cudaStreamQuery(stream->handle.stream));
    }
    (void)pthread_mutex_unlock(&device->listing);
    return status;
}

void cuda_device_fail(struct device *device, const struct muster_error *error)
{
    struct muster_error whole = *error, cause;
    const cudaError_t status = late_status(device);
    if (is_late(status) && !strstr(error->text, cudaGetErrorName(status))) {
        (void)cuda_error(&cause, (int)status, "the device's error"); /* -1: there is one */
        (void)error_set(&whole, (enum muster_error_code)error->code, "%s; %s", error->text, cause.text);
    }
    add_pending(device, status, &whole);
    keep_error(device, &whole);
}

int cuda_device_status(struct device *device, cudaError_t status, const char *operation,
                       struct muster_error *err)
{
    if (status == cudaSuccess)
        return 0;
    struct muster_error error;
    (void)cuda_error(&error, (int)status, operation); /* -1, as we return */
    add_pending(device, status, &error);
    keep_error(device, &error);
    return cuda_device_poll_error(device, err);
}
