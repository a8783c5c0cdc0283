/* device_cuda_marks.c - work of a stream by its events: how far it has come (marks), and the time
 * that the compute stream spends in waits. */
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "runtime/cuda/cuda_query.h"
#include "runtime/cuda/device_cuda.h"

/* ---- marks ---- */

void cuda_note_finished(struct device_stream *stream, uint64_t noted)
{
    uint64_t finished = atomic_load(&stream->finished);
    while (finished < noted && !atomic_compare_exchange_weak(&stream->finished, &finished, noted))
        ;
}

/* Under the lock of marks. An error ends the look. */
static cudaError_t pass_marks(struct device_stream *stream)
{
    while (stream->marks_passed < stream->marks_set) {
        const struct cuda_mark *mark = &stream->marks[stream->marks_passed % CUDA_MARKS];
        const cudaError_t status = cuda_query(cudaEventQuery(mark->event));
        if (status != cudaSuccess)
            return status == cudaErrorNotReady ? cudaSuccess : status;
        stream->marked = mark->number;
        cuda_note_finished(stream, mark->noted);
        stream->marks_passed++;
    }
    return cudaSuccess;
}

static bool has_ended(const struct device_stream *stream)
{
    return atomic_load(&stream->device->failed) == CUDA_FAILURE_SET;
}

void cuda_stream_look_at_marks(struct device_stream *stream)
{
    (void)pthread_mutex_lock(&stream->marking); /* cannot fail: our own, never locked twice */
    if (!has_ended(stream))
        (void)pass_marks(stream); /* a failure is being reported */
    (void)pthread_mutex_unlock(&stream->marking);
}

static cudaError_t make_marks(struct device_stream *stream)
{
    cudaError_t status = cudaSuccess;
    struct cuda_mark *marks = mem_calloc(CUDA_MARKS, sizeof *marks);
    if (!marks)
        return cudaErrorMemoryAllocation;
    for (int i = 0; i < CUDA_MARKS && status == cudaSuccess; i++)
        status = cudaEventCreateWithFlags(&marks[i].event, cudaEventDisableTiming);
    stream->marks = marks;
    return status;
}

/* Under the lock of marks. It is left out where too many are open. */
static cudaError_t set_mark(struct device_stream *stream)
{
    struct cuda_mark *mark = &stream->marks[stream->marks_set % CUDA_MARKS];
    if (stream->marks_set - stream->marks_passed == CUDA_MARKS)
        return cudaSuccess;
    const cudaError_t status = cudaEventRecord(mark->event, stream->handle.stream);
    mark->number = stream->mark_number;
    mark->noted = atomic_load(&stream->noted);
    stream->marks_set += status == cudaSuccess;
    return status;
}

int cuda_stream_mark(struct device_stream *stream, int64_t number)
{
    const char *function = "cudaEventQuery";
    cudaError_t status;
    if (cuda_device_failed(stream->device))
        return -1;
    (void)pthread_mutex_lock(&stream->marking);
    stream->mark_number = number;
    if (!stream->marks) {
        function = "cudaEventCreateWithFlags";
        status = make_marks(stream);
    } else {
        status = pass_marks(stream);
    }
    if (status == cudaSuccess) {
        function = "cudaEventRecord";
        status = set_mark(stream);
    }
    (void)pthread_mutex_unlock(&stream->marking);
    return cuda_device_status(stream->device, status, function, NULL);
}

/* One mark in some operations: a report shows so many of those that are open, and the one at work among them.
 */
void cuda_stream_mark_note(struct device_stream *stream)
{
    if (!stream->marks || atomic_load(&stream->noted) % CUDA_NOTES_SHOWN)
        return;
    (void)pthread_mutex_lock(&stream->marking);
    const cudaError_t status = set_mark(stream);
    (void)pthread_mutex_unlock(&stream->marking);
    (void)cuda_device_status(stream->device, status, "cudaEventRecord", NULL); /* the device keeps it */
}

int64_t cuda_stream_marked(struct device_stream *stream)
{
    (void)pthread_mutex_lock(&stream->marking);
    const cudaError_t status = has_ended(stream) ? cudaSuccess : pass_marks(stream);
    const int64_t marked = stream->marked;
    (void)pthread_mutex_unlock(&stream->marking);
    (void)cuda_device_status(stream->device, status, "cudaEventQuery", NULL); /* the device keeps it */
    return marked;
}

void cuda_marks_close(struct device_stream *stream)
{
    for (int i = 0; stream->marks && i < CUDA_MARKS; i++)
        if (stream->marks[i].event)
            (void)cudaEventDestroy(stream->marks[i].event); /* an earlier error, which was told */
    mem_free(stream->marks);
}

/* ---- time in waits ---- */

static int make_pairs(struct device_stream *stream, struct wait_pair *pairs, int count,
                      struct muster_error *err)
{
    for (int i = 0; i < count; i++) {
        if (cuda_device_status(stream->device, cudaEventCreateWithFlags(&pairs[i].before, cudaEventDefault),
                               "cudaEventCreateWithFlags", err) ||
            cuda_device_status(stream->device, cudaEventCreateWithFlags(&pairs[i].after, cudaEventDefault),
                               "cudaEventCreateWithFlags", err))
            return -1;
    }
    return 0;
}

int cuda_waits_open(struct device_stream *stream, struct muster_error *err)
{
    stream->pairs = mem_calloc(CUDA_WAIT_PAIRS, sizeof *stream->pairs);
    if (!stream->pairs)
        return error_set(err, MUSTER_E_NOMEM, "no memory for stream %s", stream->name);
    stream->pairs_made = CUDA_WAIT_PAIRS;
    return make_pairs(stream, stream->pairs, CUDA_WAIT_PAIRS, err);
}

void cuda_waits_close(struct device_stream *stream)
{
    for (int i = 0; i < stream->pairs_made; i++) { /* statuses: an earlier error, which was told */
        if (stream->pairs[i].before)
            (void)cudaEventDestroy(stream->pairs[i].before);
        if (stream->pairs[i].after)
            (void)cudaEventDestroy(stream->pairs[i].after);
    }
    mem_free(stream->pairs);
}

int64_t cuda_stream_waited_ns(struct device_stream *stream)
{
    return atomic_load(&stream->waited_ns);
}

int cuda_waits_count(struct device_stream *stream, bool all, struct muster_error *err)
{
    while (stream->pairs_used) {
        const struct wait_pair *pair = &stream->pairs[stream->pairs_first];
        float ms = 0;
        if (!all && cuda_query(cudaEventQuery(pair->after)) == cudaErrorNotReady)
            return 0;
        if (cuda_device_status(stream->device, cudaEventElapsedTime(&ms, pair->before, pair->after),
                               "cudaEventElapsedTime", err))
            return -1;
        atomic_fetch_add(&stream->waited_ns, (int64_t)((double)ms * (double)NS_PER_MS));
        stream->pairs_first = (stream->pairs_first + 1) % stream->pairs_made;
        stream->pairs_used--;
    }
    return 0;
}

/* Twice as many pairs, the open ones first: the host is that far ahead of the device. */
static int grow_pairs(struct device_stream *stream)
{
    const int made = stream->pairs_made, later = made - stream->pairs_first;
    struct wait_pair *pairs = mem_calloc((size_t)made * 2, sizeof *pairs);
    struct muster_error error;
    if (!pairs) {
        (void)error_set(&error, MUSTER_E_NOMEM, "no memory for stream %s", stream->name);
        cuda_device_fail(stream->device, &error);
        return -1;
    }
    memcpy(pairs, stream->pairs + stream->pairs_first, (size_t)later * sizeof *pairs);
    memcpy(pairs + later, stream->pairs, (size_t)stream->pairs_first * sizeof *pairs);
    mem_free(stream->pairs);
    stream->pairs = pairs;
    stream->pairs_first = 0;
    stream->pairs_made = made * 2;
    return make_pairs(stream, pairs + made, made, NULL);
}

static int record_pair(struct device_stream *stream, cudaEvent_t event)
{
    return cuda_device_status(stream->device, cudaEventRecord(event, stream->handle.stream),
                              "cudaEventRecord", NULL);
}

int cuda_waits_begin(struct device_stream *stream, struct wait_pair **pair)
{
    *pair = NULL;
    if (!stream->pairs)
        return 0;
    if (stream->pairs_used == stream->pairs_made &&
        (cuda_waits_count(stream, false, NULL) ||
         (stream->pairs_used == stream->pairs_made && grow_pairs(stream))))
        return -1;
    *pair = &stream->pairs[(stream->pairs_first + stream->pairs_used) % stream->pairs_made];
    return record_pair(stream, (*pair)->before);
}

int cuda_waits_end(struct device_stream *stream, struct wait_pair *pair)
{
    stream->pairs_used++;
    return record_pair(stream, pair->after);
}
