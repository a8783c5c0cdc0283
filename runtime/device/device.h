/* device.h - where memory lives and work runs: one table of functions for each kind of device.
 *
 * A stream is an ordered queue of work; work on different streams is ordered by events only. On the CPU a
 * stream is a thread with a FIFO, so that ordering is real and testable without a GPU; on CUDA it is a CUDA
 * stream. After open and creation of streams, events and arenas nothing here allocates.
 *
 * launch is how everything is enqueued: on the CPU fn(argument) runs later on the stream's thread and does
 * its work there; on CUDA fn runs at once on the caller and enqueues kernels on the stream. So fn must read
 * its argument after launch returns (it has to stay valid and unchanged until the work is done) and must not
 * wait. */
#ifndef MUSTER_RUNTIME_DEVICE_DEVICE_H
#define MUSTER_RUNTIME_DEVICE_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/kernels.h"
#include "proto/base/clock.h"
#include "proto/include/muster_error.h"

enum { DEVICE_ABI = 8 };
enum { DEVICE_UNDER_WAY = 320 }; /* bytes of a text */

/* Memory classes. COMM memory can be read by the other ranks of the node (a memfd on CPUs, registered memory
 * with NCCL). */
#define DEVICE_MEMORY_CLASSES(X)                                                                             \
    X(MEMORY_DEVICE, "device")                                                                               \
    X(MEMORY_COMM, "comm")                                                                                   \
    X(MEMORY_PINNED, "pinned")                                                                               \
    X(MEMORY_HOST, "host")
enum memory_class {
#define DEVICE_MEMORY_ENUM(symbol, name) symbol,
    DEVICE_MEMORY_CLASSES(DEVICE_MEMORY_ENUM)
#undef DEVICE_MEMORY_ENUM
        MEMORY_CLASS_COUNT
};
const char *memory_class_name(enum memory_class memory);

struct device;
struct device_stream;
struct device_event;
struct device_graph;

struct device_arena {
    void *base;
    int64_t bytes;
    enum memory_class memory;
    int fd; /* memfd of COMM memory on the CPU; -1 otherwise */
};

struct device_ops {
    uint32_t abi, size;
    const char *name; /* "cpu", "cuda" */
    bool host_memory; /* the host reads and writes all arenas by their addresses; false: PINNED and HOST only
                       */

    bool host_streams; /* streams run functions on threads of their own; false: `launch` runs them on its
                          caller */

    /* threads: OpenMP/BLAS threads of the compute stream (CPU). The kernels table comes with the device.
     * local_rank chooses among several devices. kernels(NULL): the table that sizes in plans come from. */
    struct device *(*open)(int local_rank, int threads, struct muster_error *err);
    void (*close)(struct device *device); /* streams, events and arenas are destroyed first; accepts NULL */
    const struct kernels *(*kernels)(struct device *device);

    /* Bytes that arenas of DEVICE and COMM memory could take now; 0: not known. */
    int64_t (*memory_available)(struct device *device);
    /* Of these, an allowance for memory that the device's libraries take after the arenas; with a comm of the
     * device's own if `comm`. NULL: none. device NULL: of any. */
    int64_t (*memory_kept)(struct device *device, bool comm);
    /* A comm's kernels take up to so many multiprocessors next to the compute stream: products that are met
     * for the first time from now on leave them. NULL: products and comms share nothing. */
    void (*leave)(struct device *device, int multiprocessors);
    /* NULL where errors are exact anyway. on: every operation is waited for, so that an asynchronous error
     * names the operation that caused it; much slower. Before the first stream is made. */
    void (*sync_errors)(struct device *device, bool on);
    /* Products round their factors to tf32 from now on: before `kernels` and the first stream. Fails where
     * the device cannot. NULL: it multiplies in the kernels' dtype. */
    int (*tf32)(struct device *device, struct muster_error *err);
    /* Values and weights are of this type, bf16 or f16, from now on: before `kernels`. Fails where the device
     * has no arithmetic of it. NULL: `kernels` has one table. */
    int (*values)(struct device *device, enum dtype values, struct muster_error *err);
    /* Attention is a library's from now on, for the shapes that it takes: after `values`, before `kernels`.
     * Fails where the library or the device cannot. NULL: there is no such library. */
    int (*attention)(struct device *device, struct muster_error *err);
    /* After that and after plans: one line of text on the library and the shapes that it takes, and -1 with
     * the reason where it takes none. */
    int (*attention_text)(struct device *device, char *text, size_t size, struct muster_error *err);
    /* The table of f32 of a device that has `values`: for whole parameters, which come in f32. */
    const struct kernels *(*kernels_f32)(struct device *device);
    /* The library of products and the type of their factors from now on: before `kernels` and the first
     * stream. Fails as kernels_cpu_by. NULL: the device has one library. */
    int (*products)(struct device *device, enum kernels_products by, struct muster_error *err);

    /* Bytes of host memory that products need on all compute threads; 0: none. NULL: the same. After
     * `products`. The second lends them, before the compute stream is made; they outlive it. */
    int64_t (*scratch_bytes)(struct device *device);
    void (*scratch)(struct device *device, void *memory);

    /* Zeroed memory, 4096-aligned on the CPU and 256-aligned elsewhere. Fails with MUSTER_E_NOMEM naming
     * bytes wanted and free where it does not fit. */
    int (*arena_create)(struct device *device, enum memory_class memory, int64_t bytes,
                        struct device_arena *arena, struct muster_error *err);
    void (*arena_destroy)(struct device *device, struct device_arena *arena);

    /* compute: exactly one stream of a device may call OpenMP and BLAS; it is created with compute = true. */
    struct device_stream *(*stream_create)(struct device *device, const char *name, bool compute,
                                           struct muster_error *err);
    void (*stream_destroy)(struct device_stream *stream); /* waits for its work; accepts NULL */
    void *(*stream_handle)(struct device_stream *stream); /* what kernels take as `stream`; NULL on the CPU */

    struct device_event *(*event_create)(struct device *device, struct muster_error *err);
    void (*event_destroy)(struct device_event *event);

    /* All of these enqueue and return; the queue is bounded and a full one makes the caller wait (futex). */
    int (*launch)(struct device_stream *stream, void (*fn)(void *argument), void *argument);
    /* Same as launch, for an fn that enqueues the same kernels with the same arguments every time. The first
     * call, with *graph NULL, calls fn. The second call calls fn again and records its operations. Later
     * calls launch the recording and do not call fn. fn may not wait, nor use another stream. name, a text
     * that stays, stands for the whole recording in errors. Both NULL where the device has no graphs. */
    int (*launch_graph)(struct device_stream *stream, struct device_graph **graph, const char *name,
                        void (*fn)(void *argument), void *argument);
    void (*graph_destroy)(struct device_graph *graph); /* the graph's work is done; accepts NULL */
    int (*record)(struct device_stream *stream,
                  struct device_event *event); /* event = everything enqueued so far */
    /* Later work of stream waits for the last record of event made before this call. A never recorded event
     * is done. */
    int (*wait)(struct device_stream *stream, struct device_event *event);
    /* Memory that is in no arena of the device is the host's own: where the device cannot reach it, it goes
     * through memory that it can, and the call returns when `from` may change and, where `to` is such memory,
     * when it is filled. So copies of the host's own memory are for between steps. */
    int (*copy)(struct device_stream *stream, void *to, const void *from, int64_t bytes);
    int (*fill)(struct device_stream *stream, void *to, int byte, int64_t bytes);

    /* Where the host enqueues ahead of the device, its place is not the device's; all three
     * are NULL where host_streams. mark: the stream passes `number` once the work before the mark is done. A
     * mark is left out while too many are open. marked: the number of the mark passed last, 0: none.
     * under_way: the operations that are not known to be done, oldest first, stream by stream. The last two
     * may be called by any thread; after the device's failure both report the state at the failure. */
    int (*mark)(struct device_stream *stream, int64_t number);
    int64_t (*marked)(struct device_stream *stream);
    void (*under_way)(struct device *device, char text[DEVICE_UNDER_WAY]);

    bool (*event_done)(struct device_event *event);
    /* Time at which the last record of the event was reached, on the system's monotonic clock; {0} if it
     * has not been reached, and always on CUDA, whose clocks are its own. */
    struct instant (*event_time)(struct device_event *event);
    /* For such a device: an event whose records have a time, and nanoseconds from one's last record to
     * another's, which 1 leaves as they are: it was not recorded, or is not reached. NULL where
     * host_streams. */
    struct device_event *(*timer_create)(struct device *device, struct muster_error *err);
    int (*timer_between)(struct device_event *from, struct device_event *to, int64_t *ns,
                         struct muster_error *err);
    /* Nanoseconds that the stream has spent blocked in `wait` since it was created: exposed communication.
     * Time in which the process was suspended does not count. CUDA counts on the compute stream alone, by a
     * pair of timing events around each wait, and only waits before the last finished `sync`. */
    int64_t (*stream_waited_ns)(struct device_stream *stream);
    /* The calling thread waits until the stream is empty; MUSTER_E_TIMEOUT names the stream and the entry
     * that has not finished. Once the device has failed, no longer than a stream takes to drain. */
    int (*sync)(struct device_stream *stream, struct instant deadline, struct muster_error *err);
    /* Reports an asynchronous error (the first is kept); every later sync and poll returns it, so that a
     * failing collective stops the step. */
    void (*fail)(struct device *device, const struct muster_error *error);
    int (*poll_error)(struct device *device, struct muster_error *err);
    /* Forgets the first error, when all streams have drained: later work runs again. NULL: a device that has
     * failed stays so. */
    void (*mend)(struct device *device);
};

const struct device_ops *device_cpu(void);

#endif
