/* streams.cpp - a stream is a thread with a queue; its work runs as early, as late or as mixed as the events
 * allow. */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <set>
#include <unistd.h>

#include "tests/gpu/cudart/fake_internal.h"

static std::set<struct CUstream_st *> &live()
{
    static auto *const all = new std::set<struct CUstream_st *>;
    return *all;
}
static uint64_t streams_made;

/* ---- when work runs ---- */

static uint64_t mixed(uint64_t seed, uint64_t stream, uint64_t position)
{
    uint64_t x = seed * 0x9e3779b97f4a7c15u + stream * 0xbf58476d1ce4e5b9u + position;
    x ^= x >> 31;
    x *= 0x94d049bb133111ebu;
    return x ^ x >> 29;
}

/* Whether a piece of work is to wait until something waits for it. */
static bool is_late(const struct CUstream_st *stream, uint64_t position)
{
    const char *schedule = fake_setting("FAKE_CUDA_SCHEDULE"), *seed = fake_setting("FAKE_CUDA_SEED");
    if (!*schedule || !strcmp(schedule, "early"))
        return false;
    if (!strcmp(schedule, "late"))
        return true;
    if (!strcmp(schedule,
                "shuffled")) /* streams run in turns of some pieces: one piece alone hardly matters */
        return mixed(strtoull(seed, nullptr, 10), stream->number, position / 4) & 1;
    fake_complain("FAKE_CUDA_SCHEDULE is \"%s\"; it must be early, late or shuffled", schedule);
    abort();
}

void fake_want(struct CUstream_st *stream, uint64_t position)
{
    if (stream->wanted >= position)
        return;
    stream->wanted = position;
    stream->wake.notify_all();
}

void fake_want_all(int device)
{
    for (struct CUstream_st *stream : live())
        if (device < 0 || stream->device == device)
            fake_want(stream, stream->pushed);
}

extern "C" void fake_cudart_release_all(void)
{
    fake_locked held;
    fake_want_all(-1);
}

uint64_t fake_push(struct CUstream_st *stream, fake_work work)
{
    if (fake_capture_takes(stream, work))
        return stream->pushed;
    const uint64_t position = ++stream->pushed;
    work.waits = is_late(stream, position);
    work.order = new char;
    fake_held_release(work.order);
    stream->queue.push_back(std::move(work));
    stream->wake.notify_all();
    return position;
}

/* ---- a stream's thread ---- */

static void reach(const fake_work &work)
{
    work.record->done = true;
    work.record->time_ns = fake_now_ns();
    work.record->changed.notify_all();
}

/* Another stream's work up to the record is wanted now. After an error that stays, streams still pass. */
static void pass(std::unique_lock<std::mutex> &lock, const fake_work &work)
{
    fake_record *record = work.wait.get();
    if (!record->done)
        fake_want(record->stream, record->position);
    record->changed.wait(lock, [&] { return record->done; });
}

/* Whether the setting NAME:N[@R] means this run of a piece of work; runs: how often NAME has run. */
static bool means_run(const char *name_of, const char *what, uint64_t *runs)
{
    const char *setting = fake_setting(name_of);
    const bool named = !strncmp(setting, what, strlen(what)) && setting[strlen(what)] == ':';
    return named && fake_means(name_of, what, ++*runs);
}

static void take_time(int64_t begun, uint64_t us)
{
    const int64_t left = (int64_t)us * 1000 - (fake_now_ns() - begun);
    const struct timespec time = {left / 1000000000, left % 1000000000};
    if (us && left > 0)
        nanosleep(&time, nullptr);
}

static void run_work(std::unique_lock<std::mutex> &lock, struct CUstream_st *stream, const fake_work &work)
{
    static uint64_t faults, hangs;
    const char *code = fake_setting("FAKE_CUDA_ASYNC_ERROR");
    if (means_run("FAKE_CUDA_ASYNC", work.what, &faults))
        fake_set_sticky(stream->device, *code ? (cudaError_t)atoi(code) : cudaErrorIllegalAddress);
    const bool broken = fake_sticky() != cudaSuccess,
               hangs_now = means_run("FAKE_CUDA_HANG", work.what, &hangs);
    const uint64_t cost = fake_cost_us(work.what);
    const int64_t begun = fake_now_ns();
    lock.unlock();
    if (hangs_now)
        fake_complain("%s hangs", work.what);
    while (hangs_now)
        (void)pause();
    fake_sync_show();
    FAKE_ACQUIRE(work.order);
    if (work.wait)
        FAKE_ACQUIRE(work.wait.get());
    if (work.run && !broken)
        work.run(work.argument);
    if (work.dispose)
        work.dispose(work.argument);
    take_time(begun, cost);
    if (work.record)
        FAKE_RELEASE(work.record.get());
    FAKE_RELEASE(&stream->finished);
    fake_sync_hide();
    lock.lock();
}

static void serve(struct CUstream_st *stream)
{
    fake_device_use(stream->device);
    fake_memory_open();
    fake_locked held;
    for (;;) {
        stream->wake.wait(held.lock, [&] {
            return stream->queue.empty() ? stream->stop
                                         : !stream->queue.front().waits || stream->wanted > stream->done;
        });
        if (stream->queue.empty())
            return;
        fake_work work = std::move(stream->queue.front());
        stream->queue.pop_front();
        if (work.wait)
            pass(held.lock, work);
        run_work(held.lock, stream, work);
        if (work.record)
            reach(work);
        delete work.order;
        stream->done++;
        stream->progress.notify_all();
    }
}

/* With the lock held. */
static struct CUstream_st *stream_new(int device, unsigned flags, int priority)
{
    struct CUstream_st *stream = new CUstream_st;
    stream->device = device;
    stream->flags = flags;
    stream->priority = priority;
    stream->number = ++streams_made;
    live().insert(stream);
    stream->thread = std::thread(serve, stream);
    return stream;
}

struct CUstream_st *fake_stream(cudaStream_t stream)
{
    static struct CUstream_st *null_streams[FAKE_DEVICES];
    struct CUstream_st **null_stream = &null_streams[fake_device()];
    if (!stream && !*null_stream) {
        *null_stream = stream_new(fake_device(), cudaStreamDefault, 0);
        (*null_stream)->thread.detach();
        live().erase(*null_stream); /* nobody destroys it */
    }
    if (!stream)
        return *null_stream;
    if (live().count(stream))
        return stream;
    fake_complain("%p is used as a stream, and is none that lives", (void *)stream);
    return nullptr;
}

void fake_drain(fake_locked &held, struct CUstream_st *stream)
{
    const uint64_t target = stream->pushed;
    fake_want(stream, target);
    stream->progress.wait(held.lock, [&] { return stream->done >= target; });
    fake_held_acquire(&stream->finished);
}

void fake_drain_device(fake_locked &held, int device)
{
    const std::set<struct CUstream_st *> all = live();
    fake_want_all(device);
    for (struct CUstream_st *stream : all)
        if (live().count(stream) && stream->device == device) /* waiting lets go of the lock */
            fake_drain(held, stream);
    if (device == fake_device())
        fake_drain(held, fake_stream(nullptr));
}

void fake_streams_report(FILE *file)
{
    fprintf(file, "leaked_streams %zu\n", live().size());
}

extern "C" cudaError_t fake_cudart_enqueue(cudaStream_t stream, const char *what, void (*run)(void *),
                                           void *argument, void (*dispose)(void *))
{
    const bool refused = fake_refuse(what) != 0;
    cudaError_t error = fake_sticky();
    if (error == cudaSuccess && refused)
        error = cudaErrorLaunchFailure;
    if (error == cudaSuccess && fake_driver() != cudaSuccess)
        error = fake_driver();
    fake_locked held;
    struct CUstream_st *s = error == cudaSuccess ? fake_stream(stream) : nullptr;
    if (error == cudaSuccess && (!s || s->device != fake_device())) {
        fake_complain("%s is launched on a stream that is not one of device %d, which the thread uses", what,
                      fake_device());
        error = cudaErrorInvalidResourceHandle;
    }
    if (error == cudaSuccess)
        fake_push(s, {what, run, dispose, argument, false, {}, {}, nullptr});
    else if (dispose)
        dispose(argument);
    return error;
}

/* ---- the runtime's functions ---- */

/* A priority out of the range becomes the nearest in it, as CUDA does it. */
static cudaError_t create(cudaStream_t *stream, unsigned flags, int priority)
{
    if (flags != cudaStreamDefault && flags != cudaStreamNonBlocking)
        return fake_cudart_fail(cudaErrorInvalidValue);
    fake_locked held;
    *stream = stream_new(fake_device(), flags, priority > 0 ? 0 : priority < -5 ? -5 : priority);
    return cudaSuccess;
}

static thread_local bool in_host_call;

bool fake_in_host_call()
{
    return in_host_call;
}

struct host_call {
    cudaHostFn_t function;
    void *argument;
};

/* Such functions of all streams take turns, as in CUDA, which is no order between what they do. They are the
 * host's: device memory is not theirs, and they may not call CUDA. */
static void run_host_call(void *argument)
{
    static std::mutex turns;
    const struct host_call *call = (const struct host_call *)argument;
    fake_sync_hide();
    turns.lock();
    fake_sync_show();
    fake_memory_close();
    in_host_call = true;
    call->function(call->argument);
    in_host_call = false;
    fake_memory_open();
    fake_sync_hide();
    turns.unlock();
    fake_sync_show();
}

static void dispose_host_call(void *argument)
{
    delete (struct host_call *)argument;
}

extern "C" {

cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
    FAKE_ENTER_DEVICE("cudaStreamCreate", cudaErrorMemoryAllocation);
    return create(stream, cudaStreamDefault, 0);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    FAKE_ENTER_DEVICE("cudaStreamCreateWithFlags", cudaErrorMemoryAllocation);
    return create(stream, flags, 0);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority)
{
    FAKE_ENTER_DEVICE("cudaStreamCreateWithPriority", cudaErrorMemoryAllocation);
    return create(stream, flags, priority);
}

cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned *flags)
{
    FAKE_ENTER("cudaStreamGetFlags", cudaErrorInvalidResourceHandle);
    fake_locked held;
    const struct CUstream_st *s = fake_stream(stream);
    if (!s)
        return fake_cudart_fail(cudaErrorInvalidResourceHandle);
    *flags = s->flags;
    return cudaSuccess;
}

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int *priority)
{
    FAKE_ENTER("cudaStreamGetPriority", cudaErrorInvalidResourceHandle);
    fake_locked held;
    const struct CUstream_st *s = fake_stream(stream);
    if (!s)
        return fake_cudart_fail(cudaErrorInvalidResourceHandle);
    *priority = s->priority;
    return cudaSuccess;
}

/* CUDA returns at once; here all of its work is over then, so that a test that ends has ended. */
cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    FAKE_ENTER("cudaStreamDestroy", cudaErrorInvalidResourceHandle);
    std::thread thread;
    {
        fake_locked held;
        struct CUstream_st *s = stream ? fake_stream(stream) : nullptr;
        if (!s)
            return fake_cudart_fail(cudaErrorInvalidResourceHandle);
        if (s->capture)
            return fake_break_capture(s, "cudaStreamDestroy");
        fake_drain(held, s);
        live().erase(s);
        s->stop = true;
        s->wake.notify_all();
        thread = std::move(s->thread);
    }
    thread.join();
    delete stream;
    return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    FAKE_ENTER("cudaStreamQuery", cudaErrorUnknown);
    fake_locked held;
    struct CUstream_st *s = fake_stream(stream);
    if (!s)
        return fake_cudart_fail(cudaErrorInvalidResourceHandle);
    if (s->capture)
        return fake_break_capture(s, "cudaStreamQuery");
    fake_want(s, s->pushed);
    if (s->done < s->pushed)
        return fake_cudart_fail(cudaErrorNotReady); /* CUDA keeps this as the last error, too */
    fake_held_acquire(&s->finished);
    return fake_meet_sticky();
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    FAKE_ENTER_DEVICE("cudaStreamSynchronize", cudaErrorUnknown);
    fake_locked held;
    struct CUstream_st *s = fake_stream(stream);
    if (!s)
        return fake_cudart_fail(cudaErrorInvalidResourceHandle);
    if (s->capture)
        return fake_break_capture(s, "cudaStreamSynchronize");
    fake_drain(held, s);
    return fake_meet_sticky();
}

cudaError_t cudaDeviceSynchronize(void)
{
    FAKE_ENTER_DEVICE("cudaDeviceSynchronize", cudaErrorUnknown);
    fake_locked held;
    fake_drain_device(held, fake_device());
    return fake_meet_sticky();
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *argument)
{
    FAKE_ENTER_DEVICE("cudaLaunchHostFunc", cudaErrorInvalidValue);
    fake_locked held;
    struct CUstream_st *s = fake_stream(stream);
    if (!s)
        return fake_cudart_fail(cudaErrorInvalidResourceHandle);
    if (s->capture)
        return fake_break_capture(s, "cudaLaunchHostFunc");
    fake_push(s, {"cudaLaunchHostFunc",
                  run_host_call,
                  dispose_host_call,
                  new host_call{function, argument},
                  false,
                  {},
                  {},
                  nullptr});
    return cudaSuccess;
}
}
