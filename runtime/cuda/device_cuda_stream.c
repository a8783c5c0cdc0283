/* device_cuda_stream.c - streams and events of the CUDA device: enqueuing, and waiting with a deadline. */
#include <stdio.h>

#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "runtime/cuda/cuda_query.h"
#include "runtime/cuda/device_cuda.h"
#include "runtime/cuda/products.h"

/* Asked each time: another library in the process may have chosen another one for this thread. */
int cuda_device_use(struct device *device, struct muster_error *err)
{
    int used = -1;
    if (cuda_device_status(device, cudaGetDevice(&used), "cudaGetDevice", err))
        return -1;
    if (used == device->index)
        return 0;
    return cuda_device_status(device, cudaSetDevice(device->index), "cudaSetDevice", err);
}

/* ---- waiting ---- */

/* First often, then with pauses: most waits end at once or take milliseconds. A failure ends a pause. */
static void pause_ask(struct device *device, int asked)
{
    enum { OFTEN = 64 };
    const int64_t pause_ns = (asked < 4 * OFTEN ? 20 : 100) * NS_PER_US;
    if (asked >= OFTEN)
        (void)futex_wait(&device->failing, atomic_load(&device->failing.value),
                         instant_add(clock_now(NULL), pause_ns), FUTEX_PRIVATE);
}

int cuda_ask(cudaError_t (*ask)(void *of), void *of, struct device *device, struct instant deadline,
             cudaError_t *status)
{
    bool failed = false;
    for (int asked = 0; (*status = ask(of)) == cudaErrorNotReady; asked += asked < 1 << 20) {
        if (!failed && cuda_device_failed(device)) { /* earlier work may still end */
            failed = true;
            deadline = instant_min(deadline, instant_add(clock_now(NULL), CUDA_DRAIN_NS));
        }
        if (instant_reached(clock_now(NULL), deadline))
            return 1;
        pause_ask(device, asked);
    }
    return 0;
}

static cudaError_t ask_stream(void *of)
{
    return cuda_query(cudaStreamQuery(((struct device_stream *)of)->handle.stream));
}

/* ---- streams ---- */

/* Puts `to` in the place of `from`; 0: there is no such place. */
static bool replace_stream(struct device *device, const struct device_stream *from, struct device_stream *to)
{
    for (int i = 0; i < CUDA_STREAMS; i++) {
        if (atomic_load(&device->streams[i]) != from)
            continue;
        atomic_store(&device->streams[i], to);
        return true;
    }
    return false;
}

static void note_operation(const struct cuda_stream_handle *handle, const char *operation)
{
    cuda_stream_note((struct device_stream *)(uintptr_t)handle, operation); /* its first member */
}

/* At least half of them stay, whatever the comms take: of a small GPU little would be left. */
static int multiprocessors_left(const struct cuda_stream_handle *handle)
{
    const int all = handle->device->properties.multiProcessorCount;
    const int left = atomic_load(&handle->device->left);
    return !left ? 0 : all - left > all / 2 ? all - left : all / 2;
}

struct device_stream *cuda_stream_create(struct device *device, const char *name, bool compute,
                                         struct muster_error *err)
{
    if (cuda_device_use(device, err))
        return NULL;
    struct device_stream *stream = mem_calloc(1, sizeof *stream);
    if (!stream) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for stream %s", name);
        return NULL;
    }
    stream->device = device;
    stream->compute = compute;
    (void)snprintf(stream->name, sizeof stream->name, "%.15s", name); /* a longer one is cut */
    stream->handle = (struct cuda_stream_handle){.device = device,
                                                 .fail = cuda_device_fail,
                                                 .note = note_operation,
                                                 .multiprocessors = multiprocessors_left};
    (void)pthread_mutex_init(&stream->marking, NULL); /* cannot fail without attributes */
    if (!replace_stream(device, NULL, stream)) {
        (void)error_set(err, MUSTER_E_LIMIT, "stream %s: a device has at most %d streams", name,
                        (int)CUDA_STREAMS);
        (void)pthread_mutex_destroy(&stream->marking);
        mem_free(stream);
        return NULL;
    }
    if (cuda_device_status(
            device,
            cudaStreamCreateWithPriority(&stream->handle.stream, cudaStreamNonBlocking,
                                         compute ? device->priority_compute : device->priority_comm),
            "cudaStreamCreateWithPriority", err) ||
        (compute &&
         (cuda_waits_open(stream, err) || cuda_products_open(&stream->handle, device->tf32, err)))) {
        cuda_stream_destroy(stream);
        return NULL;
    }
    return stream;
}

/* Waits for the stream's work, which may be a kernel that never ends. The device has failed then. */
static void end_work(struct device_stream *stream)
{
    struct device *device = stream->device;
    struct muster_error err = {0};
    if (!cuda_stream_sync(stream, instant_add(clock_now(NULL), device->end_ns), &err) ||
        cuda_device_failed(device)) /* the error is the device's, or was reported */
        return;
    if (err.code == MUSTER_E_TIMEOUT)
        atomic_store(&device->stuck, true);
    (void)error_wrap(&err, "at the end"); /* -1: the device has it */
    cuda_device_fail(device, &err);
}

void cuda_stream_destroy(struct device_stream *stream)
{
    if (!stream)
        return;
    struct device *device = stream->device;
    if (stream->handle.stream && !device->stuck) {
        end_work(stream);
        if (!device->stuck) {
            cuda_products_close(&stream->handle);
            (void)cudaStreamDestroy(stream->handle.stream); /* an earlier error, which was told */
        }
    }
    (void)pthread_mutex_lock(&device->listing);
    (void)replace_stream(device, stream, NULL); /* it is there since it was made */
    (void)pthread_mutex_unlock(&device->listing);
    cuda_waits_close(stream);
    cuda_marks_close(stream);
    (void)pthread_mutex_destroy(&stream->marking); /* cannot fail: no thread holds it */
    mem_free(stream);
}

void *cuda_stream_kernels(struct device_stream *stream)
{
    return &stream->handle;
}

static int sync_late(struct device_stream *stream, struct muster_error *err)
{
    char pending[CUDA_NOTES_TEXT];
    cuda_stream_look_at_marks(stream);
    cuda_stream_pending(stream, pending);
    return error_set(err, MUSTER_E_TIMEOUT, "stream %s has not finished in time: of %llu operations, %s",
                     stream->name, (unsigned long long)stream->noted, *pending ? pending : "none is open");
}

int cuda_stream_sync(struct device_stream *stream, struct instant deadline, struct muster_error *err)
{
    cudaError_t status;
    const bool had_failed = cuda_device_failed(stream->device);
    if (cuda_ask(ask_stream, stream, stream->device, deadline, &status)) {
        if (!cuda_device_failed(stream->device))
            return sync_late(stream, err);
        if (!instant_reached(clock_now(NULL), deadline)) /* it did not drain */
            atomic_store(&stream->device->stuck, true);
        return cuda_device_poll_error(stream->device, err);
    }
    if (cuda_device_status(stream->device, status, "cudaStreamQuery", err))
        return -1;
    cuda_note_finished(stream, atomic_load(&stream->noted));
    stream->looked = stream->recorded;
    if (!had_failed && cuda_waits_count(stream, true, err))
        return -1;
    return cuda_device_poll_error(stream->device, err);
}

int cuda_stream_launch(struct device_stream *stream, void (*fn)(void *argument), void *argument)
{
    if (cuda_device_failed(stream->device) || cuda_device_use(stream->device, NULL))
        return -1;
    fn(argument);
    return cuda_device_failed(stream->device) ? -1 : 0;
}

/* ---- events ---- */

static struct device_event *create_event(struct device *device, unsigned flags, struct muster_error *err)
{
    if (cuda_device_use(device, err))
        return NULL;
    struct device_event *event = mem_calloc(1, sizeof *event);
    if (!event) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for an event");
        return NULL;
    }
    event->device = device;
    if (cuda_device_status(device, cudaEventCreateWithFlags(&event->event, flags), "cudaEventCreateWithFlags",
                           err)) {
        mem_free(event);
        return NULL;
    }
    return event;
}

struct device_event *cuda_event_create(struct device *device, struct muster_error *err)
{
    return create_event(device, cudaEventDisableTiming, err);
}

struct device_event *cuda_timer_create(struct device *device, struct muster_error *err)
{
    return create_event(device, cudaEventDefault, err);
}

int cuda_timer_between(struct device_event *from, struct device_event *to, int64_t *ns,
                       struct muster_error *err)
{
    float ms = 0;
    if (!from->recorded || !to->recorded || !cuda_event_done(from) || !cuda_event_done(to))
        return 1;
    if (cuda_device_status(from->device, cudaEventElapsedTime(&ms, from->event, to->event),
                           "cudaEventElapsedTime", err))
        return -1;
    *ns = (int64_t)((double)ms * (double)NS_PER_MS);
    return 0;
}

void cuda_event_destroy(struct device_event *event)
{
    if (!event)
        return;
    for (int i = 0; i < CUDA_STREAMS; i++) /* no stream asks about it again */
        for (int r = 0; event->device->streams[i] && r < CUDA_RECORDS; r++)
            if (event->device->streams[i]->records[r].event == event)
                event->device->streams[i]->records[r].event = NULL;
    (void)cudaEventDestroy(event->event); /* an earlier error, which was told */
    mem_free(event);
}

/* Updates `finished`: asks about the oldest records that were not asked about. An event that was
 * recorded again since stands for more operations, which is no harm: it is done later. */
static int look_at_records(struct device_stream *stream)
{
    while (stream->looked < stream->recorded) {
        const uint64_t number = stream->looked + 1;
        const struct device_event *event = stream->records[number % CUDA_RECORDS].event;
        const cudaError_t status = event ? cuda_query(cudaEventQuery(event->event))
                                         : cudaErrorNotReady; /* the event was destroyed */
        if (event && status == cudaErrorNotReady && stream->recorded - stream->looked < CUDA_RECORDS)
            return 0;
        if (status != cudaErrorNotReady) {
            if (cuda_device_status(stream->device, status, "cudaEventQuery", NULL))
                return -1;
            cuda_note_finished(stream, stream->records[number % CUDA_RECORDS].noted);
        }
        stream->looked = number; /* the ring is full: the next record takes its place */
    }
    return 0;
}

int cuda_stream_record(struct device_stream *stream, struct device_event *event)
{
    if (cuda_device_failed(stream->device) || look_at_records(stream) ||
        cuda_device_status(stream->device, cudaEventRecord(event->event, stream->handle.stream),
                           "cudaEventRecord", NULL))
        return -1;
    event->recorded = true;
    const uint64_t number = ++stream->recorded;
    stream->records[number % CUDA_RECORDS].event = event;
    stream->records[number % CUDA_RECORDS].noted = stream->noted;
    return 0;
}

int cuda_stream_wait(struct device_stream *stream, struct device_event *event)
{
    struct wait_pair *pair = NULL;
    if (cuda_device_failed(stream->device))
        return -1;
    if (!event->recorded)
        return 0;
    if (cuda_waits_begin(stream, &pair) ||
        cuda_device_status(stream->device,
                           cudaStreamWaitEvent(stream->handle.stream, event->event, cudaEventWaitDefault),
                           "cudaStreamWaitEvent", NULL))
        return -1;
    return pair ? cuda_waits_end(stream, pair) : 0;
}

bool cuda_event_done(struct device_event *event)
{
    if (!event->recorded)
        return true;
    const cudaError_t status = cuda_query(cudaEventQuery(event->event));
    if (status == cudaErrorNotReady)
        return false;
    (void)cuda_device_status(event->device, status, "cudaEventQuery", NULL); /* the device keeps it */
    return true;
}
