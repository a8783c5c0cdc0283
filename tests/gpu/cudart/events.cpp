/* events.cpp - events: each record is an object of its own, so that a wait means the record that was the last
 * one when the wait was enqueued. */
#include <cstdio>
#include <set>

#include "tests/gpu/cudart/fake_internal.h"

static std::set<struct CUevent_st *> &live()
{
    static auto *const all = new std::set<struct CUevent_st *>;
    return *all;
}

bool fake_event_lives(cudaEvent_t event)
{
    if (live().count(event))
        return true;
    fake_complain("%p is used as an event, and is none that lives", (void *)event);
    return false;
}

void fake_events_report(FILE *file)
{
    fprintf(file, "leaked_events %zu\n", live().size());
}

static cudaError_t create(cudaEvent_t *event, bool timed)
{
    fake_locked held;
    *event = new CUevent_st;
    (*event)->timed = timed;
    (*event)->device = fake_device();
    live().insert(*event);
    return cudaSuccess;
}

extern "C" {

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    FAKE_ENTER_DEVICE("cudaEventCreate", cudaErrorMemoryAllocation);
    return create(event, true);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    FAKE_ENTER_DEVICE("cudaEventCreateWithFlags", cudaErrorMemoryAllocation);
    return create(event, !(flags & cudaEventDisableTiming));
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    FAKE_ENTER("cudaEventDestroy", cudaErrorInvalidResourceHandle);
    fake_locked held;
    if (!fake_event_lives(event))
        return fake_cudart_fail(cudaErrorInvalidResourceHandle);
    live().erase(event);
    delete event;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    FAKE_ENTER_DEVICE("cudaEventRecord", cudaErrorInvalidResourceHandle);
    fake_locked held;
    struct CUstream_st *s = fake_stream(stream);
    if (!s || !fake_event_lives(event))
        return fake_cudart_fail(cudaErrorInvalidResourceHandle);
    if (event->device != s->device) {
        fake_complain("an event of device %d is recorded on a stream of device %d", event->device, s->device);
        return fake_cudart_fail(cudaErrorInvalidResourceHandle);
    }
    if (s->capture)
        return fake_break_capture(s, "cudaEventRecord");
    auto record = std::make_shared<fake_record>();
    record->stream = s;
    record->position = s->pushed + 1;
    event->last = record;
    fake_push(s, {"cudaEventRecord", nullptr, nullptr, nullptr, false, record, {}, nullptr});
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned)
{
    FAKE_ENTER("cudaStreamWaitEvent", cudaErrorInvalidResourceHandle);
    fake_locked held;
    struct CUstream_st *s = fake_stream(stream);
    if (!s || !fake_event_lives(event))
        return fake_cudart_fail(cudaErrorInvalidResourceHandle);
    if (s->capture)
        return fake_break_capture(s, "cudaStreamWaitEvent");
    if (event->last)
        fake_push(s, {"cudaStreamWaitEvent", nullptr, nullptr, nullptr, false, {}, event->last, nullptr});
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    FAKE_ENTER("cudaEventQuery", cudaErrorUnknown);
    fake_locked held;
    if (!fake_event_lives(event))
        return fake_cudart_fail(cudaErrorInvalidResourceHandle);
    if (!event->last)
        return cudaSuccess;
    if (!event->last->done) {
        fake_want(event->last->stream, event->last->position);
        return fake_cudart_fail(cudaErrorNotReady); /* CUDA keeps this as the last error, too */
    }
    fake_held_acquire(event->last.get());
    return fake_meet_sticky();
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    FAKE_ENTER("cudaEventSynchronize", cudaErrorUnknown);
    fake_locked held;
    if (!fake_event_lives(event))
        return fake_cudart_fail(cudaErrorInvalidResourceHandle);
    auto record = event->last;
    if (!record)
        return cudaSuccess;
    if (!record->done)
        fake_want(record->stream, record->position);
    record->changed.wait(held.lock, [&] { return record->done; });
    fake_held_acquire(record.get());
    return fake_meet_sticky();
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    FAKE_ENTER("cudaEventElapsedTime", cudaErrorInvalidResourceHandle);
    fake_locked held;
    if (!fake_event_lives(from) || !fake_event_lives(to) || !from->timed || !to->timed || !from->last ||
        !to->last)
        return fake_cudart_fail(cudaErrorInvalidResourceHandle);
    if (!from->last->done || !to->last->done)
        return fake_cudart_fail(cudaErrorNotReady);
    *ms = (float)((double)(to->last->time_ns - from->last->time_ns) * 1e-6);
    return cudaSuccess;
}
}
