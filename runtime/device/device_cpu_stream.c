/* device_cpu_stream.c - a stream on the CPU: a thread and a bounded FIFO. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "proto/base/thread.h"
#include "runtime/device/device_cpu_internal.h"

static_assert((DEVICE_CPU_QUEUE & (DEVICE_CPU_QUEUE - 1)) == 0,
              "counters that wrap index the queue by a mask");

static _Thread_local bool on_compute_thread;

bool device_cpu_on_compute_thread(void)
{
    return on_compute_thread;
}

static const char *entry_name(int kind)
{
    static const char *const names[] = {
#define STREAM_ENTRY_NAME(symbol, name) [symbol] = name,
        STREAM_ENTRIES(STREAM_ENTRY_NAME)
#undef STREAM_ENTRY_NAME
    };
    return names[kind];
}

/* ---- the stream's thread ---- */

static void reach(struct device_event *event, uint32_t sequence)
{
    uint32_t seen = atomic_load(&event->reached.value);
    if (!futex_reached(seen, sequence))
        atomic_store(&event->time_ns, clock_now(NULL).ns);
    /* Records of one event on two streams may be reached out of order; the latest one counts. */
    while (!futex_reached(seen, sequence) &&
           !atomic_compare_exchange_weak(&event->reached.value, &seen, sequence))
        ;
    futex_wake(&event->reached, FUTEX_PRIVATE);
}

/* A wait is counted slice by slice. A slice that takes much longer than WAIT_SLICE_NS is this process's own
 * delay: it was suspended, or had no core. Such a slice must not look like a wait for another rank
 * (stragglers.h). */
#define WAIT_SLICE_NS (20 * NS_PER_MS)
#define WAIT_MOST_NS  (22 * NS_PER_MS)

static struct instant count_wait(struct device_stream *stream, struct instant before)
{
    const struct instant now = clock_now(NULL);
    const int64_t ns = instant_diff_ns(now, before);
    atomic_fetch_add(&stream->waited_ns, ns < WAIT_MOST_NS ? ns : WAIT_MOST_NS);
    return now;
}

static void wait_for(struct device_stream *stream, struct device_event *event, uint32_t sequence)
{
    uint32_t seen = atomic_load(&event->reached.value);
    if (futex_reached(seen, sequence))
        return;
    struct instant before = clock_now(NULL);
    atomic_store(&stream->now_waiting_for, atomic_load(&event->recorded_by));
    while (!futex_reached(seen = atomic_load(&event->reached.value), sequence)) {
        if (!futex_look(&event->reached, seen, &stream->event_patience)) /* late: the next slice begins */
            (void)futex_wait(&event->reached, seen, instant_add(before, WAIT_SLICE_NS), FUTEX_PRIVATE);
        before = count_wait(stream, before);
    }
}

static void run_entry(struct device_stream *stream, const struct stream_entry *entry)
{
    /* After a failure events are still recorded, in order, so that no stream and no caller waits for ever;
     * waiting is safe because the recording stream drains as well. */
    bool drain = cpu_device_failed(stream->device);
    switch (entry->kind) {
    case ENTRY_LAUNCH:
        if (!drain)
            entry->launch.fn(entry->launch.argument);
        break;
    case ENTRY_RECORD:
        reach(entry->event.event, entry->event.sequence);
        break;
    case ENTRY_WAIT:
        wait_for(stream, entry->event.event, entry->event.sequence);
        break;
    case ENTRY_COPY:
        if (!drain)
            memmove(entry->copy.to, entry->copy.from, (size_t)entry->copy.bytes);
        break;
    case ENTRY_FILL:
        if (!drain)
            memset(entry->copy.to, entry->copy.byte, (size_t)entry->copy.bytes);
        break;
    case ENTRY_NONE:
    case ENTRY_STOP:
        break;
    }
}

/* ---- waiting for its entries ---- */

/* A waiter is woken for its own entry, not for each entry before it. The waiter stores its entry in `wanted`,
 * then reads `finished`. The stream's thread stores `finished`, then reads `wanted`. So at least one thread
 * sees the other's store. */
static void want(struct device_stream *stream, uint32_t target)
{
    int64_t wanted = atomic_load(&stream->wanted);
    while ((wanted == NOTHING_WANTED || !futex_reached(target, (uint32_t)wanted)) &&
           !atomic_compare_exchange_weak(&stream->wanted, &wanted, target))
        ;
}

/* Woken waiters store their later entries in `wanted` again. */
static void finish(struct device_stream *stream, uint32_t finished)
{
    atomic_store(&stream->finished, finished);
    futex_store_load();
    const int64_t wanted = atomic_load(&stream->wanted);
    if (wanted == NOTHING_WANTED || !futex_reached(finished, (uint32_t)wanted))
        return;
    atomic_store(&stream->wanted, NOTHING_WANTED);
    atomic_fetch_add(&stream->reached.value, 1);
    futex_wake(&stream->reached, FUTEX_PRIVATE);
}

/* Whether so many are finished, or were not until the deadline. */
static bool await_finished(struct device_stream *stream, uint32_t target, struct instant deadline)
{
    static _Thread_local struct futex_patience patience;
    while (!futex_reached(atomic_load(&stream->finished), target)) {
        const uint32_t seen = atomic_load(&stream->reached.value);
        want(stream, target);
        if (!futex_reached(atomic_load(&stream->finished), target) &&
            !futex_look(&stream->reached, seen, &patience) &&
            futex_wait(&stream->reached, seen, deadline, FUTEX_PRIVATE) &&
            !futex_reached(atomic_load(&stream->finished), target))
            return false;
    }
    return true;
}

/* ---- its thread's life ---- */

static void start_thread(struct device_stream *stream)
{
    (void)pthread_setname_np(pthread_self(), stream->name); /* a name is for debuggers only */
    on_compute_thread = stream->compute;
    if (stream->compute &&
        kernels_cpu_threads(stream->device->threads, &stream->start_error) == 0) /* the code is checked */
        kernels_cpu_scratch(stream->device->scratch);
    atomic_store(&stream->started.value, 1);
    futex_wake(&stream->started, FUTEX_PRIVATE);
}

static void *stream_main(void *argument)
{
    struct device_stream *stream = argument;
    start_thread(stream);
    for (uint32_t position = 0;; position++) {
        while (!futex_look(&stream->queued, position, &stream->idle_patience))
            (void)futex_wait(&stream->queued, position, INSTANT_NEVER, FUTEX_PRIVATE); /* never late */
        const struct stream_entry *entry = &stream->entries[position % DEVICE_CPU_QUEUE];
        bool stop = entry->kind == ENTRY_STOP;
        atomic_store_explicit(&stream->now, (int)entry->kind, memory_order_relaxed);
        run_entry(stream, entry);
        atomic_store_explicit(&stream->now, ENTRY_NONE, memory_order_relaxed);
        finish(stream, position + 1);
        if (stop)
            return NULL;
    }
}

/* ---- enqueuing ---- */

static void push(struct device_stream *stream, const struct stream_entry *entry)
{
    (void)pthread_mutex_lock(&stream->feed); /* cannot fail: our own, never locked twice */
    uint32_t position = atomic_load(&stream->queued.value);
    if (position - atomic_load(&stream->finished) >= DEVICE_CPU_QUEUE) /* then until half of it is free */
        (void)await_finished(stream, position - DEVICE_CPU_QUEUE / 2, INSTANT_NEVER); /* never late */
    stream->entries[position % DEVICE_CPU_QUEUE] = *entry;
    atomic_store(&stream->queued.value, position + 1);
    (void)pthread_mutex_unlock(&stream->feed);
    futex_wake(&stream->queued, FUTEX_PRIVATE);
}

int cpu_stream_launch(struct device_stream *stream, void (*fn)(void *argument), void *argument)
{
    if (cpu_device_failed(stream->device))
        return -1;
    const struct stream_entry entry = {.kind = ENTRY_LAUNCH, .launch = {fn, argument}};
    push(stream, &entry);
    return 0;
}

int cpu_stream_record(struct device_stream *stream, struct device_event *event)
{
    if (cpu_device_failed(stream->device))
        return -1;
    atomic_store(&event->recorded_by, stream->name);
    const struct stream_entry entry = {.kind = ENTRY_RECORD,
                                       .event = {event, atomic_fetch_add(&event->recorded, 1) + 1}};
    push(stream, &entry);
    return 0;
}

int cpu_stream_wait(struct device_stream *stream, struct device_event *event)
{
    if (cpu_device_failed(stream->device))
        return -1;
    const struct stream_entry entry = {.kind = ENTRY_WAIT, .event = {event, atomic_load(&event->recorded)}};
    if (futex_reached(atomic_load(&event->reached.value), entry.event.sequence))
        return 0; /* never recorded, or done already: nothing to wait for */
    push(stream, &entry);
    return 0;
}

int cpu_stream_copy(struct device_stream *stream, void *to, const void *from, int64_t bytes)
{
    if (cpu_device_failed(stream->device))
        return -1;
    const struct stream_entry entry = {.kind = ENTRY_COPY, .copy = {.to = to, .from = from, .bytes = bytes}};
    push(stream, &entry);
    return 0;
}

int cpu_stream_fill(struct device_stream *stream, void *to, int byte, int64_t bytes)
{
    if (cpu_device_failed(stream->device))
        return -1;
    const struct stream_entry entry = {.kind = ENTRY_FILL, .copy = {.to = to, .byte = byte, .bytes = bytes}};
    push(stream, &entry);
    return 0;
}

/* ---- waiting for all of it ---- */

static int sync_late(struct device_stream *stream, uint32_t target, struct muster_error *err)
{
    uint32_t done = atomic_load(&stream->finished);
    int now = atomic_load_explicit(&stream->now, memory_order_relaxed);
    const char *from = now == ENTRY_WAIT ? atomic_load(&stream->now_waiting_for) : NULL;
    return error_set(err, MUSTER_E_TIMEOUT, "stream %s has not finished in time: entry %u of %u, %s%s%s",
                     stream->name, done + 1, target, entry_name(now), from ? " of stream " : "",
                     from ? from : "");
}

int cpu_stream_sync(struct device_stream *stream, struct instant deadline, struct muster_error *err)
{
    const uint32_t target = atomic_load(&stream->queued.value);
    if (!await_finished(stream, target, deadline))
        return sync_late(stream, target, err);
    return cpu_device_poll_error(stream->device, err);
}

int64_t cpu_stream_waited_ns(struct device_stream *stream)
{
    return atomic_load(&stream->waited_ns);
}

/* ---- creation ---- */

static void release(struct device_stream *stream)
{
    (void)pthread_mutex_destroy(&stream->feed); /* cannot fail: no thread holds it */
    atomic_fetch_sub(&stream->device->streams, 1);
    if (stream->compute)
        atomic_store(&stream->device->has_compute, false);
    mem_free(stream);
}

static struct device_stream *stream_prepare(struct device *device, const char *name, bool compute,
                                            struct muster_error *err)
{
    struct device_stream *stream = mem_calloc(1, sizeof *stream);
    if (!stream) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for stream %s", name);
        return NULL;
    }
    bool taken = false;
    if (compute && !atomic_compare_exchange_strong(&device->has_compute, &taken, true)) {
        mem_free(stream);
        (void)error_set(err, MUSTER_E_STATE,
                        "stream %s would be the device's second compute stream; one thread alone may enter "
                        "OpenMP and BLAS",
                        name);
        return NULL;
    }
    (void)pthread_mutex_init(&stream->feed, NULL); /* cannot fail without attributes */
    atomic_fetch_add(&device->streams, 1);
    stream->device = device;
    stream->compute = compute;
    atomic_init(&stream->wanted, NOTHING_WANTED);
    /* The kernel shows 15 bytes of a thread's name; a longer one is cut. */
    (void)snprintf(stream->name, sizeof stream->name, "%.15s", name);
    return stream;
}

struct device_stream *cpu_stream_create(struct device *device, const char *name, bool compute,
                                        struct muster_error *err)
{
    struct device_stream *stream = stream_prepare(device, name, compute, err);
    if (!stream)
        return NULL;
    int failed = thread_start(&stream->thread, 0, stream_main, stream);
    if (failed) {
        release(stream);
        (void)thread_error(err, failed, "the thread of stream %s", name);
        return NULL;
    }
    while (!atomic_load(&stream->started.value))
        (void)futex_wait(&stream->started, 0, INSTANT_NEVER, FUTEX_PRIVATE); /* never late */
    if (stream->start_error.code) {
        if (err)
            *err = stream->start_error;
        cpu_stream_destroy(stream);
        return NULL;
    }
    return stream;
}

void cpu_stream_destroy(struct device_stream *stream)
{
    if (!stream)
        return;
    const struct stream_entry stop = {.kind = ENTRY_STOP};
    push(stream, &stop);
    (void)pthread_join(stream->thread, NULL); /* cannot fail: ours, joined once */
    release(stream);
}
