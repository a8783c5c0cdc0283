/* device_cpu_internal.h - the structs that the files of the CPU device share. */
#ifndef MUSTER_RUNTIME_DEVICE_DEVICE_CPU_INTERNAL_H
#define MUSTER_RUNTIME_DEVICE_DEVICE_CPU_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "proto/base/futex.h"
#include "runtime/device/device_cpu.h"

struct cpu_arena {
    struct cpu_arena *next;
    void *base;
    int64_t bytes; /* mapped */
};

struct device {
    int threads; /* threads of the compute stream */
    const struct kernels *kernels;
    _Atomic(int) streams;
    _Atomic(bool) has_compute;
    struct cpu_arena *arenas;
    struct device_event *events, *free_events; /* all that were ever made, by next; those by next_free */
    void *scratch;                             /* lent to the compute threads; NULL: none */
    int poison;                                /* -1: none */
    int64_t memory_limit;                      /* -1: the machine's */
    /* The first failure. error is written once, between the two values. */
    _Atomic(int) failed; /* 0 none, FAILURE_WRITING, FAILURE_SET */
    struct muster_error error;
};
enum { FAILURE_WRITING = 1, FAILURE_SET };

/* Memory of events lives as long as the device: the thread that reaches an event may still read its waiter
 * count when the waiters have already destroyed it. Destroyed events are reused. */
struct device_event {
    struct device_event *next, *next_free;
    struct device *device;
    struct futex_word reached;         /* the latest record that was reached; counts from 1 */
    _Atomic(uint32_t) recorded;        /* the latest record that was enqueued */
    _Atomic(int64_t) time_ns;          /* when `reached` was */
    _Atomic(const char *) recorded_by; /* name of the stream that recorded last */
};

#define STREAM_ENTRIES(X)                                                                                    \
    X(ENTRY_NONE, "idle")                                                                                    \
    X(ENTRY_LAUNCH, "running work")                                                                          \
    X(ENTRY_RECORD, "recording an event")                                                                    \
    X(ENTRY_WAIT, "waiting for an event")                                                                    \
    X(ENTRY_COPY, "copying")                                                                                 \
    X(ENTRY_FILL, "filling")                                                                                 \
    X(ENTRY_STOP, "stopping")
enum stream_entry_kind {
#define STREAM_ENTRY_ENUM(symbol, name) symbol,
    STREAM_ENTRIES(STREAM_ENTRY_ENUM)
#undef STREAM_ENTRY_ENUM
};

struct stream_entry {
    enum stream_entry_kind kind;
    union {
        struct {
            void (*fn)(void *argument);
            void *argument;
        } launch;
        struct {
            struct device_event *event;
            uint32_t sequence;
        } event;
        struct {
            void *to;
            const void *from;
            int64_t bytes;
            int byte;
        } copy;
    };
};

enum { NOTHING_WANTED = -1 };

struct device_stream {
    struct device *device;
    bool compute;
    char name[32];
    pthread_t thread;
    pthread_mutex_t feed;            /* orders the threads that enqueue */
    struct futex_word queued;        /* entries ever enqueued */
    _Atomic(uint32_t) finished;      /* entries ever taken off and done */
    _Atomic(int64_t) wanted;         /* least number that a sleeper waits for; NOTHING_WANTED */
    struct futex_word reached;       /* changes when there are as many */
    struct futex_word started;       /* not 0 once the thread runs and start_error is written */
    struct muster_error start_error; /* code 0: it runs */
    struct futex_patience idle_patience, event_patience; /* the thread's own */
    _Atomic(int64_t) waited_ns;
    _Atomic(int) now;                      /* code 0: the thread runs */
    _Atomic(const char *) now_waiting_for; /* name of the stream whose event it waits for */
    struct stream_entry entries[DEVICE_CPU_QUEUE];
};

/* device_cpu_arena.c */
int cpu_arena_create(struct device *device, enum memory_class memory, int64_t bytes,
                     struct device_arena *arena, struct muster_error *err);
void cpu_arena_destroy(struct device *device, struct device_arena *arena);

/* device_cpu_stream.c */
struct device_stream *cpu_stream_create(struct device *device, const char *name, bool compute,
                                        struct muster_error *err);
void cpu_stream_destroy(struct device_stream *stream);
int cpu_stream_launch(struct device_stream *stream, void (*fn)(void *argument), void *argument);
int cpu_stream_record(struct device_stream *stream, struct device_event *event);
int cpu_stream_wait(struct device_stream *stream, struct device_event *event);
int cpu_stream_copy(struct device_stream *stream, void *to, const void *from, int64_t bytes);
int cpu_stream_fill(struct device_stream *stream, void *to, int byte, int64_t bytes);
int cpu_stream_sync(struct device_stream *stream, struct instant deadline, struct muster_error *err);
int64_t cpu_stream_waited_ns(struct device_stream *stream);

/* device_cpu.c */
void cpu_device_fail(struct device *device, const struct muster_error *error);
int cpu_device_poll_error(struct device *device, struct muster_error *err);
static inline bool cpu_device_failed(struct device *device)
{
    return atomic_load_explicit(&device->failed, memory_order_acquire) != 0;
}

#endif
