/* device_cuda.h - the CUDA device's own structs, for its files and for the module's comm and kernels.
 *
 * After open and the creation of arenas, streams and events nothing here allocates and nothing synchronises
 * the whole device. Waits ask (cudaStreamQuery, cudaEventQuery) with pauses in between, so that a wait always
 * has a deadline. Every status of CUDA is looked at; the first error is kept and every later call that could
 * enqueue is refused. */
#ifndef MUSTER_RUNTIME_CUDA_DEVICE_CUDA_H
#define MUSTER_RUNTIME_CUDA_DEVICE_CUDA_H

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdatomic.h>

#include "proto/base/futex.h"
#include "runtime/cuda/cuda_stream.h"
#include "runtime/device/device.h"
#include "runtime/device/device_module.h"

enum {
    CUDA_NOTES = 1 << 14,  /* operations of a stream that an error can name; a power of two */
    CUDA_NOTES_SHOWN = 4,  /* in a text */
    CUDA_RECORDS = 64,     /* records of a stream that are asked about; a power of two */
    CUDA_MARKS = 1024,     /* marks of a stream that it has not passed yet */
    CUDA_WAIT_PAIRS = 512, /* waits of the compute stream that are measured at a time, at first */
    CUDA_BOUNCES = 2,      /* pieces of pinned memory through which the host's own memory goes */
    CUDA_BOUNCE_BYTES = 1 << 20,
    CUDA_STREAM_NAME = 16,
    CUDA_ARENAS = 1024, /* arenas of one device: the plan's, and the buffers of all comms */
    CUDA_STREAMS = 16,  /* streams of one device */
};
/* How long a stream may take to drain after the device has failed. */
#define CUDA_DRAIN_NS (2 * NS_PER_S)
/* How long the work of a stream may take at its end. Copies of a checkpoint go on then, and take seconds. */
#define CUDA_END_NS (30 * NS_PER_S)

struct device_event {
    cudaEvent_t event;
    struct device *device;
    bool recorded;
};

/* A place in a stream's work (device.h). */
struct cuda_mark {
    cudaEvent_t event;
    int64_t number;
    uint64_t noted; /* operations before it */
};

/* Timing events around a wait of the compute stream. */
struct wait_pair {
    cudaEvent_t before, after;
};

struct device_stream {
    struct cuda_stream_handle handle; /* first: what kernels get */
    struct device *device;
    char name[CUDA_STREAM_NAME];
    bool compute;
    /* Names of enqueued operations, by number from 1. `finished` is the last number known to be finished.
     * Written by the thread that enqueues. Another thread may make an error's text, and may miss the last
     * names. */
    _Atomic(const char *) notes[CUDA_NOTES];
    _Atomic(uint64_t) noted, finished;
    /* Operations are being recorded: each is noted when it is launched. Changes under the lock `listing`: no
     * other thread asks the stream then, which would end the record. */
    bool records_work;
    struct {
        struct device_event *event;
        uint64_t noted; /* when it was recorded */
    } records[CUDA_RECORDS];
    uint64_t recorded, looked; /* numbers of the last record, and of the last that was asked about */
    pthread_mutex_t marking;   /* lock of the marks */
    struct cuda_mark *marks;   /* [CUDA_MARKS], made by the first; open ones are [marks_passed, marks_set) */
    uint64_t marks_set, marks_passed;
    int64_t marked, mark_number; /* number of the last that was passed; that was set */
    struct wait_pair *pairs;     /* [pairs_made], of the compute stream; a ring, oldest at pairs_first */
    int pairs_made, pairs_first, pairs_used;
    _Atomic(int64_t) waited_ns;
};

struct bounce {
    cudaEvent_t event; /* end of the last copy */
    char *memory;      /* pinned, CUDA_BOUNCE_BYTES */
};

struct device {
    int index; /* CUDA's number */
    struct cudaDeviceProp properties;
    bool sync_errors, tf32;
    _Atomic(int) left;                   /* multiprocessors that products leave to comms */
    enum dtype values;                   /* DTYPE_F32 before device_ops.values */
    struct attention_by *attention;      /* NULL before device_ops.attention */
    struct kernels with_attention;       /* the table then */
    int priority_compute, priority_comm; /* a lower number goes first */
    pthread_mutex_t listing;             /* lock of the list of streams, against their ends */
    _Atomic(bool)
        stuck;        /* a stream has not drained after a failure: nothing is given back that waits for it */
    int64_t end_ns;   /* CUDA_END_NS, or a test's */
    cudaStream_t own; /* arenas are zeroed on it */
    pthread_mutex_t staging; /* lock of the bounces: one copy of the host's own memory at a time */
    struct bounce bounces[CUDA_BOUNCES];
    struct device_arena arenas[CUDA_ARENAS];
    int arena_count;
    _Atomic(struct device_stream *) streams[CUDA_STREAMS]; /* NULL: a free place */
    _Atomic(int) failed;                                   /* CUDA_FAILURE_... */
    struct futex_word failing;                             /* 1 from then on: ends pauses */
    struct muster_error error;
    char under_way[DEVICE_UNDER_WAY]; /* at the failure */
};
enum { CUDA_FAILURE_NONE, CUDA_FAILURE_WRITING, CUDA_FAILURE_SET };

/* ---- errors (device_cuda_error.c) ---- */

/* Keeps the first error of the device. If the device has an error of earlier work, the text gets its name,
 * where a library's status hides it, and the operations under way. */
void cuda_device_fail(struct device *device, const struct muster_error *error);
int cuda_device_poll_error(struct device *device, struct muster_error *err);
bool cuda_device_failed(const struct device *device);
/* A status that is not cudaSuccess becomes the device's error, unless it has one: "operation: ...". If the
 * error may have come later than its cause, the text adds the operations of all streams that were not known
 * to be finished. Returns 0 for cudaSuccess, else -1 with the device's error in err. */
int cuda_device_status(struct device *device, cudaError_t status, const char *operation,
                       struct muster_error *err);
/* Notes that an operation of that name (a text that stays) is enqueued on the stream next. With sync_errors
 * the call first waits for all earlier operations, so that an error names the only operation under way. */
void cuda_stream_note(struct device_stream *stream, const char *operation);
/* The operations of the stream that are not known to be finished, oldest first, as text. */
enum { CUDA_NOTES_TEXT = 200 };
void cuda_device_under_way(struct device *device, char text[DEVICE_UNDER_WAY]);
void cuda_stream_pending(const struct device_stream *stream, char text[CUDA_NOTES_TEXT]);

/* ---- streams and events (device_cuda_stream.c) ---- */

/* Makes the calling thread use the device: before every call that depends on it. */
int cuda_device_use(struct device *device, struct muster_error *err);
struct device_stream *cuda_stream_create(struct device *device, const char *name, bool compute,
                                         struct muster_error *err);
void cuda_stream_destroy(struct device_stream *stream);
void *cuda_stream_kernels(struct device_stream *stream);
struct device_event *cuda_event_create(struct device *device, struct muster_error *err);
struct device_event *cuda_timer_create(struct device *device, struct muster_error *err);
int cuda_timer_between(struct device_event *from, struct device_event *to, int64_t *ns,
                       struct muster_error *err);
void cuda_event_destroy(struct device_event *event);
int cuda_stream_launch(struct device_stream *stream, void (*fn)(void *argument), void *argument);
int cuda_stream_record(struct device_stream *stream, struct device_event *event);
int cuda_stream_wait(struct device_stream *stream, struct device_event *event);
bool cuda_event_done(struct device_event *event);
/* device_cuda_marks.c */
int cuda_stream_mark(struct device_stream *stream, int64_t number);
/* Before an operation is noted: marks the end of those before it, now and then. */
void cuda_stream_mark_note(struct device_stream *stream);
int64_t cuda_stream_marked(struct device_stream *stream);
/* Looks which marks were passed; after the device's failure nothing is looked at. From any thread. */
void cuda_stream_look_at_marks(struct device_stream *stream);
void cuda_marks_close(struct device_stream *stream);
/* Operations up to the noted-th are known to be finished. From any thread. */
void cuda_note_finished(struct device_stream *stream, uint64_t noted);
int cuda_waits_open(struct device_stream *stream, struct muster_error *err);
void cuda_waits_close(struct device_stream *stream);
/* Around a wait; *pair stays NULL where the stream's waits are not measured. */
int cuda_waits_begin(struct device_stream *stream, struct wait_pair **pair);
int cuda_waits_end(struct device_stream *stream, struct wait_pair *pair);
/* Adds up the pairs whose wait is over; all: the stream is empty. */
int cuda_waits_count(struct device_stream *stream, bool all, struct muster_error *err);
int cuda_stream_launch_graph(struct device_stream *stream, struct device_graph **graph, const char *name,
                             void (*fn)(void *argument), void *argument); /* device_cuda_graph.c */
void cuda_graph_destroy(struct device_graph *graph);
int64_t cuda_stream_waited_ns(struct device_stream *stream);
int cuda_stream_sync(struct device_stream *stream, struct instant deadline, struct muster_error *err);
/* Asks until the work is done: 0; 1 where the deadline passed first. ask gives cudaErrorNotReady until then.
 */
int cuda_ask(cudaError_t (*ask)(void *of), void *of, struct device *device, struct instant deadline,
             cudaError_t *status);

/* ---- memory (device_cuda_memory.c) ---- */

int cuda_arena_create(struct device *device, enum memory_class memory, int64_t bytes,
                      struct device_arena *arena, struct muster_error *err);
void cuda_arena_destroy(struct device *device, struct device_arena *arena);
int64_t cuda_memory_available(struct device *device);
#define CUDA_KEPT_FOR_PRODUCTS ((int64_t)128 << 20)
#define CUDA_KEPT_FOR_NCCL     ((int64_t)512 << 20)
int64_t cuda_memory_kept(struct device *device, bool comm);
int cuda_stream_copy(struct device_stream *stream, void *to, const void *from, int64_t bytes);
int cuda_stream_fill(struct device_stream *stream, void *to, int byte, int64_t bytes);
int cuda_bounces_open(struct device *device, struct muster_error *err);
void cuda_bounces_close(struct device *device);

/* The table (device_cuda.c). */
const struct device_ops *device_cuda(void);
/* Whether driver and a device answer; see muster_cuda_module.probe. */
int device_cuda_probe(struct muster_error *err);
/* See muster_cuda_module.locate. */
int device_cuda_locate(int local_rank, char place[MUSTER_CUDA_PLACE], struct muster_error *err);
/* See muster_cuda_module.memory. Opens no context. */
int device_cuda_facts(struct cuda_facts *facts, struct muster_error *err);

#endif
